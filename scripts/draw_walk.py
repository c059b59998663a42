"""Draw the walk of ``ICSSLClassifier().fit(X, y).predict_proba(X)`` through the files.

    python scripts/draw_walk.py                 # docs/figures/fit-walk.png, and the counts
    python scripts/draw_walk.py --print-only    # the counts alone
    PYTHONPATH=OTHER/src python scripts/draw_walk.py --print-only    # of another checkout

A real call on iris is traced. Files stand in the order in which they are first called, not
counting calls from ``plan.py``, which only asks how large things are. Beside each are the
functions that another file calls, with what they return. A switch is a call from a function
in one file to a function in another, each pair of functions counted once; a link is a pair
of files with at least one switch, and it leads back if the called file came earlier.
"""

import argparse
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from sklearn.datasets import load_iris

import icssl
from icssl import ICSSLClassifier

PACKAGE = Path(icssl.__file__).parent
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "fit-walk.png"
ASKS = ("classifier/plan.py", "choice.py", "context/backends.py")
SHOWN = 3  # functions per file in the figure
COLOURS = {"tables": "#e8e1f2", "classifier": "#dcebf7", "_util": "#eeeeee"}


class Walk:
    """Record of the calls between the package's files."""

    def __init__(self) -> None:
        self.calls: dict[str, dict[str, str]] = {}  # file -> function -> what it returns
        self.order: list[str] = []
        self.switches: set[tuple[str, str, str, str]] = set()

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        """Note a call into another file, or what such a call returns."""
        if event not in ("call", "return") or (place := place_of(frame)) is None:
            return
        file, function = place
        caller = calling_place(frame)
        if caller is not None and caller[0] == file:
            return
        functions = self.calls.setdefault(file, {})
        if event == "call":
            functions.setdefault(function, "")
            if caller is not None:
                self.switches.add((*caller, file, function))
            if file not in self.order and (caller is None or caller[0] not in ASKS):
                self.order.append(file)
        elif value is not None:
            functions[function] = functions[function] or describe(value)

    @property
    def files(self) -> dict[str, dict[str, str]]:
        """The functions of every file, in the order in which files are first called."""
        return {file: self.calls[file] for file in (*self.order, *self.calls)}

    def links(self) -> set[tuple[str, str]]:
        """Return pairs of files of which one calls the other."""
        return {(caller, file) for caller, _, file, _ in self.switches}

    def links_back(self) -> set[tuple[str, str]]:
        """Return those that lead to a file that came earlier."""
        place = {file: i for i, file in enumerate(self.files)}
        return {(a, b) for a, b in self.links() if place[b] < place[a]}


def place_of(frame: FrameType) -> tuple[str, str] | None:
    """Return file and function of a frame, if it is a function of the package."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(PACKAGE) or frame.f_code.co_name.startswith("<"):
        return None  # comprehensions and lambdas belong to the function around them
    name = frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name
    return str(path.relative_to(PACKAGE)), name.split(".<locals>")[0]


def calling_place(frame: FrameType) -> tuple[str, str] | None:
    """Return file and function of the package that called a frame, over other packages."""
    above = frame.f_back
    while above is not None and (place := place_of(above)) is None:
        above = above.f_back
    return None if above is None else place


def describe(value: Any) -> str:
    """Return the kind of a value, with its shape if it has one."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        kinds = [describe(part) for part in value[:3]]
        return ", ".join(kinds) + (", ..." if len(value) > 3 else "")
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} {' x '.join(map(str, shape))}"
    return type(value).__name__


def trace() -> Walk:
    """Trace one call of fit and predict_proba, after one that loads everything."""
    x, truth = load_iris(return_X_y=True)
    y = np.full(150, -1)
    for label in range(3):
        y[np.flatnonzero(truth == label)[:3]] = label
    ICSSLClassifier(device="cpu").fit(x, y).predict_proba(x[:10])
    walk, classifier = Walk(), ICSSLClassifier(device="cpu")
    sys.setprofile(walk)
    try:
        classifier.fit(x, y).predict_proba(x[:10])
    finally:
        sys.setprofile(None)
    return walk


def draw(walk: Walk, path: Path) -> None:
    """Draw the files in order, each with the functions that others call."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(11, 0.62 * len(walk.files) + 0.8))
    for row, (file, functions) in enumerate(walk.files.items()):
        room = Path(file).parts[0]
        style = {
            "boxstyle": "round,pad=0.35",
            "fc": COLOURS.get(room, "white"),
            "ec": "0.6",
        }
        axes.text(0.0, -row, f"{row + 1}", ha="right", va="center", color="0.5", fontsize=9)
        axes.text(0.25, -row, file, va="center", fontsize=10, weight="bold", bbox=style)
        if row:
            arrow = {"arrowstyle": "->", "color": "0.5"}
            axes.annotate("", (0.6, -row + 0.3), (0.6, -row + 0.7), arrowprops=arrow)
        lines = [f"{name} -> {kind}" for name, kind in functions.items() if kind][:SHOWN]
        more = len(functions) - len(lines)
        lines += [f"and {more} more"] if more else []
        axes.text(
            4.1, -row, "\n".join(lines), va="center", fontsize=6.5, family="monospace"
        )
    title = "Files that fit and predict_proba call, in the order of their first call"
    axes.set_title(title, fontsize=11, loc="left")
    axes.set(xlim=(-0.3, 11), ylim=(-len(walk.files) + 0.3, 0.6))
    axes.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight")


def summary(walk: Walk) -> str:
    """Return one line with the counts."""
    core = [file for file in walk.files if file.startswith("classifier")]
    return (
        f"fit and predict_proba: {len(walk.files)} files ({len(core)} in classifier/), "
        f"{len(walk.switches)} switches, {len(walk.links())} links, "
        f"{len(walk.links_back())} of them back"
    )


def main() -> None:
    """Trace, print the files and the counts, and draw the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--print-only", action="store_true", help="draw no figure")
    options = parser.parse_args()
    walk = trace()
    for number, (file, functions) in enumerate(walk.files.items(), 1):
        print(f"{number:3} {file}: {', '.join(functions)}")
    for caller, file in sorted(walk.links_back()):
        print(f"    back: {caller} -> {file}")
    print(summary(walk))
    if not options.print_only:
        draw(walk, FIGURE)


if __name__ == "__main__":
    main()
