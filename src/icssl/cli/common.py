"""What the commands share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


def check_writable(path: Path) -> None:
    """Refuse a path before the work is done and not after."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab"):
        pass


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
        raise typer.BadParameter(str(error)) from error
