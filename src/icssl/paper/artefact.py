"""What an artefact is: specs by cell, what the paper says, and how to draw the rows."""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from icssl.experiments.render import Item
from icssl.experiments.spec import Spec
from icssl.paper.profiles import Profile

Row = dict[str, Any]


class Cell(NamedTuple):
    """Where a row stands in the tables of an artefact."""

    source: str
    labels: float
    method: str
    kernel: str = ""
    setting: str = "id"
    threshold: str = "median"
    size: int = 0


Specs = dict[Cell, Spec]
Rows = Mapping[Cell, Row]


@dataclass(frozen=True)
class Artefact:
    """One table or figure of the paper.

    Parameters
    ----------
    name, title : str
    says : str
        What the paper says, in our words.
    specs : callable
        The specs of a profile, by the cell that their rows fill.
    draw : callable
        Tables and pictures from those rows that are there, in a folder.
    """

    name: str
    title: str
    says: str
    specs: Callable[[Profile], Specs]
    draw: Callable[[Profile, Rows, Path], list[Item]]


def no_specs(profile: Profile) -> Specs:
    """Of an artefact that needs no run."""
    return {}


@cache
def published() -> dict[tuple[str, Cell], tuple[float, float | None]]:
    """Values and sds that the paper printed, by artefact and cell."""
    found = {}
    text = (files("icssl.paper") / "paper_values.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        if row["metric"] != "accuracy" or not row["context"]:
            continue
        cell = Cell(
            row["data"].replace("product5", "product"),
            float(row["context"]),
            row["method"],
            row["kernel"],
            row["setting"],
        )
        sd = float(row["sd"]) if row["sd"] else None
        found[row["artefact"], cell] = (float(row["value"]), sd)
    return found
