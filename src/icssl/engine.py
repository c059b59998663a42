"""Where work runs: in this process, or on the machines of a Ray cluster."""

import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager as Block
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from icssl.errors import check_choice

ENGINES = ("local", "ray")

RETRIES = 5
"""How often a piece of work begins again whose worker died under it."""

_PATIENCE = 5  # seconds for an address to answer
# Ray itself waits for minutes; these are read when it is first imported.
_RAY_PATIENCE = {
    "RAY_gcs_server_port_wait_time_s": "1",
    "RAY_py_gcs_connect_timeout_s": str(_PATIENCE),
}


def check_engine(engine: str, address: str | None, gpus_per_task: float | None) -> None:
    """Refuse an unknown engine, and options of Ray for another one."""
    check_choice("engine", engine, ENGINES)
    check_owner(engine, "ray", address=address, gpus_per_task=gpus_per_task)
    if gpus_per_task is not None and not _can_be_had(gpus_per_task):
        raise ValueError(
            "--gpus-per-task must be a fraction of a GPU or a whole number of them, got "
            f"{gpus_per_task}."
        )


def check_owner(engine: str, owner: str, **options: Any) -> None:
    """Refuse options of one engine that were given for another, which ignores them."""
    for name, given in options.items():
        if engine != owner and given is not None:
            option = f"--{name.replace('_', '-')} {given}"
            raise ValueError(f"{option} is for --engine {owner}, not for {engine}.")


def _can_be_had(gpus: float) -> bool:
    return 0 <= gpus <= 1 or gpus.is_integer()


@contextmanager
def ray_cluster(address: str | None = None, *, gpus_per_task: float = 0) -> Iterator[Any]:
    """The module ``ray``, connected to a cluster.

    Parameters
    ----------
    address : str, optional
        Of a running cluster that this machine is part of: ``host:port``, or ``auto`` for
        the one that was started here. By default one of this machine alone is started, and
        ends with the block. A process that is connected already stays as it is.
    gpus_per_task : float
        A cluster without so many is refused, where tasks would wait for ever.
    """
    if address is not None:
        _check_address(address)
        for name, value in _RAY_PATIENCE.items():
            os.environ.setdefault(name, value)
    ray = _imported()
    connected = ray.is_initialized()
    if not connected:
        _connect(ray, address)
    try:
        there = ray.cluster_resources().get("GPU", 0)
        if there < gpus_per_task:
            raise ValueError(
                f"every task needs {gpus_per_task:g} GPUs, and the Ray cluster has "
                f"{there:g}."
            )
        yield ray
    finally:
        if not connected:
            ray.shutdown()


def _imported() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError("--engine ray needs Ray: pip install 'icssl[ray]'.") from error
    return ray


def _connect(ray: Any, address: str | None) -> None:
    own = {"address": "local", "include_dashboard": False}
    where = own if address is None else {"address": address}
    try:
        ray.init(**where, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        if address is None:
            raise
        reason = str(error).splitlines()[0]
        raise ConnectionError(f"no Ray cluster answers at {address}: {reason}") from error


def _check_address(address: str) -> None:
    """Knock at the door, since Ray knocks for minutes."""
    if address == "auto":
        return  # which Ray looks up in a file of this machine
    try:
        asked = urlsplit(f"//{address}")
        host, port = asked.hostname, asked.port
    except ValueError:
        host = port = None
    if not host or not port or "/" in address:
        raise ValueError(f"--address must be auto or HOST:PORT, got {address!r}.")
    try:
        socket.create_connection((host, port), timeout=_PATIENCE).close()
    except OSError as error:
        raise ConnectionError(f"no Ray cluster answers at {address}: {error}.") from error


def machines_text(ray: Any) -> str:
    """What a cluster has, in words."""
    there = ray.cluster_resources()
    machines = sum(node["Alive"] for node in ray.nodes())
    counts = {"machines": machines, "CPUs": there.get("CPU", 0), "GPUs": there.get("GPU")}
    return "Ray cluster, " + ", ".join(f"{n}: {c:g}" for n, c in counts.items() if c)


def inside(folder: str) -> Block[None]:
    """Work in the folder of the process that gave it, for what it calls by relative names.

    A machine without that folder works where it is.
    """
    return chdir(folder) if Path(folder).is_dir() else nullcontext()
