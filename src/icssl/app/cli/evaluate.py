"""``icssl evaluate``."""

from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icssl.app.cli.common import (
    DATA_OPTION,
    Console,
    ProgressDisplay,
    check_file,
    file_errors,
    number,
    say,
    show_progress,
    user_errors,
)

if TYPE_CHECKING:
    from rich.table import Table


def _print_methods(wanted: bool) -> bool:
    if wanted:
        from icssl.evaluation.predictors import METHODS
        from icssl.methods import TRAINED

        names, titles = (max(map(len, words)) + 2 for words in (METHODS, METHODS.values()))
        for name, title in METHODS.items():
            kind = "a model, trained on the data first" if name in TRAINED else ""
            typer.echo(f"{name:<{names}}{title:<{titles}}{kind}".rstrip())
        raise typer.Exit
    return wanted


_METHODS = typer.Argument(
    help="Names of methods (see --list), files or folders that `icssl train` wrote, and "
    "classes of your own as module:Class. "
    "The others are compared with the first. If a folder holds several models, all are "
    "scored and averaged episode by episode."
)
_DATA = typer.Option(
    help="Where episodes come from: a manifold, product, digits, a table or a folder of "
    "images."
)
_LABELS = typer.Option(
    help="Label budgets, separated by commas: counts, or fractions such as 0.1."
)
_TUNING = typer.Option(
    min=2, help="Number of training episodes on which methods choose their settings."
)
_METRIC = typer.Option(
    help="Metric to print: accuracy, balanced_accuracy, auroc, log_loss or "
    "expected_calibration_error."
)
_STEPS = typer.Option(min=1, help="Number of steps of every model that is trained here.")
_LIST = typer.Option(
    "--list",
    callback=_print_methods,
    is_eager=True,
    help="Print the names of all methods and stop.",
)
_TRAIN_CLASSES = typer.Option(
    min=0,
    help="Number of classes of a table that are for training; the others are for the test.",
)


def evaluate(
    methods: Annotated[list[str], _METHODS],
    data: Annotated[str, _DATA] = "sphere",
    labels: Annotated[str, _LABELS] = "3,5,10,21,39",
    episodes: Annotated[
        int, typer.Option(min=2, help="Number of test episodes per label budget.")
    ] = 300,
    tuning: Annotated[int, _TUNING] = 200,
    steps: Annotated[int | None, _STEPS] = None,
    metric: Annotated[str, _METRIC] = "accuracy",
    threshold: Annotated[
        str, typer.Option(help="Radius of a class: median, published, or a number.")
    ] = "median",
    placement: Annotated[
        str, typer.Option(help="How labelled points are chosen: random or covering.")
    ] = "random",
    train_classes: Annotated[int, _TRAIN_CLASSES] = 6,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Append every row to this file as a JSON line, with the score of every "
            "episode."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the metric against labels in this file.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device of models: cpu or cuda.")] = "cpu",
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed; another seed draws other episodes.")
    ] = 0,
    option: Annotated[list[str] | None, DATA_OPTION] = None,
    _: Annotated[bool, _LIST] = False,
) -> None:
    """Compare methods on the same test episodes, with 95% intervals.

    A model named without a file (icssl evaluate e2e_icl) is trained here first, on episodes
    of the same source. Classical methods choose their settings on training episodes with as
    many labels. No method sees the class of an unlabelled point of a test episode.
    """
    from icssl._util.errors import check_choice, check_device
    from icssl.episodes.data_config import DataConfig
    from icssl.evaluation.metrics import METRIC_NAMES
    from icssl.evaluation.predictors import (
        check_fit,
        check_request,
        check_steps,
        needed_truth,
    )
    from icssl.evaluation.scoring import evaluate as run
    from icssl.training.config import with_data_options

    console = Console()
    with user_errors() as all_checked, show_progress(Console(stderr=True)) as show:
        check_choice("metric", metric, METRIC_NAMES)
        check_device(device)
        config = DataConfig(
            (data,),
            threshold=number(threshold),
            placement=placement,
            train_classes=train_classes,
        )
        config = with_data_options(config, option or [])
        budgets = [budget(text) for text in labels.split(",")]
        check_request(methods, config, budgets)
        check_steps(methods, steps)
        _check_outputs(rows, plot)
        training = {"steps": steps, "seed": seed, "device": device}
        ready = _prepare(methods, config, show, training)
        needed = needed_truth(ready, config)
        check_fit(ready, needed, budgets[0])
        all_checked()
        results = run(
            ready,
            needed,
            budgets,
            episodes=episodes,
            tuning=tuning,
            seed=seed,
            device=device,
            progress=lambda text: show(text=text),
        )
    _print_tables(console, results, list(ready), budgets, metric)
    with file_errors():
        _write(console, results, metric, rows, plot)


def _check_outputs(rows: Path | None, plot: Path | None) -> None:
    """Raise for a file that could not be written, before the work begins."""
    if plot is not None:
        from icssl._util.errors import check_choice
        from icssl.bench.plots import PICTURES

        check_choice("kind of picture", plot.suffix, PICTURES)
    for path in (rows, plot):
        if path is not None:
            check_file(path)


def _write(
    console: Console,
    results: Sequence[Any],
    metric: str,
    rows: Path | None,
    plot: Path | None,
) -> None:
    """Write the rows and the picture that were asked for."""
    if rows is not None:
        from icssl._util.jsonl import append_line

        for row in results:
            append_line(rows, row.to_dict())
        console.print(f"Rows: {rows}")
    if plot is not None:
        from icssl.bench.plots import draw_label_curves

        draw_label_curves([row.to_dict() for row in results], metric, plot)
        console.print(f"Picture: {plot}")


def _prepare(
    names: list[str], config: Any, show: ProgressDisplay, training: dict[str, Any]
) -> dict[str, Any]:
    """Return the methods, ready to predict; train those that have no file."""
    from icssl.evaluation.predictors import cautions, predictors_named
    from icssl.training.loop import NonFiniteLossError

    for line in [line for name in names for line in cautions(name, config)]:
        say(f"Warning: {line}", err=True)
    ready: dict[str, Any] = {}
    for name in names:
        show(text=f"{name}: preparing ...")

        def report(progress: Any, name: str = name) -> None:
            text = f"{name}: training, loss {progress.loss[0]:.3f}"
            left = progress.seconds_left
            show(progress.step, progress.steps, text, seconds_left=left)

        try:
            method = predictors_named(name, config, report=report, **training)
        except NonFiniteLossError as error:
            say(f"{name}: {error}", err=True)
            raise typer.Exit(1) from error
        # A folder may be named like the source, and titles name both.
        ready[_label(name, [*ready, *config.sources])] = method
    return ready


def budget(text: str) -> int | float:
    """Return a number of labels as a person types it: a count or a fraction."""
    value = number(text.strip())
    if isinstance(value, str):
        raise ValueError(f"labels are counts or fractions such as 3,10,0.2, got {text!r}.")
    return value


def _label(name: str, taken: Sequence[str]) -> str:
    """Return the name of a row: for a file its folder, since all files are named alike."""
    given, path = name, Path(name).resolve()
    if path.suffix == ".safetensors":
        name = (
            path.parent.name if path.stem == "model" else f"{path.parent.name}-{path.stem}"
        )
    elif path.is_dir():
        name = path.name
    numbered = (f"{name} ({i})" for i in count(2))
    return next(label for label in chain([name, given], numbered) if label not in taken)


def _print_tables(
    console: Console,
    results: Sequence[Any],
    names: list[str],
    budgets: list[Any],
    metric: str,
) -> None:
    """Print the metric of every method, and the differences from the first."""
    by_key = {(row.method, row.labels): row for row in results}
    rates = [by_key[names[0], b].majority_rate for b in budgets]
    title = f"{results[0].source}: {metric.replace('_', ' ')}"
    _print_title(console, f"{title}, unlabelled points")
    table = _table(budgets)
    for name in names:
        cells = [str(by_key[name, b].metrics[metric]) for b in budgets]
        table.add_row(name, *cells)
    if metric == "accuracy":
        table.add_section()
        table.add_row("largest class", *(f"{rate:.3f}" for rate in rates))
    console.print(table)
    count = len(results[0].accuracies)
    console.print(f"Means over {count} test episodes at each budget, with 95% intervals.")
    for name in names:
        models = by_key[name, budgets[0]].models
        if models > 1:
            console.print(f"{name}: {models} models, averaged episode by episode.")
    if metric != "accuracy":
        console.print(f"Mean share of the largest class: {sum(rates) / len(rates):.3f}.")
    if len(names) < 2:
        return
    if metric not in results[0].values:
        console.print(
            "This metric is computed over all episodes together, so there are no paired "
            "differences."
        )
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
    """Print a title above its table; inside, it would be broken to the table's width."""
    console.print(title, style="italic", highlight=False)


def _table(budgets: list[Any]) -> "Table":
    from rich.table import Table

    table = Table()
    table.add_column("labels", no_wrap=True)  # names stay whole where room is short
    for budget in budgets:
        table.add_column(str(budget), justify="right")
    return table
