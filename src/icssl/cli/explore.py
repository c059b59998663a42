"""``icssl explore``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from icssl.cli.common import Console, user_errors

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that stand for all of a machine, and how it is reached from itself."""


def explore(
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. By default only this machine can open the page; "
            "0.0.0.0 lets everyone on the network."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="If it is busy, the next free one.")
    ] = 8050,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page.")
    ] = True,
) -> None:
    r"""Play with the model in the browser, look inside, and label a table of your own.

    A page on this machine: nothing leaves it. Click points to label them and see what is
    predicted, beside other methods; walk through the layers of the paper's model; see what
    each label contributes; drop a CSV or Parquet file and get it back labelled.

    Needs the extra: pip install 'icssl\[explore]'. Stop it with Ctrl-C.
    """
    console = Console()
    with user_errors():
        with _extra():
            from icssl.explore.app import listen, serve, server_on
        waiting = listen(host, port)
        given = waiting.getsockname()[1]
        if given != port:
            console.print(f"Port {port} is busy: taking {given}.", highlight=False)
        with console.status("starting ..."):
            server = server_on(waiting, host)
    address = f"http://{_reached(host)}:{given}/"
    console.print(f"Open {address} (Ctrl-C stops it)", markup=False, highlight=False)
    serve(server, address, browser=browser)


def _reached(host: str) -> str:
    """How an address is written in a link from this machine."""
    host = _EVERYWHERE.get(host, host)
    return f"[{host}]" if ":" in host else host


@contextmanager
def _extra() -> Iterator[None]:
    """What is not installed is named, with how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f"icssl explore needs {error.name}, which is not installed: "
            "pip install 'icssl[explore]'."
        ) from error
