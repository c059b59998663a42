"""``run_missing``: run every spec whose row is not in the store.

Where the specs run is up to an executor: this process (:class:`InProcess`), processes that
can be killed (:class:`icssl.bench.pool.Pool`), or the workers of a Ray cluster
(:class:`icssl.bench.ray_runner.OnRay`). Store, claims, waiting for other processes,
progress and the record of the run are the same for all.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from icssl._util.provenance import made_with
from icssl.bench.batches import (
    Batch,
    Training,
    batches_of,
    families_of,
    keys_to_claim,
    train_all,
)
from icssl.bench.pool import Pool
from icssl.bench.spec import Spec
from icssl.bench.store import Store, record_run, run_shared
from icssl.bench.work import Clock, Executor, Progress, Work, row_of
from icssl.training.config import TrainConfig

_POLITE = 10  # or the draws of episodes wait for classical methods, and the GPU too


def run_missing(
    specs: Iterable[Spec],
    store: Store,
    *,
    executor: Executor | None = None,
    device: str = "cpu",
    workers: int | None = None,
    minutes: float | None = None,
    retry_failed: bool = False,
    report: Callable[[Progress], None] = lambda _: None,
) -> int:
    """Run every spec whose row is not in the store, and return how many rows were added.

    Rows are stored one by one, so that a run that was stopped goes on where it was. How
    long it took, and on what, is added to :func:`icssl.bench.store.runs_file`. Several
    processes may run the same specs into one file: each spec is run by one of them, and
    what a process that was killed had begun is run by another.

    Parameters
    ----------
    specs : iterable of Spec
    store : Store
    executor : Executor, optional
        Where specs run; by default in this process, with ``device`` and ``workers``.
    device, workers
        See :class:`InProcess`.
    minutes : float, optional
        Start nothing more after so long.
    retry_failed : bool
        Whether a spec whose row has an error is run again.
    report : callable, optional
        Is called with the progress as the work goes on.
    """
    missing = missing_of(specs, store, retry_failed=retry_failed)
    clock = Clock(minutes, len(missing), report)
    if not missing or not clock.has_time():
        return 0
    executor = executor or InProcess(device, workers)
    failed = {spec.key: store[spec.key] for spec in missing if spec.key in store}
    before = store.added

    def is_done(spec: Spec) -> bool:
        # A row read anew is another object: then somebody tried it again.
        return spec.key in store and store[spec.key] is not failed.get(spec.key)

    with store.claims() as claims, record_run(store, executor.describe()):
        work = Work(store, claims, clock, is_done)

        def run(left: Sequence[Spec]) -> set[str]:
            return executor.run(left, work)

        run_shared(missing, claims, is_done, run, clock.may_wait)
    return store.added - before


def missing_of(
    specs: Iterable[Spec], store: Store, *, retry_failed: bool = False
) -> list[Spec]:
    """Return the specs that have no row, each once; or only a failed one."""
    return [
        spec
        for spec in dict.fromkeys(specs)
        if spec.key not in store or (retry_failed and "error" in store[spec.key])
    ]


@dataclass(frozen=True)
class InProcess:
    """The executor that trains models here, and measures specs here or beside them.

    Parameters
    ----------
    device : str
        Device of the models; classical methods run on the CPU.
    workers : int, optional
        Processes in which classical methods run beside the models; with 0 they run in this
        one, after them. By default 0, and beside a GPU all cores but two.
    """

    device: str = "cpu"
    workers: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return hardware and versions, for the record of the run."""
        return made_with(self.device)

    def run(self, specs: Sequence[Spec], work: Work) -> set[str]:
        """Run what no other process runs, and return the keys of what was begun."""
        workers = _idle_cores(self.device) if self.workers is None else self.workers
        classical = [s for s in specs if workers and not s.trainings]
        batches = batches_of([s for s in specs if s not in set(classical)], self.device)
        work.clock.work += sum(batch.cost for batch in batches)
        with _measure_beside(classical, workers, work) as side:
            begun = _run_batches(batches, work, self.device, side)
            while side.is_alive() and work.clock.has_time():
                work.clock.tell("classical methods")
                side.join(1.0)
                side.count_rows()
        return begun


def _idle_cores(device: str) -> int:
    """Return the number of cores that a GPU leaves free; training on the CPU takes all."""
    return max(1, (os.cpu_count() or 1) - 2) if device.startswith("cuda") else 0


def _run_batches(
    batches: Sequence[Batch], work: Work, device: str, side: "_Side"
) -> set[str]:
    """Run batches in turn, without what other processes run; return the keys begun."""
    trained: dict[TrainConfig, Training] = {}
    families = families_of([spec for batch in batches for spec in batch.specs])
    mine: set[str] = set()
    begun: set[TrainConfig] = set()
    for number, batch in enumerate(batches):
        if not work.clock.has_time():
            break
        mine |= work.claims.take(keys_to_claim(batch, families) - mine)
        later = [
            spec
            for rest in batches[number:]
            for spec in rest.specs
            if spec.key in mine and not work.is_done(spec)
        ]
        needed = {config for spec in later for config in spec.trainings}
        configs = tuple(config for config in batch.configs if config in needed)
        ready = tuple(spec for spec in batch.specs if spec in later)
        if configs or ready:
            work.clock.tell(str(Batch(configs, ready)))
            trained |= train_all(configs, device)
            begun |= set(configs)
        for spec in ready:
            if all(config in trained for config in spec.trainings):
                models = [trained[config] for config in spec.trainings]
                work.store.append(row_of(spec, models, device))
                work.clock.done += 1
            side.count_rows()
        needed = {c for s in later if s not in ready for c in s.trainings}
        trained = {config: model for config, model in trained.items() if config in needed}
        work.clock.spent += batch.cost
    # What another process let go of after the first of its models was due is still to do.
    specs = [spec for batch in batches for spec in batch.specs if spec.key in mine]
    return {spec.key for spec in specs if work.is_done(spec) or begun >= {*spec.trainings}}


@contextmanager
def _measure_beside(specs: Sequence[Spec], workers: int, work: Work) -> Iterator["_Side"]:
    """Measure specs in a pool while this process trains; end with what is running."""
    side = _Side(specs, workers, work)
    if specs:
        side.start()
    try:
        yield side
    finally:
        side.stop()
        side.count_rows()


class _Side(threading.Thread):
    """A pool that runs beside the training of models.

    Its thread has a store and claims of its own on the same file, as another process
    would, so that nothing but the file is shared.
    """

    def __init__(self, specs: Sequence[Spec], workers: int, work: Work) -> None:
        super().__init__(daemon=True)
        self._specs, self._workers, self._work = specs, workers, work
        self._clock = Clock(None, len(specs))
        self._store = Store(work.store.path) if specs else work.store
        self._counted = self._store.added
        self._error: BaseException | None = None

    def run(self) -> None:
        """Measure the specs, in the thread."""
        pool, store = Pool(self._workers, niceness=_POLITE), self._store
        try:
            with store.claims() as claims:
                work = Work(store, claims, self._clock, lambda spec: spec.key in store)
                pool.run(self._specs, work)
        except BaseException as error:
            self._error = error

    def stop(self) -> None:
        """Start nothing more, and wait for what is running."""
        self._clock.stop()
        if self.is_alive():
            self.join()

    def count_rows(self) -> None:
        """Take note of rows that were stored beside; an error of the pool is raised."""
        if not self._specs:
            return
        new, self._counted = self._store.added - self._counted, self._store.added
        self._work.store.added += new
        self._work.store.refresh()
        self._work.clock.done += new
        if self._error is not None:
            raise self._error
