"""Pretrain the gates of a :class:`ContextModel` on synthetic tables, and calibrate it."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from icssl._util.errors import check_whole
from icssl._util.files import FileKind, making_sense, read_tensors, write_described
from icssl._util.random import generator_for
from icssl.classifier.graphs import DenseGraph, neighbour_distances
from icssl.classifier.model import (
    ContextConfig,
    ContextFeatures,
    ContextModel,
    features_of_graphs,
    features_of_tables,
)
from icssl.classifier.pretraining.processes import ALONE, Processes
from icssl.classifier.pretraining.synthetic_tables import TaskSpec
from icssl.classifier.views import VIEWS, Views

KIND = FileKind("icssl-pretraining", "icssl pretrain")
NEW_SHARE = 6  # one row of so many is kept out of its context and predicted as a new one
NEW_WEIGHT = 0.3  # of the loss on these
# How often a context is seen in all views, in one, and as a graph alone: one set of weights
# serves all three.
SIGHTS = (("views", 0.7), ("one view", 0.2), ("graph", 0.1))
# Classes are clusters or regions of surfaces more often than functions of columns: so they
# are on the development half of the real data.
_KINDS = (*4 * ("clusters",), *2 * ("surface",), "linear", "network", "trees", "causal")
# The temperature is fitted to tasks that are easier than those of training. Fitted to all
# kinds, the classifier was unsure of itself on the development half where labels are few.
_CALIBRATED_ON = ("apart",)
_PARTS = ("average", "weights", "first", "second")  # of a checkpoint
_FORGETS = 0.998  # of the moving average of the weights


@dataclass(frozen=True)
class PretrainConfig:
    """All that decides the weights.

    Parameters
    ----------
    model : ContextConfig
        Every member is trained by itself, on the same contexts.
    tasks : TaskSpec
    steps, batch : int
        Batches, and contexts of one shape in each, shared among the processes if several
        train together.
    learning_rate : float
        At the start; it falls to a hundredth along a cosine.
    calibration_steps : int
        Batches, after those of training, that the temperature is fitted on.
    seed : int
    """

    model: ContextConfig = field(default_factory=lambda: ContextConfig(members=3))
    tasks: TaskSpec = field(
        default_factory=lambda: TaskSpec(
            points=(40, 400),
            columns=(2, 400),
            classes=(2, 20),
            most_numbers=40_000,
            kinds=_KINDS,
        )
    )
    steps: int = 6000
    batch: int = 8
    learning_rate: float = 3e-3
    calibration_steps: int = 200
    seed: int = 0


class Task(NamedTuple):
    """Contexts, and rows kept out of them."""

    x: Tensor
    y: Tensor
    labelled: Tensor
    n_classes: int
    new_x: Tensor
    new_y: Tensor

    def part(self, own: slice) -> "Task":
        """Some of the contexts."""
        known = (self.x[own], self.y[own], self.labelled[own], self.n_classes)
        return Task(*known, self.new_x[own], self.new_y[own])


class PretrainProgress(NamedTuple):
    """Steps made of how many, the loss over the last of them, seconds so far."""

    step: int
    steps: int
    loss: float
    seconds: float


@dataclass
class _State:
    """What goes into a checkpoint: weights, their moving average, and Adam's moments."""

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
            kept = self.optimiser.state[p]
            tensors[f"weights.{name}"] = p
            tensors[f"first.{name}"] = kept.get("exp_avg", torch.zeros_like(p))
            tensors[f"second.{name}"] = kept.get("exp_avg_sq", torch.zeros_like(p))
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


def _kept(
    path: Path | None, config: PretrainConfig
) -> tuple[dict[str, Tensor], int] | None:
    """Tensors and the step of a checkpoint, if there is one."""
    if path is None or not path.exists():
        return None
    tensors, header = read_tensors(path, KIND)
    with making_sense(path, KIND):
        step, kept = header["step"], header["config"]
        check_whole("step", step, 0, config.steps)
    if kept != _plain(asdict(config)):
        raise ValueError(
            f"{path} is of another run: {kept}, got {asdict(config)}. "
            "Give another folder, or delete it to start anew."
        )
    with making_sense(path, KIND):
        _check_tensors(tensors, config)
    return tensors, step


def _check_tensors(tensors: dict[str, Tensor], config: PretrainConfig) -> None:
    """Raise ``ValueError`` unless these are the tensors of a checkpoint."""
    with torch.device("meta"):  # for its shapes alone
        parameters = dict(ContextModel(config.model).named_parameters())
    for part, (name, p) in product(_PARTS, parameters.items()):
        given = tensors[f"{part}.{name}"].shape
        if given != p.shape:
            raise ValueError(f"{part}.{name} has shape {given}, and needs {p.shape}")


def pretrain(
    config: PretrainConfig,
    *,
    device: str = "cpu",
    checkpoint: Path | None = None,
    minutes: float | None = None,
    report: Callable[[PretrainProgress], None] = lambda _: None,
    processes: Processes = ALONE,
) -> ContextModel | None:
    """Train, go on where a checkpoint ended, and calibrate; None if time ran out before.

    Parameters
    ----------
    config : PretrainConfig
    device : str
    checkpoint : Path, optional
        Is read if it is there, and written every minute and at the end.
    minutes : float, optional
        Stop after so long; the same call then goes on.
    report : callable, optional
        Is told after every step.
    processes : Processes
        Among those that share every batch. Each gets the same weights; only the first
        reads, writes and reports.
    """
    processes.part(config.batch)
    state, began = _State.fresh(config, device), time.monotonic()
    kept = processes.from_first(_kept(checkpoint, config) if processes.first else None)
    if kept is not None:
        state.restore(*kept)
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
    calibrate(state.model, config, device)
    return state.model.cpu().eval().requires_grad_(False)


def _step(
    state: _State, config: PretrainConfig, device: str, processes: Processes
) -> float:
    """One batch of contexts; a loss that is not finite moves nothing."""
    whole = draw_task(config, "pretrain", state.step, device)
    task = whole.part(processes.part(config.batch))
    seen = see(task, config, state.step)
    loss = loss_of(state.model, seen, task, whole)
    state.step += 1
    share = state.step / config.steps
    rate = config.learning_rate * (0.505 + 0.495 * math.cos(math.pi * share))
    state.optimiser.param_groups[0]["lr"] = rate
    state.optimiser.zero_grad()
    loss.backward()
    loss = loss.detach()
    gradients = [p.grad for p in state.model.parameters() if p.grad is not None]
    processes.add_up([loss, *gradients])
    norm = nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)
    if bool(norm.isfinite()):
        state.optimiser.step()
    forgets = min(_FORGETS, (1 + state.step) / (10 + state.step))
    for name, p in state.model.named_parameters():
        state.average[name].lerp_(p.detach(), 1 - forgets)
    return loss.item()


def draw_task(config: PretrainConfig, stream: str, step: int, device: str) -> Task:
    """Contexts of one shape; the last rows, which have no label, are the new ones."""
    generator = generator_for(config.seed, stream, step, device=device)
    episode = config.tasks.draw(config.batch, generator=generator)
    order = episode.labelled.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    x = comparable(episode.x).gather(1, order[..., None].expand_as(episode.x))
    y, labelled = episode.y.gather(1, order), episode.labelled.gather(1, order)
    kept = max(int(labelled.sum(1).max()), x.shape[1] - x.shape[1] // NEW_SHARE)
    own = (x[:, :kept], y[:, :kept], labelled[:, :kept], episode.n_classes)
    return Task(*own, x[:, kept:], y[:, kept:])


def comparable(x: Tensor) -> Tensor:
    """Columns as the classifier makes them: of deviation one, or half a unit if binary."""
    low, high = x.amin(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)
    binary = ((x == low) | (x == high)).all(dim=1, keepdim=True)
    centred = x - x.mean(dim=1, keepdim=True)
    deviation = centred.square().mean(dim=1, keepdim=True).sqrt().clamp(min=1e-9)
    return centred / torch.where(binary, 2**0.5 * (high - low).clamp(min=1e-9), deviation)


def see(task: Task, config: PretrainConfig, step: int) -> ContextFeatures:
    """The contexts in all views, in one, or as graphs, by turns that the step decides."""
    generator = generator_for(config.seed, "sights", step)
    names, shares = zip(*SIGHTS, strict=True)
    chosen = torch.multinomial(torch.tensor(shares), 1, generator=generator)
    name, k = names[int(chosen)], config.model.k
    known = (task.y, task.labelled, task.n_classes)
    if name == "graph":
        return features_of_graphs(_graph_of(task), *known, k)
    return features_of_tables(task.x, *known, VIEWS if name == "views" else VIEWS[:1], k)


@torch.no_grad()
def _graph_of(task: Task) -> Tensor:
    """Weights between rows in the view of their ranks, as a user might give them."""
    no_labels = task.y[:, :0]
    views = Views.fit(task.x, ("ranks",), no_labels, task.x[:, :0, : task.n_classes])
    (rows,) = views(task.x)
    graph = DenseGraph(rows, neighbour_distances(rows, rows, skip_self=True))
    return graph.dense()


def loss_of(
    model: ContextModel, seen: ContextFeatures, task: Task, whole: Task | None = None
) -> Tensor:
    """Mean cross-entropy of the members on unlabelled rows and on new ones.

    Of a part of the contexts of ``whole``, if given: what it adds to the mean over all.
    """
    new = None
    if seen.kernels.views is not None and task.new_x.shape[1]:
        with torch.no_grad():
            new = seen.kernels.label_kernels(seen.kernels.place(task.new_x))
    hidden, losses = ~task.labelled, []
    share, new_share = _shares(task, task if whole is None else whole)
    for member in range(len(model.gates)):
        reading = model.fit_features(seen, [member])
        on_own = cross_entropy(reading.predict_context().logits[hidden], task.y[hidden])
        losses.append(share * on_own)
        if new is not None:
            logits = reading.predict_kernels(new).logits
            on_new = cross_entropy(logits.flatten(0, 1), task.new_y.flatten())
            losses.append(NEW_WEIGHT * new_share * on_new)
    return torch.stack(losses).sum() / len(model.gates)


def _shares(task: Task, whole: Task) -> tuple[Tensor | float, float]:
    """Of all unlabelled rows, and of all new ones, how many are in a part."""
    if len(task.x) == len(whole.x):
        return 1.0, 1.0
    share = (~task.labelled).sum() / (~whole.labelled).sum()
    return share, len(task.x) / len(whole.x)


def calibrate(model: ContextModel, config: PretrainConfig, device: str) -> None:
    """Fit the temperature of all members together to contexts that none has seen."""
    kept = []
    model.calibration.zero_()  # of an earlier one
    easier = replace(config, tasks=replace(config.tasks, kinds=_CALIBRATED_ON))
    for step in range(config.calibration_steps):
        task = draw_task(easier, "calibrate", step, device)
        with torch.no_grad():
            seen = features_of_tables(
                task.x, task.y, task.labelled, task.n_classes, VIEWS, config.model.k
            )
            reading = model.fit_features(seen)
            found = reading.predict_context()
        hidden = ~task.labelled
        about = _about_rows(reading.labels_per_class, task.n_classes, found.reach)
        kept.append((found.logits[hidden], task.y[hidden], about[hidden]))
    weights = torch.zeros(4, device=device, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        parts = [
            cross_entropy(logits * (-about @ weights).exp()[:, None], y)
            for logits, y, about in kept
        ]
        loss = torch.stack(parts).mean() + 1e-3 * weights.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    model.calibration.copy_(weights.detach())


def _about_rows(per_class: Tensor, n_classes: int, reach: Tensor) -> Tensor:
    """What the temperature of a row depends on, as :class:`FittedContext` has it."""
    labels = per_class.to(reach).log()[:, None].expand_as(reach)
    classes = torch.full_like(reach, math.log(n_classes))
    return torch.stack([torch.ones_like(reach), labels, classes, reach], dim=-1)


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
