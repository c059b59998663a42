"""``Pool``: processes that measure specs, each within a time limit.

A method of another package may run for ever, end its process or exhaust the memory. So a
spec is measured in a process that can be killed at any moment; the next gets a new one.
"""

import os
import pickle
import platform
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib import import_module
from math import inf
from multiprocessing import connection, get_context
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from icssl._util.provenance import made_with
from icssl.bench.spec import RecordsFailure, Spec
from icssl.bench.store import Row, SharedQueue
from icssl.bench.work import Work, failed_row, row_of

_GLANCE = 0.5  # seconds between two looks at the processes


@dataclass(frozen=True)
class Pool:
    """An executor: some processes, each of which measures one spec at a time.

    Parameters
    ----------
    workers : int
        Number of processes.
    limit : float
        Seconds for one spec. One that takes longer is killed, with its process, whatever
        it is doing. The failure becomes its row if the spec is a
        :class:`icssl.bench.spec.RecordsFailure`; otherwise it is raised.
    threads : int, optional
        Threads of every process; by default one, and with None as many as it takes.
    is_fresh : bool
        Whether every spec has a new process, so that its memory can be measured.
    niceness : int
        How far the processes stand back behind others.
    """

    workers: int = 1
    limit: float = inf
    threads: int | None = 1
    is_fresh: bool = False
    niceness: int = 0

    def describe(self) -> dict[str, Any]:
        """Return hardware and versions, for the record of the run."""
        import sklearn

        return {
            "workers": self.workers,
            "cores": os.cpu_count(),
            "processor": platform.machine(),
            "scikit-learn": sklearn.__version__,
            **made_with("cpu"),
        }

    def run(self, specs: Sequence[Spec], work: Work) -> set[str]:
        """Measure what no other process measures; return the keys that were begun."""
        queue = SharedQueue(specs, work.claims, work.is_done)
        work.clock.work = work.clock.spent + len(specs)
        begun: set[str] = set()
        modules = sorted({type(spec).__module__ for spec in specs})
        lanes = [Lane(self, modules) for _ in range(min(self.workers, len(specs)))]
        try:
            while (len(queue) and work.clock.has_time()) or any(x.spec for x in lanes):
                connection.wait([lane.pipe for lane in lanes], timeout=_GLANCE)
                is_waiting = False
                for lane in lanes:
                    _store_finished(lane, work)
                    if lane.is_free and len(queue) and work.clock.has_time():
                        spec = queue.pop()
                        is_waiting |= spec is None
                        if spec is not None:
                            begun.add(spec.key)
                            lane.give(spec)
                if is_waiting and not any(lane.spec for lane in lanes):
                    break  # other processes measure all that is left
        finally:
            for lane in lanes:
                lane.close()
        return begun


def _store_finished(lane: "Lane", work: Work) -> None:
    spec, row = lane.spec, lane.take()
    if spec is None or row is None:
        return
    work.store.append(row)
    work.claims.drop([spec.key])
    work.clock.done += 1
    work.clock.spent += 1
    work.clock.tell(spec.title, row)


class Lane:
    """A process that measures one spec at a time and can be killed at any moment.

    Parameters
    ----------
    pool : Pool
        Its limits.
    modules : sequence of str
        Modules that are loaded before the process is ready, outside the time limit.

    Attributes
    ----------
    spec : Spec or None
        What it is measuring.
    is_free : bool
        Whether the process is ready for a spec.
    """

    def __init__(self, pool: Pool, modules: Sequence[str] = ()) -> None:
        self._pool, self._modules = pool, modules
        self.spec: Spec | None = None
        self._open()

    def _open(self) -> None:
        context = get_context("spawn")  # a fork of a process that uses threads hangs
        self.pipe, theirs = context.Pipe()
        settings = (self._pool.threads, self._pool.niceness, self._modules)
        self._process = context.Process(
            target=_serve, args=(theirs, *settings), daemon=True
        )
        self._process.start()
        theirs.close()
        self.is_free, self._is_used = False, False

    def give(self, spec: Spec) -> None:
        """Let the process measure a spec."""
        if self._pool.is_fresh and self._is_used:
            self._reopen()
            self.pipe.poll(None)
            self.take()  # it says that it is ready
        self.pipe.send(spec)
        self.spec, self.is_free, self._is_used = spec, False, True
        self._began = time.monotonic()

    def take(self) -> Row | None:
        """Return the row of the spec, if it is there or will not come any more."""
        spec = self.spec
        if not self.pipe.poll():
            if spec is None or time.monotonic() < self._began + self._pool.limit:
                return None
            why = f"did not finish in {self._pool.limit:g} s"
            return self._end(spec, TimeoutError(why), why)
        try:
            answer: Row | Exception | None = self.pipe.recv()
        except (EOFError, ConnectionResetError):  # by how far it had read
            if spec is None:
                raise RuntimeError(
                    "a process for the methods ended before it had anything to do; its "
                    "own message stands above."
                ) from None
            why = "its process died (out of memory?)"
            return self._end(spec, RuntimeError(why), why)
        self.spec, self.is_free = None, True
        if spec is not None and isinstance(answer, Exception):
            return self._failure(spec, answer, f"{type(answer).__name__}: {answer}")
        assert not isinstance(answer, Exception)
        return answer

    def _end(self, spec: Spec, error: Exception, why: str) -> Row:
        self._reopen()
        self.spec = None
        return self._failure(spec, error, why)

    def _failure(self, spec: Spec, error: Exception, why: str) -> Row:
        if not isinstance(spec, RecordsFailure):
            error.add_note(f"while it measured: {spec.title}")
            raise error
        return failed_row(spec, spec.failure(why), time.monotonic() - self._began)

    def _reopen(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Any, threads: int | None, niceness: int, modules: Sequence[str]) -> None:
    """Say that the process is ready, and then answer every spec with its row."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # is for the one that waits for the rows
    if niceness and hasattr(os, "nice"):
        os.nice(niceness)
    if threads is not None:
        torch.set_num_threads(threads)
        threadpool_limits(threads)
    for name in modules:
        import_module(name)
    pipe.send(None)
    while True:
        try:
            spec = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(spec))


def _answer(spec: Spec) -> Row | Exception:
    """Return the row of a spec, or what went wrong, in a form that a pipe can carry."""
    try:
        return row_of(spec, (), "cpu")
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # some errors cannot be made again from their text alone
            return RuntimeError(f"{type(error).__name__}: {error}")
        return error


def run_in_subprocess(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a process of its own, whose memory is its own.

    A process that the system kills, mostly for want of memory, is a ``RuntimeError``; with
    multiprocessing's own pools one would wait for it for ever.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            raise RuntimeError("ended without an answer (out of memory?)") from error
