"""Distances of points, and the graphs that label propagation walks on."""

import torch
from jaxtyping import Float
from torch import Tensor

from icssl._util.errors import check_at_least, check_choice, check_positive

KERNELS = ("rbf", "knn")


def squared_distances(x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n n"]:
    """Squared Euclidean distances, exact also for near points."""
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()


def gaussian_kernel(x: Float[Tensor, "b n d"], bandwidth: float) -> Float[Tensor, "b n n"]:
    """exp(-d^2 / 2 h^2) with bandwidth h, ones on the diagonal."""
    check_positive("bandwidth", bandwidth)
    return (-squared_distances(x) / (2 * bandwidth**2)).exp()


def log_affinity(
    x: Float[Tensor, "b n d"], kernel: str, bandwidth: float, neighbours: int
) -> Float[Tensor, "b n n"]:
    """Logarithms of the weights of scikit-learn's graphs; -inf where there is no edge.

    Logarithms because the weights of far points underflow. Points have no edge to
    themselves: scikit-learn's solutions do not depend on these.

    Parameters
    ----------
    x : Tensor of shape (b, n, d)
    kernel : {"rbf", "knn"}
        All edges, with weight exp(-d^2 / 2 h^2), or weight 1 from each point to its
        nearest, which need not be mutual.
    bandwidth : float
        h, of ``"rbf"``.
    neighbours : int
        Of ``"knn"``, without the point itself; in a small episode, all points.
    """
    check_choice("kernel", kernel, KERNELS)
    squared = squared_distances(x)
    squared.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    if kernel == "rbf":
        check_positive("bandwidth", bandwidth)
        return -squared / (2 * bandwidth**2)
    nearest = _nearest(squared, neighbours).indices
    return torch.full_like(squared, -torch.inf).scatter(2, nearest, 0.0)


def self_tuned_graph(x: Float[Tensor, "b n d"], neighbours: int) -> Float[Tensor, "b n n"]:
    """Symmetric weights between near points, each point with a bandwidth of its own.

    The weight from a point to one of its nearest is exp(-4 d^2 / s^2), where s is its
    distance from the last of them; both directions are averaged. This is the graph of
    the GraphLearning package.
    """
    squared = squared_distances(x)
    squared.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    nearest = _nearest(squared, neighbours)
    last = nearest.values[..., -1:]
    # Where all of the nearest are copies of the point, they are all as near as can be.
    ratio = torch.where(last > 0, nearest.values / last, 0.0)
    directed = torch.zeros_like(squared).scatter(2, nearest.indices, (-4 * ratio).exp())
    return (directed + directed.mT) / 2


def _nearest(squared: Tensor, neighbours: int) -> torch.return_types.topk:
    """Smallest entries of each row, in order; the diagonal must be infinite."""
    check_at_least("neighbours", neighbours, 1)
    count = min(neighbours, squared.shape[-1] - 1)
    return squared.topk(count, dim=2, largest=False, sorted=True)
