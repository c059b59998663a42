"""Members of a model, each trained in a process of its own, and joined at the end.

One process can not keep a GPU busy: drawing tables and making graphs are thousands of small
steps, and small eigenproblems are solved by the cores of the machine. Members share nothing
while they are trained, so that each gets a process, and tables of its own.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from typing import Any

import torch

from icssl.classifier.model import ContextModel
from icssl.classifier.pretraining.train import (
    PretrainConfig,
    PretrainProgress,
    pretrain,
    read_checkpoint,
)

_POLL_SECONDS = 0.5


def member_config(config: PretrainConfig, member: int) -> PretrainConfig:
    """Return the settings of one member: a seed of its own, and so its own tables."""
    members = config.model.members
    return replace(
        config,
        model=replace(config.model, members=1),
        seed=config.seed * members + member,
    )


def pretrain_members(
    config: PretrainConfig,
    folder: Path,
    *,
    device: str = "cpu",
    minutes: float | None = None,
    report: Callable[[PretrainProgress], None] = lambda _: None,
) -> ContextModel | None:
    """Train all members of a model at once, each in a process of its own.

    Parameters
    ----------
    config : PretrainConfig
        What is trained, and on what. Each member sees as many contexts as it says.
    folder : Path
        Where the checkpoint of every member is read and written.
    device : str
        Device of torch.
    minutes : float, optional
        Time limit. The same call, made again, goes on from the checkpoints.
    report : callable, optional
        Called with the progress of the member that is behind all others.

    Returns
    -------
    ContextModel or None
        The model of all members; None if the time was up before the last step.
    """
    members = range(config.model.members)
    paths = [folder / f"member-{i}.safetensors" for i in members]
    for i in members:  # an error of a checkpoint is to be seen here, not in a process
        read_checkpoint(paths[i], member_config(config, i))
    context = get_context("spawn")
    told = context.Queue()
    threads = max(1, (os.cpu_count() or 1) // len(members))
    workers = [
        context.Process(
            target=_train_member,
            args=(member_config(config, i), i, device, paths[i], minutes, threads, told),
            daemon=True,
        )
        for i in members
    ]
    for worker in workers:
        worker.start()
    try:
        _follow(workers, told, report)
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    failed = [i for i in members if workers[i].exitcode]
    if failed:
        raise RuntimeError(f"training of member {failed[0]} ended with an error, above.")
    return _join(config, paths)


def _train_member(
    config: PretrainConfig,
    member: int,
    device: str,
    checkpoint: Path,
    minutes: float | None,
    threads: int,
    told: Any,
) -> None:
    """Train one member, in its own process."""
    torch.set_num_threads(threads)

    def tell(progress: PretrainProgress) -> None:
        told.put((member, progress))

    pretrain(config, device=device, checkpoint=checkpoint, minutes=minutes, report=tell)


def _follow(
    workers: list[Any], told: Any, report: Callable[[PretrainProgress], None]
) -> None:
    """Report the progress of the slowest member until all have ended, or one has failed."""
    latest: dict[int, PretrainProgress] = {}
    reported = 0
    while not any(worker.exitcode for worker in workers):
        # What a member told before it ended can still be on its way.
        has_ended = not any(worker.is_alive() for worker in workers)
        try:
            member, progress = told.get(timeout=_POLL_SECONDS)
        except Empty:
            if has_ended:
                return
            continue
        latest[member] = progress
        slowest = min(latest.values(), key=lambda progress: progress.step)
        if len(latest) == len(workers) and slowest.step > reported:
            report(slowest)
            reported = slowest.step


def _join(config: PretrainConfig, paths: list[Path]) -> ContextModel | None:
    """Return one model of the members that were trained, or None if one is not done."""
    model = ContextModel(config.model)
    for i, path in enumerate(paths):
        checkpoint = read_checkpoint(path, member_config(config, i))
        if checkpoint is None or checkpoint[1] < config.steps:
            return None
        gate = {
            name.removeprefix("average.gates.0."): tensor
            for name, tensor in checkpoint[0].items()
            if name.startswith("average.gates.0.")
        }
        model.gates[i].load_state_dict(gate)
    return model.eval().requires_grad_(False)
