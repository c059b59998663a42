"""Beyond the paper: a standard encoder as stage 3, for contexts with very few labels."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from icssl._util.errors import check_choice
from icssl.model.attention import attention, bilinear
from icssl.model.stage import STAGE_BACKENDS, Record, check_class_count, check_sizes

DISTANCE_BIASES = ("none", "points")


class EncoderHead(nn.Module):
    r"""A small pre-norm encoder over features, with a label token per labelled point.

    The descent head can only add up kernels; an encoder can also learn what classes look
    like, which is worth most when labels are few. With a distance bias, the attention
    logits of head h carry :math:`-\lambda_h \|x_i - x_j\|^2` with a learned
    :math:`\lambda_h > 0`. Same signature as :class:`icssl.model.head.GradientDescentHead`,
    for a fixed number of classes.

    Parameters
    ----------
    k : int
        Number of features.
    n_classes : int
    width, heads, layers : int
        ``width`` must be a multiple of ``heads``.
    distance_bias : {"none", "points"}
        What attention sees the distances of.
    """

    def __init__(
        self,
        k: int,
        n_classes: int = 2,
        *,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        distance_bias: str = "points",
    ) -> None:
        super().__init__()
        check_choice("distance_bias", distance_bias, DISTANCE_BIASES)
        check_sizes(k=k, width=width, heads=heads, layers=layers)
        check_class_count(n_classes)
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got {width} and {heads}.")
        self.n_classes = n_classes
        self.embed = nn.Linear(k, width)
        self.label = nn.Embedding(n_classes + 1, width)  # the last one: "unknown"
        self.layers = nn.ModuleList(
            EncoderLayer(width, heads, distance_bias) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.classify = nn.Linear(width, n_classes)

    def forward(
        self,
        phi: Float[Tensor, "b n k"],
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
        *,
        n_classes: int | None = None,
        points: Float[Tensor, "b n d"] | None = None,
        backend: str = "dense",
        record: Record | None = None,
    ) -> Float[Tensor, "b n c"]:
        """Logits of every point; ``points``, by default the features, are for distances.

        See ``GradientDescentHead.forward`` for the rest.
        """
        check_choice("backend", backend, STAGE_BACKENDS)
        backend = "dense" if backend == "fused" else backend
        points = phi if points is None else points
        token = torch.where(labelled, y, self.n_classes)
        state = self.embed(phi) + self.label(token)
        for step, layer in enumerate(self.layers):
            state = layer(state, points, backend)
            if record is not None:
                record(f"head.{step}.state", state)
                record(f"head.{step}.logits", self.classify(self.norm(state)))
        return self.classify(self.norm(state))


class EncoderLayer(nn.Module):
    """Attention whose logits may carry minus squared distances of the points; an MLP."""

    def __init__(self, width: int, heads: int, distance_bias: str) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.log_nearness = None  # log lambda: heads start from wide to narrow
        if distance_bias == "points":
            self.log_nearness = nn.Parameter(torch.linspace(-3, 1, heads))

    def forward(
        self, state: Float[Tensor, "b n w"], points: Float[Tensor, "b n d"], backend: str
    ) -> Float[Tensor, "b n w"]:
        """The state of every point after this layer."""
        b, n, width = state.shape
        parts = self.query_key_value(self.attention_norm(state))
        split = parts.reshape(b, n, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (b, h, n, width / h)
        query = query * query.shape[-1] ** -0.5
        if self.log_nearness is not None:
            root = (self.log_nearness / 2).exp()[:, None, None]
            near = root * points[:, None]
            near_query, near_key = bilinear("rbf", near, near)
            query = torch.cat([query, near_query], dim=-1)
            key = torch.cat([key, near_key], dim=-1)
        read = attention("softmax", query, key, value, backend=backend)
        state = state + self.project(read.transpose(1, 2).reshape(b, n, width))
        return state + self.mlp(state)
