"""What the commands share: options, messages, exit codes and the progress display."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import rich.console
import typer
from rich.text import Text

from icssl._util.errors import DamagedFileError, error_text, printable
from icssl._util.progress import Pace, duration_text

_Item = TypeVar("_Item")

DATA_OPTION = typer.Option(
    "--option",
    "-O",
    metavar="FIELD=VALUE",
    help="Any other option of the source, such as half_angle=0.1 or pixel_scale=0.001; can "
    "be given several times. docs/data.md lists them.",
)

_LOG_SECONDS = 20.0  # between lines of progress where there is no terminal


class Console(rich.console.Console):
    """A console that shows text as it is: no markup, no emoji, no control characters.

    The text may name classes, columns and files that other people chose.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return text that rich can show, for a line or for a cell of a table."""
        return super().render_str(printable(text), **options)


def say(line: str, *, err: bool = False) -> None:
    """Print a line without a console, to be read by people and by programs."""
    typer.echo(printable(line), err=err)


def check_file(path: Path) -> None:
    """Raise ``ValueError`` for a file that could not be written; create nothing yet."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file.")
    check_folder(path.parent)


def check_folder(path: Path) -> None:
    """Raise ``ValueError`` for a folder that could not be written; create nothing yet."""
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            raise ValueError(f"{path} cannot be a folder: {part} is a link to nothing.")
    existing = next(p for p in (path, *path.parents) if p.exists())
    if not existing.is_dir():
        raise ValueError(f"{path} cannot be a folder: {existing} is a file.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"{path} cannot be written: no permission to write in {existing}.")


def number(text: str) -> str | int | float:
    """Return ``"10"`` as a whole number, ``"0.1"`` as a float, other text unchanged."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def names(text: str) -> list[str]:
    """Return the names in a text that separates them by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def counts(option: str, text: str) -> list[int]:
    """Return the whole numbers in a text such as ``"1,2,5"``, each of them once."""
    try:
        numbers = [int(part) for part in names(text)]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ValueError(
            f"{option} takes whole numbers, counts of at least 1 such as 1,2,5, got "
            f"{text!r}."
        )
    return list(dict.fromkeys(numbers))


class ProgressDisplay:
    """A line that says how far a command is; :func:`show_progress` makes one.

    On a terminal it is a bar. Elsewhere, as in a log file, a line is printed now and then.
    """

    def __init__(self, console: Console, bar: Any) -> None:
        self._console, self._bar = console, bar
        self._task = bar.add_task("", total=None, count="", left="")
        self._logged = time.monotonic()
        self._pace = Pace()

    def __call__(
        self,
        done: int = 0,
        total: int | None = None,
        text: str = "",
        *,
        seconds_left: float | None = None,
    ) -> None:
        """Show that ``done`` of ``total`` are done.

        Parameters
        ----------
        done, total : int
            Without a total, only the text is shown.
        text : str
            What is being done, or how well it goes.
        seconds_left : float, optional
            Without it, the time left is computed from the pace since the first call.
        """
        count = "" if total is None else f"{done:,}/{total:,}"
        if seconds_left is None:
            seconds_left = self._pace.seconds_left(done, total)
        left = "" if seconds_left is None else f"{duration_text(seconds_left)} left"
        self._bar.update(
            self._task,
            completed=done,
            total=total,
            description=printable(text),
            count=count,
            left=left,
        )
        now = time.monotonic()
        if not self._console.is_terminal and now - self._logged > _LOG_SECONDS:
            self._logged = now
            line = "  ".join(part for part in (count, left, text) if part)
            self._console.print(line, highlight=False, soft_wrap=True)


@contextmanager
def show_progress(
    console: Console, *, interrupted: str | None = None
) -> Iterator[ProgressDisplay]:
    """Show the progress of the block: the one display of all commands.

    The bar is gone when the block ends, so that no error stands below a bar.

    Parameters
    ----------
    console : Console
        Where progress is shown.
    interrupted : str, optional
        Printed after Ctrl-C, before the command ends with exit code 130. Without it,
        ``KeyboardInterrupt`` is raised as usual.
    """
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.fields[count]}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.description}", markup=False),
    )
    is_log = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=is_log) as bar:
        try:
            yield ProgressDisplay(console, bar)
        except KeyboardInterrupt:
            if interrupted is None:
                raise
            bar.stop()
            console.print(interrupted, highlight=False, soft_wrap=True)
            raise typer.Exit(130) from None


@contextmanager
def stopped_by_hand(console: Console, said: str = "") -> Iterator[None]:
    """Answer Ctrl-C with a word, and end with exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(said or "Stopped; no file is half-written.", highlight=False)
        raise typer.Exit(130) from None


def track(items: Sequence[_Item], text: str) -> Iterator[_Item]:
    """Yield the items and show on standard error how many of them are done."""
    with show_progress(Console(stderr=True)) as show:
        for position, item in enumerate(items):
            show(position, len(items), text)
            yield item


@contextmanager
def user_errors() -> Iterator[Callable[[], None]]:
    """Turn errors that the user can correct into a message with exit code 2.

    Yields a function to call when everything that the user gave was read and checked. An
    error after that is one of ours and keeps its traceback, unless :func:`file_errors`
    knows it.
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
    """Turn what stops work that has begun (a full disk, a damaged file) into a message."""
    try:
        yield
    except (OSError, DamagedFileError) as error:
        if not begun():
            raise
        typer.echo(f"Stopped: {_message(error)}", err=True)
        raise typer.Exit(1) from error


def _message(error: Exception) -> str:
    """Return the message; for an error of the system, the file and reason, no number."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return printable(f"{error.filename}: {error.strerror.lower()}.")
    return error_text(error)


CLUSTER = "On a cluster"
"""Title of the options that a cluster needs, in help."""

Engine = Annotated[
    str,
    typer.Option(
        help="Where to compute: local (this process) or ray (a Ray cluster).",
        rich_help_panel=CLUSTER,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="With --engine ray: the address (HOST:PORT) of a running Ray cluster that "
        "this machine belongs to, or auto to find it.",
        show_default="start a cluster on this machine",
        rich_help_panel=CLUSTER,
    ),
]
GPUsPerTask = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="With --engine ray: the share of a GPU that each task reserves. With 0.25, "
        "four tasks share one GPU.",
        rich_help_panel=CLUSTER,
    ),
]
