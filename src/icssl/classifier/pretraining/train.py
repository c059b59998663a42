"""Pretrain the gates of a :class:`ContextModel` on synthetic tables."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icssl._util.errors import check_whole
from icssl._util.files import (
    FileKind,
    as_json,
    making_sense,
    read_tensors,
    write_described,
)
from icssl._util.random import generator_for
from icssl.classifier.context_features import (
    ContextFeatures,
    features_of_graphs,
    features_of_tables,
)
from icssl.classifier.graphs import DenseGraph, GraphSpec, neighbour_distances
from icssl.classifier.kernels import GEOMETRIES, GRAPHS, graphs_of_geometry
from icssl.classifier.model import ContextConfig, ContextModel
from icssl.classifier.pretraining.processes import ALONE, Processes
from icssl.classifier.pretraining.synthetic_tables import TaskSpec
from icssl.classifier.pretraining.tasks import Task
from icssl.classifier.views import Views

KIND = FileKind("icssl-pretraining", "icssl pretrain")
_NEW_WEIGHT = 0.3  # weight of the loss on new rows
# How often the model sees a context in all views, in one view, and as a graph alone: one
# set of weights serves all three.
_INPUT_MODES = (("views", 0.8), ("one view", 0.12), ("graph", 0.08))
_ONE_GEOMETRY = 0.2  # how often only one geometry is offered, as users can ask for
_MOST_LABELS = 120  # of a context: kernels with all of them have to fit the memory
_RANDOM_LABELS = 0.3  # how often labels are drawn at random, not as many of each class
_PARTS = ("average", "weights", "first", "second")  # what a checkpoint has per parameter
_EMA_DECAY = 0.998  # of the exponential moving average of the weights


@dataclass(frozen=True)
class PretrainConfig:
    """All settings that decide the weights.

    Parameters
    ----------
    model : ContextConfig
        Shape of the model. Every member is trained by itself, on the same contexts.
    tasks : TaskSpec
        Distribution that the synthetic tables are drawn from.
    steps : int
        Number of batches.
    batch : int
        Tables per batch, all of one shape. Processes that train together share them.
    draws : int
        How often every table gets labels: each time it is another context.
    learning_rate : float
        Learning rate at the start; it falls to a hundredth along a cosine.
    seed : int
        Seed of the first weights and of all tables.
    """

    model: ContextConfig = field(default_factory=lambda: ContextConfig(members=4))
    tasks: TaskSpec = field(default_factory=TaskSpec)
    steps: int = 1000
    batch: int = 64
    draws: int = 4
    learning_rate: float = 6e-3
    seed: int = 0


class PretrainProgress(NamedTuple):
    """Progress of a run: steps made, steps in all, smoothed loss, seconds so far."""

    step: int
    steps: int
    loss: float
    seconds: float


@dataclass
class _State:
    """The state that a checkpoint holds: weights, their average, and Adam's moments."""

    model: ContextModel
    average: dict[str, Tensor]
    optimiser: torch.optim.Adam
    step: int = 0

    @classmethod
    def fresh(cls, config: PretrainConfig, device: str) -> "_State":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = ContextModel(config.model).to(device)
        average = {name: p.detach().clone() for name, p in model.named_parameters()}
        adam = torch.optim.Adam(model.parameters(), config.learning_rate, (0.9, 0.98))
        return cls(model, average, adam)

    def save(self, path: Path, config: PretrainConfig) -> None:
        tensors = {f"average.{name}": p for name, p in self.average.items()}
        for name, p in self.model.named_parameters():
            moments = self.optimiser.state[p]
            tensors[f"weights.{name}"] = p
            tensors[f"first.{name}"] = moments.get("exp_avg", torch.zeros_like(p))
            tensors[f"second.{name}"] = moments.get("exp_avg_sq", torch.zeros_like(p))
        header = {"config": asdict(config), "step": self.step}
        write_described(path, tensors, KIND, header)

    def restore(self, tensors: dict[str, Tensor], step: int) -> None:
        self.step = step
        for name, p in self.model.named_parameters():
            p.data.copy_(tensors[f"weights.{name}"])
            self.average[name].copy_(tensors[f"average.{name}"])
            self.optimiser.state[p] = {
                "step": torch.tensor(float(self.step)),
                "exp_avg": tensors[f"first.{name}"].to(p),
                "exp_avg_sq": tensors[f"second.{name}"].to(p),
            }


def read_checkpoint(
    path: Path | None, config: PretrainConfig
) -> tuple[dict[str, Tensor], int] | None:
    """Return tensors and step of the checkpoint of a run, or None if there is none."""
    if path is None or not path.exists():
        return None
    tensors, header = read_tensors(path, KIND)
    with making_sense(path, KIND):
        step, written = header["step"], header["config"]
        check_whole("step", step, 0, config.steps)
    if written != as_json(asdict(config)):
        raise ValueError(
            f"{path} is of another run: {written}, got {asdict(config)}. "
            "Give another folder, or delete it to start anew."
        )
    with making_sense(path, KIND):
        _check_tensors(tensors, config)
    return tensors, step


def _check_tensors(tensors: dict[str, Tensor], config: PretrainConfig) -> None:
    """Raise ``ValueError`` unless these are the tensors of a checkpoint."""
    with torch.device("meta"):  # only the shapes are needed
        parameters = dict(ContextModel(config.model).named_parameters())
    for part, (name, p) in product(_PARTS, parameters.items()):
        shape = tensors[f"{part}.{name}"].shape
        if shape != p.shape:
            raise ValueError(f"{part}.{name} has shape {shape}, and needs {p.shape}")


def pretrain(
    config: PretrainConfig,
    *,
    device: str = "cpu",
    checkpoint: Path | None = None,
    minutes: float | None = None,
    report: Callable[[PretrainProgress], None] = lambda _: None,
    processes: Processes = ALONE,
) -> ContextModel | None:
    """Train a model, from its checkpoint if there is one.

    Parameters
    ----------
    config : PretrainConfig
        What is trained, and on what.
    device : str
        Device of torch.
    checkpoint : Path, optional
        File that is read if it exists, and written every minute and at the end.
    minutes : float, optional
        Time limit. The same call, made again, goes on from the checkpoint.
    report : callable, optional
        Called after every step.
    processes : Processes
        The processes that share every batch. All of them get the same weights; only the
        first reads, writes and reports.

    Returns
    -------
    ContextModel or None
        The trained model; None if the time was up before the last step.
    """
    processes.part(config.batch)
    state, began = _State.fresh(config, device), time.monotonic()
    resumed = read_checkpoint(checkpoint, config) if processes.first else None
    resumed = processes.from_first(resumed)
    if resumed is not None:
        state.restore(*resumed)
    if not processes.first:
        checkpoint, report = None, lambda _: None
    saved, loss = began, math.nan
    while state.step < config.steps:
        seconds = time.monotonic() - began
        if minutes is not None and processes.from_first(seconds > 60 * minutes):
            break
        now = _step(state, config, device, processes)
        loss = now if math.isnan(loss) else 0.99 * loss + 0.01 * now
        report(PretrainProgress(state.step, config.steps, loss, seconds))
        if checkpoint is not None and time.monotonic() - saved > 60:
            state.save(checkpoint, config)
            saved = time.monotonic()
    if checkpoint is not None:
        state.save(checkpoint, config)
    if state.step < config.steps:
        return None
    for name, p in state.model.named_parameters():
        p.data.copy_(state.average[name])
    return state.model.cpu().eval().requires_grad_(False)


def _step(
    state: _State, config: PretrainConfig, device: str, processes: Processes
) -> float:
    """Train on one batch of contexts; gradients that are not finite change no weight."""
    whole = draw_task(config, "pretrain", state.step, device)
    task = whole.part(processes.part(config.batch))
    features = features_of_task(task, config, state.step)
    loss = loss_of(state.model, features, task, whole)
    state.step += 1
    share = state.step / config.steps
    rate = config.learning_rate * (0.505 + 0.495 * math.cos(math.pi * share))
    state.optimiser.param_groups[0]["lr"] = rate
    state.optimiser.zero_grad()
    loss.backward()
    loss = loss.detach()
    gradients = [p.grad for p in state.model.parameters() if p.grad is not None]
    processes.add_up([loss, *gradients])
    # Every process has the sum of all gradients now, and so makes the same step.
    norm = nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)
    if bool(norm.isfinite()):
        state.optimiser.step()
    # The average of the first steps must not be that of the random start.
    decay = min(_EMA_DECAY, (1 + state.step) / (10 + state.step))
    for name, p in state.model.named_parameters():
        state.average[name].lerp_(p.detach(), 1 - decay)
    return loss.item()


def draw_task(config: PretrainConfig, stream: str, step: int, device: str) -> Task:
    """Draw the batch of contexts of one step, all of one shape."""
    generator = generator_for(config.seed, stream, step, device=device)
    single = generator_for(config.seed, f"{stream} labels", step)
    tables = config.tasks.draw_tables(config.batch, generator=generator)
    # As often from one to two labels per class as from two to four.
    low, high = config.tasks.labels_per_class
    size = math.log((high + 1) / low) * float(torch.rand((), generator=single))
    most = min(tables.y.shape[1] // 2, _MOST_LABELS) // tables.n_classes
    return Task.of_tables(
        tables,
        max(1, min(int(low * math.exp(size)), most)),
        config.draws,
        random=float(torch.rand((), generator=single)) < _RANDOM_LABELS,
        generator=generator,
    )


def features_of_task(task: Task, config: PretrainConfig, step: int) -> ContextFeatures:
    """Return what the model sees of the contexts, in the input mode of this step."""
    generator = generator_for(config.seed, "input modes", step)
    names, shares = zip(*_INPUT_MODES, strict=True)
    mode = names[int(torch.multinomial(torch.tensor(shares), 1, generator=generator))]
    labels = (task.y, task.labelled, task.n_classes)
    if mode == "graph":
        return features_of_graphs(_graph_of(task), *labels, config.model.k)
    graphs: tuple[GraphSpec, ...] = GRAPHS
    units = task.units
    one_geometry = float(torch.rand((), generator=generator)) < _ONE_GEOMETRY
    if mode == "one view" or one_geometry:
        second = int(torch.randint(2, (), generator=generator))
        units = units.restrict_to(GEOMETRIES[second])
        graphs = graphs_of_geometry(GEOMETRIES[second])
    if mode == "one view":
        graphs = graphs[:1]
    return features_of_tables(
        task.x, *labels, graphs, config.model.k, units=units, draws=task.draws
    )


@torch.no_grad()
def _graph_of(task: Task) -> Tensor:
    """Return weights between rows, from the view of ranks, as a user might give them."""
    no_labels = task.y[:, :0]
    no_target = task.x[:, :0, : task.n_classes]
    _, (rows,) = Views.fit_rows(task.x, ("ranks",), no_labels, no_target)
    graph = DenseGraph(rows, neighbour_distances(rows, rows, skip_self=True))
    return graph.dense()


def loss_of(
    model: ContextModel, features: ContextFeatures, task: Task, whole: Task | None = None
) -> Tensor:
    """Return the mean cross-entropy of the members on unlabelled rows and on new rows.

    Parameters
    ----------
    model : ContextModel
        All of its members are trained.
    features : ContextFeatures
        What the model sees of ``task``.
    task : Task
        Contexts that this process works on.
    whole : Task, optional
        The whole batch, if ``task`` is a part of it. The loss is then what this part adds
        to the mean over the batch.
    """
    new = None
    if features.kernels.views and task.new_x.shape[1]:
        with torch.no_grad():
            new = features.kernels.label_kernels(features.kernels.place(task.new_x))
    weight = (~task.labelled).to(task.x)
    weight = weight / weight.sum(-1, keepdim=True)
    losses = []
    for member in range(len(model.gates)):
        fitted = model.fit_features(features, [member])
        logs = fitted.log_probabilities(fitted.predict_context())
        losses.append((weight * _negative_log(logs, task.y)).sum(-1).mean())
        if new is not None:
            logs = fitted.log_probabilities(fitted.predict_kernels(new))
            losses.append(_NEW_WEIGHT * _negative_log(logs, task.new_y).mean())
    share = 1.0 if whole is None else len(task.x) / len(whole.x)
    return share * torch.stack(losses).sum() / len(model.gates)


def _negative_log(logs: Tensor, y: Tensor) -> Float[Tensor, "b r"]:
    """Return minus the logarithm of the probability of the true class of every row."""
    return -logs.gather(-1, y[..., None])[..., 0]
