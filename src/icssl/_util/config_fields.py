"""Fields that a configuration got after its first rows and checkpoints were stored.

Rows are found by a hash of their configuration as plain values. A field that is added
later is left out of these values while it has its default, so that what was stored is still
found; with any other value it is part of them.
"""

from dataclasses import asdict, field, fields
from typing import Any

_ADDED_LATER = {"added_later": True}


def added_later(default: Any) -> Any:
    """Return a field with this default that :func:`stated_values` leaves out at it."""
    return field(default=default, metadata=_ADDED_LATER)


def stated_values(config: Any) -> dict[str, Any]:
    """Return a configuration as plain values, without later fields at their defaults.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Config:
    ...     size: int = 3
    ...     colour: str = added_later("red")
    >>> stated_values(Config()), stated_values(Config(colour="blue"))
    ({'size': 3}, {'size': 3, 'colour': 'blue'})
    """
    values = asdict(config)
    for known in fields(config):
        if "added_later" in known.metadata and values[known.name] == known.default:
            del values[known.name]
    return values
