"""Run what is missing: models of one architecture are trained at once, then measured."""

import json
import math
import os
import platform
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from icssl import __version__
from icssl.data.sources import DataConfig
from icssl.data.stream import EpisodeStream
from icssl.episode import Episode
from icssl.experiments.spec import Spec
from icssl.experiments.store import Store
from icssl.model.registry import AnyModel
from icssl.training.config import TrainConfig
from icssl.training.group import SHARED, Group, stacked
from icssl.training.loop import NonFiniteLossError, train

AT_ONCE = {"cpu": 1, "cuda": 48}  # models; more do not train faster
Row = dict[str, Any]
HELD_OUT = 256  # episodes, at most, on which the end of training is judged
LATE = 0.8  # of the steps: where the slope of the held-out loss is taken from
STILL_FALLING = -0.05  # nats for e times the episodes


@dataclass(frozen=True)
class Training:
    """A trained model, and whether it was still improving.

    Parameters
    ----------
    model : AnyModel
    held_out : float
        Loss on held-out episodes of its own source.
    slope : float
        Of that loss over the last fifth of the steps, against the logarithm of the number
        of steps; 0 for runs too short to have one.
    """

    model: AnyModel
    held_out: float
    slope: float

    @property
    def undertrained(self) -> bool:
        """Whether twice the episodes would still lower the loss visibly."""
        return self.slope < STILL_FALLING


@dataclass(frozen=True)
class Batch:
    """Models to train at once, and the specs that can be measured when they are trained."""

    configs: tuple[TrainConfig, ...]
    specs: tuple[Spec, ...]

    @property
    def cost(self) -> float:
        """About how long it takes, in a unit of its own, for the time that is left."""
        trained = sum(config.steps * config.batch for config in self.configs)
        return trained / 50_000 + len(self.specs) * (0.1 if self.configs else 1)

    def __str__(self) -> str:
        if not self.configs:
            return ", ".join(spec.title for spec in self.specs)
        first = next(iter(self.specs), None)
        of = f", {first.title}" if first else ""
        return f"training {len(self.configs)} models{of}"


@dataclass(frozen=True)
class Progress:
    """Where a suite stands: rows stored of those missing, what is being done, seconds."""

    done: int
    total: int
    doing: str
    seconds_left: float | None = None


def run_missing(
    specs: Iterable[Spec],
    store: Store,
    *,
    device: str = "cpu",
    minutes: float | None = None,
    workers: int | None = None,
    report: Callable[[Progress], None] = lambda _: None,
) -> int:
    """Run every spec whose row is not in the store, and return how many rows were added.

    Rows are stored one by one, so that a run that was stopped goes on where it was. How
    long it took, and on what, is added to :func:`runs_file`.

    Parameters
    ----------
    specs : iterable of Spec
    store : Store
    device : str
        For models; classical methods run on the CPU.
    minutes : float, optional
        Start nothing more after so long.
    workers : int, optional
        Processes in which classical methods run beside the models; with 0 they run in this
        one, after them. By default 0, and beside a GPU all cores but two.
    report : callable, optional
        Is told before every piece of work.
    """
    missing = [s for s in dict.fromkeys(specs) if s.key not in store]
    workers = _idle_cores(device) if workers is None else workers
    beside = [s for s in missing if workers and not s.trainings]
    batches = batches_of([s for s in missing if s not in set(beside)], device)
    before = len(store)
    clock = Clock(minutes, len(missing), sum(batch.cost for batch in batches), report)
    with (
        noted(store, made_with(device)),
        _beside(beside if clock.has_time() else [], workers, store) as pending,
    ):
        _run_batches(batches, store, device, clock, pending)
        _await(pending, store, clock)
    return len(store) - before


@contextmanager
def noted(store: Store, made: dict[str, str]) -> Iterator[None]:
    """How long a run took that added rows, also one that was interrupted, and on what."""
    before, began = len(store), time.perf_counter()
    try:
        yield
    finally:
        added = len(store) - before
        if added:
            seconds = round(time.perf_counter() - began, 3)
            line = {"rows": added, "seconds": seconds, **made}
            with runs_file(store).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def runs_file(store: Store) -> Path:
    """Beside the rows: a line for every run that added some."""
    return store.path.with_name("runs.jsonl")


@dataclass
class Clock:
    """Says whether there is time for more, and tells a person how far it is."""

    minutes: float | None
    total: int
    work: float
    report: Callable[[Progress], None]
    done: int = 0
    spent: float = 0.0

    def __post_init__(self) -> None:
        self._began = time.perf_counter()

    def has_time(self) -> bool:
        """Whether more may be started."""
        return self.minutes is None or self._passed() <= 60 * self.minutes

    def tell(self, doing: str) -> None:
        """Report how far it is, and what is being done."""
        passed = self._passed()
        left = passed / self.spent * (self.work - self.spent) if self.spent else None
        self.report(Progress(self.done, self.total, doing, left))

    def _passed(self) -> float:
        return time.perf_counter() - self._began


def _run_batches(
    batches: Sequence[Batch],
    store: Store,
    device: str,
    clock: Clock,
    pending: set[Future[Row]],
) -> None:
    trained: dict[TrainConfig, Training] = {}
    for number, batch in enumerate(batches):
        if not clock.has_time():
            break
        clock.tell(str(batch))
        trained |= train_finite(batch.configs, device)
        for spec in batch.specs:
            if all(config in trained for config in spec.trainings):
                store.append(row_of(spec, [trained[c] for c in spec.trainings], device))
                clock.done += 1
            clock.done += _store_finished(pending, store)
        later = {
            c for rest in batches[number + 1 :] for s in rest.specs for c in s.trainings
        }
        trained = {config: kept for config, kept in trained.items() if config in later}
        clock.spent += batch.cost


def _idle_cores(device: str) -> int:
    """Cores that a GPU leaves free; without one, training takes them all."""
    return max(1, (os.cpu_count() or 1) - 2) if device.startswith("cuda") else 0


@contextmanager
def _beside(
    specs: Sequence[Spec], workers: int, store: Store
) -> Iterator[set[Future[Row]]]:
    """Classical methods in processes of their own; what was begun at the end is stored."""
    if not specs:
        yield set()
        return
    context = get_context("spawn")  # a fork of a process that uses CUDA or threads hangs
    pool = ProcessPoolExecutor(workers, context, initializer=_as_worker)
    pending = {pool.submit(row_of, spec, (), "cpu") for spec in specs}
    try:
        yield pending
    finally:
        pool.shutdown(cancel_futures=True)
        _store_finished(pending, store)


def _as_worker() -> None:
    """One core each, after the models; Ctrl-C is for the process that waits for them."""
    if hasattr(os, "nice"):
        os.nice(10)  # or the draws of episodes wait for classical methods, and the GPU too
    torch.set_num_threads(1)
    threadpool_limits(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _store_finished(pending: set[Future[Row]], store: Store) -> int:
    """Store the rows that are ready, and return how many; an error in one is raised."""
    ready = {future for future in pending if future.done() and not future.cancelled()}
    pending -= ready
    for future in ready:
        store.append(future.result())
    return len(ready)


def _await(pending: set[Future[Row]], store: Store, clock: Clock) -> None:
    """Store the rest as they come, while there is time."""
    while pending and clock.has_time():
        clock.tell("classical methods")
        wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
        clock.done += _store_finished(pending, store)


def batches_of(specs: Sequence[Spec], device: str) -> list[Batch]:
    """Trainings that can share a run, with every spec in the batch that completes it."""
    alike: dict[str, list[TrainConfig]] = {}
    for config in dict.fromkeys(c for spec in specs for c in spec.trainings):
        alike.setdefault(_architecture(config), []).append(config)
    at_once = AT_ONCE["cuda" if device.startswith("cuda") else "cpu"]
    groups = [
        tuple(configs[i : i + at_once])
        for configs in alike.values()
        for i in range(0, len(configs), at_once)
    ]
    place = {config: i for i, group in enumerate(groups) for config in group}
    ready: dict[int, list[Spec]] = {}
    for spec in dict.fromkeys(specs):
        if spec.trainings:
            ready.setdefault(max(place[c] for c in spec.trainings), []).append(spec)
    batches = [Batch(group, tuple(ready.get(i, ()))) for i, group in enumerate(groups)]
    return [*batches, *(Batch((), (s,)) for s in dict.fromkeys(specs) if not s.trainings)]


def _architecture(config: TrainConfig) -> str:
    """What models trained at once must agree in, the shape of episodes included."""
    shape = _shape(replace(config.data, sources=config.data.sources[:1], episodes=0))
    return repr([*(getattr(config, name) for name in SHARED), shape])


@cache
def _shape(data: DataConfig) -> tuple[int, ...]:
    return tuple(data.build().draw(1, generator=torch.Generator()).x.shape)


def train_finite(
    configs: Sequence[TrainConfig], device: str
) -> dict[TrainConfig, Training]:
    """:func:`train_batch`, without models whose loss does not stay finite.

    One of them stops a whole batch, so the others are then trained one by one.
    """
    try:
        return train_batch(configs, device)
    except NonFiniteLossError as error:
        if len(configs) == 1:
            warnings.warn(f"no rows of this model: {error}", RuntimeWarning, stacklevel=2)
            return {}
    found: dict[TrainConfig, Training] = {}
    for config in configs:
        found |= train_finite([config], device)
    return found


def train_batch(configs: Sequence[TrainConfig], device: str) -> dict[TrainConfig, Training]:
    """Train models at once and see, on held-out episodes, whether they were done."""
    if not configs:
        return {}
    group, held_out = Group(configs), _held_out_episodes(configs, device)
    losses: dict[int, list[float]] = {}

    def observe(step: int, weights: Tensor) -> None:
        with torch.no_grad():
            losses[step] = group.losses(weights, held_out)[0].tolist()

    steps = configs[0].steps
    late = max(1, int(LATE * steps))
    with _precision(configs[0]):
        models = train(configs, device=device, observe={late: observe, steps: observe})
    found = {}
    for i, (config, model) in enumerate(zip(configs, models, strict=True)):
        gained = losses[steps][i] - losses[late][i]
        slope = gained / math.log(steps / late) if steps > late else 0.0
        found[config] = Training(model, losses[steps][i], slope)
    return found


@contextmanager
def _precision(config: TrainConfig) -> Iterator[None]:
    """Encoders are mostly products of matrices, which can do with TF32 on a GPU."""
    before = torch.get_float32_matmul_precision()
    encoder = getattr(config.model, "head", "encoder") == "encoder"
    torch.set_float32_matmul_precision("high" if encoder else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _held_out_episodes(configs: Sequence[TrainConfig], device: str) -> Episode:
    """Episodes for every model from where it is trained, in a stream of their own."""
    drawn = []
    for config in configs:
        data = replace(config.episodes_config(), episodes=0)
        middle = sorted(config.labels)[len(config.labels) // 2]
        # As many for one source as for four: models trained at once share a shape.
        count = min(HELD_OUT, max(8, config.steps * config.batch // 40 * 4))
        each = [
            EpisodeStream(
                replace(data, sources=(source,)).build(),
                count // len(data.sources),
                config.seed,
                "held-out",
                device,
            ).at(0, middle)
            for source in data.sources
        ]
        drawn.append(Episode.concat(each))
    return stacked(drawn)


def row_of(spec: Spec, trained: Sequence[Training], device: str) -> Row:
    """Measure a spec; the row says what it is of, and where and how it came about."""
    began = time.perf_counter()
    measured = spec.measure([training.model for training in trained], device)
    row = {"key": spec.key, "spec": spec.describe(), **measured}
    if trained:
        row["episodes_seen"] = sum(c.steps * c.batch for c in spec.trainings)
        row["held_out_loss"] = [round(t.held_out, 5) for t in trained]
        row["slope"] = [round(t.slope, 5) for t in trained]
        row["undertrained"] = any(t.undertrained for t in trained)
    row["seconds"] = round(time.perf_counter() - began, 3)
    return row | made_with(device if trained else "cpu")


@cache
def made_with(device: str) -> dict[str, str]:
    """Hardware and versions, for a person who wonders about a number."""
    cuda = device.startswith("cuda")
    name = torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU"
    return {
        "device": name,
        "torch": torch.__version__,
        "version": __version__,
        "commit": commit(),
    }


@cache
def commit() -> str:
    """The commit of the code where it lies in a checkout, "dirty" if it was changed.

    ``ICSSL_COMMIT`` says it for a copy without its history.
    """
    if "ICSSL_COMMIT" in os.environ:
        return os.environ["ICSSL_COMMIT"]
    here = Path(__file__).parent
    asked = ["git", "-C", str(here), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(
            asked, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
