"""Tables as people have them, made into what a model reads."""

from icssl.tabular.columns import ColumnEncoder
from icssl.tabular.targets import read_targets, warn_of_conflicts

__all__ = ["ColumnEncoder", "read_targets", "warn_of_conflicts"]
