"""Commands whose help shows options without a value as such; Ctrl-C ends them in a word."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


def _without_value(params: list[Any]) -> list[Any]:
    """Leave out ``<bool>`` behind options such as --force, which take no value."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command; see above."""

    # Typer makes the class below this one, while functions ask for a typer.Context.
    context_class = typer.Context

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments, as the help shows them."""
        return _without_value(super().get_params(ctx))


@contextmanager
def _answer_ctrl_c() -> Iterator[None]:
    """Answer Ctrl-C as ``python -m icssl`` does, where a command has no answer of its own.

    Typer alone ends with the exit code and no word.
    """
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
        raise typer.Exit(130) from None


class Group(TyperGroup):
    """A group of commands; see above."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the arguments; options such as --version are answered here."""
        with _answer_ctrl_c():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _answer_ctrl_c():
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments, as the help shows them."""
        return _without_value(super().get_params(ctx))
