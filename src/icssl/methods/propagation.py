"""Methods that spread labels over a graph, in closed form, all episodes at once."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icssl._util.errors import check_at_least, check_choice, check_positive
from icssl.episodes.episode import Episode
from icssl.episodes.ground_truth import identity_like, squared_distances
from icssl.methods.base import (
    SCALINGS,
    Grid,
    Scoring,
    Tunable,
    class_shares,
    label_matrix,
    scale_points,
)

_KERNELS = ("rbf", "knn")
_RIDGE = 1e-12  # for the parts of a graph that is not connected


@dataclass(frozen=True)
class LabelSpreading(Tunable):
    """Label spreading (Zhou et al., 2004): a labelled point may change its class.

    Solves F = (1 - alpha) (I - alpha S)^-1 Y, the limit of scikit-learn's iterations,
    with the symmetrically normalised affinities S.

    Parameters
    ----------
    alpha : float
        Between 0 and 1: how much a point takes from its neighbours.
    kernel, bandwidth, neighbours
        Settings of the graph: all edges with Gaussian weights (``"rbf"``), or those to the
        nearest points (``"knn"``); the bandwidth in units of the root mean square distance
        from the mean.
    scaling : {"isotropic", "coordinate"}
    """

    alpha: float = 0.9
    kernel: str = "rbf"
    bandwidth: float = 0.2
    neighbours: int = 7
    scaling: str = "isotropic"

    grids: ClassVar[tuple[Grid, ...]] = (
        {
            "scaling": SCALINGS,
            "kernel": ["rbf"],
            "bandwidth": [0.1, 0.2, 0.35],
            "alpha": [0.1, 0.5, 0.9],
        },
        {
            "scaling": SCALINGS,
            "kernel": ["knn"],
            "neighbours": [5, 7, 12],
            "alpha": [0.2, 0.9],
        },
    )

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha must be in (0, 1), got {self.alpha!r}.")

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        x, labels = scale_points(episode.x, self.scaling), label_matrix(episode)
        log_weights = _log_affinity(x, self.kernel, self.bandwidth, self.neighbours)
        log_degree = log_weights.logsumexp(dim=1)  # how much points in
        # As in scikit-learn: who is no one's neighbour counts as having one.
        log_degree = log_degree.masked_fill(log_degree.isinf(), 0.0) / 2
        similar = (log_weights - log_degree[:, :, None] - log_degree[:, None]).exp()
        spread = torch.linalg.solve(identity_like(similar) - self.alpha * similar, labels)
        return _shares(spread, labels).to(episode.x.dtype)


@dataclass(frozen=True)
class LabelPropagation(Tunable):
    """Label propagation (Zhu and Ghahramani, 2002): labels stay, others are averages.

    The probability of a class is that of a random walk over the graph to meet it first.

    Parameters
    ----------
    kernel, bandwidth, neighbours, scaling
        Settings of the graph, see :class:`LabelSpreading`.
    """

    kernel: str = "rbf"
    bandwidth: float = 0.2
    neighbours: int = 7
    scaling: str = "isotropic"

    grids: ClassVar[tuple[Grid, ...]] = (
        {
            "scaling": SCALINGS,
            "kernel": ["rbf"],
            "bandwidth": [0.03, 0.1, 0.15, 0.2, 0.3, 0.5],
        },
        {"scaling": SCALINGS, "kernel": ["knn"], "neighbours": [4, 6, 9, 14]},
    )

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        x = scale_points(episode.x, self.scaling)
        log_weights = _log_affinity(x, self.kernel, self.bandwidth, self.neighbours)
        p = _first_met(log_weights, label_matrix(episode), episode.labelled)
        return p.to(episode.x.dtype)


@dataclass(frozen=True)
class LaplaceLearning(Tunable):
    """Laplace learning (Zhu et al., 2003): harmonic functions on a self-tuned graph.

    Parameters
    ----------
    neighbours : int
        Neighbours in the graph, see :func:`icssl.methods.propagation.self_tuned_graph`.
    scaling : {"isotropic", "coordinate"}
    """

    neighbours: int = 10
    scaling: str = "isotropic"

    grids: ClassVar[tuple[Grid, ...]] = (
        {"scaling": SCALINGS, "neighbours": [3, 4, 6, 8, 10, 15, 20, 30]},
    )

    def __call__(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return class probabilities of every point."""
        weights = self_tuned_graph(scale_points(episode.x, self.scaling), self.neighbours)
        p = _first_met(weights.log(), label_matrix(episode), episode.labelled)
        return p.to(episode.x.dtype)


@dataclass(frozen=True)
class PoissonLearning(Scoring):
    """Poisson learning (Calder et al., 2020): labels are sources, for very few of them.

    Solves L u = sum_j delta_j (y_j - mean of y) over the labelled points, with u of mean
    zero weighted by degree. A part of the graph without any label has u = 0; one whose
    labels do not balance, large values of the class that it has more of.

    Parameters
    ----------
    neighbours, scaling
        Settings of the graph, see :class:`LaplaceLearning`.
    temperature : float
        Temperature of the softmax of u.
    """

    neighbours: int = 10
    scaling: str = "isotropic"
    temperature: float = 1.0

    grids: ClassVar[tuple[Grid, ...]] = (
        {"scaling": SCALINGS, "neighbours": [4, 6, 10, 15, 20, 30, 60, 100]},
    )

    def scores(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Return the solution u, -inf for a class that no labelled point has."""
        labels = label_matrix(episode)
        source = (labels - class_shares(labels)) * episode.labelled[..., None]
        weights = self_tuned_graph(scale_points(episode.x, self.scaling), self.neighbours)
        root = weights.sum(dim=-1, keepdim=True).sqrt()  # (b, n, 1), never zero
        constant = root / root.norm(dim=1, keepdim=True)
        # The normalised Laplacian is singular along this constant alone, if the graph is
        # connected; each further part adds a singular direction of its own.
        system = (1 + _RIDGE) * identity_like(weights) - weights / (root * root.mT)
        solution = torch.linalg.solve(system + constant @ constant.mT, source / root) / root
        return solution.masked_fill(~labels.any(dim=1, keepdim=True), -torch.inf)


def _first_met(
    log_weights: Float[Tensor, "b n n"],
    labels: Float[Tensor, "b n c"],
    labelled: Bool[Tensor, "b n"],
) -> Float[Tensor, "b n c"]:
    """Return probabilities of the class that a random walk from each point meets first.

    As in scikit-learn, the walk avoids points from which no label can be reached; these
    get the shares of the classes.
    """
    weights = (log_weights - log_weights.amax(dim=-1, keepdim=True)).exp()
    reaches_label = _reaches(weights > 0, labelled)
    weights = torch.where(reaches_label[:, None] & ~labelled[..., None], weights, 0.0)
    met = _absorb(weights.masked_fill(labelled[:, None], 0.0), weights @ labels)
    return _shares(met + labels, labels)


def _absorb(
    moves: Float[Tensor, "b n n"], ends: Float[Tensor, "b n c"]
) -> Float[Tensor, "b n c"]:
    """Return where a walk ends, from the weights of its moves and ends at each point.

    Points are eliminated one after the other without a subtraction (Grassmann, Taksar
    and Heyman, 1985), so that every digit is right however long the walk: with a small
    bandwidth the linear system is singular to rounding.
    """
    n = moves.shape[1]
    rest = torch.cat([moves, ends], dim=-1)
    for k in range(n):
        rest[:, k, : k + 1] = 0.0  # a walk that stays, moves on in the end
        total = rest[:, k].sum(dim=-1, keepdim=True)
        rest[:, k] /= torch.where(total > 0, total, 1.0)
        rest[:, k + 1 :, k + 1 :] += rest[:, k + 1 :, k, None] * rest[:, None, k, k + 1 :]
    ended = rest[..., n:]
    for k in reversed(range(n - 1)):
        ended[:, k] += (rest[:, None, k, k + 1 : n] @ ended[:, k + 1 :])[:, 0]
    return ended


def _reaches(edges: Bool[Tensor, "b n n"], goal: Bool[Tensor, "b n"]) -> Tensor:
    """Return from which points some path leads to the goal."""
    while True:
        grown = goal | (edges & goal[:, None]).any(dim=-1)
        if torch.equal(grown, goal):
            return goal
        goal = grown


def _shares(mass: Tensor, labels: Tensor) -> Tensor:
    """Return rows that sum to one; a row without mass gets the shares of the labels."""
    mass = mass.clamp(min=0)  # rounding
    total = mass.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, mass / total, class_shares(labels))


def _log_affinity(
    x: Float[Tensor, "b n d"], kernel: str, bandwidth: float, neighbours: int
) -> Float[Tensor, "b n n"]:
    """Return logarithms of scikit-learn's graph weights, -inf where there is no edge.

    Logarithms because the weights of far points underflow. Points have no edge to
    themselves: scikit-learn's solutions do not depend on these.

    Parameters
    ----------
    x : Tensor of shape (b, n, d)
    kernel : {"rbf", "knn"}
        All edges, with weight exp(-d^2 / 2 h^2), or weight 1 from each point to its
        nearest, which need not be mutual.
    bandwidth : float
        Bandwidth h of ``"rbf"``.
    neighbours : int
        Neighbours of ``"knn"``, without the point itself; at most all points.
    """
    check_choice("kernel", kernel, _KERNELS)
    squared = squared_distances(x, x)
    squared.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    if kernel == "rbf":
        check_positive("bandwidth", bandwidth)
        return -squared / (2 * bandwidth**2)
    nearest = _nearest(squared, neighbours).indices
    return torch.full_like(squared, -torch.inf).scatter(2, nearest, 0.0)


def self_tuned_graph(x: Float[Tensor, "b n d"], neighbours: int) -> Float[Tensor, "b n n"]:
    """Return symmetric weights between near points, with a bandwidth for each point.

    The weight from a point to one of its nearest is exp(-4 d^2 / s^2), where s is its
    distance from the last of them; both directions are averaged. This is the graph of
    the GraphLearning package.
    """
    squared = squared_distances(x, x)
    squared.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    nearest = _nearest(squared, neighbours)
    last = nearest.values[..., -1:]
    # Where all of the nearest are copies of the point, they are all as near as can be.
    ratio = torch.where(last > 0, nearest.values / last, 0.0)
    directed = torch.zeros_like(squared).scatter(2, nearest.indices, (-4 * ratio).exp())
    return (directed + directed.mT) / 2


def _nearest(squared: Tensor, neighbours: int) -> torch.return_types.topk:
    """Return the smallest entries of each row, in order; the diagonal is infinite."""
    check_at_least("neighbours", neighbours, 1)
    count = min(neighbours, squared.shape[-1] - 1)
    return squared.topk(count, dim=2, largest=False, sorted=True)
