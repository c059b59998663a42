"""The paper's Appendix on categorical ICL, token by token and matrix by matrix.

:class:`icssl.model.head.GradientDescentHead` is compact. Here is the same computation as
the Transformer that the paper writes down, for a reader to compare: tokens hold
``(f, E[w|f], w_y, phi)``, two attention heads read and write them through W_K, W_Q, W_V
and projections P, and an MLP renews the expectation.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from icssl.model.attention import squared_distances
from icssl.model.head import GradientDescentHead

# exp(-750) is zero in float64: at this many nats two tokens do not see each other at all.
_INVISIBLE = 750.0


@dataclass(frozen=True, eq=False)
class _AttentionHead:
    """Matrices of one head, acting on tokens in rows: ``key = tokens @ w_key``."""

    kernel: str
    w_key: Float[Tensor, "t t"]
    w_query: Float[Tensor, "t t"]
    w_value: Float[Tensor, "t t"]
    projection: Float[Tensor, "t t"]

    def __call__(
        self, tokens: Float[Tensor, "b n t"], readable: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n t"]:
        """Return what this head adds to every token; only ``readable`` ones are read."""
        key, query = tokens @ self.w_key, tokens @ self.w_query
        if self.kernel == "rbf":
            weights = (-squared_distances(query, key)).exp() * readable[:, None]
        elif self.kernel == "linear":
            weights = query @ key.mT * readable[:, None]
        elif self.kernel == "softmax":
            scores = (query @ key.mT).masked_fill(~readable[:, None], -torch.inf)
            weights = scores.softmax(dim=-1)
        else:
            raise NotImplementedError(
                f"the token Transformer has no attention for the kernel {self.kernel!r}."
            )
        return weights @ (tokens @ self.w_value) @ self.projection


class TokenTransformer:
    """The literal Transformer that equals a ``GradientDescentHead`` on one context.

    The paper's matrices hold two numbers that depend on the context: alpha / m, and the
    lambda of the erasing head. So they are built for the context they are applied to.

    Parameters
    ----------
    head : GradientDescentHead
        The head whose weights are used.
    phi : Tensor of shape (b, n, k)
        Features. Those of one episode must be distinct: the erasing head tells tokens
        apart by them.
    y, labelled : Tensor of shape (b, n)
        Every episode must have the same number m of labelled points.
    """

    def __init__(
        self,
        head: GradientDescentHead,
        phi: Float[Tensor, "b n k"],
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
    ) -> None:
        counts = labelled.sum(dim=1)
        if (counts != counts[0]).any():
            raise ValueError(f"every episode needs one m, got {counts.tolist()} labelled.")
        self.head, self.labelled = head, labelled
        self.w = head.class_embeddings(head.n_classes)
        # Columns of a token, in the order of the paper: f, E[w|f], w_y, phi.
        width = self.w.shape[1]
        slots = torch.arange(3 * width + phi.shape[-1]).split([width] * 3 + [phi.shape[-1]])
        self.f_slot, self.expectation_slot, self.label_slot, self.phi_slot = slots
        self.tokens = self._first_tokens(phi, y)
        self.erase = self._erasing_head(_smallest_gap(phi))
        self.descend = [
            self._descending_head(step_size / counts[0]) for step_size in head.step_size
        ]

    def layers(self) -> list[Float[Tensor, "b n t"]]:
        """Return the tokens before the first layer and after each: attention, then MLP."""
        everyone = torch.ones_like(self.labelled)
        tokens, result = self.tokens, [self.tokens]
        for descend in self.descend:
            # Both heads read the same tokens, so that head 1 still sees the old E[w|f].
            tokens = tokens + descend(tokens, self.labelled) + self.erase(tokens, everyone)
            tokens = tokens + self._mlp(tokens)
            result.append(tokens)
        return result

    def logits(self) -> Float[Tensor, "b n c"]:
        """Return ``f W^T`` of the last layer."""
        return self.layers()[-1][..., self.f_slot] @ self.w.mT

    def _first_tokens(self, phi: Tensor, y: Tensor) -> Tensor:
        """Return tokens with f = 0, E[w|f], w_y (zero where it is not known), and phi."""
        label = self.w[y.clamp(min=0)] * self.labelled[..., None]
        f = torch.zeros_like(label)
        return torch.cat([f, self.head.expectation(f, self.w), label, phi], dim=-1)

    def _descending_head(self, rate: Tensor) -> _AttentionHead:
        """Return head 1, which adds rate * K (w_y - E[w|f]) of labelled tokens to f."""
        look = self._zeros()
        gamma = (
            torch.ones_like(rate)
            if self.head.log_gamma is None
            else self.head.log_gamma.exp()
        )
        # Keys and queries are sqrt(gamma) phi: exp(-|key - query|^2) has bandwidth gamma.
        look[self.phi_slot, self.phi_slot] = gamma.sqrt()
        value = self._zeros()
        value[self.label_slot, self.f_slot] = rate
        value[self.expectation_slot, self.f_slot] = -rate
        projection = torch.eye(len(look)).to(look)
        return _AttentionHead(self.head.kernel, look, look, value, projection)

    def _erasing_head(self, gap: float) -> _AttentionHead:
        """Return head 2: an RBF so narrow that a token sees and erases its own E[w|f]."""
        look = self._zeros()
        # The paper's lambda, just large enough: the nearest two tokens are 750 nats apart.
        look[self.phi_slot, self.phi_slot] = _INVISIBLE**0.5 / gap
        value = self._zeros()
        value[self.expectation_slot, self.expectation_slot] = 1.0
        return _AttentionHead("rbf", look, look, value, -torch.eye(len(look)).to(look))

    def _mlp(self, tokens: Tensor) -> Tensor:
        """Return E[w|f] in the slot that head 2 has erased."""
        result = torch.zeros_like(tokens)
        expectation = self.head.expectation(tokens[..., self.f_slot], self.w)
        result[..., self.expectation_slot] = expectation
        return result

    def _zeros(self) -> Tensor:
        size = self.tokens.shape[-1]
        return self.tokens.new_zeros(size, size)


def _smallest_gap(phi: Float[Tensor, "b n k"]) -> float:
    """Return the smallest distance between two features; raise an error if it is zero."""
    squared = squared_distances(phi, phi).detach()
    squared = squared.diagonal_scatter(
        torch.full_like(squared[..., 0], torch.inf), dim1=-2, dim2=-1
    )
    gap = squared.min().sqrt().item()
    if gap == 0:
        episode, i, j = (squared == 0).nonzero()[0].tolist()
        raise ValueError(
            "features must be distinct for the erasing head to tell tokens apart, got the "
            f"same for points {i} and {j} of episode {episode}."
        )
    return gap
