"""``ContextModel``: the map of the classifier, from a table and labels to predictions.

The walk, by file::

    x -> views -> graphs, view_graph -> eigenmap -> kernels
      -> context_features                              (nothing learned yet)
    context_features -> gate -> descent -> fitted -> probabilities

The gate alone has learned weights. As in the paper, the head then descends on the labels,
here in a mixture of kernels. Nothing in it knows the number of rows, columns or classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from icssl.classifier.context_features import (
    ContextFeatures,
    features_of_graphs,
    features_of_tables,
)
from icssl.classifier.corrections import correct_gate, guard_shares
from icssl.classifier.descent import descend_in_heads, estimate_shares, guess_shares
from icssl.classifier.eigenmap import EIGENFUNCTIONS
from icssl.classifier.fitted import FittedContext
from icssl.classifier.gate import Gate, average_gates, head_members
from icssl.classifier.geometry import Units
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
    """Gates over heads and their kernels; each head descends in its mixture of them.

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
        self.gates = nn.ModuleList(
            Gate(len(self.kernels), config.embedding, config.width)
            for _ in range(config.members)
        )

    def fit(
        self,
        x: Float[Tensor, "b n d"],
        y: Int[Tensor, "b n"],
        labelled: Bool[Tensor, "b n"],
        n_classes: int,
        graphs: Sequence[GraphSpec] | None = None,
        backend: Backend = DENSE,
        units: Units | None = None,
    ) -> FittedContext:
        """Fit tables: rows, the classes of some, and which; by default with all graphs."""
        chosen = self.graphs if graphs is None else graphs
        k = self.config.k
        return self.fit_features(
            features_of_tables(x, y, labelled, n_classes, chosen, k, backend, units)
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
        """Return log-probabilities of every row of the contexts."""
        fitted = self.fit(x, y, labelled, n_classes)
        return fitted.log_probabilities(fitted.predict_context())

    def fit_features(
        self,
        features: ContextFeatures,
        members: Sequence[int] | None = None,
        row_weight: Float[Tensor, "b m"] | None = None,
    ) -> FittedContext:
        """Weigh heads and kernels of contexts, and descend on the labels in every head.

        Labels count by ``row_weight`` in the descent; the gate does not read it.
        """
        target, kernels = features.target, features.kernels.kernels
        places = [self.kernels.index(kernel) for kernel in kernels]
        chosen = range(len(self.gates)) if members is None else members
        of_heads = head_members(kernels).to(target.device)
        gates = [self.gates[i] for i in chosen]
        gate = average_gates(gates, features.inputs, places, of_heads)
        counted = target if row_weight is None else target * row_weight[..., None]
        counts = counted.sum(1)
        labels_per_class = target.sum((1, 2))[:, None] / target.shape[-1]
        if not self.training:
            gate = correct_gate(gate, features.inputs, kernels, labels_per_class)
        amplitude = gate.amplitude[..., None, None]
        mixed = features.gram.mix(gate.mixture) * amplitude
        coefficients = descend_in_heads(
            mixed, target, features.kernels.valid, self.config.steps, row_weight
        )
        # The head's weight and amplitude are part of what its labelled rows contribute.
        coefficients = coefficients * (amplitude * gate.weights[..., None, None])
        fitted = FittedContext(
            features.centred,
            gate.mixture,
            gate.weights,
            coefficients,
            gate.sharpness,
            gate.slope,
            torch.empty(0),
        )
        logits = fitted.predict_kernels(features.sample).logits
        guess = guess_shares(counts, gate.trust)
        shares = estimate_shares(logits, features.unlabelled, guess, gate.strength)
        if not self.training:
            shares = guard_shares(
                shares, guess, logits, features.unlabelled, labels_per_class
            )
        return replace(fitted, shares=shares)
