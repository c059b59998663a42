"""Views of a context's columns: as they are, by rank, half and fully white, by relevance.

No one metric suits every table. A view is fitted on the rows of a context and maps any row
by itself, so that a new row's place does not depend on the rows that come with it. Columns
weigh by their standard deviation: whoever makes a context gives them comparable ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

VIEWS = ("raw", "ranks", "half", "white", "relevant")

_LIMIT = 10.0  # standard deviations: one wild cell must not be all that a row is
_NEGLIGIBLE = 1e-3  # of the largest variance: directions below are not blown up
LONGEST = 20.0  # times the root mean square length of the context's rows
_IRRELEVANT = 0.05  # the least weight of a column, squared
_TINY = 1e-9


@dataclass(frozen=True)
class Views:
    """What some views of a batch of contexts are made with.

    Parameters
    ----------
    names : tuple of str
        Of :data:`VIEWS`.
    mean, deviation : Tensor of shape (b, 1, d)
        Of the columns.
    ordered : Tensor of shape (b, d, n)
        The columns' values in order.
    spread : Tensor of shape (b, 1, d)
        Standard deviation of the columns' normal scores.
    centre : Tensor of shape (b, 1, d)
        Of the columns, after the limit.
    half, white : Tensor of shape (b, d, min(n, d)), optional
        What whitens them, by the square root and fully.
    relevance : Tensor of shape (b, 1, d)
        Weights of the columns by how much the labels differ in them.
    sizes : tuple of Tensor of shape (b, 1, 1)
        Root mean square length of a row in each view.
    """

    names: tuple[str, ...]
    mean: Tensor
    deviation: Tensor
    ordered: Tensor
    spread: Tensor
    centre: Tensor
    half: Tensor | None
    white: Tensor | None
    relevance: Tensor
    sizes: tuple[Tensor, ...] = ()

    @classmethod
    def fit(
        cls,
        x: Float[Tensor, "b n d"],
        names: Sequence[str],
        labelled: Int[Tensor, "b m"],
        target: Float[Tensor, "b m c"],
    ) -> "Views":
        """Of contexts; ``target`` are one-hot classes of labelled rows, or zeros."""
        mean = x.mean(dim=1, keepdim=True)
        deviation = (x - mean).square().mean(dim=1, keepdim=True).sqrt()
        z = _limited(x, mean, deviation)
        ordered = z.mT.contiguous().sort(dim=-1).values
        spread = _scores(ordered, z).square().mean(dim=1, keepdim=True).sqrt()
        centre = z.mean(dim=1, keepdim=True)
        whitens = {"half", "white"} & set(names)
        half, white = _whitening(z - centre) if whitens else (None, None)
        one = torch.ones_like(mean)
        found = cls(
            tuple(names), mean, deviation, ordered, spread, centre, half, white, one
        )
        if "relevant" in names:
            known = found._ranks(z).gather(1, _columns_of(labelled, z))
            found = replace(found, relevance=_relevance(known, target).to(z.dtype))
        return replace(found, sizes=tuple(_size(view) for view in found(x)))

    def __call__(self, x: Float[Tensor, "b r d"]) -> tuple[Tensor, ...]:
        """Any rows in every view, each (b, r, columns of the view)."""
        z = _limited(x, self.mean, self.deviation)
        made = tuple(self._view(name, z) for name in self.names)
        if not self.sizes:
            return made
        return tuple(
            _shortened(view / size) for view, size in zip(made, self.sizes, strict=True)
        )

    def _view(self, name: str, z: Tensor) -> Tensor:
        if name == "ranks":
            return self._ranks(z)
        if name == "relevant":
            return self._ranks(z) * self.relevance
        turn = {"raw": None, "half": self.half, "white": self.white}[name]
        return z - self.centre if turn is None else (z - self.centre) @ turn

    def _ranks(self, z: Tensor) -> Tensor:
        """Normal scores, of the columns' own deviations."""
        # A constant column has one rank, which says nothing.
        scores = _scores(self.ordered, z) * (self.deviation / self.spread.clamp(min=_TINY))
        # Beyond the context there are no ranks: as far as it is.
        first, last = self.ordered[..., 0], self.ordered[..., -1]
        return scores + z - z.clamp(first[:, None], last[:, None])


def _relevance(known: Tensor, target: Tensor) -> Tensor:
    """By the share of a column's variance over labelled rows that lies between classes.

    Less what chance would give, as in omega squared; with one label a class, nothing can be
    said, and all columns weigh alike.
    """
    known, target = known.double(), target.double()  # whatever the order of the classes
    real = target.sum(-1, keepdim=True)
    m, c = real.sum(1, keepdim=True), target.shape[-1]
    counts = target.sum(1)[..., None]
    mean = (known * real).sum(1, keepdim=True) / m
    centred = (known - mean) * real
    total = centred.square().sum(1, keepdim=True)
    means = target.mT @ centred / counts.clamp(min=1)
    between = (counts * means.square()).sum(1, keepdim=True)
    inside = (total - between).clamp(min=0) / (m - c).clamp(min=1)
    share = (between - (c - 1) * inside) / (total + inside).clamp(min=_TINY)
    weight = (share.clamp(min=0) + _IRRELEVANT).sqrt()
    return torch.where(m > c, weight, torch.ones_like(weight))


def _columns_of(indices: Tensor, z: Tensor) -> Tensor:
    return indices[..., None].expand(-1, -1, z.shape[-1])


def _limited(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    limit = _LIMIT * deviation
    return (x - mean).clamp(-limit, limit)


def _scores(ordered: Tensor, z: Tensor) -> Tensor:
    """Normal scores of values among those in order; equal ones share the middle."""
    values, n = z.mT.contiguous(), ordered.shape[-1]
    below = torch.searchsorted(ordered, values, right=False)
    up_to = torch.searchsorted(ordered, values, right=True)
    rank = ((below + up_to) / 2).clamp(0.5, n - 0.5)
    return torch.special.ndtri(rank.double() / n).to(z.dtype).mT


def _shortened(view: Tensor) -> Tensor:
    """Rows that are far longer than most, as whitening makes new ones, are cut short."""
    return view * (LONGEST / view.norm(dim=-1, keepdim=True).clamp(min=_TINY)).clamp(max=1)


def _size(view: Tensor) -> Tensor:
    return view.square().sum(-1).mean(-1)[:, None, None].clamp(min=_TINY).sqrt()


def _whitening(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return symmetric matrices that whiten centred columns, by the root and fully.

    As functions of a whole Gram matrix they do not depend on the eigenvectors that a
    library chooses where eigenvalues repeat. The smaller of the two Gram matrices is used;
    where rows are fewer than columns, coordinates belong to rows.
    """
    wide = z.shape[-1] > z.shape[-2]
    wider = z.double()
    values, vectors = torch.linalg.eigh(wider @ wider.mT if wide else wider.mT @ wider)
    length = values.clamp(min=0).sqrt()
    kept = values > _NEGLIGIBLE * values[..., -1:].clamp(min=_TINY)
    inverse = torch.where(kept, 1 / length.clamp(min=_TINY), 0.0)[:, None]

    def function(of_lengths: Tensor) -> Tensor:
        return vectors * of_lengths @ vectors.mT

    if wide:
        half, white = (
            wider.mT @ function(power * inverse) for power in (inverse.sqrt(), inverse)
        )
    else:
        half, white = function(inverse.sqrt()), function(inverse)
    return half.to(z.dtype), white.to(z.dtype)
