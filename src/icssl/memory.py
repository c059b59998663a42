"""How much memory there is, and how much this process holds, in bytes.

By psutil, which comes with the package. Where it is run from its folder without installing,
beside a torch that is there already, what the system says has to do.
"""

import os
import sys
from importlib.util import find_spec


def free_bytes() -> int:
    """That the machine could still give out."""
    if find_spec("psutil") is not None:
        import psutil

        return int(psutil.virtual_memory().available)
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def held_bytes() -> int:
    """By this process now; without psutil the most that it ever held."""
    if find_spec("psutil") is not None:
        import psutil

        return int(psutil.Process().memory_info().rss)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
