"""Artefacts ``overview``, ``manifolds`` and ``image-grid``: pictures that need no run."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from icssl._util.colours import COLOURS
from icssl.bench.paper.artefact import Artefact, Profile, Rows, no_specs
from icssl.bench.paper.table_cells import SURFACES, source_title
from icssl.bench.plots import image_grid, scatter_points
from icssl.bench.render import Item, save_picture
from icssl.episodes.data_config import DataConfig
from icssl.episodes.images import ImageSpec
from icssl.episodes.stream import EpisodeStream

_BOXES = (
    ("n points,\nm of them\nlabelled", "x and y"),
    ("stage 1:\nRBF attention", "graph Laplacian R"),
    ("stage 2:\nlinear attention", "eigenmap $\\phi$"),
    ("stage 3:\ndescent on\nthe labels", "scores f"),
    ("softmax", "class of\nevery point"),
)


def _draw_overview(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw the three stages in a row, what passes between them, and one episode."""
    figure = Figure(figsize=(8.5, 2), layout="constrained")
    axes, cloud = figure.subplots(1, 2, width_ratios=[4, 1])
    axes.axis("off")
    axes.set(xlim=(0, len(_BOXES)), ylim=(0, 1))
    for i, (name, passes) in enumerate(_BOXES):
        _box(axes, i, name, passes)
    episode = EpisodeStream(DataConfig(("swiss_roll",)).build(), 1, 3).at(0, 6)
    x, y, labelled = (t[0].numpy() for t in (episode.x, episode.y, episode.labelled))
    scatter_points(cloud, x[:, :2], y, labelled)
    cloud.set_aspect("equal")
    cloud.set_title("an episode (stars: labelled)", fontsize=8)
    return [save_picture(figure, "The model and its input", folder / "overview")]


def _box(axes: Any, place: int, name: str, passes: str) -> None:
    colour = COLOURS[place % len(COLOURS)]
    shape = FancyBboxPatch(
        (place + 0.08, 0.38),
        0.76,
        0.5,
        boxstyle="round,pad=0.02",
        facecolor=colour,
        alpha=0.25,
        edgecolor=colour,
    )
    axes.add_patch(shape)
    axes.text(place + 0.46, 0.63, name, ha="center", va="center", fontsize=8)
    axes.text(place + 0.46, 0.3, passes, ha="center", va="top", fontsize=8)
    if place:
        arrow = {"arrowstyle": "->", "color": "black"}
        axes.annotate("", (place + 0.07, 0.63), (place - 0.15, 0.63), arrowprops=arrow)


def _draw_manifolds(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw one episode of each of the five manifolds, coloured by class."""
    figure = Figure(figsize=(8.25, 5.5), layout="constrained")
    for i, source in enumerate(SURFACES):
        # In the order of drawing, or points nearer to the eye cover the stars.
        axes = figure.add_subplot(2, 3, i + 1, projection="3d", computed_zorder=False)
        episode = EpisodeStream(DataConfig((source,), n=400).build(), 1, 1).at(0, 3)
        x, y, labelled = (t[0].numpy() for t in (episode.x, episode.y, episode.labelled))
        scatter_points(axes, x, y, labelled)
        axes.set_aspect("equal")
        axes.set_title(source_title(source), fontsize=9)
    words = figure.add_subplot(2, 3, len(SURFACES) + 1)
    words.axis("off")
    text = "400 points of each;\ncolours are the two classes,\nstars have a label"
    words.text(0.5, 0.5, text, ha="center", va="center", fontsize=9)
    return [save_picture(figure, "The five manifolds", folder / "manifolds")]


def _draw_image_grid(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw all frames of one path of the shipped generator, in order."""
    source = cast(ImageSpec, DataConfig(("images",)).build())
    episode = EpisodeStream(replace(source, shuffle=False), 1, 0).at(0, 10)
    x, y, labelled = (t[0].numpy() for t in (episode.x, episode.y, episode.labelled))
    title = "A path between two latents; colours are its halves, wide frames have a label"
    return [save_picture(image_grid(x, y, labelled), title, folder / "image-grid")]


OVERVIEW = Artefact(
    "overview",
    "Overview of the model",
    "Three stages: a representation of each point from all of them, then gradient descent "
    "on the few labels.",
    no_specs,
    _draw_overview,
)
MANIFOLDS = Artefact(
    "manifolds",
    "The synthetic manifolds",
    "Sphere, cylinder, cone, Swiss roll and flat torus; colours are the two classes.",
    no_specs,
    _draw_manifolds,
)
IMAGE_GRID = Artefact(
    "image-grid",
    "An image manifold",
    "A hundred frames between two latents; ours are of the shipped generator, a stand-in "
    "for Stable Diffusion.",
    no_specs,
    _draw_image_grid,
)
