"""Properties of this machine: free memory, memory of this process, and Triton.

psutil comes with the package. Without it, where the source runs beside a torch that is
already installed, the system's own counters are used.
"""

import os
import sys
from functools import cache
from importlib.util import find_spec


def free_bytes() -> int:
    """Return how much memory the machine can still give out."""
    if find_spec("psutil") is not None:
        import psutil

        return int(psutil.virtual_memory().available)
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def held_bytes() -> int:
    """Return what this process holds now; without psutil, the most it ever held."""
    if find_spec("psutil") is not None:
        import psutil

        return int(psutil.Process().memory_info().rss)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@cache
def has_triton() -> bool:
    """Whether Triton is installed; it comes with torch for GPUs."""
    return find_spec("triton") is not None
