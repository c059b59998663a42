"""What the commands share: options, messages, exit codes."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import rich.console
import typer
from rich.text import Text

from icssl._util.errors import DamagedFileError, printable

_SILENCE = 20.0  # seconds between lines where there is no terminal


class Console(rich.console.Console):
    """A console that shows text as it is: no markup, no emoji, no control characters.

    What is printed names classes, columns and files of other people.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Make text of what is printed, and of every cell of a table."""
        return super().render_str(printable(text), **options)


def say(line: str, *, err: bool = False) -> None:
    """Print a line without a console, to be read by people and by programs."""
    typer.echo(printable(line), err=err)


def check_file(path: Path) -> None:
    """Refuse a file that cannot be written before the work is done; make nothing yet."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file.")
    check_folder(path.parent)


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be made or written to; make nothing yet."""
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            raise ValueError(f"{path} cannot be a folder: {part} is a link to nothing.")
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


def names(text: str) -> list[str]:
    """``"a, b"`` is a and b."""
    return [part.strip() for part in text.split(",") if part.strip()]


def counts(option: str, text: str) -> list[int]:
    """``"1,2,5"`` as numbers, each once."""
    try:
        found = [int(part) for part in names(text)]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise ValueError(
            f"{option} takes whole numbers, counts of at least 1 such as 1,2,5, got "
            f"{text!r}."
        )
    return list(dict.fromkeys(found))


class Log:
    """A line now and then where there is no terminal: a log has no bar."""

    def __init__(self, console: Console) -> None:
        self._console, self._spoke = console, time.monotonic()

    def __call__(self, line: str) -> None:
        """Print the line, or not."""
        now = time.monotonic()
        if not self._console.is_terminal and now - self._spoke > _SILENCE:
            self._spoke = now
            self._console.print(line)


@contextmanager
def user_errors() -> Iterator[Callable[[], None]]:
    """What a person can mend is a message and exit code 2, not a traceback.

    Gives a function to call when all that a person gave was read and checked: an error
    after that is one of ours, and shows where it is, unless it is of :func:`file_errors`.
    """
    checked = False

    def all_checked() -> None:
        nonlocal checked
        checked = True

    try:
        with file_errors(lambda: checked):
            yield all_checked
    except (ValueError, ImportError, OSError) as error:
        if checked:
            raise
        raise typer.BadParameter(_message(error)) from error


@contextmanager
def file_errors(begun: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Say in words what stops work that has begun: a full disk, or a damaged file."""
    try:
        yield
    except (OSError, DamagedFileError) as error:
        if not begun():
            raise
        typer.echo(f"Stopped: {_message(error)}", err=True)
        raise typer.Exit(1) from error


def _message(error: Exception) -> str:
    """An error of the system by the file and the reason, without its number."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return printable(f"{error.filename}: {error.strerror.lower()}.")
    return printable(error)


Engine = Annotated[
    str, typer.Option(help="local: this process. ray: the workers of a Ray cluster.")
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Of a running Ray cluster that this machine is part of: HOST:PORT, or auto.",
        show_default="start one on this machine",
    ),
]
GPUsPerTask = Annotated[
    float | None,
    typer.Option(
        min=0, help="That a task holds on a Ray cluster: with 0.25, four share a GPU."
    ),
]
