"""``icssl audit``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from icssl.app.cli.common import (
    DATA_OPTION,
    Console,
    check_file,
    file_errors,
    number,
    show_progress,
    user_errors,
)

_SUBJECT = typer.Argument(
    help="A method (see icssl evaluate --list), a file or folder that `icssl train` wrote, "
    "a class of your own as module:Class; or a table of the paper: id-ood, ablation, "
    "image-transfer, image-text-claims, alignment or params."
)
_HEADER = ("what is scored", "accuracy", "the method minus it", "finding")


def audit(
    context: typer.Context,
    subject: Annotated[str, _SUBJECT],
    data: Annotated[
        str, typer.Option(help="Where episodes come from, as for icssl evaluate.")
    ] = "sphere",
    labels: Annotated[
        str, typer.Option(help="Label budgets, separated by commas.")
    ] = "3,21",
    episodes: Annotated[int, typer.Option(min=2, help="Number of test episodes.")] = 100,
    tuning: Annotated[
        int, typer.Option(min=2, help="Number of training episodes that choose settings.")
    ] = 60,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of a model that is trained here.")
    ] = None,
    threshold: Annotated[
        str, typer.Option(help="Radius of a class: median, published, or a number.")
    ] = "median",
    profile: Annotated[
        str,
        typer.Option(help="For a table of the paper: whose stored rows, quick or full."),
    ] = "full",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the page to this file.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device of models: cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episodes.")] = 0,
    option: Annotated[list[str] | None, DATA_OPTION] = None,
) -> None:
    """Say what a score is worth: beside it, what learns nothing, and what it depends on.

    For a method: the largest class, the vote of the labels, the nearest position in the
    context, heads without training; and the method itself with its points shuffled, with
    noise in place of points, and with classes made by another rule. For a table of the
    paper: every printed number, ours, null models and what explains it, from stored rows.
    """
    from icssl._util.errors import check_choice, check_device
    from icssl.bench.paper.artefact import PROFILES

    console = Console()
    with user_errors() as all_checked, show_progress(Console(stderr=True)) as show:
        if output is not None:
            check_file(output)
        _check_options(context, subject)
        if subject in _TABLES:
            check_choice("profile", profile, PROFILES)
            tables = [_table_of_paper(subject, profile)]
        else:
            check_device(device)
            _check_subject(subject)
            options = {"steps": steps, "seed": seed, "device": device}
            method, config, budgets = _prepare_subject(
                subject, _config_of(data, threshold, option or []), labels, options, show
            )
            show(text=f"auditing {subject} ...")
            sizes = {"episodes": episodes, "tuning": tuning, "seed": seed}
            tables = _audit_tables(
                subject, method, config, budgets, sizes | {"device": device}
            )
        all_checked()
    for table in tables:
        _print(console, table)
    if output is not None:
        with file_errors():
            _write(output, subject, tables)
        console.print(f"Page: {output}")


_TABLES = (
    "id-ood",
    "ablation",
    "image-transfer",
    "image-text-claims",
    "alignment",
    "params",
)


# What `icssl audit` measures beside it: shuffled points, noise, another rule of classes.
_OF_ONE_METHOD = {
    "id-ood": "icssl audit paper --data cylinder --labels 3,21,39 --steps 300",
    "ablation": "icssl audit paper_lap_pe_1layer --data product --labels 3,20 --steps 300",
    **dict.fromkeys(
        ("image-transfer", "image-text-claims"),
        "icssl audit paper --data images -O pixel_scale=0.001 -O shuffle_frames=false "
        "--steps 300",
    ),
}


def _check_subject(subject: str) -> None:
    """Raise ``ValueError`` for what is neither a method nor a table that is printed."""
    from icssl._util.errors import did_you_mean, list_names
    from icssl._util.references import is_reference
    from icssl.bench.paper.catalogue import ARTEFACTS
    from icssl.evaluation.predictors import METHODS

    tables = f"a table of the paper ({list_names(_TABLES)})"
    own = "what icssl train wrote, or module:Class"
    if subject in ARTEFACTS:
        raise ValueError(
            f"the paper prints no numbers for {subject!r}, so that there is nothing to "
            f"audit: choose {tables}, a method (see icssl evaluate --list), {own}."
        )
    path = Path(subject)
    if subject in METHODS or is_reference(subject) or path.exists() or path.suffix:
        return
    raise ValueError(
        f"unknown subject {subject!r}: choose {tables}, a method "
        f"({list_names(sorted(METHODS))}), {own}."
        f"{did_you_mean(subject, [*METHODS, *_TABLES])}"
    )


def _check_options(context: typer.Context, subject: str) -> None:
    """Raise ``ValueError`` for an option that says nothing about this subject."""
    is_table = subject in _TABLES
    for name in context.params:
        source = context.get_parameter_source(name)
        is_given = source is not None and source.name == "COMMANDLINE"
        if not is_given or name in ("subject", "output") or is_table == (name == "profile"):
            continue
        why = "a table is read from stored rows" if is_table else "it is of tables alone"
        raise ValueError(
            f"--{name} and {subject} exclude each other: {why}. Leave --{name} out."
        )


def _config_of(source: str, threshold: str, options: Sequence[str]) -> Any:
    """Return the data to audit on: any options of the source, as for icssl evaluate."""
    from icssl.episodes.data_config import DataConfig
    from icssl.training.config import with_data_options

    config = DataConfig((source,), threshold=number(threshold))
    return with_data_options(config, options)


def _prepare_subject(
    subject: str, config: Any, labels: str, options: dict[str, Any], show: Any
) -> tuple[Any, Any, list[float]]:
    """Return the method, trained if it must be, its data and the numbers of labels."""
    from icssl.app.cli.evaluate import budget
    from icssl.evaluation.predictors import check_request, check_steps, predictors_named

    budgets = [budget(text) for text in labels.split(",")]
    check_request([subject], config, budgets)
    check_steps([subject], options["steps"])

    def report(progress: Any) -> None:
        show(progress.step, progress.steps, f"{subject}: training")

    return predictors_named(subject, config, report=report, **options), config, budgets


def _audit_tables(
    subject: str, method: Any, config: Any, budgets: Sequence[float], sizes: dict[str, Any]
) -> list[Any]:
    """Return one table per number of labels."""
    from icssl.bench.render import Table
    from icssl.evaluation.audit import audit as run

    tables = []
    for found in run(method, config, budgets, name=subject, **sizes):
        lines = [
            (
                line.what,
                str(line.score),
                ""
                if line.behind is None
                else f"{line.behind.mean:+.3f} ± {line.behind.half_width:.3f}",
                line.finding,
            )
            for line in found.lines
        ]
        explained = ", ".join(found.explained_by)
        note = f"Explained by: {explained or 'none of the null models'}."
        title = f"{subject} on {found.source}, {found.labels:g} labels"
        tables.append(Table(title, _HEADER, tuple(lines), (note,)))
    return tables


def _table_of_paper(name: str, profile: str) -> Any:
    """Return the printed numbers of a table with what stored rows say about them."""
    from icssl.bench.paper.artefact import PROFILES
    from icssl.bench.paper.claims import evidence
    from icssl.bench.paper.published import published_lines
    from icssl.bench.render import Table
    from icssl.bench.store import Store

    rows = Path("results") / profile / "rows.jsonl"
    if name != "params" and not rows.exists():  # parameters are counted, not stored
        raise ValueError(
            f"{rows} does not exist: run `icssl reproduce as-published --profile "
            f"{profile}` first."
        )
    chosen = PROFILES[profile]
    stored = evidence(chosen, Store(rows)) if rows.exists() else {}
    lines = [line for line in published_lines(chosen, stored) if line["artefact"] == name]
    place = ("data", "kernel", "method", "setting", "context", "metric")
    scores = ("published", "as_published", "fair", "largest_class", "label_vote")
    columns = (*scores, "nearest_position", "training_free", "verdict", "reason")
    cells = [
        # A pair of methods is written with a line, which ends a cell of Markdown.
        (
            " ".join(line[p] for p in place if line[p]).replace("|", " and "),
            *(line[c] for c in columns),
        )
        for line in lines
    ]
    header = ("number", *(column.replace("_", " ") for column in columns))
    note = f"Profile {profile}, from stored rows; what was not run is empty."
    notes = [note]
    if name in _OF_ONE_METHOD:
        notes.append(
            "Not in stored rows: the method with its points shuffled, with noise in place "
            f"of points, and under another rule of the classes. `{_OF_ONE_METHOD[name]}` "
            "trains one method and measures them."
        )
    return Table(f"{name}, audited", header, tuple(cells), tuple(notes))


def _print(console: Console, table: Any) -> None:
    from rich.table import Table

    console.print(table.title, style="italic", highlight=False)
    shown = Table()
    for column in table.header:
        shown.add_column(column)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    for note in table.notes:
        console.print(note, highlight=False)


def _write(output: Path, subject: str, tables: Sequence[Any]) -> None:
    from icssl._util.files import replacing

    text = "\n\n".join([f"# Audit of {subject}", *(table.markdown() for table in tables)])
    with replacing(output) as unfinished:
        unfinished.write_text(text + "\n", encoding="utf-8")
