"""Run what is missing on a Ray cluster: its workers measure, this process alone stores."""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from icssl._util.provenance import made_with
from icssl._util.ray import RETRIES, inside, machines_text
from icssl.bench.batches import Batch, Training, batches_of, train_all
from icssl.bench.runner import run_missing
from icssl.bench.spec import Spec
from icssl.bench.store import Row, Store
from icssl.bench.work import Progress, Work, row_of
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
        lines = [f"{title}: {_first_line(error)}" for title, error in self.failures]
        super().__init__("\n".join([f"{len(lines)} specs failed:", *lines]))


def _first_line(error: Exception) -> str:
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
    """Run :func:`icssl.bench.runner.run_missing` by the workers of a Ray cluster.

    Parameters
    ----------
    specs : iterable of Spec
    store : Store
    ray, device, gpus_per_task
        See :class:`OnRay`.
    minutes : float, optional
        Start nothing more after so long.
    report : callable, optional
        Is called whenever a task has ended, and every second.

    Raises
    ------
    FailedSpecsError
        At the end, when all others are stored, if specs failed.
    """
    executor = OnRay(ray, device, gpus_per_task)
    added = run_missing(specs, store, executor=executor, minutes=minutes, report=report)
    if executor.failures:
        raise FailedSpecsError(executor.failures)
    return added


@dataclass(frozen=True)
class OnRay:
    """The executor that gives all work to a Ray cluster and stores what comes back.

    One task trains a batch of models, another measures one spec; trained models stay in
    the cluster. Rows come back to this process, which stores each as it comes. The task of
    a worker that dies begins again elsewhere, and as a task has one result, however often
    it began, its spec has one row.

    Parameters
    ----------
    ray : module
        As :func:`icssl._util.ray.ray_cluster` gives it.
    device : str
        Device of the models; classical methods run on the CPU.
    gpus_per_task : float
        GPUs that each task with models holds: with 0.25, four of them share one.

    Attributes
    ----------
    failures : list of (str, Exception)
        Titles of specs that failed, with what went wrong.
    """

    ray: Any
    device: str = "cpu"
    gpus_per_task: float = 0
    failures: list[tuple[str, Exception]] = field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        """Return the machines of the cluster and versions, for the record of the run."""
        return made_with("cpu") | {"device": machines_text(self.ray)}

    def run(self, specs: Sequence[Spec], work: Work) -> set[str]:
        """Run everything that is free at once: the cluster knows what it can share."""
        mine = work.claims.take([spec.key for spec in specs])
        free = [s for s in specs if s.key in mine and not work.is_done(s)]
        job = _Job(self.device, time.time() + work.clock.seconds_left(), str(Path.cwd()))
        tasks = _submit(self.ray, batches_of(free, self.device), job, self.gpus_per_task)
        work.clock.work += sum(task.cost for task in tasks.values())
        self.failures.extend(_collect(self.ray, tasks, work))
        return mine


@dataclass(frozen=True)
class _Job:
    """What all tasks of a run share."""

    device: str
    deadline: float
    folder: str


@dataclass(frozen=True)
class _Task:
    """A task of the cluster: measuring a spec or, without one, training models."""

    title: str
    cost: float
    spec: Spec | None = None


def _submit(ray: Any, batches: Sequence[Batch], job: _Job, gpus: float) -> dict[Any, _Task]:
    """Submit all tasks and return them by their references."""
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
    """Train models in a worker, for any machine; None if it is too late to begin."""
    if time.time() > job.deadline:
        return None
    with inside(job.folder):
        trained = train_all(configs, job.device)
    return {c: replace(result, model=result.model.cpu()) for c, result in trained.items()}


def _measure(spec: Spec, job: _Job, *trained: Trained | None) -> Row | None:
    """Measure a spec in a worker and return its row; None if it is too late to begin."""
    if time.time() > job.deadline or None in trained:
        return None
    models = {c: model for batch in trained if batch for c, model in batch.items()}
    if not all(config in models for config in spec.trainings):
        raise NonFiniteLossError("the loss of its model does not stay finite")
    with inside(job.folder):
        return row_of(spec, [models[c] for c in spec.trainings], job.device)


def _collect(ray: Any, tasks: dict[Any, _Task], work: Work) -> list[tuple[str, Exception]]:
    """Store rows as they come, and return what failed; after an error, nothing runs on."""
    failures: list[tuple[str, Exception]] = []
    doing = machines_text(ray)
    try:
        while tasks:
            work.clock.tell(doing)
            ray.wait(list(tasks), num_returns=1, timeout=_GLANCE, fetch_local=False)
            doing = _store_finished(ray, tasks, work, failures) or doing
    finally:
        for reference in tasks:  # which are left if a person, or a full disk, ended it
            ray.cancel(reference, force=True)
        _store_finished(ray, tasks, work, failures)
    return failures


def _store_finished(
    ray: Any,
    tasks: dict[Any, _Task],
    work: Work,
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
            if row is not None and not work.is_done(task.spec):
                work.store.append(row)
                work.clock.done += 1
        del tasks[reference]
        work.clock.spent += task.cost
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
