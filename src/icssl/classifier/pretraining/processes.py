"""Processes that ``torchrun`` starts, and that train one model on parts of a batch."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed


@dataclass(frozen=True)
class Processes:
    """One process among those that train together; by default there is no other.

    Parameters
    ----------
    rank : int
        Number of this process, from zero; the first one writes and prints for all.
    count : int
        Number of processes.
    """

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def part(self, batch: int) -> slice:
        """Return the part of a batch that this process works on."""
        if batch % self.count:
            raise ValueError(
                f"batch must be a multiple of the number of processes, {self.count}, got "
                f"{batch}: each takes as many of it."
            )
        size = batch // self.count
        return slice(self.rank * size, (self.rank + 1) * size)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in one message."""
        if self.count == 1:
            return
        # One message of all numbers: many small ones would each wait for the network.
        message = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.all_reduce(message)
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, total in zip(tensors, message.split(sizes), strict=True):
            tensor.copy_(total.view_as(tensor))

    def from_first(self, value: Any) -> Any:
        """Return the value that the first process has."""
        if self.count == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values)
        return values[0]


ALONE = Processes()


@contextmanager
def processes_of_torchrun(device: str) -> Iterator[tuple[Processes, str]]:
    """Join the processes that ``torchrun`` started, and give the device of this one.

    Without ``torchrun`` this process is alone. With several GPUs, each process of a machine
    has its own; messages go through NCCL between GPUs and through Gloo otherwise.
    """
    if not distributed.is_torchelastic_launched():
        yield ALONE, device
        return
    if device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        _check_gpus()
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size()), device
    finally:
        distributed.destroy_process_group()


def _check_gpus() -> None:
    processes, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
    if processes > gpus:
        raise ValueError(
            "every process needs a GPU of its own: --nproc-per-node may be at most "
            f"{gpus} here, got {processes}."
        )
