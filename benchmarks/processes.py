"""Work in several processes, for benchmarks whose cases do not depend on each other."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import get_context

import torch
from threadpoolctl import threadpool_limits


def map_in_processes(
    work: Callable, tasks: Iterable[object], workers: int
) -> Iterator[object]:
    """Yield the result of ``work`` for every task, in order; each uses one thread.

    With one worker everything happens in this process, whose threads are then restored.
    """
    run = partial(work_on_one_thread, work)
    if workers == 1:
        yield from map(run, tasks)
        return
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(run, tasks)


def work_on_one_thread(work: Callable, task: object) -> object:
    """Work with one thread for torch and for every BLAS, then have as many as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # Here, since a limit does not hold for libraries that are loaded after it.
        with threadpool_limits(1):
            return work(task)
    finally:
        torch.set_num_threads(threads)
