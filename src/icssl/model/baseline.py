"""The paper's Transformer baseline: a softmax encoder with label tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icssl._util.config_fields import added_later
from icssl._util.errors import check_at_least, check_choice
from icssl.episodes.episode import Episode
from icssl.model.inputs import SCALES, in_range, prepare
from icssl.model.stage import check_class_count, check_sizes


@dataclass(frozen=True)
class BaselineConfig:
    """Sizes of the baseline; the defaults are those of the paper's appendix.

    Parameters
    ----------
    d : int
        Number of coordinates of a point.
    n_classes : int
        Number of classes.
    width, heads, layers, feed_forward : int
        Width of the state, attention heads, layers and width of the feed-forward part;
        ``width`` must be a multiple of ``heads``.
    k : int
        Width of the feature head that the classifier reads.
    centre, scale
        Preparation of the points: see :func:`icssl.model.inputs.prepare`.
    positions : int
        Number of learned vectors that are added by the place of a point in the episode; an
        episode may have no more points. With 0, places mean nothing, as in the appendix.
    feature_norm : bool
        Normalise the layer of k features, which then needs no bias.
    """

    d: int = 3
    n_classes: int = 2
    width: int = 240
    heads: int = 4
    layers: int = 2
    feed_forward: int = 960
    k: int = 4
    centre: bool = False
    scale: str = "none"
    positions: int = added_later(0)
    feature_norm: bool = added_later(False)

    def __post_init__(self) -> None:
        check_at_least("positions", self.positions, 0)
        check_class_count(self.n_classes)
        check_choice("scale", self.scale, SCALES)
        check_sizes(
            d=self.d,
            width=self.width,
            heads=self.heads,
            layers=self.layers,
            feed_forward=self.feed_forward,
            k=self.k,
        )
        if self.width % self.heads:
            raise ValueError(
                f"width must be a multiple of heads, got {self.width} and {self.heads}."
            )


class BaselineTransformer(nn.Module):
    """An encoder of coordinates and label tokens, a 4-wide feature, and a classifier.

    Points that are not labelled carry the token "unknown". Same signature as
    :class:`icssl.model.transformer.ICSSLTransformer`.
    """

    def __init__(self, config: BaselineConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or BaselineConfig()
        self.embed = nn.Linear(config.d, config.width)
        self.label = nn.Embedding(config.n_classes + 1, config.width)  # the last: "unknown"
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, config.feed_forward, dropout=0.0, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, config.layers, enable_nested_tensor=False
        )
        for parameter in self.encoder.parameters():  # copies of one layer otherwise
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
        self.position = None
        if config.positions:
            self.position = nn.Embedding(config.positions, config.width)
        self.feature = nn.Linear(config.width, config.k, bias=not config.feature_norm)
        self.feature_norm = nn.LayerNorm(config.k) if config.feature_norm else None
        self.classify = nn.Linear(config.k, config.n_classes)

    def features(self, episode: Episode) -> Float[Tensor, "b n k"]:
        """Compute what the classifier reads: the representation of each point."""
        self.check_fits(episode)
        x = in_range(episode.x, self.embed.weight.dtype)
        x = prepare(x, self.config.centre, self.config.scale)
        token = torch.where(episode.labelled, episode.y, self.config.n_classes)
        state = self.embed(x) + self.label(token)
        if self.position is not None:
            state = state + self.position.weight[: x.shape[-2]]
        features = self.feature(self.encoder(state))
        return features if self.feature_norm is None else self.feature_norm(features)

    def forward(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """Compute the logits of every point."""
        return self.classify(self.features(episode))

    def check_fits(self, episode: Episode) -> None:
        """Raise ``ValueError`` if this model cannot take such episodes. Reads no values."""
        d, c = episode.x.shape[-1], episode.n_classes
        if d != self.config.d:
            raise ValueError(f"the model takes {self.config.d} coordinates, got {d}.")
        if c > self.config.n_classes:
            raise ValueError(f"the model has {self.config.n_classes} classes, got {c}.")
        n, positions = episode.x.shape[-2], self.config.positions
        if positions and n > positions:
            raise ValueError(f"the model has {positions} positions, got {n} points.")
