"""How much memory there is, and how much this process holds, in bytes."""

import os
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

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
