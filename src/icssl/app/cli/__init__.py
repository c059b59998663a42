"""The command ``icssl``."""

from typing import Annotated

import typer

from icssl.app.cli import (
    about,
    bench,
    classify,
    data,
    evaluate,
    reproduce,
    train,
)

app = typer.Typer(
    help="In-context semi-supervised learning: many labels from few, in one forward pass.",
    no_args_is_help=True,
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
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    """See ``icssl COMMAND --help`` for each command."""


for command in (
    about.demo,
    classify.classify,
    about.explore,
    data.sample,
    data.images,
    data.features,
    train.train,
    train.pretrain,
    evaluate.evaluate,
    reproduce.reproduce,
    reproduce.report,
    about.export,
    about.params,
):
    app.command()(command)
app.add_typer(bench.bench, name="bench")
