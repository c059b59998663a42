"""The command ``icssl``."""

from typing import Annotated

import typer

from icssl.app.cli import (
    bench,
    classify,
    data,
    evaluate,
    reproduce,
    tools,
    train,
)

app = typer.Typer(
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


for command in (
    tools.demo,
    classify.classify,
    tools.explore,
    data.sample,
    data.images,
    data.features,
    train.train,
    train.pretrain,
    evaluate.evaluate,
    reproduce.reproduce,
    reproduce.report,
    tools.export,
    tools.params,
):
    app.command()(command)
app.add_typer(bench.bench, name="bench")
