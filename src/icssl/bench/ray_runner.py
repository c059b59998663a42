"""Run what is missing on a Ray cluster: its workers measure, this process alone stores."""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from icssl._util.ray import RETRIES, inside, machines_text
from icssl.bench.batches import Batch, batches_of
from icssl.bench.runner import (
    Clock,
    Progress,
    Row,
    Training,
    row_of,
    train_finite,
)
from icssl.bench.runs import made_with, record_run
from icssl.bench.spec import Spec
from icssl.bench.store import Store, run_shared
from icssl.training.config import TrainConfig
from icssl.training.loop import NonFiniteLossError

_GLANCE = 1.0  # seconds between two reports where nothing ends
Trained = dict[TrainConfig, Training]


class FailedSpecsError(RuntimeError):
    """Some specs have no row since they, or the training of their models, failed.

    Parameters
    ----------
    failures : sequence of (str, Exception)
        Their titles, with what went wrong.
    """

    def __init__(self, failures: Sequence[tuple[str, Exception]]) -> None:
        self.failures = tuple(failures)
        lines = [f"{title}: {_in_a_line(error)}" for title, error in self.failures]
        super().__init__("\n".join([f"{len(lines)} specs failed:", *lines]))


def _in_a_line(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"


def run_on_ray(
    specs: Iterable[Spec],
    store: Store,
    ray: Any,
    *,
    device: str = "cpu",
    gpus_per_task: float = 0,
    minutes: float | None = None,
    report: Callable[[Progress], None] = lambda _: None,
) -> int:
    """:func:`icssl.bench.runner.run_missing`, by the workers of a Ray cluster.

    A task trains a batch of models, another measures one spec; trained models stay in the
    cluster. Rows come back to this process, which stores each as it comes. The task of a
    worker that dies begins again elsewhere, and as a task has one result, however often it
    began, its spec has one row.

    Parameters
    ----------
    specs : iterable of Spec
    store : Store
    ray : module
        As :func:`icssl._util.ray.ray_cluster` gives it.
    device : str
        For models; classical methods run on the CPU.
    gpus_per_task : float
        That each task with models holds: with 0.25, four of them share a GPU.
    minutes : float, optional
        Start nothing more after so long.
    report : callable, optional
        Is told whenever a task has ended, and every second.

    Raises
    ------
    FailedSpecsError
        At the end, when all others are stored, if specs failed.
    """
    missing = [s for s in dict.fromkeys(specs) if s.key not in store]
    clock = Clock(minutes, len(missing), 0.0, report)
    if not missing or not clock.has_time():
        return 0
    before = store.added
    deadline = math.inf if minutes is None else time.time() + 60 * minutes
    job = _Job(device, deadline, str(Path.cwd()))
    failures: list[tuple[str, Exception]] = []
    about = made_with("cpu") | {"device": machines_text(ray)}
    with store.claims() as claims, record_run(store, about):

        def run(specs: Sequence[Spec]) -> set[str]:
            # All that is free at once, since the cluster knows what it can share.
            mine = claims.take([spec.key for spec in specs])
            free = [s for s in specs if s.key in mine and s.key not in store]
            tasks = _submit(ray, batches_of(free, device), job, gpus_per_task)
            clock.work += sum(task.cost for task in tasks.values())
            failures.extend(_collect(ray, tasks, store, clock))
            return mine

        run_shared(missing, claims, lambda s: s.key in store, run, clock.may_wait)
    if failures:
        raise FailedSpecsError(failures)
    return store.added - before


@dataclass(frozen=True)
class _Job:
    """What all tasks of a run know."""

    device: str
    deadline: float
    folder: str


@dataclass(frozen=True)
class _Task:
    """What was given to the cluster; without a spec, a training."""

    title: str
    cost: float
    spec: Spec | None = None


def _submit(ray: Any, batches: Sequence[Batch], job: _Job, gpus: float) -> dict[Any, _Task]:
    """All tasks at once, by their references: the cluster knows what it could share."""
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)
    train, measure = remote(_train).options(num_gpus=gpus), remote(_measure)
    tasks: dict[Any, _Task] = {}
    place: dict[TrainConfig, Any] = {}
    for batch in batches:
        alone = replace(batch, specs=())
        if batch.configs:
            training = train.remote(batch.configs, job)
            place |= dict.fromkeys(batch.configs, training)
            tasks[training] = _Task(str(batch), alone.cost)
        for spec in batch.specs:
            trained = dict.fromkeys(place[config] for config in spec.trainings)
            measuring = measure.options(num_gpus=gpus if trained else 0)
            cost = (batch.cost - alone.cost) / len(batch.specs)
            tasks[measuring.remote(spec, job, *trained)] = _Task(spec.title, cost, spec)
    return tasks


def _train(configs: Sequence[TrainConfig], job: _Job) -> Trained | None:
    """In a worker: trained models, for any machine; None if it is too late to begin."""
    if time.time() > job.deadline:
        return None
    with inside(job.folder):
        found = train_finite(configs, job.device)
    return {c: replace(kept, model=kept.model.cpu()) for c, kept in found.items()}


def _measure(spec: Spec, job: _Job, *trained: Trained | None) -> Row | None:
    """In a worker: the row of a spec; None if it is too late to begin."""
    if time.time() > job.deadline or None in trained:
        return None
    known = {c: kept for found in trained if found for c, kept in found.items()}
    if not all(config in known for config in spec.trainings):
        raise NonFiniteLossError("the loss of its model does not stay finite")
    with inside(job.folder):
        return row_of(spec, [known[c] for c in spec.trainings], job.device)


def _collect(
    ray: Any, tasks: dict[Any, _Task], store: Store, clock: Clock
) -> list[tuple[str, Exception]]:
    """Store rows as they come, and return what failed; after an error, nothing runs on."""
    failures: list[tuple[str, Exception]] = []
    doing = machines_text(ray)
    try:
        while tasks:
            clock.tell(doing)
            ray.wait(list(tasks), num_returns=1, timeout=_GLANCE, fetch_local=False)
            doing = _store_finished(ray, tasks, store, clock, failures) or doing
    finally:
        for reference in tasks:  # which are left if a person, or a full disk, ended it
            ray.cancel(reference, force=True)
        _store_finished(ray, tasks, store, clock, failures)
    return failures


def _store_finished(
    ray: Any,
    tasks: dict[Any, _Task],
    store: Store,
    clock: Clock,
    failures: list[tuple[str, Exception]],
) -> str:
    """Take finished tasks out, store their rows, and say which was the last."""
    ready, _ = ray.wait(list(tasks), num_returns=len(tasks), timeout=0, fetch_local=False)
    title = ""
    for reference in ready:
        task = tasks[reference]
        if task.spec is not None:  # trained models stay where they are
            row = _result(ray, reference, task, failures)
            # It may be there: Ctrl-C can come between these lines, and then they run again.
            if row is not None and task.spec.key not in store:
                store.append(row)
                clock.done += 1
        del tasks[reference]
        clock.spent += task.cost
        title = task.title
    return title


def _result(
    ray: Any, reference: Any, task: _Task, failures: list[tuple[str, Exception]]
) -> Row | None:
    try:
        return ray.get(reference)
    except Exception as error:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, NonFiniteLossError):
            warnings.warn(f"no row of {task.title}: {cause}", RuntimeWarning, stacklevel=2)
        else:
            failures.append((task.title, cause))
        return None
