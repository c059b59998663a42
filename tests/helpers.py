"""Tolerances, each with its reason, and small things that several tests need."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from typer.testing import CliRunner

from icssl import Episode
from icssl.app.cli import app
from icssl.training.config import load_config
from icssl.training.group import Group, episode_drawer
from icssl.training.step import AdamState, Step

F64 = {"rtol": 1e-10, "atol": 1e-12}  # exact identities, checked in float64
F64_DEEP = {"rtol": 1e-7, "atol": 1e-9}  # float64 through a whole model: rounding adds up
ROUNDING = 1e-9  # of the largest number in float64: what is smaller may be rounding
SAME = 1e-4  # of probabilities on a CPU, whatever signs and order are; usual are 1e-6
F32 = {"rtol": 1e-4, "atol": 1e-5}  # the same in float32, where backends sum differently


def run_command(*arguments, wide=False):
    """Run ``icssl`` in this process; ``wide``: so that no path is broken in two."""
    size = {"COLUMNS": "400", "TERMINAL_WIDTH": "400"} if wide else None
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=size)


def text_of(result):
    """The output of a command without boxes and line breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())


def random_episode(
    generator, *, b=2, n=12, d=3, c=2, m=4, k=None, dtype=torch.float64, device="cpu"
):
    """Gaussian points, random classes, the first ``m`` points after a shuffle labelled."""
    x = torch.randn(b, n, d, generator=generator, dtype=dtype)
    y = torch.randint(c, (b, n), generator=generator)
    labelled = torch.rand(b, n, generator=generator).argsort(dim=1) < m
    features = None
    if k is not None:
        features = torch.randn(b, n, k, generator=generator, dtype=dtype)
    return Episode(x, y, labelled, n_classes=c, features=features).to(device)


def few_labels(truth, per_class, rng):
    """The truth of ``per_class`` rows of every class, and -1 for all others."""
    y = np.full(len(truth), -1)
    for c in np.unique(truth):
        y[rng.choice(np.flatnonzero(truth == c), per_class, replace=False)] = c
    return y


def drawn_colours(path, pixels=20):
    """Return the colours, as ``#rrggbb``, that at least ``pixels`` pixels have."""
    picture = (imread(path)[..., :3] * 255).round().astype(int).reshape(-1, 3)
    colours, counts = np.unique(picture, axis=0, return_counts=True)
    return {"#{:02x}{:02x}{:02x}".format(*c) for c in colours[counts >= pixels]}


def skip_without_reader(path):
    """Skip a test where what reads a file of this suffix is not installed."""
    readers = {".csv": ["pandas"], ".parquet": ["pandas", "pyarrow"]}
    for package in readers.get(Path(path).suffix, []):
        pytest.importorskip(package)


def permuted(episode, order):
    """The same episode with its points in another order."""
    features = None if episode.features is None else episode.features[:, order]
    return Episode(
        episode.x[:, order],
        episode.y[:, order],
        episode.labelled[:, order],
        n_classes=episode.n_classes,
        features=features,
    )


def principal_angle(a, b):
    """Largest angle between the spans of two sets of columns, accurate when it is small."""
    a, b = torch.linalg.qr(a).Q, torch.linalg.qr(b).Q
    return torch.linalg.matrix_norm(a - b @ (b.mT @ a), ord=2).clamp(max=1).asin()


def bottom_eigenvectors(r, k):
    """The reference for Lemma 2: bottom eigenvectors of R R^T, by LAPACK."""
    return torch.linalg.eigh(r @ r.mT).eigenvectors[..., :k]


def without_gradient(module, output, generator):
    """Names of parameters that no gradient reaches from a random sum of the output.

    Random weights have no symmetry. Of ``output.pow(3).sum()`` with two opposite logits the
    gradient is zero, and rounding alone decides whether its entries are.
    """
    weights = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    parameters = dict(module.named_parameters())
    grads = torch.autograd.grad(
        (output * weights).sum(), list(parameters.values()), allow_unused=True
    )
    sizes = [0.0 if grad is None else grad.abs().max().item() for grad in grads]
    return [
        name
        for name, size in zip(parameters, sizes, strict=True)
        if not size > ROUNDING * max(sizes)
    ]


# A preset at toy size, as overrides: what is trained in tests is trained in moments.
TOY = ["data.n=20", "batch=4", "steps=6", "labels=3,5"]
TOY_MODELS = {
    "e2e_encoder": ["model.k=4", "model.width=16"],
    "eig_icl": ["data.episodes=8"],
    "transformer": ["model.width=16", "model.feed_forward=32"],
    "transformer_unscaled": ["model.width=16", "model.feed_forward=32"],
    "transformer_positions": ["model.width=16", "model.feed_forward=32"],
    "paper_eig_icl": ["data.episodes=8"],
    "paper_combined": ["model.n_points=20", "data.episodes=8"],
    **{
        name: ["model.n_points=20"]
        for name in (
            *("paper", "paper_linear", "paper_8_32_8", "paper_24", "paper_scalars"),
            *("paper_lap_linear", "paper_lap_pe_1layer"),
        )
    },
}


def toy(preset="e2e_icl", *overrides):
    """The overrides of a preset at toy size, and others after them."""
    return [*TOY, *TOY_MODELS.get(preset, []), *overrides]


def toy_config(preset="e2e_icl", *overrides):
    """A preset at toy size."""
    return load_config(preset, toy(preset, *overrides))


def run_of(configs, mode="eager", device="cpu"):
    """Losses of every step and the weights after the last, on the CPU."""
    group = Group(configs)
    state = AdamState.fresh(group.fresh_weights().to(device))
    step, draw = Step(group, state, mode), episode_drawer(configs, device)
    losses = []
    for number in range(configs[0].steps):
        step(number, draw(number))
        losses.append(step.loss.cpu().clone())
    return torch.stack(losses, dim=1), state.weights.cpu()
