"""Tables as people have them, made into what a model reads."""

from icssl.tables.columns import ColumnEncoder
from icssl.tables.order import Order
from icssl.tables.targets import read_targets, warn_of_conflicts

__all__ = ["ColumnEncoder", "Order", "read_targets", "warn_of_conflicts"]
