"""Cells of tables: how their methods are trained and tested, and how rows fill them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from statistics import stdev
from typing import Any

from icssl.bench.paper.artefact import (
    Cell,
    Profile,
    Row,
    Rows,
    Specs,
    published_values,
)
from icssl.bench.spec import Scores, accuracies_of
from icssl.episodes.data_config import DataConfig
from icssl.episodes.synthetic import is_halved
from icssl.evaluation.metrics import Comparison, compare_paired
from icssl.evaluation.predictors import METHODS
from icssl.training.config import TrainConfig, config_from

SURFACES = ("sphere", "cylinder", "torus", "swiss_roll", "cone")
KERNELS = ("rbf", "linear")
LABELS = (3, 5, 10, 15, 21, 30, 39, 60, 80)  # budgets that models are trained with
ENCODERS = ("e2e_encoder", "transformer")
UNSCALED = (("paper_scalars", "rbf"), ("transformer_unscaled", ""))
REFERENCES = ("svc_rbf", "bayes_ceiling")
UNDERTRAINED = "†"
LEGEND = (
    "Accuracy on unlabelled points ± 95% interval over test episodes, in brackets the sd "
    "over seeds where there are several; † marks a model whose held-out loss was still "
    "falling; verdicts look at dead seeds and nested models instead."
)

_HARD = ("sphere", "cylinder", "torus", "cone", "product")  # encoders take longer there
# The linear kernel has no bound: at the presets' rate of 1e-2 some seeds do not recover.
_LINEAR_RATE = 5e-3


# --- How a cell is run


def other_surfaces(source: str) -> tuple[str, ...]:
    """Return the four surfaces that a model for ``source`` sees out of distribution."""
    return tuple(name for name in SURFACES if name != source)


def has_ceiling(source: str, threshold: str | float) -> bool:
    """Whether a Bayes ceiling is computed; for classes by a coordinate it is one."""
    return not is_halved(source, threshold, roll_halves=False)


@cache
def trainings(
    profile: Profile,
    method: str,
    sources: tuple[str, ...],
    *,
    kernel: str = "",
    threshold: str | float = "median",
    size: int = 0,
    labels: tuple[float, ...] = LABELS,
    models: int | None = None,
    n: int = 0,
) -> tuple[TrainConfig, ...]:
    """Return the training runs of a method, one per seed.

    Parameters
    ----------
    profile : Profile
    method : str
        A training preset.
    sources : tuple of str
        Sources that it is trained on.
    kernel : {"", "rbf", "linear"}
        Kernel of a descent head.
    threshold : str or float
        Rule or radius of the classes.
    size : int
        Different training episodes, 0 for fresh ones.
    labels : tuple
        Label budgets of training.
    models : int, optional
        How many runs; by default the seeds of the profile.
    n : int
        Points per episode, where they are not the source's own.
    """
    config = _as_stored(config_from({"preset": method}))
    is_encoder = method in (*ENCODERS, "transformer_unscaled")
    if method == "eig_icl":
        size = size or profile.eigenvector_episodes
    if sources == ("images",):
        size = size or profile.image_episodes
    config = replace(
        config,
        data=replace(
            config.data,
            sources=sources,
            threshold=threshold,
            episodes=size,
            n=n or config.data.n,
        ),
        labels=labels,
        steps=profile.encoder_steps if is_encoder else profile.steps,
        batch=profile.batch,
    )
    if kernel == "linear":
        config = with_model(config, kernel="linear")
        config = replace(config, learning_rate=_LINEAR_RATE)
    if len(sources) == 1 and sources[0] in _HARD and is_encoder:
        config = replace(config, steps=profile.hard_steps, learning_rate=1e-3)
        if method == "e2e_encoder":
            config = with_model(config, encoder_layers=4)
    if sources == ("product",) and method.startswith("transformer"):
        config = with_model(config, d=15)
    seeds = range(profile.seeds if models is None else models)
    return tuple(replace(config, seed=seed) for seed in seeds)


def _as_stored(config: TrainConfig) -> TrainConfig:
    """Return a run as it was when rows were stored: Fourier start, step 1, one rate.

    docs/LOG.md has what the presets gain since. The next full run is without this.
    """
    if getattr(config.model, "start", "") == "waves":
        config = with_model(config, start="fourier")
    if getattr(config.model, "step_size", 1.0) != 1.0:
        config = with_model(config, step_size=1.0)
    return replace(config, gamma_rate=0.0)


def with_model(config: TrainConfig, **fields: Any) -> TrainConfig:
    """Return a training run whose model has some fields changed."""
    # A linear kernel has no gamma, and so no rate of it.
    gamma_rate = 0.0 if fields.get("kernel") == "linear" else config.gamma_rate
    return replace(config, model=replace(config.model, **fields), gamma_rate=gamma_rate)


def data_config(source: str, threshold: str | float = "median", n: int = 0) -> DataConfig:
    """Return what test episodes of a source are drawn from."""
    data = DataConfig((source,), threshold=threshold)
    return replace(data, n=n) if n else data


def scores(
    profile: Profile,
    cell: Cell,
    trained: tuple[TrainConfig, ...] = (),
) -> Scores:
    """Return the spec of a cell; a classical method has no training runs."""
    return Scores(
        cell.method,
        data_config(cell.source, cell.threshold, cell.n),
        cell.labels,
        trained,
        profile.episodes,
        profile.tuning,
    )


CLASSICAL = (
    "eig_lr",
    "orig_rbf_lr",
    "orig_lr",
    "label_spreading",
    "label_propagation",
    "laplace_learning",
    "poisson_learning",
    "nearest_neighbour",
    "svc_rbf",
    "gaussian_mixture_em",
    "majority",
    "bayes_ceiling",
)
"""Classical methods in the paper's tables. A new method joins them here, with new rows."""


def classical(
    profile: Profile,
    source: str,
    budgets: tuple[int, ...],
    threshold: str | float = "median",
    methods: tuple[str, ...] = CLASSICAL,
    n: int = 0,
) -> Specs:
    """Return specs of classical methods on one source, with n points if it is given."""
    cells = [
        Cell(source, labels, method, threshold=threshold, n=n)
        for labels in budgets
        for method in methods
        if method != "bayes_ceiling" or has_ceiling(source, threshold)
    ]
    return {cell: scores(profile, cell) for cell in cells}


# --- How a cell is written


def source_title(source: str) -> str:
    """Return a source as tables name it."""
    return source.replace("_", " ")


def title_of(cell: Cell) -> str:
    """Return the method of a cell as tables name it."""
    kernel = f" ({cell.kernel.replace('rbf', 'RBF')})" if cell.kernel else ""
    setting = ", out of distribution" if cell.setting == "ood" else ""
    return f"{METHODS[cell.method]}{kernel}{setting}"


def accuracy_text(row: Row | None) -> str:
    """Return accuracy with interval, sd over seeds, and a mark where training was short."""
    if row is None:
        return ""
    seeds = row["seeds"]
    sd = f" ({stdev(seeds):.3f})" if len(seeds) > 1 else ""
    mark = f" {UNDERTRAINED}" if row.get("undertrained") else ""
    return f"{estimate_text(row['metrics']['accuracy'])}{sd}{mark}"


def estimate_text(estimate: Mapping[str, float] | None) -> str:
    """Return a stored mean with its half-width."""
    if estimate is None:
        return ""
    return f"{estimate['mean']:.3f} ± {estimate['half_width']:.3f}"


def balanced_text(row: Row | None) -> str:
    """Return balanced accuracy as text."""
    return "" if row is None else f"{row['metrics']['balanced_accuracy']['mean']:.3f}"


def published_text(artefact: str, cell: Cell) -> str:
    """Return what the paper printed for a cell, with its sd."""
    value = published_values().get((artefact, cell))
    if value is None:
        return ""
    return f"{value[0]:.3f}" if value[1] is None else f"{value[0]:.3f} ± {value[1]:.3f}"


def majority_text(
    rows: Rows, source: str, labels: float, threshold: str | float = "median"
) -> str:
    """Return the mean share of the largest class among the test episodes of a source."""
    for cell, row in rows.items():
        if (cell.source, cell.labels, cell.threshold) == (source, labels, threshold):
            return f"{row['majority_rate']:.3f}"
    return ""


def compare_cells(rows: Rows, cell: Cell, other: Cell) -> Comparison | None:
    """Compare two rows on the same episodes; None where either is missing."""
    if cell not in rows or other not in rows:
        return None
    return compare_paired(accuracies_of(rows[cell]), accuracies_of(rows[other]))


def against_svc(rows: Rows, cells: Iterable[Cell]) -> str:
    """Return the first note of a table: where its first method is not ahead of the SVC."""
    cells = list(cells)
    lost, n_won = [], 0
    for cell in cells:
        reference = cell.on_same_episodes("svc_rbf")
        comparison = compare_cells(rows, cell, reference)
        if comparison is None or rows[cell].get("undertrained"):
            continue
        if comparison.verdict == "ahead":
            n_won += 1
        else:
            place = f"{source_title(cell.source)} at {cell.labels}"
            lost.append(f"{place} ({comparison.verdict})")
    name = title_of(cells[0])
    if not n_won and not lost:
        return f"{name} has not been compared with the tuned SVC yet."
    if n_won < len(cells) and not lost:
        return (
            f"{name} beats the tuned RBF-SVC in the {n_won} of {len(cells)} cells compared."
        )
    if lost:
        return f"{name} does not beat the tuned RBF-SVC on {', '.join(lost)}."
    return f"{name} beats the tuned RBF-SVC in all {n_won} cells, beyond the 95% interval."


def training_text(
    rows: Rows, cells: Iterable[Cell], titles: Mapping[str, str] = METHODS
) -> str:
    """Return how much the models of a table were trained and tested on.

    A row counts the episodes of all its seeds together; this counts those of one model.
    """
    stored = [cell for cell in cells if cell in rows]
    if not stored:
        return "No rows."
    tested = sorted({len(rows[cell]["accuracies"]) for cell in stored})
    # Cells by the number of training episodes, as text, and then by method.
    counts: dict[str, dict[str, list[Cell]]] = {}
    for cell in stored:
        if "episodes_seen" in rows[cell]:
            by_method = counts.setdefault(_episodes_text(cell, rows[cell]), {})
            by_method.setdefault(cell.method, []).append(cell)
    times = Counter(method for by_method in counts.values() for method in by_method)
    parts = []
    for count, by_method in counts.items():
        names = [
            f"{titles[method]}{_places_text(places) if times[method] > 1 else ''}"
            for method, places in by_method.items()
        ]
        parts.append(f"{count}: {'; '.join(names)}.")
    trained = f" Training episodes of each model. {' '.join(parts)}" if parts else ""
    return f"{' or '.join(map(str, tested))} test episodes.{trained}"


def _episodes_text(cell: Cell, row: Row) -> str:
    per_model = row["episodes_seen"] // len(row["seeds"])
    different = row["spec"]["trainings"][0]["data"]["episodes"]
    # Where that is what a table is about, a cell has it as its size.
    few = f", {different:,} of them different" if different not in (0, cell.size) else ""
    return f"{per_model:,}{few}"


def _places_text(cells: Iterable[Cell]) -> str:
    """Return the sources of a method whose models were not all trained alike."""
    outside = "out of distribution"
    words = [source_title(c.source) if c.setting == "id" else outside for c in cells]
    return f" ({', '.join(sorted(set(words), key=lambda word: (word == outside, word)))})"
