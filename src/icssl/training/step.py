"""One optimiser step of a group: plain, or replayed as a CUDA graph."""

import torch
from torch import Tensor

from icssl.episode import Episode
from icssl.errors import check_choice
from icssl.training.group import Group
from icssl.training.optimiser import AdamState, adamw_step_, clipped, schedule

MODES = ("eager", "graph")
_WARM_UP = 3


class Step:
    """Forward, backward, clipping and AdamW for every model of a group.

    Parameters
    ----------
    group : Group
    state : AdamState
        Changed in place.
    mode : {"eager", "graph"}
        ``"graph"`` replays the step as a CUDA graph, which takes the time of launching some
        thousand small kernels away; it needs a GPU.

    Attributes
    ----------
    loss, accuracy, length : Tensor of shape (m,)
        Of the last step; ``length`` is that of the gradient before it was clipped.
    """

    def __init__(self, group: Group, state: AdamState, mode: str = "eager") -> None:
        check_choice("mode", mode, MODES)
        weights = state.weights
        if mode == "graph" and weights.device.type != "cuda":
            raise ValueError(f"mode={mode!r} needs a GPU, got device {weights.device}.")
        self.group, self.state, self.mode = group, state, mode

        def by_model(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=weights.dtype, device=weights.device)

        configs = group.configs
        self.highest_rate = by_model([c.learning_rate for c in configs])
        self.rate = self.highest_rate.clone()
        self.weight_decay = by_model([c.weight_decay for c in configs])
        self.loss = by_model([0.0] * len(configs))
        self.accuracy, self.length = self.loss.clone(), self.loss.clone()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._episodes: Episode | None = None

    def __call__(self, step: int, episodes: Episode) -> None:
        """Step number ``step``, counted from zero, on episodes ``(m, b, ...)``."""
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

    def _step(self, episodes: Episode) -> None:
        weights = self.state.weights.detach().requires_grad_()
        loss, accuracy = self.group.losses(weights, episodes)
        (grad,) = torch.autograd.grad(loss.sum(), weights)
        with torch.no_grad():
            grad, length = clipped(grad, self.group.configs[0].clip)
            finite = loss.isfinite() & length.isfinite()
            adamw_step_(self.state, grad, finite, self.rate, self.weight_decay)
            self.loss.copy_(loss)
            self.accuracy.copy_(accuracy)
            self.length.copy_(length)

    def _capture(self, episodes: Episode) -> None:
        """Record the step once; it reads its episodes from one place ever after."""
        copies = {name: t.clone() for name, t in episodes.tensors().items()}
        self._episodes = Episode.unchecked(**copies, n_classes=episodes.n_classes)
        kept = [t.clone() for t in (*self.state.tensors().values(), self.state.alive)]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up; that is not captured
            for _ in range(_WARM_UP):
                self._step(self._episodes)
        torch.cuda.current_stream().wait_stream(side)
        for tensor, before in zip(
            (*self.state.tensors().values(), self.state.alive), kept, strict=True
        ):
            tensor.copy_(before)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step(self._episodes)
