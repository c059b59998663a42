"""Commands whose help shows options without a value as such."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_value(params: list[Any]) -> list[Any]:
    """Leave out ``<bool>`` behind options such as --force, which take no value."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command; see above."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments, as the help shows them."""
        return _without_value(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands; see above."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments, as the help shows them."""
        return _without_value(super().get_params(ctx))
