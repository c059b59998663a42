"""Views of a context's columns: as they are, by rank, half and fully white, by relevance.

No one metric suits every table. A view is fitted on the rows of a context and maps any row
by itself, so that a new row's place does not depend on the rows that come with it. Columns
weigh by their standard deviation: whoever makes a context has to make them comparable.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icssl.classifier.eigensolvers import decompose_each

VIEWS = ("raw", "ranks", "half", "white", "relevant")
"""Names of all views; :data:`icssl.classifier.kernels.GRAPHS` says which are used."""

_RANKED = {"ranks", "relevant"}  # views that are made from ranks

LONGEST = 20.0
"""Largest length of a row, in units of the root mean square length of the context."""

_LIMIT = 10.0  # standard deviations: one wild cell must not be all that a row is
_NEGLIGIBLE = 1e-3  # share of the largest variance: directions below are not blown up
_IRRELEVANT = 0.05  # the least weight of a column, squared
_TINY = 1e-9


@dataclass(frozen=True)
class Views:
    """Fitted views of a batch of contexts, which map any rows.

    Parameters
    ----------
    names : tuple of str
        Which of :data:`VIEWS` to make.
    mean, deviation : Tensor of shape (b, 1, d)
        Mean and standard deviation of the columns.
    ordered : Tensor of shape (b, d, n)
        The columns' values in order.
    spread : Tensor of shape (b, 1, d)
        Standard deviation of the columns' normal scores.
    centre : Tensor of shape (b, 1, d)
        Mean of the columns, after wild cells are limited.
    half, white : Tensor of shape (b, d, min(n, d)), optional
        Matrices that whiten the columns, by the square root and fully.
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
    def fit_rows(
        cls,
        x: Float[Tensor, "b n d"],
        names: Sequence[str],
        labelled: Int[Tensor, "b m"],
        target: Float[Tensor, "b m c"],
        draws: int = 1,
    ) -> tuple["Views", tuple[Tensor, ...]]:
        """Fit views to contexts, and return them with the rows of these in every view.

        Parameters
        ----------
        x : Tensor
            Columns of the tables.
        names : sequence of str
            Which of :data:`VIEWS` to make.
        labelled, target : Tensor
            Indices of labelled rows, and their classes, one-hot; zeros for none.
        draws : int
            How often every table comes, one after the other, with other labels.
        """
        mean = x.mean(dim=1, keepdim=True)
        deviation = (x - mean).square().mean(dim=1, keepdim=True).sqrt()
        z = _limit_cells(x, mean, deviation)
        ordered = z.mT.contiguous().sort(dim=-1).values
        spread = torch.ones_like(mean)
        if _RANKED & set(names):
            spread = _scores(ordered, z).square().mean(dim=1, keepdim=True).sqrt()
        centre = z.mean(dim=1, keepdim=True)
        whitens = {"half", "white"} & set(names)
        half, white = None, None
        if whitens:
            of_tables = _whitening((z - centre)[::draws])
            half, white = (part.repeat_interleave(draws, dim=0) for part in of_tables)
        equal = torch.ones_like(mean)
        views = cls(
            tuple(names), mean, deviation, ordered, spread, centre, half, white, equal
        )
        # Relevance is read off the ranks of labelled rows, and sizes off the views: either
        # needs views that are fitted so far.
        if "relevant" in names:
            ranks = views._ranks(take_rows(z, labelled))
            views = replace(views, relevance=_relevance(ranks, target).to(z.dtype))
        rows = views(x)  # sizes are all that is missing, and looking up ranks takes long
        views = replace(views, sizes=tuple(_size(view) for view in rows))
        return views, views._divide(rows)

    def __call__(self, x: Float[Tensor, "b r d"]) -> tuple[Tensor, ...]:
        """Return any rows in every view, each of shape (b, r, columns of the view)."""
        z = _limit_cells(x, self.mean, self.deviation)
        # Looking up ranks takes as long as all else together, and two views need them.
        ranks = self._ranks(z) if _RANKED & set(self.names) else z
        views = tuple(self._view(name, z, ranks) for name in self.names)
        return self._divide(views) if self.sizes else views

    def _divide(self, views: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return rows in units of the usual length of their view."""
        return tuple(
            _shorten(view / size) for view, size in zip(views, self.sizes, strict=True)
        )

    def _view(self, name: str, z: Tensor, ranks: Tensor) -> Tensor:
        if name in _RANKED:
            return ranks * self.relevance if name == "relevant" else ranks
        whitening = {"raw": None, "half": self.half, "white": self.white}[name]
        return z - self.centre if whitening is None else (z - self.centre) @ whitening

    def _ranks(self, z: Tensor) -> Tensor:
        """Return normal scores, each column with the deviation it has in the table."""
        # A constant column has one rank, which says nothing.
        scores = _scores(self.ordered, z) * (self.deviation / self.spread.clamp(min=_TINY))
        # Outside the observed range, extend linearly by the distance past the end.
        first, last = self.ordered[..., 0], self.ordered[..., -1]
        return scores + z - z.clamp(first[:, None], last[:, None])


def _relevance(labelled: Tensor, target: Tensor) -> Tensor:
    """Return column weights: the share of variance of labelled rows between classes.

    What chance would give is taken off, as in omega squared. With one label per class
    nothing can be said, and all columns weigh alike.
    """
    # In float64 the order in which classes are summed does not show.
    labelled, target = labelled.double(), target.double()
    valid = target.sum(-1, keepdim=True)
    m, c = valid.sum(1, keepdim=True), target.shape[-1]
    counts = target.sum(1)[..., None]
    mean = (labelled * valid).sum(1, keepdim=True) / m
    centred = (labelled - mean) * valid
    total = centred.square().sum(1, keepdim=True)
    means = target.mT @ centred / counts.clamp(min=1)
    between = (counts * means.square()).sum(1, keepdim=True)
    inside = (total - between).clamp(min=0) / (m - c).clamp(min=1)
    share = (between - (c - 1) * inside) / (total + inside).clamp(min=_TINY)
    weight = (share.clamp(min=0) + _IRRELEVANT).sqrt()
    return torch.where(m > c, weight, torch.ones_like(weight))


def _limit_cells(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    limit = _LIMIT * deviation
    return (x - mean).clamp(-limit, limit)


def _scores(ordered: Tensor, z: Tensor) -> Tensor:
    """Return normal scores of values among those in order; equal ones share the middle."""
    values, n = z.mT.contiguous(), ordered.shape[-1]
    below = torch.searchsorted(ordered, values, right=False)
    up_to = torch.searchsorted(ordered, values, right=True)
    rank = ((below + up_to) / 2).clamp(0.5, n - 0.5)
    return torch.special.ndtri(rank.double() / n).to(z.dtype).mT


def _shorten(view: Tensor) -> Tensor:
    """Cut short the rows that are far longer than most, as whitening can make new rows."""
    return view * (LONGEST / view.norm(dim=-1, keepdim=True).clamp(min=_TINY)).clamp(max=1)


def _size(view: Tensor) -> Tensor:
    """Return the root mean square length of a row."""
    return view.square().sum(-1).mean(-1)[:, None, None].clamp(min=_TINY).sqrt()


def _whitening(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the matrices that half whiten and fully whiten centred columns.

    As functions of a whole Gram matrix they do not depend on the eigenvectors that a
    library chooses where eigenvalues repeat. The smaller of the two Gram matrices is used;
    where rows are fewer than columns, coordinates belong to rows.
    """
    wide = z.shape[-1] > z.shape[-2]
    z64 = z.double()
    values, vectors = decompose_each(z64 @ z64.mT if wide else z64.mT @ z64)
    length = values.clamp(min=0).sqrt()
    has_variance = values > _NEGLIGIBLE * values[..., -1:].clamp(min=_TINY)
    inverse = torch.where(has_variance, 1 / length.clamp(min=_TINY), 0.0)[:, None]

    def function(of_lengths: Tensor) -> Tensor:
        return vectors * of_lengths @ vectors.mT

    if wide:
        half, white = (
            z64.mT @ function(power * inverse) for power in (inverse.sqrt(), inverse)
        )
    else:
        half, white = function(inverse.sqrt()), function(inverse)
    return half.to(z.dtype), white.to(z.dtype)


def take_rows(rows: Float[Tensor, "b n p"], indices: Int[Tensor, "b i"]) -> Tensor:
    """Return some rows of every context of a batch."""
    return rows.gather(1, indices[..., None].expand(-1, -1, rows.shape[-1]))
