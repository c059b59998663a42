"""Where stage 2 starts from: functions of the points that depend on neither n nor order."""

import math
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor

from icssl.model.stage import exporting

SHORTEST_COLUMN = 1e-12
"""A column shorter than this is left short: dividing by its length would amplify noise."""


def normalise(f: Float[Tensor, "b n k"]) -> Float[Tensor, "b n k"]:
    """Divide every column by its length."""
    return f / torch.linalg.vector_norm(f, dim=-2, keepdim=True).clamp(min=SHORTEST_COLUMN)


def fourier_start(
    x: Float[Tensor, "b n d"], k: int, frequency: float = 1.0
) -> Float[Tensor, "b n k"]:
    """Return k functions of the points, each of unit length, the first one constant.

    They are cosines of fixed projections of the cloud, centred and scaled to unit size. So
    they depend on neither the unit, the place nor the number of the points, and permuting
    the points permutes their rows.
    """
    unit = _unit_cloud(x)
    numbers = _fixed_normals(x.shape[-1] + 1, k, like=x)
    projections, phases = frequency * numbers[:-1], numbers[-1]
    waves = torch.cos(unit @ projections[:, 1:] + phases[1:])
    return normalise(torch.cat([torch.ones_like(unit[..., :1]), waves], dim=-1))


def _unit_cloud(x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
    """Return the cloud, centred and divided by the root of its mean squared length."""
    # Halved and divided by n first: sums and differences of huge numbers stay finite.
    centred = x / 2 - (x / (2 * x.shape[-2])).sum(dim=-2, keepdim=True)
    largest = centred.abs().amax(dim=(-2, -1), keepdim=True)
    unit = centred / largest.where(largest > 0, 1)
    size = unit.square().sum(dim=-1).mean(dim=-1).sqrt()[:, None, None]
    return unit / size.where(size > 0, 1)


def waves_start(
    x: Float[Tensor, "b n d"], k: int, frequency: float = 1.0
) -> Float[Tensor, "b n k"]:
    """Return k cosines of fixed projections of the cloud, none of them constant.

    As :func:`fourier_start` otherwise. At a high frequency they are a hash of the point:
    near points have unrelated numbers, as with the start that the paper learns.
    """
    return fourier_start(x, k + 1, frequency)[..., 1:]


def polynomial_start(x: Float[Tensor, "b n d"], k: int) -> Float[Tensor, "b n k"]:
    """Return k fixed mixtures of the unit coordinates and their products, centred."""
    unit = _unit_cloud(x)
    products = (unit[..., :, None] * unit[..., None, :]).flatten(-2)
    terms = torch.cat([unit, products], dim=-1)
    terms = terms - terms.mean(dim=-2, keepdim=True)
    return normalise(terms @ _fixed_normals(terms.shape[-1], k, like=x))


def _fixed_normals(rows: int, columns: int, *, like: Tensor) -> Tensor:
    """Return fixed numbers with a normal distribution: constants of the model, not a draw.

    They are a hash of the position. A generator's state would differ between devices and
    could not be captured in a CUDA graph.
    """
    if exporting():
        return _fixed_normals_in_python(rows, columns).to(like)
    index = torch.arange(1, rows * columns + 1, dtype=torch.float64, device=like.device)
    uniform = (torch.sin(index) * 1e4).remainder(1).clamp(1e-6, 1 - 1e-6)
    normal = torch.erfinv(2 * uniform - 1) * 2**0.5
    return normal.reshape(rows, columns).to(like.dtype)


def _fixed_normals_in_python(rows: int, columns: int) -> Tensor:
    """Compute the same numbers outside the graph: ONNX has no inverse error function."""
    wave = [1e4 * math.sin(i) % 1 for i in range(1, rows * columns + 1)]
    normal = [NormalDist().inv_cdf(min(max(u, 1e-6), 1 - 1e-6)) for u in wave]
    return torch.tensor(normal, dtype=torch.float64).reshape(rows, columns)
