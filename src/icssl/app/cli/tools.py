"""The commands `icssl demo`, `icssl params`, `icssl explore` and `icssl export`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from icssl.app.cli.common import Console, check_file, user_errors


def demo(
    output: Annotated[Path, typer.Option(help="Write the picture to this file.")] = Path(
        "icssl-demo.png"
    ),
    draws: Annotated[
        int,
        typer.Option(
            min=2, help="Number of times each cloud is drawn, each time with new labels."
        ),
    ] = 20,
    iterations: Annotated[
        int,
        typer.Option(
            min=1,
            help="Power iterations of stage 2, two attention layers each. Fewer are "
            "faster and less accurate.",
        ),
    ] = 30_000,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed; another seed draws other clouds.")
    ] = 0,
) -> None:
    """Label a Swiss roll and two moons, of 100 points each, from three labels each.

    Nothing is trained: Lemmas 1 and 2 of the paper give the weights. The table compares the
    mean accuracy with logistic regression and label spreading on the same labels, with 95%
    intervals over draws. The picture shows the first draw of each cloud.
    """
    from rich.table import Table

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
        int,
        typer.Option(
            min=1, help="Number of coordinates of a point; the baseline depends on it."
        ),
    ] = 3,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.")
    ] = False,
) -> None:
    """Count the trainable parameters of every model, stage by stage.

    The counts that the paper published stand beside ours. The paper gives totals without
    the sizes of layers: notes say what a model shares with them, which never proves that it
    is the paper's.
    """
    from rich.table import Table

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
    table.add_column("note")
    for row in rows:
        published = "" if row.published is None else f"{row.published:,}"
        is_total = row.stage == "total"
        table.add_row(
            row.model,
            row.stage,
            f"{row.parameters:,}",
            published,
            row.note,
            end_section=is_total,
            style="bold" if is_total else None,
        )
    Console().print(table)


# Addresses that mean every interface of a machine, and the one to open on the machine.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def explore(
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. By default only this machine can open the page; "
            "with 0.0.0.0, everyone on the network can."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=1,
            max=65535,
            help="Port to listen on. If it is busy, the next free port is taken.",
        ),
    ] = 8050,
    browser: Annotated[
        bool,
        typer.Option("--browser/--no-browser", help="Open the page in your browser."),
    ] = True,
) -> None:
    r"""Play with the model in the browser, look inside it, and label your own table.

    The page runs on this machine and sends nothing to any other. Click points to label
    them and see what is predicted, beside other methods; walk through the layers of the
    paper's model; see what each label contributes; drop a table and get it back
    labelled: .csv, .tsv, .xlsx, .jsonl, .ndjson, .json or .parquet, or one of these in a
    .gz or .zip.

    This command needs the extra: pip install 'icssl\[explore]'. Stop it with Ctrl-C.
    """
    console = Console()
    with user_errors():
        with _missing_extra_named(), console.status("starting ..."):
            from icssl.app.explore.app import listen, serve, server_on
        listening = listen(host, port)
        free_port = listening.getsockname()[1]
        if free_port != port:
            console.print(f"Port {port} is busy: taking {free_port}.", highlight=False)
        with console.status("starting ..."):
            server = server_on(listening, host)
    address = f"http://{_host_in_link(host)}:{free_port}/"
    console.print(f"Open {address} (Ctrl-C stops it)", markup=False, highlight=False)
    serve(server, address, browser=browser)


def _host_in_link(host: str) -> str:
    """Return a host as it is written in a link that is opened on this machine."""
    host = _EVERYWHERE.get(host, host)
    return f"[{host}]" if ":" in host else host


@contextmanager
def _missing_extra_named() -> Iterator[None]:
    """Turn the absence of a package into an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f"icssl explore needs {error.name}, which is not installed: "
            "pip install 'icssl[explore]'."
        ) from error


def export(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.safetensors", help="A model that `icssl train` wrote."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the ONNX file here.")
    ] = Path("model.onnx"),
    points: Annotated[
        int | None,
        typer.Option(min=2, help="Fix the number of points per episode to this number."),
    ] = None,
    dynamic: Annotated[
        bool,
        typer.Option(
            "--dynamic", help="Accept any number of points per episode; the default."
        ),
    ] = False,
    coordinates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of coordinates of a point.",
            show_default="that of the model, or 3",
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(min=2, help="Number of classes.", show_default="that of the model"),
    ] = None,
    opset: Annotated[int, typer.Option(help="Version of the ONNX operator set.")] = 20,
) -> None:
    """Write a trained model as ONNX, after checking that ONNX Runtime agrees with torch.

    The file takes x (b, n, d), y (b, n) and labelled (b, n), with any number of episodes b,
    and returns logits (b, n, c). A model with a learned start takes one number of points,
    which is then the default. Both are run on random episodes first: if they differ by
    more than 1e-4 of the largest logit (1e-9 in float64), nothing is written.
    """
    from icssl.app.onnx import fixed_points, model_to_export, to_onnx

    console = Console()
    with user_errors():
        if dynamic and points is not None:
            raise ValueError(f"--dynamic is any number of points, got --points {points}.")
        check_file(output)
        trained = model_to_export(model)
        if points is None and not dynamic:
            points = fixed_points(trained)
        with console.status("exporting ..."):
            parity = to_onnx(
                trained,
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
