"""``icssl reproduce`` and ``icssl report``."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from icssl.app.cli.bench import run_below_bar
from icssl.app.cli.common import (
    Address,
    Console,
    Engine,
    GPUsPerTask,
    check_file,
    check_folder,
    file_errors,
    user_errors,
)
from icssl.app.cli.trainers import run_beside

_Profile = Annotated[
    str,
    typer.Option(
        help="Sizes of the runs: quick (minutes on two cores) or full (what docs report)."
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="The folder for rows, tables and figures.",
        show_default="results/PROFILE",
    ),
]
_Artefact = Annotated[
    str,
    typer.Argument(
        help="The table or figure to make (`icssl reproduce list` names them), or all."
    ),
]
_Device = Annotated[str, typer.Option(help="The device that models use: cpu or cuda.")]
_Minutes = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Start no further run after this many minutes; the same command goes on.",
    ),
]
_Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Processes that run classical methods beside the models; with 0, they run "
        "afterwards in this process.",
        show_default="all cores but two with a GPU, otherwise 0",
    ),
]

_Trainers = Annotated[
    int,
    typer.Option(
        min=1,
        help="Processes that train models at the same time, and share the rows.",
    ),
]


def reproduce(
    artefact: _Artefact,
    profile: _Profile = "quick",
    output: _Output = None,
    device: _Device = "cpu",
    minutes: _Minutes = None,
    workers: _Workers = None,
    trainers: _Trainers = 1,
    engine: Engine = "local",
    address: Address = None,
    gpus_per_task: GPUsPerTask = None,
    draw: Annotated[bool, typer.Option(help="Draw tables and figures at the end.")] = True,
) -> None:
    """Rebuild a table or figure of the paper, or all of them.

    Every result is stored as one row of rows.jsonl, under a hash of everything that
    decides it. Rows that are stored are not computed again, so the command can be
    interrupted at any time and called again. Tables (Markdown and LaTeX, with the paper's
    numbers beside ours) and figures (PNG and SVG) are drawn from rows alone.

    With --engine ray, the workers of a cluster compute what is missing and this process
    stores it: icssl reproduce all --engine ray --address auto --device cuda
    --gpus-per-task 0.25
    """
    from icssl._util.errors import check_choice
    from icssl.bench.paper.artefact import PROFILES
    from icssl.bench.paper.catalogue import ARTEFACTS, all_specs
    from icssl.bench.store import Store

    if artefact == "list":
        width = 2 + max(map(len, ARTEFACTS))
        for name, described in ARTEFACTS.items():
            typer.echo(f"{name:<{width}}{described.title}")
        return
    console = Console()
    with ExitStack() as stack:
        with user_errors():
            check_choice("artefact", artefact, [*ARTEFACTS, "all", "list"])
            check_choice("profile", profile, PROFILES)
            folder = output or Path("results") / profile
            check_folder(folder)
            store = Store(folder / "rows.jsonl")
            if trainers > 1 and engine != "local":
                raise ValueError("--trainers is for --engine local; a cluster has workers.")
            chosen = _runner(engine, address, gpus_per_task, device, minutes, workers)
            run = stack.enter_context(chosen)
        names = [artefact]
        if artefact == "all":
            names = _with_their_data(console, list(ARTEFACTS), PROFILES[profile])
        console.print(PROFILES[profile].note)
        with console.status("..."):
            specs = all_specs(names, PROFILES[profile])
        beside = ["reproduce", artefact, "--profile", profile, "--device", device]
        beside += ["--output", str(folder), "--no-draw", "--workers", "0"]
        beside += [] if minutes is None else ["--minutes", str(minutes)]
        with file_errors(), run_beside(trainers - 1, beside) as said:
            failures = run_below_bar(console, partial(run, specs, store))
        failures += said
        store.refresh()
    missing = sum(spec.key not in store for spec in specs)
    stored = f"{len(specs) - missing} of {len(specs)} are there."
    console.print(f"{store.added} rows added, {stored}")
    if draw:
        with file_errors():
            _draw(console, names, PROFILES[profile], store, folder)
    for failure in failures:
        console.print(failure, markup=False, highlight=False)
    if missing:
        console.print("Run the same command again to go on.")
    if failures:
        raise typer.Exit(1)


def _with_their_data(console: Console, names: list[str], profile: Any) -> list[str]:
    """Return the artefacts whose data are here, and say which are left out."""
    from icssl.bench.paper import imagenet, imagenet_published

    features = profile.features
    if Path(features).exists() or not Path(features).suffix:  # a name, such as "digits"
        return names
    artefacts = (imagenet.ARTEFACT, imagenet.ALIGNMENT, imagenet_published.ARTEFACT)
    absent = [artefact.name for artefact in artefacts]
    console.print(
        f"{', '.join(absent)} are left out: {features} does not exist. In a clone, "
        f"python scripts/fetch_cifar10_features.py {features} makes it."
    )
    return [name for name in names if name not in absent]


@contextmanager
def _runner(
    engine: str,
    address: str | None,
    gpus_per_task: float | None,
    device: str,
    minutes: float | None,
    workers: int | None,
) -> Iterator[Callable[..., int]]:
    """Yield what runs missing specs: in this process, or on a cluster it connects to."""
    from icssl._util.errors import check_choice, check_device
    from icssl._util.ray import check_engine, ray_cluster
    from icssl.bench.ray_runner import run_on_ray
    from icssl.bench.runner import run_missing

    check_engine(engine, address, gpus_per_task)
    if engine == "local":
        check_device(device)
        yield partial(run_missing, device=device, minutes=minutes, workers=workers)
        return
    # This is the workers' device: this machine may have none.
    check_choice("device", device, ("cpu", "cuda"))
    if workers is not None:
        raise ValueError("--workers is for --engine local; a cluster has its own.")
    gpus = float(device == "cuda") if gpus_per_task is None else gpus_per_task
    if (device == "cuda") != (gpus > 0):
        raise ValueError(f"--device {device} does not go with --gpus-per-task {gpus:g}.")
    with ray_cluster(address, gpus_per_task=gpus) as ray:
        yield partial(
            run_on_ray, ray=ray, device=device, gpus_per_task=gpus, minutes=minutes
        )


def report(
    profile: _Profile = "quick",
    output: _Output = None,
    claims: Annotated[
        Path | None, typer.Option(help="Another file for the page of claims.")
    ] = None,
) -> None:
    """Write all tables, figures and verdicts as one HTML page that needs no other file.

    It reads the rows that `icssl reproduce` stored, and runs nothing. Beside report.html it
    writes claims.md, which has each claim of the paper with its figure, ours and a verdict.
    """
    from icssl._util.errors import check_choice
    from icssl.bench.paper.artefact import PROFILES
    from icssl.bench.paper.report import write_report
    from icssl.bench.store import Store

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


def _draw(
    console: Console, names: list[str], profile: Any, store: Any, folder: Path
) -> None:
    from icssl.bench.paper.catalogue import render

    with console.status("drawing ...") as status:
        for name in names:
            status.update(f"drawing {name} ...")
            render(name, profile, store, folder)
    console.print(f"Tables and figures: {folder}/*.md", markup=False)
