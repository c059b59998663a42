"""Classes of points, the choice of labelled points, and sources that draw both."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from icssl._util.errors import check_choice
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import ground_truth

PLACEMENTS = ("random", "covering")


def ball_labels(
    distance: Float[Tensor, "*b n"], radius: float | Tensor
) -> Int[Tensor, "*b n"]:
    """Return 1 inside the geodesic ball and 0 outside, by distance from its centre."""
    return (distance < radius).long()


def lower_half(values: Float[Tensor, "*b n"]) -> Int[Tensor, "*b n"]:
    """Return 1 for the n // 2 smallest values, 0 for the others: balanced, ties or not."""
    return lowest(values, values.shape[-1] // 2)


def lowest(values: Float[Tensor, "*b n"], count: int) -> Int[Tensor, "*b n"]:
    """Return 1 for the ``count`` smallest values and 0 for the others, ties or not."""
    rank = values.argsort(dim=-1).argsort(dim=-1)
    return (rank < count).long()


def share_count(share: float, n: int) -> int:
    """Return how many of n points a class with this share of them has; half rounds down.

    Examples
    --------
    >>> share_count(0.5, 101), share_count(0.744, 100)
    (50, 74)
    """
    return n // 2 if share == 0.5 else round(share * n)


def nearest_centre_labels(distance: Float[Tensor, "*b c n"]) -> Int[Tensor, "*b n"]:
    """Return the nearest of c centres, by the distance of every point from each."""
    return distance.argmin(dim=-2)


def majority_rate(y: Int[Tensor, "b n"], n_classes: int) -> Float[Tensor, " b"]:
    """Return the share of the largest class: what a guess without points gets right."""
    counts = torch.nn.functional.one_hot(y, n_classes).sum(dim=1)
    return counts.amax(dim=-1) / y.shape[1]


def label_count(amount: float, n: int) -> int:
    """Return how many of n points a count (int) or a fraction (float) is, at most n - 1."""
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
    """Choose which points are labelled.

    Parameters
    ----------
    y : Tensor of shape (b, n)
        Classes of the points.
    amount : int or float
        A number of points, or a fraction of n.
    placement : {"random", "covering"}
        ``"covering"`` labels at least one point of every class that occurs.
    n_classes : int
        Number of classes.
    generator : Generator
        Randomness of the choice.
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
            score_in_class = torch.where(y == c, score, -1.0)
            first = score_in_class.argmax(dim=1, keepdim=True)
            # Scores lie below one, so a raised point is among the highest; a class that
            # does not occur raises none.
            raised = 2.0 * (score_in_class.gather(1, first) >= 0)
            score = score.scatter_add(1, first, raised)
    highest = score.topk(count, dim=1).indices
    return torch.zeros_like(y, dtype=torch.bool).scatter(1, highest, True)


def choose_per_class(
    y: Int[Tensor, "b n"], per_class: int, n_classes: int, *, generator: Generator
) -> Bool[Tensor, "b n"]:
    """Choose which points are labelled: so many of every class, or all that it has.

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


class DrawnPoints(NamedTuple):
    """A batch of points with their classes, before any of them is labelled.

    Parameters
    ----------
    x : Tensor of shape (b, n, d)
        Coordinates.
    y : Tensor of shape (b, n)
        Class of every point.
    n_classes : int
        Number of classes.
    distances : Tensor of shape (b, n, n), optional
        Distances along the manifold.
    """

    x: Tensor
    y: Tensor
    n_classes: int
    distances: Tensor | None = None


class PointSource:
    """Base of the specs that draw points first, then label some of them.

    A subclass has these four fields and implements :meth:`draw_points`.
    """

    labels: float
    placement: str
    eigenvectors: int
    neighbours: int

    def draw_points(
        self, b: int, *, generator: Generator, dtype: torch.dtype
    ) -> DrawnPoints:
        """Draw the points of ``b`` episodes, on the generator's device."""
        raise NotImplementedError

    def draw(
        self,
        b: int,
        *,
        generator: Generator,
        labels: float | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Episode:
        """Draw ``b`` episodes on the generator's device; ``labels`` replaces the spec's."""
        points = self.draw_points(b, generator=generator, dtype=dtype)
        labelled = choose_labelled(
            points.y,
            self.labels if labels is None else labels,
            self.placement,
            n_classes=points.n_classes,
            generator=generator,
        )
        laplacian = features = None
        if self.eigenvectors:
            laplacian, features = ground_truth(points.x, self.eigenvectors, self.neighbours)
        return Episode.unchecked(
            **points._asdict(), labelled=labelled, laplacian=laplacian, features=features
        )
