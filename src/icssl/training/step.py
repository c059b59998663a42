"""One optimiser step of a group of models: plain, or replayed as a CUDA graph.

AdamW updates the rows of one matrix, one row per model.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from icssl._util.errors import check_choice
from icssl.episodes.episode import Episode
from icssl.training.group import Group

BETAS = (0.9, 0.99)  # few parameters and fresh episodes: a short memory of the square
EPSILON = 1e-8


@dataclass(eq=False)
class AdamState:
    """State of AdamW: weights, running means of the gradient and its square, and steps.

    ``alive`` is False for a model whose loss or gradient was not finite: from that step on
    its row does not change, so that it holds the last good state.
    """

    weights: Float[Tensor, "m p"]
    mean: Float[Tensor, "m p"]
    square: Float[Tensor, "m p"]
    steps: Float[Tensor, " m"]
    alive: Bool[Tensor, " m"]

    @classmethod
    def fresh(cls, weights: Float[Tensor, "m p"]) -> "AdamState":
        """Return the state before the first step."""
        count, device = len(weights), weights.device
        return cls(
            weights=weights.clone(),
            mean=torch.zeros_like(weights),
            square=torch.zeros_like(weights),
            steps=torch.zeros(count, device=device, dtype=weights.dtype),
            alive=torch.ones(count, dtype=torch.bool, device=device),
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint holds, by name."""
        return {
            "weights": self.weights,
            "mean": self.mean,
            "square": self.square,
            "steps": self.steps,
        }


def clip_gradients(grad: Float[Tensor, "m p"], most: float) -> tuple[Tensor, Tensor]:
    """Return gradients of length at most ``most``, per model, and their lengths before."""
    length = torch.linalg.vector_norm(grad, dim=1)
    return grad * (most / (length + 1e-6)).clamp(max=1)[:, None], length


def adamw_step_(
    state: AdamState,
    grad: Float[Tensor, "m p"],
    finite: Bool[Tensor, " m"],
    learning_rate: Float[Tensor, " m"] | Float[Tensor, "m p"],
    weight_decay: Float[Tensor, " m"],
) -> None:
    """Make one step of AdamW in place, as ``torch.optim.AdamW`` does, for living models.

    The learning rate is one number per model, or one per weight.

    Written out because a row must stand still once its model has failed, whatever the
    others do, without waiting for the device; no optimiser of torch can mask rows.
    """
    state.alive &= finite
    alive = state.alive[:, None]
    steps = state.steps + 1
    mean = torch.lerp(state.mean, grad, 1 - BETAS[0])
    square = torch.lerp(state.square, grad.square(), 1 - BETAS[1])
    rate = learning_rate if learning_rate.ndim == 2 else learning_rate[:, None]
    unbiased_mean = mean / (1 - BETAS[0] ** steps)[:, None]
    unbiased_root = square.sqrt() / (1 - BETAS[1] ** steps).sqrt()[:, None]
    moved = state.weights * (1 - rate * weight_decay[:, None])
    moved = moved - rate * unbiased_mean / (unbiased_root + EPSILON)
    for old, new in ((state.weights, moved), (state.mean, mean), (state.square, square)):
        old.copy_(torch.where(alive, new, old))
    state.steps.copy_(torch.where(state.alive, steps, state.steps))


def schedule(step: int, steps: int, warmup: int, final: float) -> float:
    """Return the share of the rate at a step: a linear rise, then a cosine to ``final``.

    >>> [round(schedule(step, 8, 2, 0.0), 2) for step in range(8)]
    [0.5, 1.0, 1.0, 0.93, 0.75, 0.5, 0.25, 0.07]
    """
    if step < warmup:
        return (step + 1) / warmup
    share = (step - warmup) / max(1, steps - warmup)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * share))


_MODES = ("eager", "graph")
_WARM_UP = 3  # plain steps before one is captured


class Step:
    """Forward, backward, clipping and AdamW for every model of a group.

    Parameters
    ----------
    group : Group
        The models that are trained.
    state : AdamState
        Their state, which is changed in place.
    mode : {"eager", "graph"}
        ``"graph"`` replays the step as a CUDA graph, which takes the time of launching some
        thousand small kernels away; it needs a GPU.

    Attributes
    ----------
    loss, accuracy, length : Tensor of shape (m,)
        Figures of the last step; ``length`` is that of the gradient before clipping.
    """

    def __init__(self, group: Group, state: AdamState, mode: str = "eager") -> None:
        check_choice("mode", mode, _MODES)
        weights = state.weights
        if mode == "graph" and weights.device.type != "cuda":
            raise ValueError(f"mode={mode!r} needs a GPU, got device {weights.device}.")
        self.group, self.state, self.mode = group, state, mode

        def by_model(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=weights.dtype, device=weights.device)

        configs = group.configs
        self.highest_rate = by_model([c.learning_rate for c in configs])
        gamma_rates = by_model([c.gamma_rate or c.learning_rate for c in configs])
        if any(c.gamma_rate for c in configs):
            self.highest_rate = self.highest_rate[:, None].repeat(1, weights.shape[1])
            self.highest_rate[:, group.place_of("head.log_gamma")] = gamma_rates[:, None]
        self.rate = self.highest_rate.clone()
        self.weight_decay = by_model([c.weight_decay for c in configs])
        self.loss = by_model([0.0] * len(configs))
        self.accuracy, self.length = self.loss.clone(), self.loss.clone()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._episodes: Episode | None = None

    def __call__(self, step: int, episodes: Episode) -> None:
        """Make step number ``step``, counted from zero, on episodes ``(m, b, ...)``."""
        config = self.group.configs[0]
        warmup = round(config.warmup * config.steps)
        share = schedule(step, config.steps, warmup, config.final_rate)
        torch.mul(self.highest_rate, share, out=self.rate)
        if self.mode == "eager":
            self._step(episodes)
            return
        if self._graph is None:
            self._capture(episodes)
        assert self._graph is not None
        assert self._episodes is not None
        for name, tensor in self._episodes.tensors().items():
            tensor.copy_(getattr(episodes, name))
        self._graph.replay()

    def release(self) -> None:
        """Give back the memory of the captured step, which a graph holds on to."""
        if self._graph is not None:
            self._graph.reset()
        self._graph = self._episodes = None

    def _step(self, episodes: Episode) -> None:
        weights = self.state.weights.detach().requires_grad_()
        loss, accuracy = self.group.losses(weights, episodes)
        (grad,) = torch.autograd.grad(loss.sum(), weights)
        with torch.no_grad():
            grad, length = clip_gradients(grad, self.group.configs[0].clip)
            finite = loss.isfinite() & length.isfinite()
            adamw_step_(self.state, grad, finite, self.rate, self.weight_decay)
            self.loss.copy_(loss)
            self.accuracy.copy_(accuracy)
            self.length.copy_(length)

    def _capture(self, episodes: Episode) -> None:
        """Record the step once; it reads its episodes from one place ever after."""
        copies = {name: t.clone() for name, t in episodes.tensors().items()}
        self._episodes = Episode.unchecked(**copies, n_classes=episodes.n_classes)
        # The warm-up changes the state, which is put back afterwards.
        saved = [t.clone() for t in (*self.state.tensors().values(), self.state.alive)]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up; that is not captured
            for _ in range(_WARM_UP):
                self._step(self._episodes)
        torch.cuda.current_stream().wait_stream(side)
        for tensor, before in zip(
            (*self.state.tensors().values(), self.state.alive), saved, strict=True
        ):
            tensor.copy_(before)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step(self._episodes)
