"""Artefact ``mechanism``: what the trained stages compute, beside the lemmas."""

from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from icssl._util.colours import COLOURS
from icssl.bench.paper.artefact import Artefact, Cell, Profile, Row, Rows, Specs
from icssl.bench.paper.table_cells import data_config, trainings, with_model
from icssl.bench.probes import Mechanism
from icssl.bench.render import Item, Table, save_picture

_SOURCE = "cylinder"
_LABELS = 10
_EXACT, _MLP = "e2e_icl", "e2e_icl with the paper's MLP"


def specs(profile: Profile) -> Specs:
    """Return the model as it is, and with the paper's MLP in its head."""
    exact = trainings(profile, "e2e_icl", (_SOURCE,), kernel="rbf")
    # With one step the MLP would only ever see f = 0.
    mlp = tuple(
        with_model(config, steps=2, embedding="learned", expectation="mlp")
        for config in exact
    )
    cells: Specs = {}
    for name, trained in ((_EXACT, exact), (_MLP, mlp)):
        cells[Cell(_SOURCE, _LABELS, name)] = Mechanism(
            trained,
            data_config(_SOURCE),
            _LABELS,
            episodes=min(50, profile.episodes),
            iterations=profile.iterations,
        )
    return cells


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw weights of stage 1, angles of stage 2, the MLP of stage 3, and accuracies."""
    exact, mlp = (rows.get(Cell(_SOURCE, _LABELS, name)) for name in (_EXACT, _MLP))
    items: list[Item] = []
    if exact is not None:
        title = "What stage 2 computes"
        items.append(
            save_picture(_angles_figure(exact), title, folder / "mechanism-angles")
        )
        items += [_bandwidth_table(exact), _accuracy_table(profile, exact)]
    if mlp is not None:
        title = "The learned MLP and the expectation it stands for"
        items.append(
            save_picture(_expectation_figure(mlp), title, folder / "mechanism-mlp")
        )
    return items


def _angles_figure(row: Row) -> Figure:
    figure = Figure(figsize=(7.5, 3), layout="constrained")
    kinds = {
        "to_operator": r"bottom eigenvectors of the model's own $R R^\top$",
        "to_truth": "eigenvectors of the true graph",
    }
    for axes, (kind, title) in zip(figure.subplots(1, 2), kinds.items(), strict=True):
        for seed, angles in enumerate(row["stage2"]):
            steps = range(1, len(angles[kind]) + 1)
            style = {"color": COLOURS[seed], "marker": "o^s"[seed % 3], "markersize": 4}
            axes.plot(steps, angles[kind], label=f"seed {seed}", **style)
        axes.set_xlabel("layer, loops counted", fontsize=8)
        axes.set_ylabel("largest principal angle (rad)", fontsize=8)
        axes.set_ylim(0, 1.6)  # a right angle is 1.57
        axes.tick_params(labelsize=7)
        axes.set_title(title, fontsize=9)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8)
    return figure


def _bandwidth_table(row: Row) -> Table:
    lines = []
    for seed, weights in enumerate(row["stage1"]):
        for layer in range(len(weights["mix"])):
            lines.append(_layer_line(seed, layer, weights))
    lines.append(("Lemma 1", "1", "sigma", "-1", "0"))
    header = ("seed", "layer", "bandwidths of the heads", "weights in R", "skip")
    notes = (
        "Bandwidths are 1 / sqrt(b c), in units of the median distance to the sixth "
        "neighbour; a star marks a head whose score grows with distance.",
    )
    return Table("What stage 1 learned", header, tuple(lines), notes)


def _layer_line(seed: int, layer: int, stage: dict[str, Any]) -> tuple[str, ...]:
    widths = [
        f"{width:.2f}{'' if attracts else '*'}"
        for width, attracts in zip(
            stage["bandwidth"][layer], stage["attracts"][layer], strict=True
        )
    ]
    weights = [f"{weight:.2f}" for weight in stage["mix"][layer]]
    skip = f"{stage['skip'][layer]:.2f}"
    return (str(seed), str(layer + 1), ", ".join(widths), ", ".join(weights), skip)


def _accuracy_table(profile: Profile, row: Row) -> Table:
    trained = fmean(accuracy["mean"] for accuracy in row["trained"])
    built = row["constructed"]
    lines = (
        ("trained, mean over seeds", f"{trained:.3f}"),
        (
            f"constructed, k = 2, {profile.iterations:,} iterations",
            f"{built['mean']:.3f} ± {built['half_width']:.3f}",
        ),
    )
    title = f"Trained and constructed weights, {_SOURCE}, {_LABELS} labels"
    return Table(title, ("weights", "accuracy"), lines)


def _expectation_figure(row: Row) -> Figure:
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.add_subplot()
    for seed, curve in enumerate(row["stage3"]):
        colour = COLOURS[seed]
        axes.plot(curve["f"], curve["mlp"], color=colour, label=f"MLP, seed {seed}")
        name = f"exact, seed {seed}"
        axes.plot(curve["f"], curve["exact"], "--", color=colour, label=name)
    axes.set_xlabel("f along the line of the classes", fontsize=8)
    axes.set_ylabel("E[w | f] along it", fontsize=8)
    axes.tick_params(labelsize=7)
    figure.legend(loc="outside right upper", fontsize=7)
    axes.grid(alpha=0.3)
    return figure


ARTEFACT = Artefact(
    "mechanism",
    "What the trained stages compute (beyond the paper)",
    "The lemmas say what stages 1 and 2 can compute; the paper does not look at what they "
    "learn. Here are the learned bandwidths and weights beside Lemma 1's, the angle of the "
    "features to eigenvectors after every layer, and the learned MLP beside the "
    "expectation.",
    specs,
    draw,
)
