"""``icssl reproduce`` and ``icssl report``."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from icssl.cli.common import check_file, check_folder, user_errors

_PROFILE = typer.Option(help="quick: minutes on two cores. full: the paper's sizes.")
_SILENCE = 20.0  # seconds between lines where there is no terminal
_OUTPUT = typer.Option(
    "--output", "-o", help="Folder for rows, tables and figures. [default: results/PROFILE]"
)


def reproduce(
    artefact: Annotated[
        str,
        typer.Argument(help="A table or figure (see `icssl reproduce list`), or all."),
    ],
    profile: Annotated[str, _PROFILE] = "quick",
    output: Annotated[Path | None, _OUTPUT] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda, for models.")] = "cpu",
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Start nothing more after so long; run again to go on."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Processes for classical methods, beside the models. "
            "[default: on a GPU all cores but two, else 0, which is in turn]",
        ),
    ] = None,
    draw: Annotated[bool, typer.Option(help="Make tables and figures at the end.")] = True,
) -> None:
    """Rebuild a table or figure of the paper, or all of them.

    Every run ends in a row of rows.jsonl, found by a hash of all that decides it: what is
    there is not run again, what is missing is. Interrupt at any time and call it again.
    Tables (Markdown and LaTeX, the paper's numbers beside ours) and figures (PNG and SVG)
    are made from rows alone.
    """
    from icssl.errors import check_choice
    from icssl.experiments.store import Store
    from icssl.paper.profiles import PROFILES
    from icssl.paper.registry import ARTEFACTS, all_specs
    from icssl.training.loop import check_device

    if artefact == "list":
        for name, known in ARTEFACTS.items():
            typer.echo(f"{name:<16}{known.title}")
        return
    with user_errors():
        check_choice("artefact (or all, or list)", artefact, [*ARTEFACTS, "all"])
        check_choice("profile", profile, PROFILES)
        check_device(device)
        folder = output or Path("results") / profile
        check_folder(folder)
        store = Store(folder / "rows.jsonl")
    names = list(ARTEFACTS) if artefact == "all" else [artefact]
    chosen = PROFILES[profile]
    console = Console()
    console.print(chosen.note)
    with console.status("..."):
        specs = all_specs(names, chosen)
    limits = {"device": device, "minutes": minutes, "workers": workers}
    added = _run(console, specs, store, limits)
    missing = sum(spec.key not in store for spec in specs)
    console.print(f"{added} rows added, {len(specs) - missing} of {len(specs)} are there.")
    if draw:
        _draw(console, names, chosen, store, folder)
    if missing:
        console.print("Run the same command again to go on.")


def report(
    profile: Annotated[str, _PROFILE] = "quick",
    output: Annotated[Path | None, _OUTPUT] = None,
    claims: Annotated[
        Path | None, typer.Option(help="Write the page of claims here too.")
    ] = None,
) -> None:
    """Join all tables, figures and verdicts into one HTML page that needs no other file.

    Reads the rows that `icssl reproduce` stored and runs nothing. Writes report.html and
    claims.md: each claim of the paper with its figure, ours, and a verdict.
    """
    from icssl.errors import check_choice
    from icssl.experiments.store import Store
    from icssl.paper.profiles import PROFILES
    from icssl.paper.report import write_report

    console = Console()
    with user_errors(), console.status("drawing ..."):
        check_choice("profile", profile, PROFILES)
        if claims is not None:
            check_file(claims)
        folder = output or Path("results") / profile
        rows = folder / "rows.jsonl"
        if not rows.exists():
            raise ValueError(
                f"{rows} does not exist: run `icssl reproduce all --profile {profile}` "
                "first."
            )
        pages = write_report(PROFILES[profile], Store(rows), folder, claims)
    for page in pages:
        console.print(f"{page}", markup=False)


def _run(console: Console, specs: list[Any], store: Any, limits: dict[str, Any]) -> int:
    from icssl.experiments.runner import run_missing

    columns = (
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("...", total=None, left="")
        spoke = time.monotonic()

        def told(progress: Any) -> None:
            nonlocal spoke
            left = progress.seconds_left
            text = "" if left is None else f"{left / 60:.0f} min left"
            if not console.is_terminal and time.monotonic() - spoke > _SILENCE:
                spoke = time.monotonic()  # a log has no bar
                console.print(f"{progress.done}/{progress.total} {text} {progress.doing}")
            bar.update(
                task,
                completed=progress.done,
                total=progress.total,
                description=progress.doing,
                left=text,
            )

        try:
            return run_missing(specs, store, report=told, **limits)
        except KeyboardInterrupt:
            bar.stop()
            console.print("Interrupted: rows so far are stored. The same command goes on.")
            raise typer.Exit(130) from None


def _draw(
    console: Console, names: list[str], profile: Any, store: Any, folder: Path
) -> None:
    from icssl.paper.registry import render

    with console.status("drawing ...") as status:
        for name in names:
            status.update(f"drawing {name} ...")
            render(name, profile, store, folder)
    console.print(f"Tables and figures: {folder}/*.md", markup=False)
