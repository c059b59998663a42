"""Tables as people have them, made into what a model reads."""

from icssl.tabular.columns import ColumnEncoder
from icssl.tabular.order import Order
from icssl.tabular.targets import read_targets, warn_of_conflicts

__all__ = ["ColumnEncoder", "Order", "read_targets", "warn_of_conflicts"]
