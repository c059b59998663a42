"""Run what is missing: models of one architecture are trained at once, then measured."""

import math
import os
import signal
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

from icssl.bench.batches import Batch, batches_of, families_of, keys_to_claim
from icssl.bench.runs import made_with, record_run
from icssl.bench.spec import Spec
from icssl.bench.store import Claims, Store, run_shared
from icssl.episodes.episode import Episode
from icssl.episodes.stream import EpisodeStream
from icssl.model.build import AnyModel
from icssl.training.config import TrainConfig
from icssl.training.group import Group, stack_episodes
from icssl.training.loop import NonFiniteLossError, train

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
    long it took, and on what, is added to :func:`icssl.bench.runs.runs_file`. Several
    processes may run the same specs into one file: each is run by one of them, and what a
    process that was killed had begun is run by another.

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
    clock = Clock(minutes, len(missing), 0.0, report)
    if not missing or not clock.has_time():
        return 0
    before = store.added
    with store.claims() as claims, record_run(store, made_with(device)):

        def run(specs: Sequence[Spec]) -> set[str]:
            return _run_free(specs, store, claims, device, workers, clock)

        run_shared(missing, claims, lambda s: s.key in store, run, clock.may_wait)
    return store.added - before


def _run_free(
    specs: Sequence[Spec],
    store: Store,
    claims: Claims,
    device: str,
    workers: int,
    clock: "Clock",
) -> set[str]:
    """Run what no other process runs, and return the keys of what was begun."""
    beside = [s for s in specs if workers and not s.trainings]
    batches = batches_of([s for s in specs if s not in set(beside)], device)
    clock.work += sum(batch.cost for batch in batches)
    with _beside(beside, workers, store) as pending:
        begun = _run_batches(batches, store, claims, device, clock, pending)
        _await(pending, store, clock)
    return begun


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

    def may_wait(self) -> bool:
        """Whether there is time to wait for another process, which a person is told."""
        if self.has_time():
            self.tell("another process runs the rest")
        return self.has_time()

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
    claims: Claims,
    device: str,
    clock: Clock,
    pending: set[Future[bool]],
) -> set[str]:
    """Run batches in turn, without what other processes run; the keys that were claimed."""
    trained: dict[TrainConfig, Training] = {}
    families = families_of([spec for batch in batches for spec in batch.specs])
    mine: set[str] = set()
    begun: set[TrainConfig] = set()
    for number, batch in enumerate(batches):
        if not clock.has_time():
            break
        mine |= claims.take(keys_to_claim(batch, families) - mine)
        later = [
            s
            for rest in batches[number:]
            for s in rest.specs
            if s.key in mine and s.key not in store
        ]
        needed = {config for spec in later for config in spec.trainings}
        configs = tuple(config for config in batch.configs if config in needed)
        own = tuple(spec for spec in batch.specs if spec in later)
        if configs or own:
            clock.tell(str(Batch(configs, own)))
            trained |= train_finite(configs, device)
            begun |= set(configs)
        for spec in own:
            if all(config in trained for config in spec.trainings):
                store.append(row_of(spec, [trained[c] for c in spec.trainings], device))
                clock.done += 1
            clock.done += _count_finished(pending, store)
        needed = {c for s in later if s not in own for c in s.trainings}
        trained = {config: kept for config, kept in trained.items() if config in needed}
        clock.spent += batch.cost
    # What another process let go of after the first of its models was due is still to do.
    specs = [spec for batch in batches for spec in batch.specs if spec.key in mine]
    return {spec.key for spec in specs if spec.key in store or begun >= set(spec.trainings)}


def _idle_cores(device: str) -> int:
    """Cores that a GPU leaves free; without one, training takes them all."""
    return max(1, (os.cpu_count() or 1) - 2) if device.startswith("cuda") else 0


@contextmanager
def _beside(
    specs: Sequence[Spec], workers: int, store: Store
) -> Iterator[set[Future[bool]]]:
    """Classical methods in processes of their own, which store their rows themselves."""
    if not specs:
        yield set()
        return
    context = get_context("spawn")  # a fork of a process that uses CUDA or threads hangs
    pool = ProcessPoolExecutor(workers, context, initializer=_as_worker)
    pending = {pool.submit(_run_in_worker, spec, store.path) for spec in specs}
    try:
        yield pending
    finally:
        pool.shutdown(cancel_futures=True)
        _count_finished(pending, store)


def _run_in_worker(spec: Spec, path: Path) -> bool:
    """Measure and store a spec, unless another process does or did; whether it was done."""
    store = _store_at(path)
    with store.claims() as claims:
        if not claims.take([spec.key]) or spec.key in store:
            return False
        store.append(row_of(spec, (), "cpu"))
        return True


@cache
def _store_at(path: Path) -> Store:
    return Store(path)  # once in a process: later only what was added is read


def _as_worker() -> None:
    """One core each, after the models; Ctrl-C is for the process that waits for them."""
    if hasattr(os, "nice"):
        os.nice(10)  # or the draws of episodes wait for classical methods, and the GPU too
    torch.set_num_threads(1)
    threadpool_limits(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _count_finished(pending: set[Future[bool]], store: Store) -> int:
    """Take note of rows that workers stored, and return how many; an error is raised."""
    ready = {future for future in pending if future.done() and not future.cancelled()}
    pending -= ready
    stored = sum(future.result() for future in ready)
    store.added += stored
    store.refresh()
    return stored


def _await(pending: set[Future[bool]], store: Store, clock: Clock) -> None:
    """Wait for the workers while there is time."""
    while pending and clock.has_time():
        clock.tell("classical methods")
        wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
        clock.done += _count_finished(pending, store)


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
    return stack_episodes(drawn)


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
