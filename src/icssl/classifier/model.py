"""``ContextModel``: the map of the classifier, from a table and labels to predictions.

The walk, by file::

    x -> views -> graphs, view_graph -> eigenmap -> kernels
      -> context_features                              (nothing learned yet)
    context_features -> gate -> descent -> fitted -> probabilities

The gate alone has learned weights. As in the paper, the head then descends on the labels,
here in a mixture of kernels. Nothing in it knows the number of rows, columns or classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from icssl.classifier.context_features import (
    ContextFeatures,
    features_of_graphs,
    features_of_tables,
)
from icssl.classifier.descent import balance_classes, descend
from icssl.classifier.eigenmap import EIGENFUNCTIONS
from icssl.classifier.fitted import FittedContext
from icssl.classifier.gate import Gate, average_gates
from icssl.classifier.graphs import DENSE, Backend, GraphSpec, WeightedGraph
from icssl.classifier.kernels import GRAPHS, kernels_of


@dataclass(frozen=True)
class ContextConfig:
    """Sizes of a :class:`ContextModel`.

    Parameters
    ----------
    k : int
        Eigenfunctions of every graph.
    steps : int
        Steps of the descent on the labels.
    width, embedding : int
        Width of the gate's layers, and numbers that it learns about each kernel.
    members : int
        Gates, whose outputs are averaged.
    """

    k: int = EIGENFUNCTIONS
    steps: int = 40
    width: int = 48
    embedding: int = 12
    members: int = 1


class ContextModel(nn.Module):
    """Gates over kernels, and a head that descends in their mixture.

    Parameters
    ----------
    config : ContextConfig, optional
        Sizes. Each of the members is a gate that was trained by itself.
    graphs : sequence of GraphSpec
        The graphs whose kernels the gates can weigh; a context may have some of them.
    """

    def __init__(
        self, config: ContextConfig | None = None, graphs: Sequence[GraphSpec] = GRAPHS
    ) -> None:
        super().__init__()
        self.config = config = config or ContextConfig()
        self.graphs, self.kernels = tuple(graphs), kernels_of(graphs)
        self.calibration: Tensor
        self.gates = nn.ModuleList(
            Gate(len(self.kernels), config.embedding, config.width)
            for _ in range(config.members)
        )
        self.register_buffer("calibration", torch.zeros(4))

    def fit(
        self,
        x: Float[Tensor, "b n d"],
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
        n_classes: int,
        graphs: Sequence[GraphSpec] | None = None,
        backend: Backend = DENSE,
    ) -> FittedContext:
        """Fit tables: rows, the classes of some, and which; by default with all graphs."""
        chosen = self.graphs if graphs is None else graphs
        return self.fit_features(
            features_of_tables(x, y, labelled, n_classes, chosen, self.config.k, backend)
        )

    def fit_graph(
        self,
        w: Float[Tensor, "b n n"] | WeightedGraph,
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
        n_classes: int,
    ) -> FittedContext:
        """Fit contexts of which only weights between rows are given."""
        k, spec = self.config.k, self.graphs[0]
        return self.fit_features(features_of_graphs(w, y, labelled, n_classes, k, spec))

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
        n_classes: int,
    ) -> Float[Tensor, "b n c"]:
        """Return logits of every row of the contexts."""
        return self.fit(x, y, labelled, n_classes).predict_context().logits

    def fit_features(
        self,
        features: ContextFeatures,
        members: Sequence[int] | None = None,
        row_weight: Float[Tensor, "b m"] | None = None,
    ) -> FittedContext:
        """Weigh the kernels of contexts and descend on the labels, by some members.

        Labels count by ``row_weight`` in the descent; the gate does not read it.
        """
        centred, target = features.centred, features.target
        places = [self.kernels.index(kernel) for kernel in features.kernels.kernels]
        chosen = range(len(self.gates)) if members is None else members
        gate = average_gates([self.gates[i] for i in chosen], features.inputs, places)
        kernel = features.gram.mix(gate.mixture) * gate.amplitude
        coefficients = descend(
            kernel, target, features.kernels.valid, self.config.steps, row_weight
        )
        coefficients = coefficients * (gate.amplitude * gate.sharpness)
        # The bias is found without the calibration, as it was when that was fitted.
        logits = centred.mix(features.sample, gate.mixture) @ coefficients
        bias = balance_classes(logits, gate.balance.clamp(max=1))
        return FittedContext(
            centred,
            gate.mixture,
            coefficients,
            bias,
            features.labels_per_class,
            self.calibration,
        )
