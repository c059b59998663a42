"""``icssl evaluate``."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from icssl.app.cli.common import Console, check_file, file_errors, number, say, user_errors


def _list(wanted: bool) -> bool:
    if wanted:
        from icssl.evaluation.predictors import METHODS
        from icssl.methods import TRAINED

        for name, title in METHODS.items():
            kind = "a model, trained on the data first" if name in TRAINED else ""
            typer.echo(f"{name:<22}{title:<36}{kind}".rstrip())
        raise typer.Exit
    return wanted


def evaluate(
    methods: Annotated[
        list[str],
        typer.Argument(
            help="Files or folders that `icssl train` wrote, and names of methods (see "
            "--list). The first one is what the others are compared with. Of a folder "
            "with several models, all are scored and averaged episode by episode."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(help="A manifold, product, digits, a table or a folder of images."),
    ] = "sphere",
    labels: Annotated[
        str, typer.Option(help="Label budgets: counts, or fractions such as 0.1.")
    ] = "3,5,10,21,39",
    episodes: Annotated[int, typer.Option(min=2, help="Test episodes at a budget.")] = 300,
    tuning: Annotated[
        int, typer.Option(min=2, help="Training episodes for those that need tuning.")
    ] = 200,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of a model that is trained here.")
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            help="accuracy, balanced_accuracy, auroc, log_loss or "
            "expected_calibration_error."
        ),
    ] = "accuracy",
    threshold: Annotated[str, typer.Option(help="median, published or a radius.")] = (
        "median"
    ),
    placement: Annotated[str, typer.Option(help="random or covering.")] = "random",
    train_classes: Annotated[
        int,
        typer.Option(
            min=0, help="Classes of a table for training; the others are for the test."
        ),
    ] = 6,
    rows: Annotated[Path | None, typer.Option(help="File for rows, as JSON lines.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of the metric against labels.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Draws other episodes.")] = 0,
    _: Annotated[
        bool,
        typer.Option("--list", callback=_list, is_eager=True, help="Methods."),
    ] = False,
) -> None:
    """Compare methods on the same test episodes, with 95% intervals.

    A model named without a file (icssl evaluate e2e_icl) is trained here first, on episodes
    of the same source; classical methods choose their settings on training episodes with as
    many labels. No method sees the class of an unlabelled point of a test episode.
    """
    from icssl._util.errors import check_choice, check_device
    from icssl._util.files import replacing
    from icssl.episodes.data_config import DataConfig
    from icssl.evaluation.metrics import METRIC_NAMES
    from icssl.evaluation.predictors import (
        cautions,
        check_fit,
        check_request,
        needed_truth,
    )
    from icssl.evaluation.scoring import evaluate as run

    console = Console()
    with user_errors() as all_checked, console.status("...") as status:
        check_choice("metric", metric, METRIC_NAMES)
        check_device(device)
        config = DataConfig(
            (data,),
            threshold=number(threshold),
            placement=placement,
            train_classes=train_classes,
        )
        budgets = [_budget(text) for text in labels.split(",")]
        check_request(methods, config, budgets)
        if plot is not None:
            from icssl.bench.plots import PICTURES

            check_choice("kind of picture", plot.suffix, PICTURES)
        for path in (rows, plot):
            if path is not None:
                check_file(path)
        for line in [line for name in methods for line in cautions(name, config)]:
            say(f"Warning: {line}", err=True)
        training = {"steps": steps, "seed": seed, "device": device}
        ready = _prepared(methods, config, status, training)
        needed = needed_truth(ready, config)
        check_fit(ready, needed, budgets[0])
        all_checked()
        found = run(
            ready,
            needed,
            budgets,
            episodes=episodes,
            tuning=tuning,
            seed=seed,
            device=device,
            progress=lambda text: status.update(f"{text} ..."),
        )
    _print_tables(console, found, list(ready), budgets, metric)
    with file_errors():
        if rows is not None:
            with replacing(rows) as unfinished:
                lines = [json.dumps(row.to_dict()) + "\n" for row in found]
                unfinished.write_text("".join(lines))
            console.print(f"Rows: {rows}")
        if plot is not None:
            from icssl.bench.plots import draw_label_curves

            draw_label_curves([row.to_dict() for row in found], metric, plot)
            console.print(f"Picture: {plot}")


def _prepared(
    names: list[str], config: Any, status: Any, training: dict[str, Any]
) -> dict[str, Any]:
    """The methods, ready to predict; those without a file are trained first."""
    from icssl.evaluation.predictors import predictors_named
    from icssl.training.loop import NonFiniteLossError

    ready: dict[str, Any] = {}
    for name in names:
        status.update(f"{name}: preparing ...")
        report = partial(_show_training, status, name)
        try:
            found = predictors_named(name, config, report=report, **training)
        except NonFiniteLossError as error:
            say(f"{name}: {error}", err=True)
            raise typer.Exit(1) from error
        ready[_label(name, ready)] = found
    return ready


def _budget(text: str) -> int | float:
    value = number(text.strip())
    if isinstance(value, str):
        raise ValueError(f"labels are counts or fractions such as 3,10,0.2, got {text!r}.")
    return value


def _label(name: str, taken: Any) -> str:
    """A file by its folder's name, since its own is always the same."""
    path = Path(name).resolve()
    if path.suffix == ".safetensors":
        name = (
            path.parent.name if path.stem == "model" else f"{path.parent.name}-{path.stem}"
        )
    elif path.is_dir():
        name = path.name
    return name if name not in taken else f"{name} ({len(taken) + 1})"


def _show_training(status: Any, name: str, progress: Any) -> None:
    loss = progress.loss[0]
    status.update(
        f"{name}: training, step {progress.step:,} of {progress.steps:,}, loss {loss:.3f}, "
        f"{progress.seconds_left:,.0f} s left ..."
    )


def _print_tables(
    console: Console, found: list[Any], names: list[str], budgets: list[Any], metric: str
) -> None:
    by_key = {(row.method, row.labels): row for row in found}
    rates = [by_key[names[0], b].majority_rate for b in budgets]
    title = f"{found[0].source}: {metric.replace('_', ' ')}"
    _print_title(console, f"{title}, unlabelled points")
    table = _table(budgets)
    for name in names:
        cells = [str(by_key[name, b].metrics[metric]) for b in budgets]
        table.add_row(name, *cells)
    if metric == "accuracy":
        table.add_section()
        table.add_row("largest class", *(f"{rate:.3f}" for rate in rates))
    console.print(table)
    count = len(found[0].accuracies)
    console.print(f"Means over {count} test episodes at each budget, with 95% intervals.")
    for name in names:
        models = by_key[name, budgets[0]].models
        if models > 1:
            line = f"{name}: {models} models, averaged episode by episode."
            console.print(line, markup=False)
    if metric != "accuracy":
        console.print(f"Mean share of the largest class: {sum(rates) / len(rates):.3f}.")
    if len(names) < 2:
        return
    if metric not in found[0].values:
        console.print("It is of all episodes together, so no differences are paired.")
        return
    _print_title(console, f"{title} minus that of {names[0]}, paired over episodes")
    table = _table(budgets)
    for name in names[1:]:
        compared = [by_key[name, b].versus(by_key[names[0], b], metric) for b in budgets]
        cells = [
            f"{c.difference.mean:+.3f} ± {c.difference.half_width:.3f}" for c in compared
        ]
        table.add_row(name, *cells)
    console.print(table)


def _print_title(console: Console, title: str) -> None:
    """Above its table and not in it, where it would be broken to the table's width."""
    console.print(title, style="italic", markup=False, highlight=False)


def _table(budgets: list[Any]) -> Table:
    table = Table()
    table.add_column("labels", no_wrap=True)  # names stay whole where room is short
    for budget in budgets:
        table.add_column(str(budget), justify="right")
    return table
