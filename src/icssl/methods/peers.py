"""Methods on tables: on contexts of real data, and on large tables of numbers."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.sparse import csr_matrix
from scipy.special import softmax
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.semi_supervised import LabelSpreading

from icssl.classifier.neighbour_search import all_neighbours, make_search
from icssl.classifier.weights import weights_id
from icssl.episodes.episode import Episode
from icssl.methods.base import Method, scale_points
from icssl.methods.propagation import self_tuned_graph
from icssl.methods.registry import GRAPH_NEIGHBOURS

_LabelledTable = tuple[ndarray, str]
"""Classes of all rows of a large table, and how they were found."""


@dataclass(frozen=True, eq=False)
class Context:
    """Rows of one set, some of them labelled; every class has rows of both kinds.

    Parameters
    ----------
    table : DataFrame
        The columns as they are, without the target.
    y : ndarray of shape (n,)
        Classes from 0 to ``n_classes - 1``.
    labelled : ndarray of bool, of shape (n,)
    n_classes : int
    """

    table: Any
    y: Int[ndarray, " n"]
    labelled: Bool[ndarray, " n"]
    n_classes: int

    @property
    def visible_labels(self) -> Int[ndarray, " n"]:
        """The classes that a method may see, with -1 for hidden ones."""
        return np.where(self.labelled, self.y, -1)


class _Competitor(Protocol):
    """A way to classify the rows of a context."""

    def __call__(self, context: Context, *, seed: int) -> Float[ndarray, "n c"]:
        """Return class probabilities; those of labelled rows are ignored."""
        ...


def as_numbers(table: Any) -> Float[ndarray, "n d"]:
    """Return the table as every peer gets it: standardised numbers, one-hot categories.

    Fitted on all rows of the context, labelled or not. A missing number is the median of
    its column, a missing category a category of its own.
    """
    numbers = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
    )
    transformer = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (OneHotEncoder(), make_column_selector(dtype_exclude="number")),
        sparse_threshold=0,
    )
    return np.asarray(transformer.fit_transform(table), dtype=np.float64)


@dataclass(frozen=True)
class Supervised:
    """An estimator of scikit-learn that is fitted on the labelled rows alone.

    Parameters
    ----------
    estimator : classifier
        One without ``predict_proba`` gets the softmax of its decision function. (SVC's
        own probabilities come from a cross-validation that one label per class rules out.)
    temperature : float
        Temperature of that softmax.
    """

    estimator: Any
    temperature: float = 1.0

    def __call__(self, context: Context, *, seed: int) -> Float[ndarray, "n c"]:
        """Return class probabilities of all rows."""
        x, model = as_numbers(context.table), _with_seed(self.estimator, seed)
        model.fit(x[context.labelled], context.y[context.labelled])
        if hasattr(model, "predict_proba"):
            return model.predict_proba(x)
        decision = model.decision_function(x)
        if decision.ndim == 1:  # two classes: positive for the second
            decision = np.stack([-decision, decision], axis=1) / 2
        return softmax(decision / self.temperature, axis=1)


@dataclass(frozen=True)
class Transductive:
    """An estimator of scikit-learn that is fitted on all rows, -1 for the unlabelled.

    Parameters
    ----------
    estimator : classifier
    gamma : float, optional
        Width of the Gaussian kernel, divided by the number of columns: squared distances of
        standardised columns grow with it, so no fixed number would do for all sets.
    """

    estimator: Any
    gamma: float | None = None

    def __call__(self, context: Context, *, seed: int) -> Float[ndarray, "n c"]:
        """Return class probabilities of all rows."""
        x, model = as_numbers(context.table), _with_seed(self.estimator, seed)
        if self.gamma is not None:
            model.set_params(gamma=self.gamma / x.shape[1])
        model.fit(x, context.visible_labels)
        if hasattr(model, "label_distributions_"):
            return model.label_distributions_
        return model.predict_proba(x)


@dataclass(frozen=True)
class OnEpisode:
    """A method of :mod:`icssl.methods`."""

    method: Method

    def __call__(self, context: Context, *, seed: int) -> Float[ndarray, "n c"]:
        """Return class probabilities of all rows."""
        x = as_numbers(context.table)
        episode = Episode.single(
            x, context.visible_labels, context.labelled, n_classes=context.n_classes
        )
        return self.method(episode)[0].numpy()


@dataclass(frozen=True)
class PoissonMBO:
    """PoissonMBO (Calder et al., 2020) of the package GraphLearning.

    On the package's own kind of graph, built here: for more than a few columns it would
    need one more package. The shares of the classes that it asks for are those among the
    labelled rows. It gives classes, which count as probability one.

    Parameters
    ----------
    neighbours : int
        Neighbours in the graph, see :func:`icssl.methods.propagation.self_tuned_graph`.
    """

    neighbours: int = 10

    def __call__(self, context: Context, *, seed: int) -> Float[ndarray, "n c"]:
        """Return class probabilities, zeros and ones."""
        import graphlearning

        x = torch.from_numpy(as_numbers(context.table))[None]
        graph = self_tuned_graph(scale_points(x, "isotropic"), self.neighbours)[0]
        labels = context.y[context.labelled]
        shares = np.bincount(labels, minlength=context.n_classes) / len(labels)
        model = graphlearning.ssl.poisson_mbo(csr_matrix(graph.numpy()), shares)
        classes = model.fit_predict(np.flatnonzero(context.labelled), labels)
        return np.eye(context.n_classes)[classes]


@dataclass(frozen=True)
class Ours:
    """``ICSSLClassifier`` with the released weights, on the columns as they are.

    Parameters
    ----------
    labelled_only : bool
        Whether the unlabelled rows are taken out of the context and come as new rows.
    weights : str
        Which weights, for the key of the row.
    """

    labelled_only: bool = False
    weights: str = field(default_factory=weights_id)

    def __call__(self, context: Context, *, seed: int) -> Float[ndarray, "n c"]:
        """Return class probabilities of all rows."""
        from icssl.classifier.estimator import ICSSLClassifier

        model = ICSSLClassifier()
        if not self.labelled_only:
            return np.asarray(
                model.fit(context.table, context.visible_labels).label_distributions_
            )
        labelled, c = context.labelled, context.n_classes
        model.fit(context.table[labelled], context.y[labelled])
        p = np.full((len(labelled), c), 1 / c)
        p[~labelled] = model.predict_proba(context.table[~labelled])
        return p


@dataclass(frozen=True)
class LargeSpreading:
    """Label spreading by scikit-learn on large tables of numbers.

    Columns are standardised; alpha and width are those of the method on real tables.

    Parameters
    ----------
    kernel : {"knn", "rbf"}
    """

    kernel: str

    def __call__(self, x: ndarray, y: ndarray, device: str) -> _LabelledTable:
        """Return the classes of all rows, and the kernel."""
        # Thirty iterations, the default, are too few for this alpha.
        model = LabelSpreading(
            kernel=self.kernel,
            alpha=0.8,
            gamma=10 / x.shape[1],
            n_neighbors=GRAPH_NEIGHBOURS,
            max_iter=100,
        )
        model.fit(StandardScaler().fit_transform(x), y)
        return model.transduction_, self.kernel


@dataclass(frozen=True)
class GraphLearning:
    """A method of the package GraphLearning, on large tables and its own kind of graph.

    Neighbours are found by our index: the package would need one more for it.

    Parameters
    ----------
    name : {"laplace", "poisson"}
    """

    name: str

    def __call__(self, x: ndarray, y: ndarray, device: str) -> _LabelledTable:
        """Return the classes of all rows, and the size of the graph."""
        import graphlearning

        labelled_rows = np.flatnonzero(y >= 0)
        model = getattr(graphlearning.ssl, self.name)(_knn_graph(x))
        classes = model.fit_predict(labelled_rows, y[labelled_rows])
        return classes, f"{GRAPH_NEIGHBOURS} neighbours"


def large_ours(x: ndarray, y: ndarray, device: str) -> _LabelledTable:
    """Return the classes of all rows by ``ICSSLClassifier``, and how it ran."""
    from icssl.classifier.estimator import ICSSLClassifier

    fitted = ICSSLClassifier(device=device).fit(x, y)
    return fitted.transduction_, f"{fitted.backend_}, {fitted.model_name_}"


def _knn_graph(x: ndarray) -> csr_matrix:
    """Return a symmetric graph of Gaussian weights, as wide as a row's last neighbour."""
    rows = torch.from_numpy(StandardScaler().fit_transform(x).astype(np.float32))
    nearest = all_neighbours(make_search(rows), GRAPH_NEIGHBOURS)
    squared = nearest.distances.numpy()
    weight = np.exp(-4 * squared / np.maximum(squared[:, -1:], 1e-12)).ravel()
    ends = np.arange(0, len(weight) + 1, GRAPH_NEIGHBOURS)
    shape = (len(x), len(x))
    graph = csr_matrix((weight, nearest.indices.numpy().ravel(), ends), shape=shape)
    return (graph + graph.T) / 2


def _with_seed(estimator: Any, seed: int) -> Any:
    """Return a fresh copy that draws whatever it draws from the seed."""
    # Not sklearn.base.clone: constructors of sslearn change what they are given, which it
    # refuses. The estimators of the registry are never fitted themselves.
    model = deepcopy(estimator)
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    return model
