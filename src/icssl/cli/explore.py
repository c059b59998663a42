"""``icssl explore``."""

from typing import Annotated

import typer
from rich.console import Console

from icssl.cli.common import user_errors


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
        listen, server_on, serve = _parts()
        waiting = listen(host, port)
        given = waiting.getsockname()[1]
        if given != port:
            console.print(f"Port {port} is busy: taking {given}.", highlight=False)
        with console.status("starting ..."):
            server = server_on(waiting, host)
        name = f"[{host}]" if ":" in host else host
        address = f"http://{'127.0.0.1' if host == '0.0.0.0' else name}:{given}/"
        console.print(f"Open {address} (Ctrl-C stops it)", markup=False, highlight=False)
        serve(server, address, browser=browser)


def _parts():  # type: ignore[no-untyped-def]
    """The server, or an error that names what to install."""
    try:
        from icssl.explore.app import listen, serve, server_on
    except ModuleNotFoundError as error:
        raise ImportError(
            f"icssl explore needs {error.name}, which is not installed: "
            "pip install 'icssl[explore]'."
        ) from error
    return listen, server_on, serve
