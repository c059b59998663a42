"""Connection to a Ray cluster, where work can run instead of in this process."""

import os
import secrets
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager as Block
from contextlib import chdir, contextmanager, nullcontext, suppress
from ipaddress import ip_address
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import urlsplit

from icssl._util.errors import check_choice

_ENGINES = ("local", "ray")

RETRIES = 5
"""How often a task is started again after its worker died."""

_AUTH_MODE = "RAY_AUTH_MODE"  # the variable that turns tokens on
_QUIET = {"log_to_driver": False, "logging_level": "ERROR"}
_PATIENCE = 5  # seconds for an address to answer
# Ray itself waits for minutes; these are read when it is first imported.
_RAY_PATIENCE = {
    "RAY_gcs_server_port_wait_time_s": "1",
    "RAY_py_gcs_connect_timeout_s": str(_PATIENCE),
}


def check_engine(engine: str, address: str | None, gpus_per_task: float | None) -> None:
    """Raise ``ValueError`` for an unknown engine, or options of Ray for another engine."""
    check_choice("engine", engine, _ENGINES)
    check_owner(engine, "ray", address=address, gpus_per_task=gpus_per_task)
    if gpus_per_task is not None and not _is_possible(gpus_per_task):
        raise ValueError(
            "--gpus-per-task must be a fraction of a GPU or a whole number of them, got "
            f"{gpus_per_task}."
        )


def check_owner(engine: str, owner: str, **options: Any) -> None:
    """Raise ``ValueError`` for options of one engine that were given for another."""
    for name, value in options.items():
        if engine != owner and value is not None:
            option = f"--{name.replace('_', '-')} {value}"
            raise ValueError(f"{option} is for --engine {owner}, not for {engine}.")


def _is_possible(gpus: float) -> bool:
    """Whether Ray can reserve so many GPUs: a fraction of one, or whole ones."""
    return 0 <= gpus <= 1 or gpus.is_integer()


@contextmanager
def ray_cluster(address: str | None = None, *, gpus_per_task: float = 0) -> Iterator[Any]:
    """Yield the module ``ray``, connected to a cluster.

    Parameters
    ----------
    address : str, optional
        Address of a running cluster that this machine is part of: ``host:port``, or
        ``auto`` for the one that was started here. By default a cluster of this machine
        alone is started, which other machines cannot reach and which ends with the block. A
        process that is connected already stays as it is.
    gpus_per_task : float
        GPUs that a task needs. A cluster with fewer is refused: tasks would wait for ever.
    """
    if address is not None:
        _check_address(address)
        for name, value in _RAY_PATIENCE.items():
            os.environ.setdefault(name, value)
    elif "ray" not in sys.modules:
        # Read when Ray is first imported; some versions have tokens only when asked.
        os.environ.setdefault(_AUTH_MODE, "token")
    ray = _import_ray()
    connected = ray.is_initialized()
    if not connected and address is None:
        start_here(ray)
    elif not connected:
        _connect(ray, str(address))
    try:
        gpus = ray.cluster_resources().get("GPU", 0)
        if gpus < gpus_per_task:
            raise ValueError(
                f"every task needs {gpus_per_task:g} GPUs, and the Ray cluster has "
                f"{gpus:g}."
            )
        yield ray
    finally:
        if not connected:
            ray.shutdown()


def _import_ray() -> Any:
    """Return the module ``ray``, or raise an error that says how to install it."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("--engine ray needs Ray: pip install 'icssl[ray]'.") from error
    return ray


def start_here(ray: Any, **options: Any) -> None:
    """Start a cluster of this machine alone: on loopback, and with a token.

    Parameters
    ----------
    ray : module
        The module ``ray``.
    **options
        Further options of ``ray.init``.
    """
    from ray._private import ray_constants

    if os.environ.get(_AUTH_MODE, "token") == "token":
        _make_token()
    # Ray listens on all interfaces unless it is told that it cannot have a cluster of
    # several machines, and has no option for it but a variable read when it is imported.
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        ray.init("local", include_dashboard=False, **_QUIET, **options)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
    node = ray.util.get_node_ip_address()
    if not ip_address(node).is_loopback:
        warnings.warn(
            f"the Ray cluster of this machine listens on {node}, where other machines can "
            "reach it: this version of Ray does not keep to loopback.",
            UserWarning,
            stacklevel=2,
        )


def _make_token() -> None:
    """Write a token that its owner alone can read, where Ray would write one for all."""
    path = Path.home() / ".ray" / "auth_token"
    token = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if token or path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=path.parent) as file:
        file.write(secrets.token_hex(32))
        file.flush()
        # Another process was faster, or the disk has no links: then Ray makes a token.
        with suppress(OSError):
            os.link(file.name, path)


def _connect(ray: Any, address: str) -> None:
    try:
        ray.init(address, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConnectionError(f"no Ray cluster answers at {address}: {reason}") from error


def _check_address(address: str) -> None:
    """Raise ``ConnectionError`` if nothing answers; Ray itself would retry for minutes."""
    if address == "auto":
        return  # Ray looks that one up in a file of this machine
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
    """Return one line of text about the machines of a cluster."""
    resources = ray.cluster_resources()
    machines = sum(node["Alive"] for node in ray.nodes())
    counts = {"machines": machines, "CPUs": resources.get("CPU", 0)}
    counts["GPUs"] = resources.get("GPU")
    return "Ray cluster, " + ", ".join(f"{n}: {c:g}" for n, c in counts.items() if c)


def inside(folder: str) -> Block[None]:
    """Return a block that works in a folder of the calling process, for relative names.

    A machine without that folder works in its own.
    """
    return chdir(folder) if Path(folder).is_dir() else nullcontext()
