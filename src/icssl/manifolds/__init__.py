"""The five manifolds of the paper, and products of them."""

from icssl.errors import check_choice
from icssl.manifolds.base import MEASURES, Manifold
from icssl.manifolds.cone import Cone
from icssl.manifolds.cylinder import Cylinder
from icssl.manifolds.product import Product
from icssl.manifolds.sphere import Sphere
from icssl.manifolds.swiss_roll import SwissRoll
from icssl.manifolds.torus import Torus

MANIFOLDS: dict[str, type[Manifold]] = {
    "sphere": Sphere,
    "cylinder": Cylinder,
    "cone": Cone,
    "swiss_roll": SwissRoll,
    "torus": Torus,
}


def manifold_named(name: str) -> Manifold:
    """The manifold of that name, with its default sizes."""
    check_choice("manifold", name, MANIFOLDS)
    return MANIFOLDS[name]()


__all__ = [
    "MANIFOLDS",
    "MEASURES",
    "Cone",
    "Cylinder",
    "Manifold",
    "Product",
    "Sphere",
    "SwissRoll",
    "Torus",
    "manifold_named",
]
