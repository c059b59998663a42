"""Pages of the suite by size: tables, a figure, and how cost grows with the rows."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from icssl._util.colours import COLOURS
from icssl.bench.render import Item, Table, save_picture, write_page
from icssl.bench.store import Row
from icssl.methods import TITLES
from icssl.methods.registry import OURS, names_in

_GROWING = 10_000  # rows from which on cost is fitted: below, starting counts for much
# Poisson learning on Fashion-MNIST, 70,000 images, features of a variational autoencoder,
# at 1 to 5 labels per class: Calder et al., 2020, table 2.
_POISSON = {1: 0.608, 2: 0.661, 3: 0.696, 4: 0.712, 5: 0.724}
_STYLES = ("-", "--", ":")  # of machines
_PUBLISHED = {"fashion-features": _POISSON, "fashion-pixels": _POISSON}


def write_scale(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write the pages of all rows: growth on made rows, and one page per other table."""
    by_size = _rows_made_here(rows)
    files = [row for row in rows if "digest" in row["spec"] and "error" not in row]
    written = []
    if by_size:
        items: list[Item] = [
            *(_table(part, device) for device, part in _machines(by_size).items()),
            save_picture(_figure(by_size), "Time, memory, accuracy", folder / "scale"),
        ]
        written.append(folder / "scale.md")
        write_page("Growth with the number of rows", _ABOUT, items, written[-1])
    for name in sorted({row["spec"]["data"] for row in files}):
        named = [row for row in files if row["spec"]["data"] == name]
        written.append(folder / f"{name}.md")
        write_page(f"{name}, all rows", "", _by_file(named, name), written[-1])
    return written


_ABOUT = (
    "Eight classes in 20 columns, made by scikit-learn's make_classification. Every method "
    "has the same rows and labels and runs in a process of its own, after a small fit that "
    "loads what is needed. Seconds: of one fit. Memory: most that the fit added, and in "
    "brackets most that the process held, with Python, libraries and the table. Methods "
    "other than ours run on the cores of a machine, also where it has a GPU."
)


def growth_lines(rows: Sequence[Row]) -> list[str]:
    """Return how time grows on every machine, for a person at a terminal."""
    machines = _machines(_rows_made_here(rows))
    return [f"{name}: {line}" for name, part in machines.items() for line in _growth(part)]


def _rows_made_here(rows: Sequence[Row]) -> list[Row]:
    """Return the rows on the table that is made here."""
    return [row for row in rows if "error" not in row and "digest" not in row["spec"]]


def _machines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of every device."""
    devices = sorted({row["device"] for row in rows})
    return {name: [row for row in rows if row["device"] == name] for name in devices}


def _table(rows: Sequence[Row], device: str) -> Table:
    lines = []
    for row in sorted(rows, key=lambda r: (r["spec"]["rows"], _place(r))):
        spec = row["spec"]
        memory = f"{row['megabytes']:,} ({row['whole_megabytes']:,})"
        if "gpu_megabytes" in row:
            memory += f", GPU {row['gpu_megabytes']:,}"
        lines.append(
            (
                f"{spec['rows']:,}",
                TITLES[spec["method"]],
                f"{row['seconds']:,.2f}",
                memory,
                f"{row['accuracy']:.3f}",
                row["how"],
            )
        )
    header = ("rows", "method", "seconds", "MB", "accuracy", "how")
    versions = sorted({f"torch {row['torch']}, icssl {row['commit']}" for row in rows})
    threads = sorted({row["spec"]["threads"] for row in rows})
    machine = f"{device}, {' or '.join(map(str, threads))} threads; {'; '.join(versions)}."
    return Table(device, header, tuple(lines), (machine, *_growth(rows)))


def _place(row: Row) -> int:
    return names_in("scale").index(row["spec"]["method"])


def _growth(rows: Sequence[Row]) -> list[str]:
    """Return how time grows with the rows, for every method with enough of them.

    A method that works in another way when rows become many has a line across its ways,
    and one for each.
    """
    lines = []
    for method in names_in("scale"):
        title = TITLES[method]
        of_method = [r for r in rows if r["spec"]["method"] == method]
        ways = list(dict.fromkeys(r["how"] for r in of_method))
        groups = {title: of_method}
        if len(ways) > 1:
            groups = {f"{title}, across ways": of_method}
            for way in ways:
                groups[f"{title}, {way}"] = [r for r in of_method if r["how"] == way]
        for name, group in groups.items():
            sizes = [r["spec"]["rows"] for r in group]
            exponent = growth_of(sizes, [r["seconds"] for r in group])
            if exponent is not None:
                lines.append(f"{name}: seconds grow as rows to the power {exponent:.2f}.")
    return lines


def growth_of(sizes: Sequence[int], seconds: Sequence[float]) -> float | None:
    """Return the exponent of growth, by least squares on logarithms.

    It is None with fewer than two large sizes.

    Examples
    --------
    >>> round(growth_of([10_000, 100_000], [1.0, 100.0]), 3)
    2.0
    """
    large = [(n, s) for n, s in zip(sizes, seconds, strict=True) if n >= _GROWING]
    if len({n for n, _ in large}) < 2:
        return None
    n, s = np.log(np.array(large)).T
    return float(np.polyfit(n, s, 1)[0])


def _figure(rows: Sequence[Row]) -> Figure:
    """Draw seconds, memory and accuracy by rows: colours of methods, lines of machines."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    panels = figure.subplots(1, 3)
    machines = _machines(rows)
    kinds = sorted({(_place(r), r["device"], r["spec"]["method"]) for r in rows})
    for place, device, method in kinds:
        curve = [r for r in machines[device] if r["spec"]["method"] == method]
        curve.sort(key=lambda r: r["spec"]["rows"])
        style = _STYLES[list(machines).index(device) % len(_STYLES)]
        name = _line_title(curve[0]) if len(machines) > 1 else TITLES[method]
        for axes, quantity in zip(panels, ("seconds", "memory", "accuracy"), strict=True):
            values = [_value(r, quantity) for r in curve]
            n = [r["spec"]["rows"] for r in curve]
            colour = COLOURS[place % len(COLOURS)]
            axes.plot(n, values, style, color=colour, marker="o", label=name, markersize=4)
    for axes, title in zip(
        panels, ("seconds", "memory, MB (GPU: its own)", "accuracy"), strict=True
    ):
        axes.set(xscale="log", xlabel="rows", title=title)
        axes.grid(alpha=0.3)
    for axes in panels[:2]:
        axes.set_yscale("log")
    lines = panels[0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside lower center", ncols=2)
    return figure


def _line_title(row: Row) -> str:
    """Return the title of a method on a machine; on its cores it is beside the GPU."""
    beside = row["spec"]["device"] == "cuda" and "gpu_megabytes" not in row
    return f"{TITLES[row['spec']['method']]}, {'beside ' if beside else ''}{row['device']}"


def _value(row: Row, quantity: str) -> float:
    if quantity == "memory":
        held = row["gpu_megabytes"] if "gpu_megabytes" in row else row["megabytes"]
        return max(1.0, float(held))
    return float(row[quantity])


def _by_file(rows: Sequence[Row], name: str) -> list[Table]:
    """Return one table per file of this name: those of two folders can differ."""
    digests = list(dict.fromkeys(row["spec"]["digest"] for row in rows))
    return [
        _by_labels(
            [row for row in rows if row["spec"]["digest"] == digest],
            name if len(digests) == 1 else f"{name}, file {digest}",
            _PUBLISHED.get(name, {}),
        )
        for digest in digests
    ]


def _by_labels(rows: Sequence[Row], name: str, published: Mapping[int, float]) -> Table:
    """Return the accuracy at every number of labels, mean over draws, with the time.

    Rows of different weights, backends or machines are never averaged.
    """
    counts = sorted({row["spec"]["labels"] for row in rows})
    lines = []
    for method in sorted(
        {row["spec"]["method"] for row in rows}, key=names_in("scale").index
    ):
        of_method = [row for row in rows if row["spec"]["method"] == method]
        ways = list(dict.fromkeys(map(_way, of_method)))
        for way in ways:
            alike = _one_per_draw(row for row in of_method if _way(row) == way)
            cells = [_mean(alike, labels) for labels in counts]
            seconds = np.median([row["seconds"] for row in alike])
            title = TITLES[method] if len(ways) == 1 else f"{TITLES[method]}, {way}"
            lines.append((title, *cells, f"{seconds:,.1f}"))
    if published:
        theirs = [f"{published[m]:.3f}" if m in published else "" for m in counts]
        title = "Poisson learning as published, on features of a variational autoencoder"
        lines.append((title, *theirs, ""))
    header = ("method", *(f"{m} per class" for m in counts), "seconds")
    n, draws = rows[0]["spec"]["rows"], {row["spec"]["draw"] for row in rows}
    hows = sorted({row["how"] for row in rows if row["spec"]["method"] == OURS})
    machines = sorted({f"{row['device']}, icssl {row['commit']}" for row in rows})
    note = (
        f"{n:,} rows, {len(draws)} draw(s) of the labels; accuracy on all other rows, with "
        f"the standard deviation over draws. Backend: {'; '.join(hows)}. Measured on: "
        f"{'; '.join(machines)}."
    )
    return Table(f"Accuracy on {name}", header, tuple(lines), (note,))


def _way(row: Row) -> str:
    """Return what a row was measured with: weights, if it has any, backend and machine."""
    weights = row["spec"].get("weights")
    parts = [f"weights {weights[:6]}" if weights else "", row["how"], row["device"]]
    return ", ".join(part for part in parts if part)


def _one_per_draw(rows: Iterable[Row]) -> list[Row]:
    """Return the last row of every draw and number of labels."""
    return list({(r["spec"]["labels"], r["spec"]["draw"]): r for r in rows}.values())


def _mean(rows: Sequence[Any], labels: int) -> str:
    values = [row["accuracy"] for row in rows if row["spec"]["labels"] == labels]
    if not values:
        return ""
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"
