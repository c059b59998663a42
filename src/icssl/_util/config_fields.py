"""Fields of configurations: those that came later, and the kinds of their values.

Some fields came after the first rows and checkpoints were stored. Rows are found by a hash
of their configuration as plain values. A field that is added later is left out of these
values while it has its default, so that what was stored is still found; with any other
value it is part of them.
"""

from collections.abc import Mapping
from dataclasses import asdict, field, fields
from types import UnionType
from typing import Any, Union, get_args, get_origin

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


_TYPE_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a word",
    bool: "true or false",
}


def check_kinds(cls: type, values: Mapping[str, Any], prefix: str = "") -> None:
    """Raise ``ValueError`` unless every value is of its field's kind."""
    for known_field in fields(cls):
        name, value = known_field.name, values.get(known_field.name)
        if name in values and not _is_of_kind(value, known_field.type):
            kinds = get_args(known_field.type) or (known_field.type,)
            words = [_TYPE_WORDS[kind] for kind in kinds if kind in _TYPE_WORDS] or [
                "a table"
            ]
            raise ValueError(f"{prefix}{name} must be {' or '.join(words)}, got {value!r}.")


def _is_of_kind(value: Any, kind: Any) -> bool:
    """Whether a plain value fits a type: a whole number is a float, true is no int."""
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(
            _is_of_kind(v, get_args(kind)[0]) for v in value
        )
    if get_origin(kind) in (Union, UnionType):
        return any(_is_of_kind(value, option) for option in get_args(kind))
    if kind is not bool and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)
