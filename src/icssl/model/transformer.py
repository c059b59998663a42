"""``ICSSLTransformer``: the three stages in a row, and ``ModelConfig``, which builds it."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from icssl.episode import Episode
from icssl.errors import check_at_least, check_choice, check_positive
from icssl.model import head as descent
from icssl.model import laplacian
from icssl.model.eigenmap import STARTS, EigenmapTransformer, check_features
from icssl.model.encoder import EncoderHead
from icssl.model.head import GradientDescentHead
from icssl.model.inputs import SCALES, in_range, prepare
from icssl.model.laplacian import LaplacianTransformer
from icssl.model.stage import Record, check_class_count, check_sizes

FEATURES = ("eigenmap", "coordinates", "eigenvectors")
HEADS = ("descent", "encoder")
INITS = ("random", "lemma")

_CHOICES = {
    "features": FEATURES,
    "laplacian_kernel": laplacian.KERNELS,
    "start": STARTS,
    "head": HEADS,
    "kernel": descent.KERNELS,
    "embedding": descent.EMBEDDINGS,
    "expectation": descent.EXPECTATIONS,
    "scale": SCALES,
    "init": INITS,
}


@dataclass(frozen=True)
class ModelConfig:
    """Everything that defines an :class:`ICSSLTransformer` but its weights.

    The defaults depend on neither the number, order, place and scale of the points nor
    the names of the classes. ``ModelConfig.preset(name)`` gives the models of the paper.

    Parameters
    ----------
    features : {"eigenmap", "coordinates", "eigenvectors"}
        What the head reads: the output of stages 1 and 2; the coordinates ("Orig+ICL");
        or the ground truth in ``episode.features`` ("Eig+ICL").
    k : int
        Number of eigenmap features. An encoder head on coordinates reads k of them.
    n_points : int, optional
        n, where a learned start ties the model to it.
    centre, scale
        What is done to the points first: see :func:`icssl.model.inputs.prepare`.
    sigma : float
        Bandwidth that stage 1 starts from, in the unit of the points it is given.
    laplacian_kernel, laplacian_layers, laplacian_heads, attend_to_r
        Stage 1: see :class:`icssl.model.laplacian.LaplacianTransformer`.
    learn_r_start : bool
        Learn the n x n start of R.
    eigenmap_layers, eigenmap_heads, start, scale_operator
        Stage 2: see :class:`icssl.model.eigenmap.EigenmapTransformer`.
    layer_loops, stage_loops : int
        How often each layer of stages 1 and 2, and each of these stages, is applied.
    head : {"descent", "encoder"}
        Stage 3: :class:`icssl.model.head.GradientDescentHead`, or
        :class:`icssl.model.encoder.EncoderHead`.
    n_classes : int
        Number of classes; a descent head with simplex embeddings takes any.
    kernel, steps, embedding, embedding_size, expectation, hidden, step_size, gamma
        Of the descent head.
    width, encoder_layers, encoder_heads, distance_bias
        Of the encoder head.
    init : {"random", "lemma"}
        Start stages 1 and 2 from random weights or from those of Lemmas 1 and 2.
    noise : float
        Added to the lemmas' weights, so that training can leave them.
    """

    features: str = "eigenmap"
    k: int = 4
    n_points: int | None = None
    centre: bool = True
    scale: str = "neighbour"
    sigma: float = 1.0
    laplacian_kernel: str = "rbf"
    laplacian_layers: int = 2
    laplacian_heads: int = 4
    attend_to_r: bool = False
    learn_r_start: bool = False
    eigenmap_layers: int = 4
    eigenmap_heads: int = 4
    start: str = "fourier"
    scale_operator: bool = False
    layer_loops: int = 2
    stage_loops: int = 2
    head: str = "descent"
    n_classes: int = 2
    kernel: str = "rbf"
    steps: int = 1
    embedding: str = "simplex"
    embedding_size: int = 4
    expectation: str = "exact"
    hidden: int = 32
    step_size: float = 1.0
    gamma: float = 1.0
    width: int = 64
    encoder_layers: int = 2
    encoder_heads: int = 4
    distance_bias: bool = True
    init: str = "random"
    noise: float = 0.02

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        sizes = ["k", "laplacian_layers", "laplacian_heads", "eigenmap_layers"]
        sizes += ["eigenmap_heads", "layer_loops", "stage_loops", "steps"]
        sizes += ["embedding_size", "hidden", "width", "encoder_layers", "encoder_heads"]
        check_sizes(**{name: getattr(self, name) for name in sizes})
        check_class_count(self.n_classes)
        check_positive("sigma", self.sigma)
        check_positive("step_size", self.step_size)
        check_positive("gamma", self.gamma)
        check_at_least("noise", self.noise, 0)
        if self.head == "descent":
            descent.check_expectation(self.expectation, self.embedding)
        elif self.width % self.encoder_heads:
            given = f"{self.width} and {self.encoder_heads}"
            raise ValueError(f"width must be a multiple of encoder_heads, got {given}.")
        if self._tied_to_n and self.n_points is None:
            raise ValueError("a learned start needs n_points, the n it is learned for.")
        if self.init == "lemma" and self.layer_loops * self.stage_loops > 1:
            raise ValueError(
                "init='lemma' needs layer_loops = stage_loops = 1, got "
                f"{self.layer_loops} and {self.stage_loops}: a looped layer gives a power "
                "of the lemma's Laplacian."
            )
        if self.n_points is not None:
            check_sizes(n_points=self.n_points)
            check_at_least("n_points", self.n_points, 2)
            check_features(self.k, self.n_points)

    @property
    def _tied_to_n(self) -> bool:
        learned = self.start == "learned" or self.learn_r_start
        return self.features == "eigenmap" and learned

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "ModelConfig":
        """A named configuration, with any field changed.

        ``"paper"``
            Orig+E2E-ICL as published: a learned start for n = 100 and learned class
            embeddings, points neither centred nor scaled.
        ``"lap_linear"``, ``"lap_pe_1layer"``
            Its two ablations: stage 1 without the RBF; one layer a stage, no loops.
        ``"orig_icl"``, ``"eig_icl"``
            The head alone, on coordinates and on ground-truth eigenvectors.
        ``"free"``
            The paper's stages, free of n, order, place, scale and class names.
        ``"encoder"``
            The same representation under the encoder head.
        """
        check_choice("preset", name, _PRESETS)
        return cls(**{**_PRESETS[name], **changes})

    @classmethod
    def constructed(cls, k: int = 4, iterations: int = 64, **changes: Any) -> "ModelConfig":
        """The model that needs no training: the weights of Lemmas 1 and 2, in float64."""
        values: dict[str, Any] = {
            "k": k,
            "laplacian_layers": 1,
            "laplacian_heads": 1,
            "eigenmap_layers": k * iterations,
            "eigenmap_heads": 1,
            "layer_loops": 1,
            "stage_loops": 1,
            "scale_operator": True,
            "init": "lemma",
            "noise": 0.0,
        }
        return cls(**{**values, **changes})


_PAPER: dict[str, Any] = {
    "n_points": 100,
    "start": "learned",
    "embedding": "learned",
    "centre": False,
    "scale": "none",
    "sigma": 0.05,  # the paper draws clouds of width 0.04 to 0.2
}
_HEAD_ALONE: dict[str, Any] = {"embedding": "learned"}
_PRESETS: dict[str, dict[str, Any]] = {
    "paper": _PAPER,
    "lap_linear": {**_PAPER, "laplacian_kernel": "linear", "sigma": 1.0},
    "lap_pe_1layer": {
        **_PAPER,
        "laplacian_layers": 1,
        "eigenmap_layers": 1,
        "layer_loops": 1,
        "stage_loops": 1,
    },
    # Scaled points are tens of units apart across a cloud, eigenvectors about one.
    "orig_icl": {**_HEAD_ALONE, "features": "coordinates", "gamma": 0.05},
    "eig_icl": {**_HEAD_ALONE, "features": "eigenvectors"},
    "free": {},
    "encoder": {"head": "encoder"},
}
PRESETS = tuple(_PRESETS)


class ICSSLTransformer(nn.Module):
    """In-context semi-supervised learner: an ``Episode`` in, logits ``(b, n, c)`` out.

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
        """Logits of every point.

        Parameters
        ----------
        episode : Episode
        backend : {"dense", "matrix_free"}
            ``"matrix_free"`` takes memory for n points, and n x m for the labels, but
            never n x n.
        record : callable, optional
            Called with the name and value of what every layer computes.
        """
        x, phi = self._represent(episode, backend, record)
        return self.head(
            phi,
            episode.y,
            episode.labelled,
            n_classes=episode.n_classes,
            points=x,
            backend=backend,
            record=record,
        )

    def features(
        self, episode: Episode, *, backend: str = "dense"
    ) -> Float[Tensor, "b n k"]:
        """What the head reads: the model's representation of each point."""
        return self._represent(episode, backend, None)[1]

    def trace(self, episode: Episode) -> dict[str, Tensor]:
        """What every layer computed, in order, by name.

        ``x``; ``laplacian.{step}.walk``, ``.x`` and ``.R``; ``eigenmap.{step}.F``;
        ``phi``; ``head.{step}.f`` (``.state`` of an encoder) and ``.logits``; ``logits``.
        Loops count: a layer applied four times has four steps.
        """
        trace: dict[str, Tensor] = {}
        trace["logits"] = self.forward(episode, record=trace.__setitem__)
        return trace

    def check_fits(self, episode: Episode) -> None:
        """Raise ``ValueError`` if this model cannot take such episodes.

        Reads shapes alone, no values, so that it does not wait for a GPU.
        """
        config, n = self.config, episode.x.shape[-2]
        fixed = config.head == "encoder" or config.embedding == "learned"
        if fixed and episode.n_classes > config.n_classes:
            raise ValueError(
                f"the model has {config.n_classes} classes, got {episode.n_classes}: set "
                "n_classes, or use a descent head with embedding='simplex' for any number."
            )
        if config.features == "eigenmap":
            check_features(config.k, n)
            if config._tied_to_n and n != config.n_points:
                raise ValueError(
                    f"the model was built for {config.n_points} points, got {n}: use "
                    "start='fourier' for any number of points."
                )
        if config.features == "coordinates" and config.head == "encoder":
            d = episode.x.shape[-1]
            if d != config.k:
                raise ValueError(
                    f"the encoder head reads k = {config.k} coordinates, got {d}."
                )
        if config.features == "eigenvectors":
            given = 0 if episode.features is None else episode.features.shape[-1]
            if given < config.k:
                raise ValueError(
                    f"features='eigenvectors' reads {config.k} columns of "
                    f"episode.features, got {given}."
                )

    def _represent(
        self, episode: Episode, backend: str, record: Record | None
    ) -> tuple[Tensor, Tensor]:
        """The prepared points, and the features that the head reads."""
        self.check_fits(episode)
        dtype = next(self.parameters()).dtype
        x = prepare(in_range(episode.x, dtype), self.config.centre, self.config.scale)
        if record is not None:
            record("x", x)
        if self.laplacian is not None and self.eigenmap is not None:
            operator = self.laplacian(x, backend=backend, record=record)
            if backend == "dense":
                operator = operator.formed()
            # Columns of unit length have entries near n^-1/2; the head wants them near one.
            phi = x.shape[-2] ** 0.5 * self.eigenmap(operator, x, record=record)
        elif self.config.features == "eigenvectors" and episode.features is not None:
            phi = x.shape[-2] ** 0.5 * episode.features[..., : self.config.k].to(dtype)
        else:
            phi = x
        if record is not None:
            record("phi", phi)
        return x, phi


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
    )
    return first, second


def _build_head(config: ModelConfig) -> GradientDescentHead | EncoderHead:
    if config.head == "encoder":
        return EncoderHead(
            config.k,
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
