"""The command ``icssl``."""

from typing import Annotated

import typer

from icssl.app.cli import (
    audit,
    bench,
    classify,
    data,
    evaluate,
    predict,
    reproduce,
    tools,
    train,
)
from icssl.app.cli.options_without_value import Command, Group

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",  # wraps paragraphs anew for the terminal
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        from icssl import __version__

        typer.echo(f"icssl {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and stop.",
        ),
    ] = False,
) -> None:
    """Label many points from few labels: in-context semi-supervised learning.

    Each command has its own help: icssl COMMAND --help.
    """


_TABLE, _PAPER = "Label a table", "The paper and its model"
_PANELS = {
    _TABLE: (classify.classify, predict.predict, tools.explore),
    _PAPER: (
        tools.demo,
        reproduce.reproduce,
        reproduce.report,
        train.train,
        evaluate.evaluate,
        audit.audit,
        train.pretrain,
        tools.export,
        tools.params,
        data.sample,
        data.images,
        data.features,
    ),
}
for panel, commands in _PANELS.items():
    for command in commands:
        app.command(cls=Command, rich_help_panel=panel)(command)
app.add_typer(bench.bench, name="bench", rich_help_panel=_PAPER)
