"""Borders between two states that turn into each other over some width."""

from typing import NamedTuple

from torch import Tensor


class Border(NamedTuple):
    """A value above which something holds, and how sharply that begins.

    Parameters
    ----------
    at : float
        The value at which it half holds.
    width : float
        Over which width of values one state turns into the other.

    Examples
    --------
    >>> import torch
    >>> Border(2.0, width=0.5).above(torch.tensor([-9.0, 2.0, 9.0])).round(decimals=2)
    tensor([0.0000, 0.5000, 1.0000])
    """

    at: float
    width: float

    def above(self, value: Tensor) -> Tensor:
        """Return from 0 to 1 how far values are above the border."""
        return ((value - self.at) / self.width).sigmoid()

    def below(self, value: Tensor) -> Tensor:
        """Return from 0 to 1 how far values are below the border."""
        return ((self.at - value) / self.width).sigmoid()
