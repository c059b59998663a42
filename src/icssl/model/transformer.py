"""``ICSSLTransformer``: the three stages in a row."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icssl._util.references import is_reference, object_at
from icssl.episodes.episode import Episode
from icssl.model.eigenmap import EigenmapTransformer, check_features
from icssl.model.head import EncoderHead, GradientDescentHead
from icssl.model.inputs import in_few_coordinates, in_range, prepare
from icssl.model.laplacian import LaplacianTransformer
from icssl.model.model_config import ModelConfig
from icssl.model.operator import LaplacianOperator
from icssl.model.stage import Record, size_like


class ICSSLTransformer(nn.Module):
    """The paper's in-context semi-supervised learner, from an ``Episode`` to logits.

    1. ``laplacian``: RBF attention turns the points into an operator R.
    2. ``eigenmap``: linear attention turns R into features of every point.
    3. ``head``: attention to the labelled points turns features into logits.

    Examples
    --------
    >>> episode = Episode.single([[0.0], [0.1], [5.0], [5.1]], [0, -1, 1, -1],
    ...                          [True, False, True, False])
    >>> model = ICSSLTransformer(ModelConfig.constructed(k=2, sigma=2.0))
    >>> model(episode).argmax(dim=-1).tolist()
    [[0, 0, 1, 1]]
    """

    def __init__(self, config: ModelConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or ModelConfig()
        self.laplacian = self.eigenmap = None
        if config.features == "eigenmap":
            self.laplacian, self.eigenmap = _build_stages(config)
        self.project = None
        if config.project_to:
            first = torch.eye(config.k, config.project_to)
            self.project = nn.Parameter(first + 0.1 * torch.randn_like(first))
        self.head = _build_head(config)
        if config.init == "lemma":
            if config.noise == 0:  # constructed: its small eigenvalues need the digits
                self.double()
            self._start_from_lemmas()

    def _start_from_lemmas(self) -> None:
        if self.laplacian is not None and self.eigenmap is not None:
            self.laplacian.start_from_lemma1(self.config.sigma, self.config.noise)
            self.eigenmap.start_from_lemma2(noise=self.config.noise)

    def forward(
        self, episode: Episode, *, backend: str = "dense", record: Record | None = None
    ) -> Float[Tensor, "b n c"]:
        """Compute logits ``(b, n, c)`` of every point.

        Parameters
        ----------
        episode : Episode
            Points, and the classes of those that are labelled.
        backend : {"dense", "fused", "matrix_free"}
            ``"fused"`` is dense with the heads of stage 1 mixed as they form, the fastest
            for training. ``"matrix_free"`` takes memory for n points, and n x m for the
            labels, but never n x n.
        record : callable, optional
            Receives the name and value of what every layer computes.
        """
        x, _, phi = self._represent(episode, backend, record)
        return self._classify(episode, x, phi, backend, record)

    def stages(
        self, episode: Episode, *, backend: str = "dense"
    ) -> tuple[LaplacianOperator | None, Float[Tensor, "b n k"], Float[Tensor, "b n c"]]:
        """Compute R (None for a head alone), the features, and the logits."""
        x, operator, phi = self._represent(episode, backend, None)
        return operator, phi, self._classify(episode, x, phi, backend, None)

    def features(
        self, episode: Episode, *, backend: str = "dense"
    ) -> Float[Tensor, "b n k"]:
        """Compute what the head reads: the model's representation of each point."""
        return self._represent(episode, backend, None)[2]

    def trace(self, episode: Episode) -> dict[str, Tensor]:
        """Return what every layer computes, in order, by name.

        ``x``; ``laplacian.{step}.walk``, ``.x`` and ``.R``; ``eigenmap.{step}.F``;
        ``phi``; ``head.{step}.f`` (``.state`` of an encoder) and ``.logits``; ``logits``.
        Loops count: a layer applied four times has four steps.
        """
        trace: dict[str, Tensor] = {}
        trace["logits"] = self.forward(episode, record=trace.__setitem__)
        return trace

    def learned_scales(self) -> dict[str, Tensor]:
        """Return learned bandwidths and step sizes by name, with one row per layer.

        ``laplacian.bandwidth`` is 1 / sqrt(b c), in the unit of the points that stage 1
        sees, and ``laplacian.attracts`` says where b c > 0, so that near points count more
        than far ones; ``laplacian.weight`` is a' of every head and ``laplacian.skip`` s'.
        ``eigenmap.power`` is b c, the weight of R R^T in every head. ``head.step_size`` is
        alpha of every step and ``head.gamma`` the kernel's.
        """
        scales: dict[str, Tensor] = {}
        if self.laplacian is not None and self.eigenmap is not None:
            scales = {
                "laplacian.bandwidth": self.laplacian.bandwidths(),
                "laplacian.attracts": self.laplacian.key_scale * self.laplacian.query_scale
                > 0,
                "laplacian.weight": self.laplacian.mix_r,
                "laplacian.skip": self.laplacian.skip_r,
                "eigenmap.power": self.eigenmap.key_r * self.eigenmap.query_r,
            }
        if isinstance(self.head, GradientDescentHead):
            scales["head.step_size"] = self.head.step_size
            if self.head.log_gamma is not None:
                scales["head.gamma"] = self.head.log_gamma.exp()
        return {name: value.detach().clone() for name, value in scales.items()}

    def check_fits(self, episode: Episode) -> None:
        """Raise ``ValueError`` if this model cannot take such episodes.

        Reads shapes alone, no values, so that it does not wait for a GPU.
        """
        if not isinstance(episode, Episode):
            raise TypeError(
                f"a model takes an Episode, got {type(episode).__name__}: build one with "
                "Episode(x, y, labelled), or Episode.single for one context."
            )
        config, n = self.config, episode.x.shape[-2]
        fixed = config.head != "descent" or config.embedding == "learned"
        if fixed and episode.n_classes > config.n_classes:
            raise ValueError(
                f"the model has {config.n_classes} classes, got {episode.n_classes}: set "
                "n_classes, or use a descent head with embedding='simplex' for any number."
            )
        if config.features == "eigenmap":
            check_features(config.k, n)
            if config.tied_to_n and n != config.n_points:
                raise ValueError(
                    f"the model was built for {config.n_points} points, got {n}: use "
                    "start='fourier' for any number of points."
                )
        d = episode.x.shape[-1]
        reads_coordinates = config.features == "coordinates" and config.head == "encoder"
        if reads_coordinates and d != config.k:
            raise ValueError(f"the encoder head reads k = {config.k} coordinates, got {d}.")
        if config.features == "eigenvectors":
            columns = 0 if episode.features is None else episode.features.shape[-1]
            if columns < config.k:
                raise ValueError(
                    f"features='eigenvectors' reads {config.k} columns of "
                    f"episode.features, got {columns}."
                )

    def _represent(
        self, episode: Episode, backend: str, record: Record | None
    ) -> tuple[Tensor, LaplacianOperator | None, Tensor]:
        """Return points to take distances between, R, and what the head reads."""
        self.check_fits(episode)
        dtype = next(self.parameters()).dtype
        x = prepare(in_range(episode.x, dtype), self.config.centre, self.config.scale)
        if record is not None:
            record("x", x)
        points = in_few_coordinates(x)
        operator, unit = None, size_like(x.shape[-2], x) ** 0.5
        if self.laplacian is not None and self.eigenmap is not None:
            operator = self.laplacian(points, backend=backend, record=record)
            # Stage 2 applies R dozens of times: an n x n matrix pays off unless n is large.
            if backend != "matrix_free":
                operator = operator.form()
            # The start reads x, whose axes do not depend on the order of the points.
            # Columns of unit length have entries near n^-1/2; the head wants them near one.
            phi = unit * self.eigenmap(operator, x, backend=backend, record=record)
            phi = phi if self.project is None else phi @ self.project.to(phi.dtype)
        elif self.config.features == "eigenvectors" and episode.features is not None:
            phi = unit * episode.features[..., : self.config.k].to(dtype)
        else:
            phi = x
        if record is not None:
            record("phi", phi)
        return points, operator, phi

    def _classify(
        self, episode: Episode, x: Tensor, phi: Tensor, backend: str, record: Record | None
    ) -> Tensor:
        return self.head(
            phi,
            episode.y,
            episode.labelled,
            n_classes=episode.n_classes,
            points=x,
            backend=backend,
            record=record,
        )


def _build_stages(config: ModelConfig) -> tuple[LaplacianTransformer, EigenmapTransformer]:
    first = LaplacianTransformer(
        config.laplacian_layers,
        config.laplacian_heads,
        kernel=config.laplacian_kernel,
        layer_loops=config.layer_loops,
        stage_loops=config.stage_loops,
        attend_to_r=config.attend_to_r,
        start_points=config.n_points if config.learn_r_start else None,
        sigma=config.sigma,
    )
    second = EigenmapTransformer(
        config.k,
        config.eigenmap_layers,
        config.eigenmap_heads,
        layer_loops=config.layer_loops,
        stage_loops=config.stage_loops,
        start=config.start,
        start_points=config.n_points if config.start == "learned" else None,
        scale_operator=config.scale_operator,
        move_operator=config.move_operator,
        normalise=config.normalise,
    )
    return first, second


def _build_head(config: ModelConfig) -> nn.Module:
    if is_reference(config.head):
        return _own_head(config)
    if config.head == "encoder":
        return EncoderHead(
            config.head_features,
            config.n_classes,
            width=config.width,
            heads=config.encoder_heads,
            layers=config.encoder_layers,
            distance_bias=config.distance_bias,
        )
    return GradientDescentHead(
        config.kernel,
        config.steps,
        config.n_classes,
        embedding=config.embedding,
        embedding_size=config.embedding_size,
        expectation=config.expectation,
        hidden=config.hidden,
        step_size=config.step_size,
        gamma=config.gamma,
    )


def _own_head(config: ModelConfig) -> nn.Module:
    """Return the head that ``module:Class`` names, made from the configuration."""
    made = object_at(config.head)
    if not (isinstance(made, type) and issubclass(made, nn.Module)):
        raise ValueError(
            f"head={config.head!r} must be a class of torch.nn.Module that is made from a "
            f"ModelConfig, got {made!r}."
        )
    return made(config)
