"""Further processes that run the same command beside this one, and share its rows."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_LAST_WORDS = 2000  # characters of what a process said that failed


@contextmanager
def run_beside(count: int, arguments: Sequence[str]) -> Iterator[list[str]]:
    """Run ``icssl`` with these arguments in further processes while the block runs.

    They agree through the rows that are stored: each is computed by one process.

    Parameters
    ----------
    count : int
        How many further processes.
    arguments : sequence of str
        Arguments of the command line.

    Yields
    ------
    list of str
        After the block, what the processes said that failed.
    """
    said: list[str] = []
    with tempfile.TemporaryFile("w+") as output:
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "icssl", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            for _ in range(count)
        ]
        try:
            yield said
            codes = [process.wait() for process in started]
        finally:
            for process in started:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        if any(codes):
            output.seek(0)
            said.append(
                f"{sum(map(bool, codes))} of {count} further processes failed, the last "
                f"words of all: {output.read()[-_LAST_WORDS:]}"
            )
