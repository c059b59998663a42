"""Rigid motions with a scale, drawn for each episode."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from icssl.manifolds.base import uniform

ROTATIONS = ("planar", "full", "none")


def random_scales(
    *shape: int, low: float, high: float, generator: Generator, dtype: torch.dtype
) -> Float[Tensor, "*shape"]:
    """Isotropic scale factors, uniform between ``low`` and ``high``."""
    return low + (high - low) * uniform(*shape, generator=generator, dtype=dtype)


def random_rotations(
    *shape: int, kind: str, generator: Generator, dtype: torch.dtype
) -> Float[Tensor, "*shape 3 3"]:
    """Rotations of R^3, to be applied as ``x @ rotation``.

    Parameters
    ----------
    kind : {"planar", "full", "none"}
        About the third axis (the paper's code), uniform on SO(3) (its text), or none.
    """
    if kind == "none":
        eye = torch.eye(3, dtype=dtype, device=generator.device)
        return eye.expand(*shape, 3, 3)
    if kind == "full":
        q = torch.randn(
            *shape, 4, generator=generator, dtype=dtype, device=generator.device
        )
        return _from_quaternion(q / q.norm(dim=-1, keepdim=True))
    angle = 2 * torch.pi * uniform(*shape, generator=generator, dtype=dtype)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    rows = [cos, -sin, zero, sin, cos, zero, zero, zero, torch.ones_like(angle)]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))


def random_shifts(
    *shape: int, size: float, generator: Generator, dtype: torch.dtype
) -> Float[Tensor, "*shape 3"]:
    """Translations in the plane, each coordinate uniform in [-size, size]."""
    planar = size * (2 * uniform(*shape, 2, generator=generator, dtype=dtype) - 1)
    return torch.nn.functional.pad(planar, (0, 1))


def _from_quaternion(q: Float[Tensor, "*b 4"]) -> Float[Tensor, "*b 3 3"]:
    w, x, y, z = q.unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(rows, dim=-1).unflatten(-1, (3, 3))
