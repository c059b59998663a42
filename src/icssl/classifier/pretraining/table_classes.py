"""Classes of synthetic tables: their shares, their borders, and which rows have labels.

Axis names: b = tables, n = rows, c = classes.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from icssl.classifier.pretraining.draws import Draws, TablePlan, scale_together

_LEAST_ROWS = 2  # of a class: one that can have a label, one that is predicted
_SHARE_STEPS = 30
_SOFTNESS = 0.15  # of the borders while class shares are fitted, in deviations of a score


def draw_shares(draws: Draws, b: int, c: int, n: int) -> Float[Tensor, "b c"]:
    """Draw the share of each class.

    In half of the batches of two classes the minority has 2 to 50% of the rows. More
    classes are about even, uneven at random, or fall off as ranks of words do.
    """
    if c == 2:
        uneven = draws.chance(0.5)
        minority = draws.log_uniform(b, 1, low=0.02 if uneven else 0.4, high=0.5)
        shares = torch.cat([minority, 1 - minority], dim=1)
        shares = torch.where(draws.uniform(b, 1) < 0.5, shares, shares.flip(1))
    elif draws.chance(0.4):
        shares = (0.2 * draws.normal(b, c)).softmax(dim=1)
    elif draws.chance(0.5):
        shares = (draws.between(0.3, 1.2) * draws.normal(b, c)).softmax(dim=1)
    else:
        rank = 1 + draws.uniform(b, c).argsort(dim=1)
        shares = rank ** -draws.between(0.3, 1.4)
        shares = shares / shares.sum(dim=1, keepdim=True)
    # Every class has a few rows in expectation, whatever was drawn.
    least = min(3 / n, 0.5 / c)
    return least + (1 - c * least) * shares


def draw_classes(draws: Draws, plan: TablePlan) -> Int[Tensor, "b n"]:
    """Draw the class of every row by the planned shares, at least two rows of each."""
    y = torch.multinomial(plan.shares, plan.n, replacement=True, generator=draws.generator)
    return give_each_class_rows(y, plan.c, generator=draws.generator)


def give_each_class_rows(
    y: Int[Tensor, "b n"], c: int, *, generator: Generator
) -> Int[Tensor, "b n"]:
    """Move random rows of larger classes to classes that have fewer than two rows.

    With fewer rows than twice the classes this is impossible, and some classes stay small.
    """
    places = _places_in_class(y, c, generator=generator)
    is_spare = places >= _LEAST_ROWS
    score = torch.rand(y.shape, generator=generator, device=y.device) + is_spare
    rows = score.topk(min(_LEAST_ROWS * c, y.shape[1]), dim=1).indices
    # Slot 2k is filled if class k has fewer than two rows, slot 2k + 1 if it has none.
    slot = torch.arange(_LEAST_ROWS * c, device=y.device)
    counts = one_hot(y, c).sum(dim=1)
    is_empty = (
        counts.repeat_interleave(_LEAST_ROWS, dim=1) < _LEAST_ROWS - slot % _LEAST_ROWS
    )
    first = is_empty.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    first = first[:, : rows.shape[1]]
    is_moved = is_empty.gather(1, first) & is_spare.gather(1, rows)
    return y.scatter(
        1, rows, torch.where(is_moved, first // _LEAST_ROWS, y.gather(1, rows))
    )


def classes_of_scores(
    draws: Draws, scores: Float[Tensor, "b n c"], plan: TablePlan, *, noise: float = 0.0
) -> Int[Tensor, "b n"]:
    """Return the class of the highest score, after each got a bias for its share."""
    scores = scale_together(scores)
    scores = scores + noise * draws.normal(*scores.shape)
    target = plan.shares.log()
    bias = torch.zeros_like(target)
    for _ in range(_SHARE_STEPS):
        soft = ((scores + bias[:, None]) / _SOFTNESS).softmax(dim=-1).mean(dim=1)
        bias = bias + _SOFTNESS * (target - soft.clamp(min=1e-6).log())
    return (scores + bias[:, None]).argmax(dim=-1)


def stripes(
    value: Float[Tensor, "b n"], shares: Float[Tensor, "b c"], bands: int = 1
) -> Int[Tensor, "b n"]:
    """Return classes as stripes of a coordinate, each class in so many bands.

    Examples
    --------
    >>> shares = torch.tensor([[0.25, 0.75]])
    >>> stripes(torch.tensor([[0.3, 0.1, 7.0, 0.2]]), shares)
    tensor([[1, 0, 1, 1]])
    """
    rank = value.argsort(dim=1).argsort(dim=1)
    place = (rank + 0.5) * bands / value.shape[1] % 1.0
    borders = shares.cumsum(dim=1)[:, :-1]
    return (place[..., None] >= borders[:, None]).sum(dim=-1)


def regions(
    draws: Draws, coordinates: Float[Tensor, "b n q"], plan: TablePlan
) -> Int[Tensor, "b n"]:
    """Return classes as the regions nearest to random rows, one or two for each class."""
    count = draws.whole(1, 2) if 2 * plan.c <= plan.n else 1
    rows = draws.uniform(plan.b, plan.n).topk(count * plan.c, dim=1).indices
    centres = coordinates.gather(1, rows[..., None].expand(-1, -1, coordinates.shape[-1]))
    near = -torch.cdist(coordinates, centres).unflatten(-1, (count, plan.c))
    near = near.amax(dim=-2)
    return classes_of_scores(draws, near, plan)


def corrupt_labels(draws: Draws, y: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """Give up to a seventh of the rows the class of some other row."""
    is_wrong = draws.uniform(*y.shape) < draws.between(0, 0.15)
    # The class of another row and not any class: the shares stay as they are.
    return torch.where(is_wrong, y.gather(1, draws.below(y.shape[1], *y.shape)), y)


def draw_labels(
    y: Int[Tensor, "b n"],
    n_classes: int,
    per_class: int,
    *,
    random: bool,
    generator: Generator,
) -> Bool[Tensor, "b n"]:
    """Choose which rows have a label; every class that occurs has at least one.

    Parameters
    ----------
    y : Tensor of shape (b, n)
        Classes of the rows.
    n_classes : int
        Number of classes.
    per_class : int
        Labels per class; fewer where these were more than half of the rows.
    random : bool
        Choose ``per_class * n_classes`` rows at random, and one more of each class that
        got none. Otherwise each class has ``per_class`` labels, and keeps a row without
        one.
    generator : Generator
        Randomness of the choice. Its next numbers give another choice.

    Examples
    --------
    >>> y = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1]])
    >>> labelled = draw_labels(y, 2, 2, random=False, generator=torch.Generator())
    >>> torch.bincount(y[labelled]).tolist()
    [2, 2]
    """
    n = y.shape[1]
    per_class = max(1, min(per_class, n // (2 * n_classes)))
    places = _places_in_class(y, n_classes, generator=generator)
    if not random:
        counts = one_hot(y, n_classes).sum(dim=1)
        return places < (counts - 1).clamp(1, per_class).gather(1, y)
    score = torch.rand(y.shape, generator=generator, device=y.device)
    chosen = score.topk(min(per_class * n_classes, n), dim=1).indices
    labelled = torch.zeros_like(y, dtype=torch.bool).scatter(1, chosen, True)
    has_label = (one_hot(y, n_classes) * labelled[..., None]).sum(dim=1) > 0
    return labelled | (places == 0) & ~has_label.gather(1, y)


def _places_in_class(
    y: Int[Tensor, "b n"], c: int, *, generator: Generator
) -> Int[Tensor, "b n"]:
    """Return the place of every row among those of its class, in a random order."""
    score = torch.rand(y.shape, generator=generator, device=y.device)
    order = (y + 0.999 * score).argsort(dim=1)  # the sum must stay below the next class
    counts = one_hot(y, c).sum(dim=1)
    before = (counts.cumsum(dim=1) - counts).gather(1, y.gather(1, order))
    places = torch.arange(y.shape[1], device=y.device) - before
    return torch.zeros_like(y).scatter(1, order, places)
