"""The five manifolds of the paper, and products of them."""

from icssl._util.errors import check_choice
from icssl.episodes.manifolds.protocol import MEASURES, Manifold
from icssl.episodes.manifolds.surfaces import (
    Cone,
    Cylinder,
    Product,
    Sphere,
    SwissRoll,
    Torus,
)

MANIFOLDS: dict[str, type[Manifold]] = {
    "sphere": Sphere,
    "cylinder": Cylinder,
    "cone": Cone,
    "swiss_roll": SwissRoll,
    "torus": Torus,
}

PRODUCT_FACTORS = ("sphere", "cylinder", "cone", "swiss_roll", "torus")
"""Factors of the paper's product: these five, whatever else is registered."""


def manifold_named(name: str) -> Manifold:
    """Return the manifold of that name, with its default sizes."""
    check_choice("manifold", name, MANIFOLDS)
    return MANIFOLDS[name]()


__all__ = [
    "MANIFOLDS",
    "MEASURES",
    "PRODUCT_FACTORS",
    "Cone",
    "Cylinder",
    "Manifold",
    "Product",
    "Sphere",
    "SwissRoll",
    "Torus",
    "manifold_named",
]
