"""The options of commands that many machines can share."""

from typing import Annotated

import typer

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
