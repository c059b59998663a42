"""The origin of numbers: the commit of the code, hardware and versions."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

from icssl import __version__


@cache
def made_with(device: str) -> dict[str, str]:
    """Return hardware and versions, for a person who wonders about a number."""
    import torch

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
    """Return the commit of the code where it lies in a checkout; "dirty" if it was changed.

    ``ICSSL_COMMIT`` states it for a copy without its history.
    """
    if "ICSSL_COMMIT" in os.environ:
        return os.environ["ICSSL_COMMIT"]
    folder = str(Path(__file__).parent)
    command = ["git", "-C", folder, "describe", "--always", "--dirty", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()
