"""The combined objective: classes, and optionally the Laplacian and the eigenmap."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from icssl.episodes.episode import Episode
from icssl.model.transformer import ICSSLTransformer


class Objective(nn.Module):
    """A model and what it is trained for: an episode in, loss and accuracy out.

    The paper's in-context semi-supervised loss (cross-entropy of the unlabelled points,
    with the minus sign it lacks in print) plus the weighted distances of stage 1 from the
    true Laplacian and of stage 2 from the span of the true eigenvectors.

    Parameters
    ----------
    model : nn.Module
        An episode in, logits out.
    laplacian_weight, eigenmap_weight : float
        Of the two other terms, which need the ground truth in the episode. Zero leaves a
        term out.
    """

    def __init__(
        self, model: nn.Module, laplacian_weight: float = 0.0, eigenmap_weight: float = 0.0
    ) -> None:
        super().__init__()
        self.model = model
        self.laplacian_weight = laplacian_weight
        self.eigenmap_weight = eigenmap_weight

    def forward(self, episode: Episode) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Loss and accuracy over the unlabelled points of all episodes."""
        model = self.model
        if not isinstance(model, ICSSLTransformer):
            logits = model(episode)
            return _classification(logits, episode.y, episode.labelled)
        operator, phi, logits = model.stages(episode, backend="fused")
        loss, accuracy = _classification(logits, episode.y, episode.labelled)
        if self.laplacian_weight:
            assert operator is not None
            assert episode.laplacian is not None
            loss = loss + self.laplacian_weight * laplacian_loss(
                operator.dense(), episode.laplacian
            )
        if self.eigenmap_weight:
            assert episode.features is not None
            loss = loss + self.eigenmap_weight * subspace_loss(phi, episode.features)
        return loss, accuracy


def _classification(
    logits: Float[Tensor, "b n c"], y: Int[Tensor, "b n"], labelled: Bool[Tensor, "b n"]
) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy and accuracy over points that are not labelled, but known."""
    scored = ~labelled & (y >= 0)
    each = cross_entropy(logits.flatten(0, 1), y.flatten().clamp(min=0), reduction="none")
    right = (logits.argmax(dim=-1) == y) & scored
    count = scored.sum().clamp(min=1)
    # A product and no selection: shapes do not depend on values, as CUDA graphs ask.
    return (each * scored.flatten()).sum() / count, right.sum() / count


def laplacian_loss(
    r: Float[Tensor, "b n n"], laplacian: Float[Tensor, "b n n"]
) -> Float[Tensor, ""]:
    """The squared Frobenius distance of R from the true Laplacian, mean over episodes."""
    return (r - laplacian.to(r.dtype)).square().sum(dim=(-2, -1)).mean()


def subspace_loss(
    phi: Float[Tensor, "b n k"], features: Float[Tensor, "b n e"]
) -> Float[Tensor, ""]:
    """Share of the true eigenvectors that the span of ``phi`` misses, mean over episodes.

    With P the projection to the span, ``1 - |P V|^2 / |V|^2``: eigenvectors have no sign,
    and repeated eigenvalues no basis, so only spans are compared. In [0, 1].
    """
    truth = features.to(phi.dtype)
    gram = phi.mT @ phi
    # Dependent columns would make it singular; the ridge is below what float32 resolves.
    size = gram.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None]
    eye = torch.eye(gram.shape[-1], dtype=phi.dtype, device=phi.device)
    inner = phi.mT @ truth
    ridge = 10 * torch.finfo(phi.dtype).eps
    solved = torch.linalg.solve(gram + ridge * size * eye, inner)
    seen = (inner * solved).sum(dim=(-2, -1))
    return (1 - seen / truth.square().sum(dim=(-2, -1))).mean()
