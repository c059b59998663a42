"""Artefact ``imagenet-as-published``: features of pictures under the paper's conditions.

The literal models, with classes that training and test share and five seeds, on a table
of features that stands in for ImageNet100. The artefact ``imagenet`` has the same under
fair conditions: our variant, scaled points, classes apart.
"""

from dataclasses import replace
from pathlib import Path

from icssl.bench.paper.artefact import Artefact, Cell, Profile, Rows, Specs
from icssl.bench.paper.as_published import PRESETS as SURFACE_PRESETS
from icssl.bench.paper.imagenet import (
    ALIGNMENT_LABELS,
    METHODS,
    PROBED_PAIRS,
    alignment_table,
    data_title,
    dimension,
    draw_figure,
    draw_table,
    pair_cell,
)
from icssl.bench.paper.table_cells import (
    title_of,
    with_model,
)
from icssl.bench.probes import EIG, Alignment
from icssl.bench.render import Item, save_picture
from icssl.bench.spec import Scores
from icssl.episodes.data_config import DataConfig
from icssl.model.baseline import BaselineConfig
from icssl.training.config import TrainConfig, config_from

NAME = "imagenet-as-published"
PRESETS = {
    "e2e_icl": SURFACE_PRESETS["e2e_icl"],
    "eig_icl": SURFACE_PRESETS["eig_icl"],
    "orig_icl": "paper_orig_icl",
    "transformer": "transformer_positions",
}
"""The literal model behind each method, as a preset of training."""

FEATURES_SEED = 20_263
"""Seed of the test episodes."""

WIDTHS = {"digits": 31.5}
"""Root mean square distance of a point from the mean of its episode, by table."""

_OTHER_WIDTH = 12.9  # of CIFAR-10 features: 50 images of every class, pairs of classes
# Nothing is printed of the scale of the features. Bandwidths begin as wide, against the
# cloud, as the presets' do on the surfaces, whose points are about .07 from their mean.
_SURFACE_WIDTH = 0.07
_FEW, _MORE = ALIGNMENT_LABELS, 39  # the second is printed at the largest size alone


def sizes_at(profile: Profile, labels: int) -> tuple[int, ...]:
    """Return the numbers of training episodes that the paper shows at so many labels."""
    return profile.sizes if labels == _FEW else profile.sizes[-1:]


def literal_data(profile: Profile) -> DataConfig:
    """Return the paper's episodes: all classes, in training as in the test."""
    return DataConfig((profile.features,), share_classes=True)


def literal_runs(
    profile: Profile, method: str, size: int, labels: int
) -> tuple[TrainConfig, ...]:
    """Return the runs of a literal model on so many different episodes, one per seed."""
    config = config_from({"preset": PRESETS[method]})
    config = replace(
        config,
        data=replace(literal_data(profile), episodes=size),
        labels=(labels,),
        steps=profile.literal_steps,
        batch=profile.literal_batch,
    )
    model, wider = config.model, WIDTHS.get(profile.features, _OTHER_WIDTH) / _SURFACE_WIDTH
    if isinstance(model, BaselineConfig):
        config = with_model(config, d=dimension(profile.features))
    elif model.features == "eigenmap":
        config = with_model(config, sigma=round(model.sigma * wider, 3))
    elif model.features == "coordinates":
        config = with_model(config, gamma=round(model.gamma / wider**2, 6))
    return tuple(replace(config, seed=seed) for seed in range(profile.literal_seeds))


def specs(profile: Profile) -> Specs:
    """Return every method at every size, and pairs of representations of all seeds."""
    cells: Specs = {}
    for labels in (_FEW, _MORE):
        for size in sizes_at(profile, labels):
            models = {m: literal_runs(profile, m, size, labels) for m, _ in METHODS}
            for method, kernel in METHODS:
                cell = Cell(profile.features, labels, method, kernel, size=size)
                cells[cell] = _scores(profile, cell, models[method])
            for pair in PROBED_PAIRS:
                first, second = (EIG if m == EIG else models[m] for m in pair)
                cells[pair_cell(profile, labels, pair, size)] = Alignment(
                    first,
                    second,
                    literal_data(profile),
                    labels,
                    profile.episodes,
                    FEATURES_SEED,
                )
    return cells


def _scores(profile: Profile, cell: Cell, runs: tuple[TrainConfig, ...]) -> Scores:
    return Scores(
        PRESETS[cell.method],
        literal_data(profile),
        cell.labels,
        runs,
        profile.episodes,
        profile.tuning,
        FEATURES_SEED,
    )


def literal_title(cell: Cell) -> str:
    """Return the method of a cell by the name of its literal model."""
    return title_of(cell._replace(method=PRESETS.get(cell.method, cell.method)))


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw the figure at 3 labels, a table per number of labels, and the alignments."""
    figure = draw_figure(profile, rows, _FEW, literal_title)
    title = f"{data_title(profile)}, {_FEW} labels of 100, as published"
    picture = save_picture(figure, title, folder / f"{NAME}-{_FEW}")
    tables = [
        draw_table(profile, rows, labels, sizes_at(profile, labels), _NOTES, literal_title)
        for labels in (_FEW, _MORE)
    ]
    note = "Means of all seeds; intervals cover seeds and episodes."
    return [picture, *tables, alignment_table(profile, rows, note, literal_title)]


_NOTES = (
    "two of its classes per episode, the same classes in training and in the test, with "
    "other rows. Features are as they are; bandwidths begin as wide against the cloud as "
    "on the surfaces.",
    "Separation is the mean of all seeds; its interval covers seeds and episodes.",
)

ARTEFACT = Artefact(
    NAME,
    "ImageNet100 under the published conditions, on a stand-in",
    "The same as of imagenet. It does not say that classes of training and test are "
    "apart; its baseline has as many weights as one with 200 learned positions.",
    specs,
    draw,
)
