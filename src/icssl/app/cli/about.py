"""The commands that show something: demo, params, explore; and export."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from icssl.app.cli.common import Console, check_file, user_errors


def demo(
    output: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path(
        "icssl-demo.png"
    ),
    draws: Annotated[
        int, typer.Option(min=2, help="Clouds drawn, each with new labels.")
    ] = 20,
    iterations: Annotated[
        int,
        typer.Option(
            min=1, help="Power iterations of stage 2; two layers each. Fewer are faster."
        ),
    ] = 30_000,
    seed: Annotated[int, typer.Option(min=0, help="Draws other clouds.")] = 0,
) -> None:
    """Label a Swiss roll and two moons of 100 points from three labels each.

    Nothing is trained: Lemmas 1 and 2 of the paper give the weights. The table compares the
    mean accuracy with logistic regression and label spreading on the same labels, with 95%
    intervals over draws; the picture shows the first draw of each cloud.
    """
    from icssl.app.demo import CLOUDS, METHODS, draw_demo, run_demo

    console = Console()
    with user_errors():
        check_file(output)
    results = []
    for cloud in CLOUDS:
        with console.status(f"{cloud.name}: {iterations:,} iterations, {draws} draws ..."):
            results.append(run_demo(cloud, draws=draws, iterations=iterations, seed=seed))
    table = Table(title="Accuracy on the 97 points without a label", title_justify="left")
    table.add_column("cloud")
    for method in METHODS:
        table.add_column(method, justify="right")
    for result in results:
        table.add_row(result.cloud.name, *(result.interval(method) for method in METHODS))
    console.print(table)
    console.print(
        f"Mean over {draws} draws, with 95% intervals. The constructed model makes "
        f"{iterations:,} power iterations in {2 * iterations:,} attention layers."
    )
    draw_demo(results, output)
    console.print(f"Picture: {output}")


def params(
    d: Annotated[
        int, typer.Option(min=1, help="Coordinates of a point, for the baseline.")
    ] = 3,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line.")
    ] = False,
) -> None:
    """Count the trainable parameters of every model, stage by stage.

    Beside each count stands the one that the paper published, where it did. It gives totals
    without the sizes of layers, so only the full model's total is an upper bound to keep.
    """
    from icssl.bench.paper.params import parameter_counts

    rows = parameter_counts(d)
    if as_json:
        for row in rows:
            typer.echo(json.dumps(asdict(row)))
        return
    table = Table(title="Trainable parameters", title_justify="left")
    table.add_column("model")
    table.add_column("stage")
    table.add_column("ours", justify="right")
    table.add_column("published", justify="right")
    for row in rows:
        published = "" if row.published is None else f"{row.published:,}"
        total = row.stage == "total"
        table.add_row(
            row.model,
            row.stage,
            f"{row.parameters:,}",
            published,
            end_section=total,
            style="bold" if total else None,
        )
    Console().print(table)


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
            from icssl.app.explore.app import listen, serve, server_on
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


def export(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL.safetensors", help="A file of icssl train.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the ONNX file goes.")
    ] = Path("model.onnx"),
    points: Annotated[
        int | None, typer.Option(min=2, help="Points of an episode, a fixed number.")
    ] = None,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Any number of points: the default.")
    ] = False,
    coordinates: Annotated[
        int | None,
        typer.Option(min=1, help="Of a point; by default the model's own, or 3."),
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=2, help="By default the model's own number.")
    ] = None,
    opset: Annotated[int, typer.Option(help="Version of ONNX's operators.")] = 20,
) -> None:
    """Write a trained model as ONNX, once ONNX Runtime agrees with torch.

    The file takes x (b, n, d), y (b, n) and labelled (b, n), with any number of episodes b,
    and gives logits (b, n, c). A model with a learned start has a number of points of its
    own, which is then the default. Both are run on random episodes first: if they differ by
    more than 1e-4 of the largest logit (1e-9 in float64), nothing is written.
    """
    from icssl.app.onnx import model_to_export, own_points, to_onnx

    console = Console()
    with user_errors():
        if dynamic and points is not None:
            raise ValueError(f"--dynamic is any number of points, got --points {points}.")
        check_file(output)
        found = model_to_export(model)
        if points is None and not dynamic:
            points = own_points(found)
        with console.status("..."):
            parity = to_onnx(
                found,
                output,
                points=points,
                coordinates=coordinates,
                n_classes=classes,
                opset=opset,
            )
    tried = ", ".join(map(str, parity.points))
    console.print(f"{output}", markup=False, soft_wrap=True)
    console.print(
        f"Differs from torch by {parity.difference:.1e} of the largest logit, of "
        f"{parity.tolerance:.0e} allowed, at n = {tried}."
    )
