"""Synthetic tables with classes, which the released weights are trained on.

All tables of a batch have one shape and one kind of classes, both drawn per batch; every
table has its own random weights. Classes are clusters, regions of a surface, or a function
of the columns. Columns are then corrupted as those of real tables are.

Axis names: b = tables, n = rows (points), d = columns, c = classes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from icssl._util.errors import check_at_least, check_choice
from icssl._util.random import generator_for
from icssl.episodes.episode import Episode
from icssl.episodes.labels import choose_per_class
from icssl.tables.columns import ColumnScale

_NEW_SHARE = 6  # one row in so many is left out of its context and predicted as a new row
_TINY = 1e-6


@dataclass(frozen=True)
class TaskSpec:
    """The distribution of synthetic tables; ranges are log-uniform, ends included.

    Parameters
    ----------
    points, columns, classes, labels_per_class : tuple of int
        Smallest and largest number. At most half of the points get a label.
    most_numbers : int
        Largest product of points and columns; a wider table has fewer points.
    kinds : tuple of str
        Names from :data:`KINDS` to draw from; a name that occurs twice is drawn twice as
        often.
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
        check_at_least("the most labels per class", self.labels_per_class[1], 1)
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
        """Draw ``b`` tables of one shape, with ``labels`` per class if that is given."""
        draws = _Draws(generator)
        n, d, c, per_class = self._shape(draws, labels)
        kind = draws.choice(self.kinds)
        x, y = KINDS[kind](draws, b, n, d, c)
        x = _corrupt_columns(draws, _standardise(x))
        y = y if kind in _CLEAN else _corrupt_labels(draws, y, c)
        labelled = choose_per_class(y, per_class, c, generator=generator)
        x = x.nan_to_num(0.0, 0.0, 0.0).to(dtype)
        return Episode.unchecked(x=x, y=y, labelled=labelled, n_classes=c)

    def _shape(self, draws: "_Draws", labels: float | None) -> tuple[int, int, int, int]:
        d = draws.whole(*self.columns)
        n = min(draws.whole(*self.points), max(self.points[0], self.most_numbers // d))
        c = min(draws.whole(*self.classes), n // 4)
        per_class = draws.whole(*self.labels_per_class) if labels is None else int(labels)
        return n, d, c, max(1, min(per_class, n // (2 * c)))


class Task(NamedTuple):
    """A batch of contexts, and new rows that were left out of them."""

    x: Tensor
    y: Tensor
    labelled: Tensor
    n_classes: int
    new_x: Tensor
    new_y: Tensor

    @classmethod
    def of_episode(cls, episode: Episode) -> "Task":
        """Scale tables, and take their last rows, which have no label, as new rows."""
        # Labelled rows first, so that all of them are in the context.
        is_labelled = episode.labelled.to(torch.uint8)
        order = is_labelled.argsort(dim=1, descending=True, stable=True)
        x = episode.x.gather(1, order[..., None].expand_as(episode.x))
        y, labelled = episode.y.gather(1, order), episode.labelled.gather(1, order)
        n = max(int(labelled.sum(1).max()), x.shape[1] - x.shape[1] // _NEW_SHARE)
        context, new = scale_like_encoder(x[:, :n], x[:, n:])
        return cls(context, y[:, :n], labelled[:, :n], episode.n_classes, new, y[:, n:])

    def part(self, tables: slice) -> "Task":
        """Return some of the contexts."""
        return Task(
            self.x[tables],
            self.y[tables],
            self.labelled[tables],
            self.n_classes,
            self.new_x[tables],
            self.new_y[tables],
        )


def scale_like_encoder(
    context: Float[Tensor, "b n d"], new: Float[Tensor, "b r d"]
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b r d"]]:
    """Scale tables as :class:`ColumnEncoder` does: by their contexts, with its own code.

    Parameters
    ----------
    context : Tensor
        Rows that the classifier is fitted to, one table per entry of the batch.
    new : Tensor
        Rows of the same tables that it predicts later.
    """
    columns = context.mT.flatten(0, 1), new.mT.flatten(0, 1)  # (b * d, rows)
    scale = ColumnScale.fit(columns[0].double().cpu().numpy())
    scaled = (torch.from_numpy(scale(part.double().cpu().numpy()).T) for part in columns)
    scaled_context, scaled_new = (
        part.reshape(rows.mT.shape).mT.to(rows)
        for part, rows in zip(scaled, (context, new), strict=True)
    )
    return scaled_context, scaled_new


class _Draws:
    """A source of random numbers: single ones on the CPU, tensors on the device."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        # Reading a single number from a GPU would wait for all work before it. Single
        # numbers have a stream of their own, or they would repeat the first tensors.
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


def _network(draws: _Draws, x: Tensor, out: int, *, depth: int, width: int) -> Tensor:
    """Apply a random network per table: random weights, one activation per layer."""
    for _ in range(depth):
        x = _linear(draws, x, width, draws.between(0.7, 2.5))
        x = x + 0.5 * draws.normal(len(x), 1, width)
        x = _ACTIVATIONS[int(draws.between(0, len(_ACTIVATIONS)))](x)
    return _linear(draws, x, out)


def _linear(draws: _Draws, x: Tensor, out: int, gain: float = 1.0) -> Tensor:
    """Apply a random linear map per table, whose output is about as large as its input."""
    weights = draws.normal(len(x), x.shape[-1], out)
    return gain * x.shape[-1] ** -0.5 * (x @ weights)


def _clusters(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Draw classes of one to three Gaussian parts, which may overlap and be warped."""
    inner = draws.whole(2, 12)
    parts = 1 if draws.chance(0.6) else draws.whole(2, 3)
    return _gaussians(draws, b, n, d, c, inner=inner, parts=parts)


def _distant_clusters(
    draws: _Draws, b: int, n: int, d: int, c: int
) -> tuple[Tensor, Tensor]:
    """Draw one Gaussian part per class, each with as much room, however many there are."""
    inner = draws.whole(2, 12)
    # Volume grows with the power of the dimension: as much for each class as three have.
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
    # Each part has its own covariance, shapes @ shapes.T, about as wide in any dimension.
    width = draws.between(0.3, 1.2) * inner**-0.5
    shapes = width * draws.normal(b, c * parts, inner, inner)
    rows = torch.arange(b, device=y.device)[:, None]
    noise = draws.normal(b, n, inner, 1)
    z = centres[rows, part] + (shapes[rows, part] @ noise)[..., 0]
    if draws.chance(0.5):
        return _linear(draws, z, d), y
    return _network(draws, z, d, depth=draws.whole(1, 2), width=max(16, min(d, 64))), y


def _surface(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Draw a curved surface; its classes are the regions nearest to random points."""
    u = draws.log_between(2, 8) * draws.uniform(b, n, draws.whole(1, 3))
    waves = torch.cat([u.sin(), u.cos(), 0.3 * u], dim=-1)
    x = _network(draws, waves, d, depth=draws.whole(1, 2), width=max(16, min(d, 64)))
    # A class has one region of the surface or two, each around one of the points.
    regions = c * draws.whole(1, 2)
    centre_rows = draws.uniform(b, n).topk(min(regions, n), dim=1).indices
    centres = u.gather(1, centre_rows[..., None].expand(-1, -1, u.shape[-1]))
    return x, torch.cdist(u, centres).argmin(dim=-1) % c


def _correlated_columns(draws: _Draws, b: int, n: int, d: int) -> Tensor:
    """Draw correlated columns, some with heavy tails."""
    z = draws.normal(b, n, draws.whole(2, 16))
    if draws.chance(0.3):
        z = z * draws.normal(b, n, 1).abs() ** draws.between(0, 1)
    curved = draws.chance(0.5)
    x = _network(draws, z, d, depth=1, width=32) if curved else _linear(draws, z, d)
    return _standardise(x + draws.log_between(0.05, 1) * draws.normal(b, n, d))


def _classes_of(draws: _Draws, scores: Tensor) -> Tensor:
    """Return the class of the highest score; some are favoured, and borders are noisy."""
    b, n, c = scores.shape
    favour = draws.between(0, 0.5) * draws.normal(b, 1, c)
    noise = draws.between(0, 0.7) * draws.normal(b, n, c)
    return (_standardise(scores) + favour + noise).argmax(dim=-1)


def _linear_classes(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Draw classes by linear scores of some of the columns."""
    x = _correlated_columns(draws, b, n, d)
    return x, _classes_of(draws, _linear(draws, x[..., : draws.whole(1, d)], c))


def _network_classes(
    draws: _Draws, b: int, n: int, d: int, c: int
) -> tuple[Tensor, Tensor]:
    """Draw classes by a random network of some of the columns."""
    x = _correlated_columns(draws, b, n, d)
    inputs = x[..., : draws.whole(1, min(d, 20))]
    scores = _network(draws, inputs, c, depth=draws.whole(1, 3), width=16)
    return x, _classes_of(draws, scores)


def _tree_classes(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Draw classes by the sum of a few random trees on some of the columns."""
    x = _correlated_columns(draws, b, n, d)
    columns = draws.whole(1, min(d, 20))
    rows = torch.arange(b, device=x.device)[:, None]
    scores = x.new_zeros(b, n, c)
    for _ in range(draws.whole(1, 5)):
        depth = draws.whole(1, 4)
        leaf = torch.zeros(b, n, dtype=torch.long, device=x.device)
        for _ in range(depth):
            # One column per table, split at one of its own values: each level of the tree
            # doubles the number of leaves.
            column = x.mT[rows[:, 0], draws.below(columns, b)]
            border = column.gather(1, draws.below(n, b, 1))
            leaf = 2 * leaf + (column > border)
        scores = scores + draws.normal(b, 2**depth, c)[rows, leaf]
    return x, _classes_of(draws, scores)


def _causal_classes(draws: _Draws, b: int, n: int, d: int, c: int) -> tuple[Tensor, Tensor]:
    """Draw columns and scores as nodes of one random graph: causes, effects, neither."""
    # New nodes are functions of all nodes before them, so that the graph has no cycle.
    nodes = draws.normal(b, n, draws.whole(2, 8))
    while nodes.shape[-1] < d + c:
        width = min(draws.whole(2, 32), d + c - nodes.shape[-1])
        effects = _network(draws, nodes, width, depth=1, width=16)
        noise = draws.log_between(0.02, 0.5) * draws.normal(b, n, width)
        nodes = torch.cat([nodes, _standardise(effects) + noise], dim=-1)
    place = torch.randperm(nodes.shape[-1], generator=draws.single).to(nodes.device)
    nodes = nodes[..., place]
    return nodes[..., :d], _classes_of(draws, nodes[..., d : d + c])


KINDS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "clusters": _clusters,
    "surface": _surface,
    "linear": _linear_classes,
    "network": _network_classes,
    "trees": _tree_classes,
    "causal": _causal_classes,
    "apart": _distant_clusters,
}
_CLEAN = ("apart",)  # kinds whose labels have no noise


def _corrupt_columns(draws: _Draws, x: Tensor) -> Tensor:
    """Return columns as real tables have them: noisy, useless, repeated, skewed, binary."""
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


def _corrupt_labels(draws: _Draws, y: Tensor, c: int) -> Tensor:
    """Draw up to a seventh of the classes anew, in three batches of ten."""
    if not draws.chance(0.3):
        return y
    wrong = draws.uniform(*y.shape) < draws.between(0, 0.15)
    return torch.where(wrong, draws.below(c, *y.shape), y)


def _standardise(x: Tensor) -> Tensor:
    centred = x - x.mean(dim=-2, keepdim=True)
    return centred / centred.square().mean(dim=-2, keepdim=True).sqrt().clamp(min=_TINY)
