"""Synthetic tables with classes: what weights for any data are trained on.

A batch of tasks shares its shape and the kind of its classes, which are drawn anew for
every batch; every task has its own random weights. Classes are clusters, regions of a
surface, or a function of the columns; columns are then spoiled as those of real tables are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from icssl._util.errors import check_at_least, check_choice
from icssl._util.random import generator_for
from icssl.episodes.episode import Episode
from icssl.episodes.labels import choose_per_class

_TINY = 1e-6


@dataclass(frozen=True)
class TaskSpec:
    """What a synthetic table is drawn from; ranges are log-uniform, ends included.

    Parameters
    ----------
    points, columns, classes, labels_per_class : tuple of int
        Smallest and largest. No more than half of the points get a label.
    most_numbers : int
        Largest points times columns; a wider table has fewer points.
    kinds : tuple of str
        Names of :data:`KINDS` to draw from.
    """

    points: tuple[int, int] = (30, 1000)
    columns: tuple[int, int] = (2, 1000)
    classes: tuple[int, int] = (2, 50)
    labels_per_class: tuple[int, int] = (1, 20)
    most_numbers: int = 100_000
    kinds: tuple[str, ...] = ("clusters", "surface", "linear", "network", "trees", "causal")

    def __post_init__(self) -> None:
        for name, least in (("points", 8), ("columns", 1), ("classes", 2)):
            low, high = getattr(self, name)
            check_at_least(f"the smallest number of {name}", low, least)
            check_at_least(f"the largest number of {name}", high, low)
        check_at_least("labels_per_class", self.labels_per_class[0], 1)
        check_at_least("the most labels a class", self.labels_per_class[1], 1)
        check_at_least("most_numbers", self.most_numbers, 1)
        for kind in self.kinds:
            check_choice("kind of task", kind, KINDS)

    def draw(
        self,
        b: int,
        *,
        generator: Generator,
        labels: float | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Episode:
        """``b`` tasks of one shape; ``labels``, if given, is the number for each class."""
        draws = _Draws(generator)
        n, d, c, per_class = self._shape(draws, labels)
        kind = draws.choice(self.kinds)
        x, y = KINDS[kind](draws, b, n, d, c)
        x = spoiled(draws, _standard(x))
        y = y if kind in CLEAN else with_label_noise(draws, y, c)
        labelled = choose_per_class(y, per_class, c, generator=generator)
        x = x.nan_to_num(0.0, 0.0, 0.0).to(dtype)
        return Episode.unchecked(x=x, y=y, labelled=labelled, n_classes=c)

    def _shape(self, draws: "_Draws", labels: float | None) -> tuple[int, int, int, int]:
        d = draws.whole(*self.columns)
        n = min(draws.whole(*self.points), max(self.points[0], self.most_numbers // d))
        c = min(draws.whole(*self.classes), n // 4)
        per_class = draws.whole(*self.labels_per_class) if labels is None else int(labels)
        return n, d, c, max(1, min(per_class, n // (2 * c)))


class _Draws:
    """Random numbers: single ones on the CPU, tensors where the generator is."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        # To take a single number from a GPU would be to wait for it.
        # A stream of its own, lest they repeat the first of the tensors.
        self.single = generator_for(generator.initial_seed() % 2**31, "tasks")

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=self.single))

    def log_between(self, low: float, high: float) -> float:
        return math.exp(self.between(math.log(low), math.log(high)))

    def whole(self, low: int, high: int) -> int:
        return min(high, int(self.log_between(low, high + 1)))

    def chance(self, probability: float) -> bool:
        return self.between(0, 1) < probability

    def choice(self, names: tuple[str, ...]) -> str:
        return names[int(torch.randint(len(names), (), generator=self.single))]

    def normal(self, *shape: int) -> Tensor:
        device = self.generator.device
        return torch.randn(*shape, generator=self.generator, device=device)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, device=self.generator.device)

    def below(self, limit: int, *shape: int) -> Tensor:
        device = self.generator.device
        return torch.randint(limit, shape, generator=self.generator, device=device)


_ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.tanh,
    torch.relu,
    torch.sin,
    torch.abs,
    torch.sign,
    lambda x: x,
    lambda x: (-x.square()).exp(),
)


def network(draws: _Draws, x: Tensor, out: int, *, depth: int, width: int) -> Tensor:
    """A random network of every task: layers of random weights and one activation each."""
    for _ in range(depth):
        x = linear(draws, x, width, draws.between(0.7, 2.5))
        x = x + 0.5 * draws.normal(len(x), 1, width)
        x = _ACTIVATIONS[int(draws.between(0, len(_ACTIVATIONS)))](x)
    return linear(draws, x, out)


def linear(draws: _Draws, x: Tensor, out: int, gain: float = 1.0) -> Tensor:
    """Random weights of every task, scaled to keep the size of what they multiply."""
    weights = draws.normal(len(x), x.shape[-1], out)
    return gain * x.shape[-1] ** -0.5 * (x @ weights)


def clusters(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Classes of one to three Gaussian parts, which may overlap, straight or warped."""
    inner = draws.whole(2, 12)
    parts = 1 if draws.chance(0.6) else draws.whole(2, 3)
    return _gaussians(draws, b, n, d, c, inner=inner, parts=parts)


def apart(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """One part a class, and as much room for each, however many there are."""
    inner = draws.whole(2, 12)
    room = (c / 3) ** (1 / inner)
    return _gaussians(draws, b, n, d, c, inner=inner, parts=1, room=room)


def _gaussians(
    draws: _Draws,
    b: int,
    n: int,
    d: int,
    c: int,
    *,
    inner: int,
    parts: int,
    room: float = 1.0,
) -> tuple[Tensor, Tensor]:
    shares = (draws.between(0, 0.8) * draws.normal(b, c)).softmax(dim=-1)
    y = torch.multinomial(shares, n, replacement=True, generator=draws.generator)
    part = y * parts + draws.below(parts, b, n)
    centres = room * draws.log_between(0.8, 4) * draws.normal(b, c * parts, inner)
    width = draws.between(0.3, 1.2) * inner**-0.5
    shapes = width * draws.normal(b, c * parts, inner, inner)
    rows = torch.arange(b, device=y.device)[:, None]
    noise = draws.normal(b, n, inner, 1)
    z = centres[rows, part] + (shapes[rows, part] @ noise)[..., 0]
    if draws.chance(0.5):
        return linear(draws, z, d), y
    return network(draws, z, d, depth=draws.whole(1, 2), width=max(16, min(d, 64))), y


def surface(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Classes are the regions nearest to random points of a curved surface."""
    u = draws.log_between(2, 8) * draws.uniform(b, n, draws.whole(1, 3))
    waves = torch.cat([u.sin(), u.cos(), 0.3 * u], dim=-1)
    x = network(draws, waves, d, depth=draws.whole(1, 2), width=max(16, min(d, 64)))
    regions = c * draws.whole(1, 2)
    picked = draws.uniform(b, n).topk(min(regions, n), dim=1).indices
    centres = u.gather(1, picked[..., None].expand(-1, -1, u.shape[-1]))
    return x, torch.cdist(u, centres).argmin(dim=-1) % c


def _columns(draws: _Draws, b: int, n: int, d: int) -> Tensor:
    """Correlated columns, some with heavy tails."""
    z = draws.normal(b, n, draws.whole(2, 16))
    if draws.chance(0.3):
        z = z * draws.normal(b, n, 1).abs() ** draws.between(0, 1)
    curved = draws.chance(0.5)
    x = network(draws, z, d, depth=1, width=32) if curved else linear(draws, z, d)
    return _standard(x + draws.log_between(0.05, 1) * draws.normal(b, n, d))


def _classes_of(draws: _Draws, scores: Tensor) -> Tensor:
    """The class of the highest score, some classes favoured, with noise near borders."""
    b, n, c = scores.shape
    favour = draws.between(0, 0.5) * draws.normal(b, 1, c)
    noise = draws.between(0, 0.7) * draws.normal(b, n, c)
    return (_standard(scores) + favour + noise).argmax(dim=-1)


def linear_classes(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Classes by linear scores of some of the columns."""
    x = _columns(draws, b, n, d)
    return x, _classes_of(draws, linear(draws, x[..., : draws.whole(1, d)], c))


def network_classes(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Classes by a random network of some of the columns."""
    x = _columns(draws, b, n, d)
    read = x[..., : draws.whole(1, min(d, 20))]
    return x, _classes_of(draws, network(draws, read, c, depth=draws.whole(1, 3), width=16))


def tree_classes(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Classes by the sum of a few random trees on some of the columns."""
    x = _columns(draws, b, n, d)
    read = draws.whole(1, min(d, 20))
    rows = torch.arange(b, device=x.device)[:, None]
    scores = x.new_zeros(b, n, c)
    for _ in range(draws.whole(1, 5)):
        depth = draws.whole(1, 4)
        leaf = torch.zeros(b, n, dtype=torch.long, device=x.device)
        for _ in range(depth):
            column = x.mT[rows[:, 0], draws.below(read, b)]
            border = column.gather(1, draws.below(n, b, 1))
            leaf = 2 * leaf + (column > border)
        scores = scores + draws.normal(b, 2**depth, c)[rows, leaf]
    return x, _classes_of(draws, scores)


def causal_classes(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Columns and scores are nodes of one random graph: causes, effects, and neither."""
    nodes = draws.normal(b, n, draws.whole(2, 8))
    while nodes.shape[-1] < d + c:
        width = min(draws.whole(2, 32), d + c - nodes.shape[-1])
        grown = network(draws, nodes, width, depth=1, width=16)
        noise = draws.log_between(0.02, 0.5) * draws.normal(b, n, width)
        nodes = torch.cat([nodes, _standard(grown) + noise], dim=-1)
    place = torch.randperm(nodes.shape[-1], generator=draws.single).to(nodes.device)
    nodes = nodes[..., place]
    return nodes[..., :d], _classes_of(draws, nodes[..., d : d + c])


KINDS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "clusters": clusters,
    "surface": surface,
    "linear": linear_classes,
    "network": network_classes,
    "trees": tree_classes,
    "causal": causal_classes,
    "apart": apart,
}
CLEAN = ("apart",)  # whose classes have no noise


def spoiled(draws: _Draws, x: Tensor) -> Tensor:
    """Columns as real tables have them: noisy, useless, repeated, skewed, in steps."""
    d = x.shape[-1]
    some = max(1, d // draws.whole(2, 4))
    x = x + draws.log_between(0.005, 0.3) * draws.normal(*x.shape)
    if d > 1 and draws.chance(0.3):  # useless
        x = torch.cat([x[..., some:], draws.normal(*x.shape[:-1], some)], dim=-1)[..., :d]
    if d > 1 and draws.chance(0.2):  # repeated, in place of others
        x = torch.cat([x[..., some:], x[..., some:].flip(-1)], dim=-1)[..., :d]
    if draws.chance(0.3):  # skewed, or with heavy tails
        x = x.sign() * x.abs() ** draws.between(0.5, 2.5)
    if draws.chance(0.3):  # in steps, as counts and codes are
        steps = (draws.between(0.5, 2) * x[..., :some]).round()
        x = torch.cat([steps, x[..., some:]], dim=-1)
    if draws.chance(0.2):  # indicators
        x = torch.cat([(x[..., :some] > 0.5).to(x.dtype), x[..., some:]], dim=-1)
    return x


def with_label_noise(draws: _Draws, y: Tensor, c: int) -> Tensor:
    """In three batches of ten, up to a seventh of the classes are drawn anew."""
    if not draws.chance(0.3):
        return y
    wrong = draws.uniform(*y.shape) < draws.between(0, 0.15)
    return torch.where(wrong, draws.below(c, *y.shape), y)


def _standard(x: Tensor) -> Tensor:
    centred = x - x.mean(dim=-2, keepdim=True)
    return centred / centred.square().mean(dim=-2, keepdim=True).sqrt().clamp(min=_TINY)
