"""What the commands share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


def check_file(path: Path) -> None:
    """Refuse a file that cannot be written before the work is done; make nothing yet."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file.")
    check_folder(path.parent)


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be made or written to; make nothing yet."""
    there = next(p for p in (path, *path.parents) if p.exists())
    if not there.is_dir():
        raise ValueError(f"{path} cannot be a folder: {there} is a file.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"{path} cannot be written: no permission to write in {there}.")


def number(text: str) -> str | int | float:
    """``"10"`` is a count, ``"0.1"`` a number, anything else a name."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@contextmanager
def user_errors() -> Iterator[None]:
    """What a person can mend is a message and exit code 2, not a traceback."""
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise typer.BadParameter(_message(error)) from error


def _message(error: Exception) -> str:
    """An error of the system by the file and the reason, without its number."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}."
    return str(error)
