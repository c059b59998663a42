"""Tasks of pretraining: tables as the classifier reads them, with labels and new rows."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from icssl.classifier.geometry import Units
from icssl.classifier.pretraining.synthetic_tables import SyntheticTables
from icssl.classifier.pretraining.table_classes import draw_labels
from icssl.tables.columns import CATEGORY, OFTEN_MISSING
from icssl.tables.units import ROUNDING, common_factors, differs, unit_numbers

_NEW_SHARE = 6  # one row in so many is left out of its context and predicted as a new row
_LEAST_DEVIATION = 1e-6  # of a column that is not constant, against its largest value


class Task(NamedTuple):
    """A batch of contexts, and new rows that were left out of them.

    Every table comes ``draws`` times, one after the other, each time with other labels.
    """

    x: Float[Tensor, "b n d"]
    y: Int[Tensor, "b n"]
    labelled: Bool[Tensor, "b n"]
    n_classes: int
    new_x: Float[Tensor, "b r d"]
    new_y: Int[Tensor, "b r"]
    units: Units
    draws: int

    @classmethod
    def of_tables(
        cls,
        tables: SyntheticTables,
        per_class: int,
        draws: int,
        *,
        random: bool,
        generator: Generator,
    ) -> "Task":
        """Leave the last rows of tables out, scale columns, and draw labels.

        Parameters
        ----------
        tables : SyntheticTables
            Tables in raw units.
        per_class, draws : int
            Labels per class, and how often each table gets labels.
        random : bool
            Whether labels are drawn at random, so that their counts tell the shares.
        generator : Generator
            Draws the labels.
        """
        n = tables.cells.shape[1]
        n -= n // _NEW_SHARE
        x, new_x, units = encode_tables(
            tables.cells[:, :n], tables.cells[:, n:], tables.is_category
        )
        x, y, new_x, new_y = (
            part.repeat_interleave(draws, dim=0)
            for part in (x, tables.y[:, :n], new_x, tables.y[:, n:])
        )
        c = tables.n_classes
        labelled = draw_labels(y, c, per_class, random=random, generator=generator)
        return cls(x, y, labelled, c, new_x, new_y, units.repeat(draws), draws)

    def part(self, tables: slice) -> "Task":
        """Return the contexts of some of the tables."""
        some = slice(tables.start * self.draws, tables.stop * self.draws)
        return Task(
            self.x[some],
            self.y[some],
            self.labelled[some],
            self.n_classes,
            self.new_x[some],
            self.new_y[some],
            self.units.some(some),
            self.draws,
        )


def encode_tables(
    context: Float[Tensor, "b n d"],
    new: Float[Tensor, "b r d"],
    is_category: Bool[Tensor, " d"],
) -> tuple[Float[Tensor, "b n e"], Float[Tensor, "b r e"], Units]:
    """Scale tables as :class:`ColumnEncoder` does, by the rows of their contexts.

    Parameters
    ----------
    context : Tensor
        Rows that the classifier is fitted to; NaN is a missing cell.
    new : Tensor
        Rows of the same tables that it predicts later.
    is_category : Tensor
        Columns that are encoded already, and are not scaled.
    """
    numbers, new_numbers = context[..., ~is_category], new[..., ~is_category]
    missing = numbers.isnan()
    median = numbers.nanquantile(0.5, dim=1, keepdim=True).nan_to_num(0.0)
    # Off the median first, as the encoder does: what is left keeps its digits.
    rest = torch.where(missing, 0.0, numbers - median)
    mean = rest.mean(dim=1, keepdim=True)
    deviation = (rest - mean).square().mean(dim=1, keepdim=True).sqrt()
    constant = deviation <= _LEAST_DEVIATION * rest.abs().amax(dim=1, keepdim=True)
    divisor = torch.where(constant, torch.inf, deviation)
    new_rest = torch.where(new_numbers.isnan(), 0.0, new_numbers - median)
    # All tables of a batch have the same columns, and so say of the same what is missing.
    share = missing.float().mean(dim=(0, 1))
    often = (share >= OFTEN_MISSING) & (share < 1)
    x, new_x = (
        torch.cat(
            [
                (part - mean) / divisor,
                table[..., is_category],
                CATEGORY * table[..., ~is_category][..., often].isnan().to(part),
            ],
            dim=-1,
        )
        for part, table in ((rest, context), (new_rest, new))
    )
    spread = torch.where(constant, 0.0, deviation)[:, 0].log()
    slack = ROUNDING * numbers.abs().nan_to_num(0.0).amax(dim=1, keepdim=True)
    whole = (missing | ((numbers - numbers.round()).abs() <= slack)).all(dim=1)
    sides = (numbers >= -slack, numbers <= slack)
    one_sign = [(missing | side).all(dim=1) for side in sides]
    kinds = 2 * whole + (one_sign[0] | one_sign[1]).long()
    return x, new_x, _units(spread, kinds, x)


def _units(spread: Tensor, kinds: Tensor, x: Tensor) -> Units:
    """Return what spreads and kinds of the numeric columns, which come first, tell."""
    others = x.shape[-1] - spread.shape[-1]
    logs = torch.nn.functional.pad(spread.double(), (0, others), value=-torch.inf)
    kinds = torch.nn.functional.pad(kinds, (0, others))
    spreads, codes = logs.cpu().numpy(), kinds.cpu().numpy()
    factors = common_factors(spreads, codes)
    offered = torch.ones(len(x), 2, dtype=torch.bool)
    offered[:, 1] = torch.from_numpy(differs(factors))
    return Units(
        torch.from_numpy(factors).to(x),
        torch.from_numpy(unit_numbers(spreads, codes, factors)).to(x),
        offered.to(x.device),
    )
