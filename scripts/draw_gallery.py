"""Draw docs/figures/gallery.png, an episode of every source, and image-grid.png.

python scripts/draw_gallery.py [--root FOLDER]
"""

import argparse
import tempfile
from pathlib import Path

import torch
from matplotlib.figure import Figure

from icssl._util.random import generator_for
from icssl.bench.plots import draw_episode, principal_coordinates, scatter_points
from icssl.episodes.data_config import source_named
from icssl.episodes.images import FashionGenerator, ImageSpec, make_image_manifolds
from icssl.episodes.manifolds import MANIFOLDS

TITLES = {"product": "product of all five\n(two principal coordinates)"}
TITLES |= {"digits": "digits, two classes\n(two principal coordinates)"}


def draw_sources(path):
    """Draw an episode of every source that needs no download, with ten of 100 labels."""
    figure = Figure(figsize=(14, 7.5), layout="constrained")
    for place, name in enumerate([*MANIFOLDS, "product", "digits"], start=1):
        episode = source_named(name).draw(1, generator=generator_for(1, "gallery"))
        x, y, seen = (t[0].numpy() for t in (episode.x, episode.y, episode.labelled))
        points = x if x.shape[1] == 3 else principal_coordinates(x)
        axes = figure.add_subplot(2, 4, place, projection="3d" if x.shape[1] == 3 else None)
        scatter_points(axes, points, y, seen)
        if x.shape[1] == 3:
            axes.set_aspect("equal")
        axes.set_title(TITLES.get(name, name.replace("_", " ")))
    with tempfile.TemporaryDirectory() as folder:
        make_image_manifolds(FashionGenerator(), Path(folder), 1)
        path_of_frames = ImageSpec(Path(folder), shuffle=False)
        episode = path_of_frames.draw(1, generator=generator_for(1, "gallery"))
    axes = figure.add_subplot(2, 4, 8)
    frames = episode.x[0, ::12].reshape(-1, 32, 32)[:9]
    rows = [torch.cat(list(frames[i : i + 3]), dim=1) for i in (0, 3, 6)]
    axes.imshow(torch.cat(rows), cmap="gray")
    axes.axis("off")
    axes.set_title("image manifold\n(every twelfth frame)")
    figure.savefig(path / "gallery.png", dpi=90)
    title = "One image manifold: first half class 0, second half class 1; ten labelled"
    draw_episode(episode, title, path / "image-grid.png")


def main():
    """Draw both figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    figures = parser.parse_args().root / "docs" / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    draw_sources(figures)


if __name__ == "__main__":
    main()
