"""AdamW for the rows of one matrix, one model a row."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

BETAS = (0.9, 0.99)  # few parameters and fresh episodes: a short memory of the square
EPSILON = 1e-8


@dataclass(eq=False)
class AdamState:
    """Weights, running means of the gradient and of its square, and steps made.

    ``alive`` is False for a model whose loss or gradient was not finite: from that step on
    its row does not change, so what is kept is the last good state.
    """

    weights: Float[Tensor, "m p"]
    mean: Float[Tensor, "m p"]
    square: Float[Tensor, "m p"]
    steps: Float[Tensor, " m"]
    alive: Bool[Tensor, " m"]

    @classmethod
    def fresh(cls, weights: Float[Tensor, "m p"]) -> "AdamState":
        """The state before the first step."""
        count, device = len(weights), weights.device
        return cls(
            weights=weights.clone(),
            mean=torch.zeros_like(weights),
            square=torch.zeros_like(weights),
            steps=torch.zeros(count, device=device, dtype=weights.dtype),
            alive=torch.ones(count, dtype=torch.bool, device=device),
        )

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds."""
        return {
            "weights": self.weights,
            "mean": self.mean,
            "square": self.square,
            "steps": self.steps,
        }


def clipped(grad: Float[Tensor, "m p"], most: float) -> tuple[Tensor, Tensor]:
    """Gradients of length at most ``most``, model by model, and their lengths before."""
    length = torch.linalg.vector_norm(grad, dim=1)
    return grad * (most / (length + 1e-6)).clamp(max=1)[:, None], length


def adamw_step_(
    state: AdamState,
    grad: Float[Tensor, "m p"],
    finite: Bool[Tensor, " m"],
    learning_rate: Float[Tensor, " m"],
    weight_decay: Float[Tensor, " m"],
) -> None:
    """One step of AdamW in place, as ``torch.optim.AdamW`` makes it, for living models.

    Written out because a row must stand still once its model has failed, whatever the
    others do, without waiting for the device; no optimiser of torch can mask rows.
    """
    state.alive &= finite
    alive = state.alive[:, None]
    steps = state.steps + 1
    mean = torch.lerp(state.mean, grad, 1 - BETAS[0])
    square = torch.lerp(state.square, grad.square(), 1 - BETAS[1])
    rate = learning_rate[:, None]
    unbiased_mean = mean / (1 - BETAS[0] ** steps)[:, None]
    unbiased_root = square.sqrt() / (1 - BETAS[1] ** steps).sqrt()[:, None]
    moved = state.weights * (1 - rate * weight_decay[:, None])
    moved = moved - rate * unbiased_mean / (unbiased_root + EPSILON)
    for kept, new in ((state.weights, moved), (state.mean, mean), (state.square, square)):
        kept.copy_(torch.where(alive, new, kept))
    state.steps.copy_(torch.where(state.alive, steps, state.steps))


def schedule(step: int, steps: int, warmup: int, final: float) -> float:
    """Share of the learning rate at a step: a linear rise, then a cosine down to ``final``.

    >>> [round(schedule(step, 8, 2, 0.0), 2) for step in range(8)]
    [0.5, 1.0, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07]
    """
    if step < warmup:
        return (step + 1) / warmup
    share = (step - warmup) / max(1, steps - warmup)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * share))
