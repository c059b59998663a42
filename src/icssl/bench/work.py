"""What every executor works with: store, claims, a clock, and how a row is made."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, runtime_checkable

from icssl._util.provenance import made_with
from icssl.bench.batches import Training
from icssl.bench.spec import Spec
from icssl.bench.store import Claims, Row, Store


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for a person who waits.

    Parameters
    ----------
    done, total : int
        Rows stored, and rows that were missing when the run began.
    doing : str
        What is being done.
    seconds_left : float, optional
        An estimate, once there is something to go by.
    row : dict, optional
        The row that was stored just now.
    """

    done: int
    total: int
    doing: str
    seconds_left: float | None = None
    row: Row | None = None


@dataclass
class Clock:
    """A clock that says whether there is time for more, and reports progress.

    Parameters
    ----------
    minutes : float, optional
        Nothing more is started after so long.
    total : int
        Rows that are missing.
    report : callable
        Is called with a :class:`Progress`.
    work, spent : float
        Costs of everything and of what is done, in one unit, for the time that is left.
    done : int
        Rows stored so far.
    """

    minutes: float | None
    total: int
    report: Callable[[Progress], None] = lambda _: None
    work: float = 0.0
    spent: float = 0.0
    done: int = 0

    def __post_init__(self) -> None:
        self._began = time.perf_counter()

    def has_time(self) -> bool:
        """Return whether more may be started."""
        return self.minutes is None or self._elapsed_seconds() <= 60 * self.minutes

    def seconds_left(self) -> float:
        """Return how long more may be started, in seconds."""
        return inf if self.minutes is None else 60 * self.minutes - self._elapsed_seconds()

    def stop(self) -> None:
        """Let nothing more be started."""
        self.minutes = -1.0

    def may_wait(self) -> bool:
        """Return whether there is time to wait for another process, and report that."""
        if self.has_time():
            self.tell("another process runs the rest")
        return self.has_time()

    def tell(self, doing: str, row: Row | None = None) -> None:
        """Report how far the run is, and what is being done."""
        elapsed = self._elapsed_seconds()
        left = elapsed / self.spent * (self.work - self.spent) if self.spent else None
        self.report(Progress(self.done, self.total, doing, left, row))

    def _elapsed_seconds(self) -> float:
        return time.perf_counter() - self._began


@dataclass(frozen=True)
class Work:
    """What an executor is given besides the specs.

    Parameters
    ----------
    store : Store
    claims : Claims
        Other processes may work on the same store: a spec is run once it is claimed.
    clock : Clock
    is_done : callable
        Whether a spec has its row.
    """

    store: Store
    claims: Claims
    clock: Clock
    is_done: Callable[[Spec], bool]


@runtime_checkable
class Executor(Protocol):
    """A way to run specs: in this process, in others, or on a cluster."""

    def describe(self) -> dict[str, Any]:
        """Return hardware and versions, for the record of the run."""
        ...

    def run(self, specs: Sequence[Spec], work: Work) -> set[str]:
        """Claim and run what no other process runs; return the keys that were begun."""
        ...


def row_of(spec: Spec, trained: Sequence[Training], device: str) -> Row:
    """Measure a spec and return its row, with where and how it came about.

    What a spec measures itself, such as the seconds of the method alone, stays as it is.
    """
    began = time.perf_counter()
    measured = spec.measure([training.model for training in trained], device)
    row: Row = {"key": spec.key, "spec": spec.describe(), **measured}
    if trained:
        row["episodes_seen"] = sum(c.steps * c.batch for c in spec.trainings)
        row["held_out_loss"] = [round(t.held_out, 5) for t in trained]
        row["slope"] = [round(t.slope, 5) for t in trained]
        row["undertrained"] = any(t.undertrained for t in trained)
    row.setdefault("seconds", round(time.perf_counter() - began, 3))
    return _with_provenance(row, device if trained else "cpu")


def failed_row(spec: Spec, failure: dict[str, Any], seconds: float) -> Row:
    """Return the row of a spec that could not be measured."""
    row = {"key": spec.key, "spec": spec.describe(), **failure}
    return _with_provenance({**row, "seconds": round(seconds, 4)}, "cpu")


def _with_provenance(row: Row, device: str) -> Row:
    return row | {k: v for k, v in made_with(device).items() if k not in row}
