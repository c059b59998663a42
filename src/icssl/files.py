"""Files that are either whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a temporary file beside ``path``; it takes its place when all went well.

    After an error, or a kill at any moment, ``path`` is as it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}{path.suffix}")
    unfinished.touch()
    mode = unfinished.stat().st_mode
    try:
        yield unfinished
        unfinished.chmod(mode)  # some writers let nobody else read what they wrote
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
