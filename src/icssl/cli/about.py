"""``icssl demo`` and ``icssl params``."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from icssl.cli.common import Console, check_file, user_errors


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
    from icssl.demo import CLOUDS, METHODS, draw_demo, run_demo

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
    from icssl.paper.params import parameter_counts

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
