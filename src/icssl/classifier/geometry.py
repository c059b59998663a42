"""Geometries of a table: each column in its own scale, or those of one unit in common."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from icssl.classifier.graphs import GraphSpec
from icssl.classifier.kernels import (
    GEOMETRIES,
    GRAPHS,
    MAIN_VIEWS,
    graphs_of_geometry,
)
from icssl.tables.columns import ColumnEncoder
from icssl.tables.units import COMPARABLE, UNIT_NUMBERS, differs, is_one_group

COLUMN_SCALES = ("auto", *GEOMETRIES)
"""Values of the parameter ``column_scale``."""

_MANY = 16  # columns of which some may be narrow though all share a unit


@dataclass(frozen=True)
class Units:
    """What is known of the units of the columns of a batch of tables.

    Parameters
    ----------
    factors : Tensor of shape (b, d)
        What columns are multiplied with in the common geometry.
    numbers : Tensor of shape (b, 6)
        What :func:`icssl.tables.units.unit_numbers` says of them.
    offered : Tensor of shape (b, 2)
        Which of the two geometries may be used.
    """

    factors: Float[Tensor, "b d"]
    numbers: Float[Tensor, "b 6"]
    offered: Bool[Tensor, "b 2"]

    @classmethod
    def unknown(cls, x: Float[Tensor, "b n d"]) -> "Units":
        """Return units of tables of which nothing but standardised columns is known."""
        b, _, d = x.shape
        offered = torch.tensor([True, False], device=x.device).expand(b, -1)
        return cls(x.new_ones(b, d), x.new_zeros(b, UNIT_NUMBERS), offered)

    @classmethod
    def of_encoder(cls, encoder: ColumnEncoder, column_scale: str) -> "Units":
        """Return the units of a table that was encoded, in the scale a user asked for.

        If each column has its own scale, its unit must not matter, not even to the gate.
        """
        factors = encoder.common_factors_[None]
        offered = {
            "auto": [True, bool(differs(factors)[0])],
            "each": [True, False],
            "common": [False, True],
        }[column_scale]
        numbers = encoder.unit_numbers_
        if column_scale == "each":
            numbers = encoder.standard_unit_numbers_
        return cls(
            torch.from_numpy(factors),
            torch.from_numpy(numbers[None]),
            torch.tensor([offered]),
        )

    def restrict_to(self, geometry: str) -> "Units":
        """Return the same with one geometry alone."""
        offered = torch.zeros_like(self.offered)
        offered[:, GEOMETRIES.index(geometry)] = True
        return Units(self.factors, self.numbers, offered)

    def order_columns(self, columns: Int[ndarray, " d"]) -> "Units":
        """Return the same with the columns in another order."""
        return Units(self.factors[:, columns], self.numbers, self.offered)

    def to(self, x: Tensor) -> "Units":
        """Return the same on the device of a tensor, with its precision."""
        return Units(self.factors.to(x), self.numbers.to(x), self.offered.to(x.device))

    def some(self, tables: slice) -> "Units":
        """Return the units of some of the tables."""
        return Units(self.factors[tables], self.numbers[tables], self.offered[tables])

    def repeat(self, times: int) -> "Units":
        """Return the units of a batch in which every table comes so many times."""
        parts = (self.factors, self.numbers, self.offered)
        return Units(*(part.repeat_interleave(times, dim=0) for part in parts))

    @property
    def is_one_unit(self) -> bool:
        """Whether all columns of a table are taken to share a unit."""
        each_offered, common_offered = self.offered[0].tolist()
        if not (each_offered and common_offered):
            return bool(common_offered)
        factors = self.factors[0].cpu().double()
        # Many columns of one unit have narrow ones among them, as pixels at a border.
        narrow = factors.quantile(0.25) if len(factors) >= _MANY else factors.min()
        are_near = bool(factors.max() <= COMPARABLE * narrow)
        return are_near and is_one_group(self.numbers[0].cpu().numpy())

    def graphs(self, views: str) -> tuple[GraphSpec, ...]:
        """Return the graphs in which a table is read: none of a geometry that is not used.

        Parameters
        ----------
        views : {"all views", "main views", "one view"}
            Which views to read; in the last case the spreads decide the geometry.
        """
        if views == "one view":
            return graphs_of_geometry("common" if self.is_one_unit else "each")[:1]
        used = [
            name
            for name, offered in zip(GEOMETRIES, self.offered[0].tolist(), strict=True)
            if offered
        ]
        graphs = GRAPHS if len(used) > 1 else graphs_of_geometry(used[0])
        if views == "all views":
            return graphs
        return tuple(graph for graph in graphs if graph.view in MAIN_VIEWS)
