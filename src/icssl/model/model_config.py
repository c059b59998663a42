"""``ModelConfig``: everything that defines a model but its weights, and the presets."""

from dataclasses import dataclass
from typing import Any

from icssl._util.errors import check_at_least, check_choice, check_positive
from icssl.model import head as descent
from icssl.model import laplacian
from icssl.model.eigenmap import STARTS, check_features
from icssl.model.inputs import SCALES
from icssl.model.stage import check_class_count, check_sizes

FEATURES = ("eigenmap", "coordinates", "eigenvectors")
HEADS = ("descent", "encoder")
_INITS = ("random", "lemma")

_CHOICES = {
    "features": FEATURES,
    "laplacian_kernel": laplacian.KERNELS,
    "start": STARTS,
    "head": HEADS,
    "distance_bias": descent.DISTANCE_BIASES,
    "kernel": descent.KERNELS,
    "embedding": descent.EMBEDDINGS,
    "expectation": descent.EXPECTATIONS,
    "scale": SCALES,
    "init": _INITS,
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
        Number of points n, where a learned start ties the model to it.
    centre, scale
        Preparation of the points: see :func:`icssl.model.inputs.prepare`.
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
        :class:`icssl.model.head.EncoderHead`.
    n_classes : int
        Number of classes; a descent head with simplex embeddings takes any.
    kernel, steps, embedding, embedding_size, expectation, hidden, step_size, gamma
        Options of the descent head: see :class:`icssl.model.head.GradientDescentHead`.
    width, encoder_layers, encoder_heads, distance_bias
        Options of the encoder head: see :class:`icssl.model.head.EncoderHead`.
    init : {"random", "lemma"}
        Start stages 1 and 2 from random weights or from those of Lemmas 1 and 2.
    noise : float
        Standard deviation of what is added to the lemmas' weights, so that training can
        leave them.
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
    distance_bias: str = "points"
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
            raise ValueError(
                "width must be a multiple of encoder_heads, got "
                f"{self.width} and {self.encoder_heads}."
            )
        if self.tied_to_n and self.n_points is None:
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
    def tied_to_n(self) -> bool:
        """Whether a learned start fixes the number of points."""
        learned = self.start == "learned" or self.learn_r_start
        return self.features == "eigenmap" and learned

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "ModelConfig":
        """Return a named configuration, with any field changed.

        ``"paper"``
            Orig+E2E-ICL as published: a learned start for n = 100 and learned class
            embeddings, points neither centred nor scaled.
        ``"paper_lap_linear"``, ``"paper_lap_pe_1layer"``
            Its two ablations: stage 1 without the RBF; one layer per stage, no loops.
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
        """Return the model that needs no training: the weights of Lemmas 1 and 2."""
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
    "paper_lap_linear": {**_PAPER, "laplacian_kernel": "linear", "sigma": 1.0},
    "paper_lap_pe_1layer": {
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
