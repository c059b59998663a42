"""``REGISTRY``: all methods by name, with title, style, and what runs where.

Lists of names, titles, choices of commands, colours of figures and keys of rows all derive
from it. The entries themselves are declared in :mod:`icssl.methods.entries`.

>>> REGISTRY["label_spreading"].title, list(REGISTRY["label_spreading"].where)
('Label spreading', ['evaluate', 'real'])
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

from icssl._util.errors import check_choice

PLACES = ("evaluate", "real", "scale")
"""Where a method can appear: ``icssl evaluate`` and the paper's tables, ``icssl bench
real``, and ``icssl bench scale``."""

OURS = "icssl"
LABELLED_ONLY = "icssl_labelled_only"
GRAPH_NEIGHBOURS = 10  # of the graphs on large tables, as the methods' authors have it


class Style(NamedTuple):
    """Colour, marker, line and line width of a method's curve."""

    colour: str
    marker: str
    line: str = ""
    width: float = 1.1


@dataclass(frozen=True)
class Need:
    """Something that a method needs and that icssl does not require.

    Parameters
    ----------
    title : str
        Its name in messages.
    install : str
        How a person gets it.
    is_met : callable
        Says whether it is there.
    """

    title: str
    install: str
    is_met: Callable[[], bool]


def package_need(package: str, title: str) -> Need:
    """Return the need of an installed package of the extra ``peers``."""
    return Need(title, "pip install 'icssl[peers]'", lambda: find_spec(package) is not None)


@dataclass(frozen=True)
class Recipe:
    """How a method is made for one place.

    Parameters
    ----------
    make : callable
        Makes the method: what it is called with depends on the place.
    settings : str, mapping or callable
        What decides the result besides the data, stated by us, or a function that returns
        it. It is part of the keys of rows, so it never comes from another package's
        ``repr``: a new version that prints its objects in another way loses no row.
    needs : Need, optional
        What must be there besides the requirements of icssl.
    most_rows : int, optional
        More rows than this take too much memory or time.
    """

    make: Callable[[], Any]
    settings: Any
    needs: Need | None = None
    most_rows: int | None = None

    @cached_property
    def method(self) -> Any:
        """The method, made once."""
        return self.make()

    @property
    def stated_settings(self) -> Any:
        """The settings as text or plain values."""
        return self.settings() if callable(self.settings) else self.settings

    @property
    def is_installed(self) -> bool:
        """Whether what it needs is there."""
        return self.needs is None or self.needs.is_met()


@dataclass(frozen=True)
class MethodEntry:
    """One method.

    Parameters
    ----------
    name : str
        Name in commands and in rows.
    title : str
        Name in tables and figures.
    where : mapping of str to Recipe
        How it is made for each of :data:`PLACES` where it appears.
    style : Style, optional
        Style of its curve. A classical method with a style is drawn among the curves.
    is_trained : bool
        Whether it is a model that ``icssl evaluate`` trains on the data first, by the
        preset of the same name.
    """

    name: str
    title: str
    where: Mapping[str, Recipe] = field(default_factory=dict)
    style: Style | None = None
    is_trained: bool = False


REGISTRY: dict[str, MethodEntry] = {}


def register(entry: MethodEntry) -> None:
    """Add a method to every list of the places where it appears."""
    for place in entry.where:
        check_choice("place", place, PLACES)
    if entry.name in REGISTRY:
        raise ValueError(f"there is a method {entry.name!r} already.")
    REGISTRY[entry.name] = entry


def recipe_of(place: str, name: str) -> Recipe:
    """Return how a method is made for a place."""
    check_choice("method", name, names_in(place))
    return REGISTRY[name].where[place]


def names_in(place: str) -> list[str]:
    """Return the names of all methods of a place, in the order of tables."""
    return [name for name, entry in REGISTRY.items() if place in entry.where]


def style_of(name: str) -> Style:
    """Return the style of a method's curve; grey where the registry states none."""
    entry = REGISTRY[name]
    style = entry.style or Style("#777777", ".")
    return style._replace(line=style.line or ("-" if entry.is_trained else "--"))


def choose_methods(
    place: str, names: Iterable[str], *, skip_missing: bool = False
) -> list[str]:
    """Return those methods of a place that are named, in the order of tables.

    "all" stands for every method, "peers" for those that are not ours. With
    ``skip_missing``, groups leave out what needs something that is not there.
    """
    existing = names_in(place)
    missing = [n for n in existing if not REGISTRY[n].where[place].is_installed]
    members = [n for n in existing if not (skip_missing and n in missing)]
    peers = [n for n in members if n not in (OURS, LABELLED_ONLY)]
    groups = {"all": members, "peers": peers}
    wanted: set[str] = set()
    for name in names:
        check_choice("method", name, [*existing, *groups])
        wanted.update(groups.get(name, [name]))
    for name in missing:
        need = REGISTRY[name].where[place].needs
        if name in wanted and need is not None:
            raise ImportError(
                f"{name} needs {need.title}: {need.install}, or name the other methods "
                "with --methods."
            )
    return [name for name in existing if name in wanted]


T = TypeVar("T")


class RegistryView(Mapping[str, T]):
    """A mapping from names to what is read from their entries, always up to date.

    Parameters
    ----------
    includes : callable
        Whether an entry is in the mapping.
    read : callable
        The value of an entry.
    """

    def __init__(
        self, includes: Callable[[MethodEntry], bool], read: Callable[[MethodEntry], T]
    ) -> None:
        self._includes, self._read = includes, read

    def __getitem__(self, name: str) -> T:
        entry = REGISTRY[name]
        if not self._includes(entry):
            raise KeyError(name)
        return self._read(entry)

    def __iter__(self) -> Iterator[str]:
        return (name for name, entry in REGISTRY.items() if self._includes(entry))

    def __len__(self) -> int:
        return sum(map(self._includes, REGISTRY.values()))
