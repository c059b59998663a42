"""Where and when rows were made: hardware, versions, and a line for every run."""

import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from icssl import __version__
from icssl._util.jsonl import append_line, read_lines
from icssl.bench.store import Store


@contextmanager
def record_run(store: Store, about: Mapping[str, Any]) -> Iterator[None]:
    """Record how long a run took that added rows, even if it was interrupted."""
    before, began = store.added, time.perf_counter()

    def record() -> None:
        added = store.added - before
        if added:
            seconds = round(time.perf_counter() - began, 3)
            append_line(runs_file(store), {"rows": added, "seconds": seconds, **about})

    try:
        yield
    except BaseException:
        with suppress(OSError):  # on a full disk, the error before this one says more
            record()
        raise
    record()


def runs_file(store: Store) -> Path:
    """Return the file beside the rows that has a line for every run that added some."""
    return store.path.with_name("runs.jsonl")


def read_runs(store: Store) -> list[dict[str, Any]]:
    """Return what :func:`record_run` recorded."""
    path = runs_file(store)
    return read_lines(path)[0] if path.exists() else []


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
