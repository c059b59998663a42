"""Colours of classes in every picture, and how points are put into a frame."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

# The colours of Okabe and Ito, which colour-blind people can tell apart.
COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#000000",
)
_FAR = 0.02  # share of the points at each end of an axis that may be drawn at the edge
_MARGIN = 0.15  # of the width of all others, between them and the edge
_TINY = 1e-12


def principal_coordinates(x: Float[ndarray, "n d"]) -> Float[ndarray, "n k"]:
    """Return the coordinates along the two directions of most variance."""
    centred = x - x.mean(axis=0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T


def plane_coordinates(embedding: Float[ndarray, "n k"]) -> Float[ndarray, "n 2"]:
    """Return two principal coordinates, with points far from the others drawn nearer.

    A few rows that the graph hardly joins would otherwise squeeze all others into a dot:
    they are drawn nearer by the inverse hyperbolic sine, and at the edge at most.
    """
    wide = np.column_stack([embedding, np.zeros((len(embedding), 2))])
    plane = principal_coordinates(wide.astype(float))
    plane = plane - np.median(plane, axis=0)
    usual = np.median(np.abs(plane), axis=0)
    plane = np.arcsinh(plane / np.maximum(usual, _TINY))
    low, high = np.quantile(plane, [_FAR, 1 - _FAR], axis=0)
    margin = _MARGIN * (high - low)
    return plane.clip(low - margin, high + margin)
