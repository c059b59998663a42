"""Classes of points, and which of them are shown."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from icssl._util.errors import check_choice

PLACEMENTS = ("random", "covering")


def ball_labels(
    distance: Float[Tensor, "*b n"], radius: float | Tensor
) -> Int[Tensor, "*b n"]:
    """1 inside the geodesic ball, 0 outside, by distance from its centre."""
    return (distance < radius).long()


def lower_half(values: Float[Tensor, "*b n"]) -> Int[Tensor, "*b n"]:
    """1 for the n // 2 smallest values, 0 for the others: balanced, ties or not."""
    rank = values.argsort(dim=-1).argsort(dim=-1)
    return (rank < values.shape[-1] // 2).long()


def nearest_centre_labels(distance: Float[Tensor, "*b c n"]) -> Int[Tensor, "*b n"]:
    """The nearest of c centres, by the distance of every point from each of them."""
    return distance.argmin(dim=-2)


def majority_rate(y: Int[Tensor, "b n"], n_classes: int) -> Float[Tensor, " b"]:
    """Share of the largest class: what a model that sees no point would get right."""
    counts = torch.nn.functional.one_hot(y, n_classes).sum(dim=1)
    return counts.amax(dim=-1) / y.shape[1]


def label_count(amount: float, n: int) -> int:
    """How many points a count (int) or a fraction (float) of n are, fewer than n."""
    count = round(amount * n) if isinstance(amount, float) else amount
    if isinstance(amount, float) and not 0 < amount < 1:
        raise ValueError(f"a fraction of labels must be in (0, 1), got {amount}.")
    if not 1 <= count < n:
        raise ValueError(
            f"the number of labels must be from 1 to n - 1 = {n - 1}, got {count}: a point "
            "must be left to predict."
        )
    return count


def choose_labelled(
    y: Int[Tensor, "b n"],
    amount: float,
    placement: str = "random",
    *,
    n_classes: int = 2,
    generator: Generator,
) -> Bool[Tensor, "b n"]:
    """Which points are labelled.

    Parameters
    ----------
    y : Tensor of shape (b, n)
        Classes of the points.
    amount : int or float
        A number of points, or a fraction of n.
    placement : {"random", "covering"}
        ``"covering"`` shows at least one point of every class that occurs.
    """
    check_choice("placement", placement, PLACEMENTS)
    count = label_count(amount, y.shape[1])
    score = torch.rand(y.shape, generator=generator, device=y.device)
    if placement == "covering":
        if count < n_classes:
            raise ValueError(
                f"covering {n_classes} classes needs at least as many labels, got {count}."
            )
        for c in range(n_classes):
            own = torch.where(y == c, score, -1.0)
            first = own.argmax(dim=1, keepdim=True)
            # Scores lie below one, so a raised point is among the highest; a class that
            # does not occur raises none.
            raised = 2.0 * (own.gather(1, first) >= 0)
            score = score.scatter_add(1, first, raised)
    highest = score.topk(count, dim=1).indices
    return torch.zeros_like(y, dtype=torch.bool).scatter(1, highest, True)


def choose_per_class(
    y: Int[Tensor, "b n"], per_class: int, n_classes: int, *, generator: Generator
) -> Bool[Tensor, "b n"]:
    """Which points are labelled: so many of every class, or all that it has.

    Examples
    --------
    >>> y = torch.tensor([[0, 0, 0, 1, 1, 2]])
    >>> choose_per_class(y, 1, 3, generator=torch.Generator()).sum().item()
    3
    """
    score = torch.rand(y.shape, generator=generator, device=y.device)
    order = (y + score).argsort(dim=1)  # class by class, in a random order within each
    classes = y.gather(1, order)
    counts = torch.nn.functional.one_hot(y, n_classes).sum(dim=1)
    before = counts.cumsum(dim=1) - counts  # points of the classes before
    place = torch.arange(y.shape[1], device=y.device) - before.gather(1, classes)
    return torch.zeros_like(y, dtype=torch.bool).scatter(1, order, place < per_class)
