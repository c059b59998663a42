"""``State``: all that a person has set on the page, its address, and what events change."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from icssl._util.errors import check_choice
from icssl.app.explore.clouds import (
    REAL_TABLES,
    SOURCES,
    Cloud,
    draw_cloud,
    one_label_per_class,
)
from icssl.methods import TITLES

TABS = {"play": "Play", "inside": "Look inside", "why": "Why", "data": "My data"}
THEMES = {"auto": "as the system", "light": "light", "dark": "dark"}
COLOURINGS = {"class": "predicted class", "probability": "probability", "reach": "reach"}
RIVALS = {
    **{name: TITLES[name] for name in ("label_spreading", "svc", "logistic_regression")},
    "truth": "the truth",
}
WEIGHTS = {"trained": "trained", "constructed": "constructed by the lemmas"}
TRUE_CLASS = -1  # the brush that gives a point its true class
NO_ROW = -1
MOST_POINTS, FEWEST_POINTS = 3_000, 20
MOST_NOISE, MOST_CLASSES = 0.5, 35


@dataclass(frozen=True)
class State:
    """The settings of the page.

    Parameters
    ----------
    tab, theme, colouring, rival, weights : str
        Keys of :data:`TABS`, :data:`THEMES`, :data:`COLOURINGS`, :data:`RIVALS` and
        :data:`WEIGHTS`.
    source : str
        A key of :data:`icssl.app.explore.clouds.SOURCES`.
    n, seed : int
        Number of points that are drawn, and the random seed.
    noise : float
        Standard deviation of the noise, as a share of the spread of each coordinate.
    labels : tuple of pairs
        Number of every labelled point, and the class of its label.
    brush : int
        The class that a click gives, or :data:`TRUE_CLASS`.
    classes : int
        Number of classes that can be given.
    point : int
        Number of the selected point.
    layer : int
        Position of the slider on "Look inside".
    table, target : str
        Fingerprint of an uploaded table, and its column of labels.
    row : int
        The selected row of the table; :data:`NO_ROW` until one is.
    marks : tuple of pairs
        Rows of the table that were labelled on the page, and their labels.
    separator, encoding, decimal, missing, types, drop, relabel : str
        How the file is read where that is not to be found out: see
        :class:`icssl.app.explore.reading.Reading`.
    """

    tab: str = "play"
    theme: str = "auto"
    source: str = "two_moons"
    n: int = 200
    noise: float = 0.1
    seed: int = 0
    # What with_one_label_per_class gives for the cloud above. It is not computed here, or
    # every import would draw a cloud.
    labels: tuple[tuple[int, int], ...] = ((150, 1), (173, 0))
    brush: int = TRUE_CLASS
    classes: int = 2
    colouring: str = "class"
    rival: str = "label_spreading"
    point: int = 0
    weights: str = "trained"
    layer: int = 0
    table: str = ""
    target: str = ""
    row: int = NO_ROW
    marks: tuple[tuple[int, str], ...] = ()
    separator: str = ""
    encoding: str = ""
    decimal: str = ""
    missing: str = ""
    types: str = ""
    drop: str = ""
    relabel: str = ""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        for name, (least, most) in _RANGES.items():
            if name != "row" or self.row != NO_ROW:
                _check_range(name, getattr(self, name), least, most)
        _check_range("point", self.point, 0, self.n - 1)
        for point, code in self.labels:
            _check_range("a labelled point", point, 0, self.n - 1)
            _check_range("a class", code, 0, self.classes - 1)
        for row, _ in self.marks:
            _check_range("a labelled row", row, *_RANGES["row"])
        texts = (self.table, self.target, *(label for _, label in self.marks))
        for text in (*texts, *(getattr(self, name) for name in READING)):
            _check_text(text)
        _check_once("point", [point for point, _ in self.labels])
        _check_once("row", [row for row, _ in self.marks])

    def with_label(self, point: int, code: int) -> "State":
        """Return the state with a point labelled, or unlabelled if it has that label."""
        labels = dict(self.labels)
        if labels.get(point) == code:
            del labels[point]
        else:
            labels[point] = code
        classes = max(self.classes, code + 1)
        return replace(self, labels=tuple(sorted(labels.items())), classes=classes)

    def with_mark(self, row: int, label: str) -> "State":
        """Return the state with a row of the table labelled; an empty label removes it."""
        marks = {**dict(self.marks), row: label}
        non_empty = sorted((row, label) for row, label in marks.items() if label)
        return replace(self, marks=tuple(non_empty))

    def as_values(self) -> dict[str, Any]:
        """Return the state as plain values, as the page keeps it."""
        return asdict(self)

    @classmethod
    def from_values(cls, values: Any) -> "State":
        """Return the state of :meth:`as_values` after JSON; else raise ``ValueError``."""
        if values is not None and not isinstance(values, Mapping):
            raise ValueError(f"a state has names and values, got {values!r}.")
        values = dict(values or {})
        for name in ("labels", "marks"):
            if name in values:
                values[name] = _as_pairs(name, values[name])
        for name, value in values.items():
            _check_kind(name, value)
        codes = [code for _, code in values.get("labels", ())]
        values.setdefault("classes", max([1, *codes, values.get("brush", 0)]) + 1)
        return cls(**values)


READING = ("separator", "encoding", "decimal", "missing", "types", "drop", "relabel")
"""Settings of how a file is read."""

_CHOICES: dict[str, Mapping[str, Any]] = {
    "tab": TABS,
    "theme": THEMES,
    "source": SOURCES,
    "colouring": COLOURINGS,
    "rival": RIVALS,
    "weights": WEIGHTS,
}
_RANGES = {
    "n": (FEWEST_POINTS, MOST_POINTS),
    "noise": (0, MOST_NOISE),
    "seed": (0, 2**31 - 1),
    "classes": (2, MOST_CLASSES),
    "brush": (TRUE_CLASS, MOST_CLASSES - 1),
    "layer": (0, 10_000),
    "row": (0, 10**9),
}


def to_link(state: State) -> str:
    """Return the query of the address: what differs from the page at its start.

    Examples
    --------
    >>> to_link(State(source="torus", seed=3, labels=((4, 0), (7, 1))))
    '?source=torus&seed=3&labels=4:0,7:1'
    """
    start, pairs = State(), []
    for field in fields(State):
        value = getattr(state, field.name)
        default = getattr(start, field.name)
        if field.name == "noise":
            default = noise_for(state.source)
        needed = field.name == "labels" and _cloud_settings(state) != _cloud_settings(start)
        if needed or value != default:
            pairs.append((field.name, _link_text(value)))
    return f"?{urlencode(pairs, safe=':,')}" if pairs else ""


def from_link(search: str | None) -> tuple[State, str]:
    """Return the state of an address, and what was wrong with it, if anything.

    A part that cannot be read is left out, so that an old or mistyped link still opens. A
    link without labels gets one label per class.

    Examples
    --------
    >>> from_link("?source=torus&labels=4:0,7:1")[0].labels
    ((4, 0), (7, 1))
    >>> from_link("?n=many")[1]
    'Parts of this link were not understood: n=many.'
    """
    texts = dict(parse_qsl((search or "").lstrip("?"), keep_blank_values=True))
    values, wrong = {}, []
    for name, text in texts.items():
        try:
            values[name] = _READERS[name](text)
        except (KeyError, ValueError):
            wrong.append(f"{name}={text}")
    values.setdefault("noise", noise_for(values.get("source", State.source)))
    try:
        state = State.from_values({"labels": (), **values})
        if "labels" not in values:
            state = with_one_label_per_class(state)
    except ValueError as error:
        return State(), f"This link was not understood: {error}"
    message = f"Parts of this link were not understood: {', '.join(wrong)}."
    return state, message if wrong else ""


def noise_for(source: str) -> float:
    """Return the noise that a source has unless a person sets it: none for real tables."""
    return 0.0 if source in REAL_TABLES else State.noise


def _cloud_settings(state: State) -> tuple[str, int, float, int]:
    """Return the settings that decide which cloud is drawn."""
    return state.source, state.n, state.noise, state.seed


def cloud_of(state: State) -> Cloud:
    """Return the cloud that a state shows."""
    return draw_cloud(*_cloud_settings(state))


def with_one_label_per_class(state: State) -> State:
    """Return the state with one point per class labelled, and all classes to give."""
    cloud = draw_cloud(*_cloud_settings(state))
    classes = max(2, len(cloud.classes))
    return replace(state, labels=one_label_per_class(cloud), classes=classes)


def _link_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{key}:{_escape(label)}" for key, label in value)
    return str(value)


def _escape(label: Any) -> str:
    """Return a label without the two characters that separate labels."""
    return str(label).replace("%", "%25").replace(",", "%2C").replace(":", "%3A")


def _unescape(text: str) -> str:
    return text.replace("%3A", ":").replace("%2C", ",").replace("%25", "%")


def _pairs(text: str, read: Callable[[str], Any]) -> tuple[tuple[int, Any], ...]:
    parts = [part.partition(":") for part in text.split(",") if part]
    if not all(colon for _, colon, _ in parts):
        raise ValueError(f"labels are written as POINT:CLASS,POINT:CLASS, got {text!r}.")
    return tuple(sorted((int(key), read(label)) for key, _, label in parts))


def _reader(name: str, default: Any) -> Callable[[str], Any]:
    if name == "labels":
        return lambda text: _pairs(text, int)
    if name == "marks":
        return lambda text: _pairs(text, _unescape)
    return type(default)


_READERS = {field.name: _reader(field.name, field.default) for field in fields(State)}
_DEFAULTS = {field.name: field.default for field in fields(State)}


def _as_pairs(name: str, value: Any) -> tuple[tuple[int, Any], ...]:
    """Return points or rows with their labels as tuples; lists of two become pairs."""
    kind = int if name == "labels" else str
    listed = isinstance(value, (list, tuple))
    for pair in value if listed else []:
        if not isinstance(pair, (list, tuple)) or list(map(type, pair)) != [int, kind]:
            listed = False
    if not listed:
        raise ValueError(f"{name} are pairs of a number and a label, got {value!r}.")
    return tuple((pair[0], pair[1]) for pair in value)


def _check_kind(name: str, value: Any) -> None:
    if name not in _DEFAULTS:
        raise ValueError(f"a state has no {name!r}.")
    kind = type(_DEFAULTS[name])
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise ValueError(f"{name} must be {kind.__name__}, got {value!r}.")


def _check_text(text: str) -> None:
    """Raise for a text with half a character (a surrogate), which no address can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r} is no text.") from error


def _check_once(name: str, labelled: Sequence[int]) -> None:
    for place, count in Counter(labelled).items():
        if count > 1:
            raise ValueError(f"a {name} has one label, got {count} of {name} {place}.")


def _check_range(name: str, given: float, least: float, most: float) -> None:
    if not least <= given <= most:
        raise ValueError(f"{name} must be from {least:g} to {most:g}, got {given!r}.")
