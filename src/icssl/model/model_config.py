"""``ModelConfig``: everything that defines a model but its weights, and the presets."""

from dataclasses import dataclass, fields
from typing import Any

from icssl._util.config_fields import added_later
from icssl._util.errors import check_at_least, check_choice, check_positive
from icssl._util.references import is_reference
from icssl.model import head as descent
from icssl.model import laplacian
from icssl.model.eigenmap import NORMALISED, STARTS, check_features, check_normalised
from icssl.model.inputs import SCALES
from icssl.model.stage import check_class_count, check_sizes

FEATURES = ("eigenmap", "coordinates", "eigenvectors")
HEADS = ("descent", "encoder")
_INITS = ("random", "lemma")

_CHOICES = {
    "features": FEATURES,
    "laplacian_kernel": laplacian.KERNELS,
    "start": STARTS,
    "normalise": NORMALISED,
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
    move_operator, normalise
        Stage 2 as printed: see :class:`icssl.model.eigenmap.EigenmapTransformer`.
    project_to : int
        Learn a projection of the k features to so many, which the head reads; 0 for none.
    layer_loops, stage_loops : int
        How often each layer of stages 1 and 2, and each of these stages, is applied.
    head : {"descent", "encoder"} or str
        Stage 3: :class:`icssl.model.head.GradientDescentHead`,
        :class:`icssl.model.head.EncoderHead`, or ``"module:Class"``, a head of your own
        that is made from this configuration.
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
    # Fields that came later: rows that were stored before have keys without them.
    move_operator: bool = added_later(False)
    normalise: str = added_later("features")
    project_to: int = added_later(0)

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not (name in _MAY_BE_OWN and is_reference(value)):
                also = "module:Class of your own" if name in _MAY_BE_OWN else ""
                check_choice(name, value, allowed, also)
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
        elif self.head == "encoder" and self.width % self.encoder_heads:
            raise ValueError(
                "width must be a multiple of encoder_heads, got "
                f"{self.width} and {self.encoder_heads}."
            )
        check_normalised(self.normalise, self.move_operator, self.scale_operator)
        self._check_exclusions()
        if self.tied_to_n and self.n_points is None:
            raise ValueError("a learned start needs n_points, the n it is learned for.")
        if self.n_points is not None:
            check_sizes(n_points=self.n_points)
            check_at_least("n_points", self.n_points, 2)
            check_features(self.k, self.n_points)

    def _check_exclusions(self) -> None:
        """Raise ``ValueError`` for two options of which one makes the other void."""
        if self.init == "lemma" and self.layer_loops * self.stage_loops > 1:
            raise ValueError(
                "init='lemma' needs layer_loops = stage_loops = 1, got "
                f"{self.layer_loops} and {self.stage_loops}: a looped layer gives a power "
                "of the lemma's Laplacian."
            )
        if self.init == "lemma" and self.normalise == "all":
            raise ValueError(
                "init='lemma' and normalise='all' exclude each other: Lemma 2 needs R as "
                "it is."
            )
        if not 0 <= self.project_to <= self.k:
            raise ValueError(
                f"project_to must be from 0 to k = {self.k}, got {self.project_to}."
            )
        if self.features == "eigenmap":
            return
        for known in fields(self):
            value = getattr(self, known.name)
            if known.name in _OF_STAGES and value != known.default:
                raise ValueError(
                    f"{known.name}={value!r} and features={self.features!r} exclude each "
                    "other: a head alone has no stages 1 and 2. Use features='eigenmap'."
                )

    @property
    def head_features(self) -> int:
        """Number of features that the head reads from stage 2, or of eigenvectors."""
        return self.project_to or self.k

    @property
    def tied_to_n(self) -> bool:
        """Whether a learned start fixes the number of points."""
        learned = self.start == "learned" or self.learn_r_start
        return self.features == "eigenmap" and learned

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "ModelConfig":
        """Return a named configuration, with any field changed.

        ``"paper"``
            Orig+E2E-ICL as printed: the MLP of 576 weights for the expectation, learned
            starts, attention to R too, R changed and normalised in stage 2; points neither
            centred nor scaled. The numbers of layers and heads, and the first step of the
            descent, are ours.
        ``"paper_8_32_8"``
            The same with the other MLP of 576 weights, and "unknown" as a third class.
        ``"paper_24"``
            Consistent with the factor 24 of the printed totals: six layers of four heads in
            both stages, ten features projected to four.
        ``"paper_scalars"``
            What was called ``"paper"`` before: the exact expectation, R neither attended to
            nor changed, a first step of 1.
        ``"paper_lap_linear"``, ``"paper_lap_pe_1layer"``
            The two ablations of ``"paper"``: stage 1 without the RBF; one layer per stage,
            no loops.
        ``"paper_orig_icl"``, ``"paper_eig_icl"``
            The head of ``"paper"`` alone, on raw coordinates and on eigenvectors.
        ``"orig_icl"``, ``"eig_icl"``
            A head alone with the exact expectation, on scaled coordinates and on
            eigenvectors.
        ``"free"``
            The paper's stages, free of n, order, place, scale and class names.
        ``"encoder"``
            The same representation under the encoder head.
        """
        if name in OF_TRAINING:
            raise ValueError(
                f"{name!r} is a preset of `icssl train`; its model starts from "
                f"ModelConfig.preset({OF_TRAINING[name]!r})."
            )
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


_MAY_BE_OWN = ("head", "kernel")
_OF_STAGES = ("move_operator", "normalise", "project_to")  # the older ones are ignored

_SCALARS: dict[str, Any] = {
    "n_points": 100,
    "start": "learned",
    "embedding": "learned",
    "centre": False,
    "scale": "none",
    "sigma": 0.05,  # the paper draws clouds of width 0.04 to 0.2
}
# An MLP 16-16-16 with biases has 544 weights, and two embeddings of 16 have 32: the 576 of
# the paper's table, apart from the step size and gamma.
_MLP: dict[str, Any] = {
    "embedding": "learned",
    "embedding_size": 16,
    "expectation": "mlp",
    "hidden": 16,
}
_PAPER: dict[str, Any] = {
    **_SCALARS,
    **_MLP,
    "attend_to_r": True,
    "move_operator": True,
    "normalise": "all",
    # With embeddings of 16 numbers a descent of step 1 begins with logits so large that
    # many seeds do not return from them; with this one it begins at a guess (docs/LOG.md).
    "step_size": 0.1,
}
_HEAD_ALONE: dict[str, Any] = {"embedding": "learned"}
_PRESETS: dict[str, dict[str, Any]] = {
    "paper": _PAPER,
    # 8-32-8 with biases has 552 weights, and three embeddings of 8 have 24: 576 as well.
    "paper_8_32_8": {**_PAPER, "embedding_size": 8, "hidden": 32, "n_classes": 3},
    "paper_24": {
        **_PAPER,
        "laplacian_layers": 6,
        "eigenmap_layers": 6,
        "k": 10,
        "project_to": 4,
    },
    "paper_scalars": _SCALARS,
    "paper_lap_linear": {**_PAPER, "laplacian_kernel": "linear", "sigma": 1.0},
    "paper_lap_pe_1layer": {
        **_PAPER,
        "laplacian_layers": 1,
        "eigenmap_layers": 1,
        "layer_loops": 1,
        "stage_loops": 1,
    },
    # Points are 0.1 apart across a cloud of the paper.
    "paper_orig_icl": {
        **_MLP,
        "features": "coordinates",
        "centre": False,
        "scale": "none",
        "gamma": 100.0,
    },
    "paper_eig_icl": {**_MLP, "features": "eigenvectors"},
    # Scaled points are tens of units apart across a cloud, eigenvectors about one.
    "orig_icl": {**_HEAD_ALONE, "features": "coordinates", "gamma": 0.05},
    "eig_icl": {**_HEAD_ALONE, "features": "eigenvectors"},
    "free": {},
    "encoder": {"head": "encoder"},
}
PRESETS = tuple(_PRESETS)

OF_TRAINING = {
    **dict.fromkeys(("e2e_icl", "e2e_linear", "e2e_wide"), "free"),
    **dict.fromkeys(("lap_linear", "lap_pe_1layer"), "free"),
    "e2e_encoder": "encoder",
    **dict.fromkeys(("paper_linear", "paper_combined"), "paper"),
}
"""Presets of ``icssl train`` that are none here, with the preset of their models."""
