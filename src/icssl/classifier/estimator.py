"""``ICSSLClassifier``: few labels and a table in, classes and probabilities out."""

from collections.abc import Iterator
from copy import deepcopy
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    check_non_negative,
    validate_data,
)
from torch import Tensor

from icssl._util.errors import check_choice
from icssl.classifier.explanation import Explanation, rows_worth_labelling
from icssl.classifier.fitted import (
    FittedContext,
    Prediction,
    concatenate_predictions,
)
from icssl.classifier.graph_sparse import SparseGraph
from icssl.classifier.graphs import SPARSE_NEIGHBOURS, Backend, blocks
from icssl.classifier.plan import (
    MODELS,
    Size,
    check_explanation,
    check_options,
    choose_backend,
    comparable_weights,
    device_for,
    dtype_for,
    is_file,
    plan_graph,
    prior_for,
    views_for,
)
from icssl.classifier.weights import load_context_model, released_model
from icssl.tables.cells import plain_table
from icssl.tables.columns import ColumnEncoder, row_chunks
from icssl.tables.order import Order
from icssl.tables.targets import read_targets, warn_of_conflicts

METRICS = ("columns", "precomputed")
_COMPONENTS = 8  # columns of the embedding
_EMBEDDING_TIME = 2.0  # steps of diffusion after which rows are embedded


class ICSSLClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Label rows from few labels and all rows, in one forward pass of a pretrained model.

    ``fit`` trains nothing: it reads the table as a context. Rows without a label count as
    much as those with one for how the table is represented: several views of its columns,
    a graph of its rows in each, and the graph's eigenmap. A gate that was trained on
    synthetic tables weighs the kernels these give, and the head descends on the labels in
    their mixture. Nothing is random: equal data give equal results.

    Parameters
    ----------
    model : str, default "auto"
        "all views" is the strongest, "one view" a fifth of the work. "auto" is the first
        for tables that are not too large: docs/scale.md has the rule, which depends on
        rows, columns, backend and device. It can also be a file of weights that
        ``icssl pretrain`` made, with views as for "auto".
    class_prior : array of shape (n_classes,), "uniform" or None
        How frequent the classes are, in the order of ``classes_``. By default as they are
        among the labels, plus one each.
    metric : {"columns", "precomputed"}
        Whether ``X`` is a table, or an affinity or neighbour graph: weights between rows,
        dense or sparse, and for ``predict`` those of new rows to the rows of ``fit``.
    backend : {"auto", "dense", "exact", "sparse"}
        How the graph of the rows is held: all of its weights; none, though all take part;
        or those of each row to its nearest neighbours. By default what suits the number of
        rows and the device and fits the memory. A table that does not fit is refused.
    n_neighbors : int, default 32
        Neighbours each row keeps in the sparse graph; at least 12.
    device : str, default "auto"
        "cpu" or "cuda"; "auto" is a GPU, where there is one and the table is not small.
    verbose : bool, default False
        Whether to show a progress bar while predicting many rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    transduction_ : ndarray of shape (n_rows,)
        The label of every row: the given one, else the likeliest.
    label_distributions_ : ndarray of shape (n_rows, n_classes)
        Probabilities of the classes; one for the given label of a row that has one.
    embedding_ : ndarray of shape (n_rows, n_components)
        Eigenmap of the graph of the first view, or of the graph that was given: rows near
        each other belong together.
    reach_ : ndarray of shape (n_rows,)
        From 0 to 1: how likely a random walk of 16 steps, on the same graph, leads from a
        row to the likeliest labelled row; 1 means at least as likely as from an average
        row. A row far from all others has reach 0 and the class prior. A row at the far end
        of a long cluster can have a low reach, and its cluster still tells its class. A row
        between two classes has a high reach.
    class_prior_ : ndarray of shape (n_classes,)
        The shares of the classes that predictions assume.
    model_name_, backend_ : str
        The views and the backend that were used.
    n_features_in_, feature_names_in_
        Number and names of the columns, as everywhere in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, truth = load_iris(return_X_y=True)
    >>> y = [-1] * 150
    >>> y[10], y[70], y[120] = 0, 1, 2
    >>> classifier = ICSSLClassifier().fit(X, y)
    >>> bool((classifier.transduction_ == truth).mean() > 0.8)
    True
    """

    def __init__(
        self,
        model: Any = "auto",
        *,
        class_prior: Any = None,
        metric: Any = "columns",
        backend: Any = "auto",
        n_neighbors: Any = SPARSE_NEIGHBOURS,
        device: Any = "auto",
        verbose: Any = False,
    ) -> None:
        self.model = model
        self.class_prior = class_prior
        self.metric = metric
        self.backend = backend
        self.n_neighbors = n_neighbors
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.metric == "precomputed"
        columns = self.metric == "columns"
        tags.input_tags.allow_nan = columns
        tags.input_tags.string = columns
        tags.input_tags.categorical = columns
        return tags

    def fit(self, X: Any, y: Any) -> "ICSSLClassifier":
        """Fit a table and the labels of some rows.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n_rows, n_columns)
            Numbers, booleans, times, texts and categories; cells may be missing; masked
            cells count as missing.
        y : array of shape (n_rows,)
            Whole numbers, texts or booleans; -1, None, NaN, ``pd.NA`` or masked for no
            label. Whole numbers have at most 64 bits.
        """
        check_choice("metric", self.metric, METRICS)
        check_options(self.model, self.backend, self.n_neighbors)
        self._refuse_what_cannot_fit(X)
        rows = self._read_rows(X, reset=True)
        if hasattr(y, "__len__") and getattr(y, "shape", True):
            check_consistent_length(rows, y)  # before its classes, which may be cut off
        self.classes_, codes = read_targets(y)
        check_consistent_length(rows, codes)
        if rows.shape[0] < 2:
            raise ValueError(
                f"At least 2 rows are needed, got n_samples = {rows.shape[0]}."
            )
        self.class_prior_ = prior_for(self.class_prior, codes, len(self.classes_))
        if self.metric == "columns":
            warn_of_conflicts(rows, codes)
        self._fitted = self._fit_context(rows, codes)
        is_labelled = codes >= 0
        self._labelled_rows = np.flatnonzero(is_labelled)
        prediction = self._predict_context()
        self.label_distributions_ = self._probabilities(prediction)
        certain = np.eye(len(self.classes_))
        self.label_distributions_[is_labelled] = certain[codes[is_labelled]]
        self.transduction_ = self.classes_[self.label_distributions_.argmax(axis=1)]
        self.reach_ = _reach(prediction)
        functions = self._fitted.kernels.context_rows()[0].functions
        self.embedding_ = self._embed(functions[:, self._order.back])
        self._n_features_out = self.embedding_.shape[1]
        return self

    def predict(self, X: Any) -> ndarray:
        """Return the likeliest class of new rows, each predicted by itself."""
        pieces = [self._probabilities(piece).argmax(axis=1) for piece in self._predict(X)]
        return self.classes_[np.concatenate(pieces)]

    def predict_proba(self, X: Any) -> Float[ndarray, "rows classes"]:
        """Return probabilities of the classes for new rows, each predicted by itself."""
        return np.concatenate([self._probabilities(piece) for piece in self._predict(X)])

    def predict_reach(self, X: Any) -> Float[ndarray, " rows"]:
        """Return how much labelled evidence reaches new rows, as in ``reach_``."""
        return np.concatenate([_reach(piece) for piece in self._predict(X)])

    def predict_proba_and_reach(
        self, X: Any
    ) -> tuple[Float[ndarray, "rows classes"], Float[ndarray, " rows"]]:
        """Return probabilities and reach of new rows, in the time of one of them."""
        pairs = ((self._probabilities(piece), _reach(piece)) for piece in self._predict(X))
        probabilities, reach = zip(*pairs, strict=True)
        return np.concatenate(probabilities), np.concatenate(reach)

    def explain(self, X: Any = None) -> Explanation:
        """Return what each labelled row contributes to the logits of rows, exactly.

        Parameters
        ----------
        X : table, optional
            New rows; by default the rows of ``fit``.
        """
        check_is_fitted(self)
        rows = self.reach_ if X is None else X
        count = rows.shape[0] if hasattr(rows, "shape") else len(rows)
        labelled, device = len(self._labelled_rows), self._fitted.coefficients.device
        check_explanation(count, labelled, len(self.classes_), str(device))
        if X is None:
            prediction = self._predict_context(parts=True)
        else:
            prediction = concatenate_predictions(list(self._predict(X, parts=True)))
        assert prediction.parts is not None
        parts = prediction.parts[0].double().cpu().numpy()
        base = prediction.bias[0].double().cpu().numpy() + np.log(self.class_prior_)
        return Explanation(parts, base)

    def suggest(self, k: int = 10) -> ndarray:
        """Return rows without a label that are worth labelling next, the best first.

        They are uncertain, or little evidence reaches them, and they are far from each
        other in the embedding.
        """
        check_is_fitted(self)
        unlabelled = np.setdiff1d(np.arange(len(self.reach_)), self._labelled_rows)
        if not 1 <= index(k) <= len(unlabelled):
            raise ValueError(
                f"k must be from 1 to {len(unlabelled)}, the rows without a label, got {k}."
            )
        p, reach = self.label_distributions_[unlabelled], self.reach_[unlabelled]
        return unlabelled[rows_worth_labelling(p, reach, self.embedding_[unlabelled], k)]

    def transform(self, X: Any) -> Float[ndarray, "rows components"]:
        """Return new rows in the embedding, each placed by itself."""
        check_is_fitted(self)
        kernels = self._fitted.kernels
        with torch.no_grad():
            pieces = [
                self._embed(kernels.place(x[:, part])[0].functions)
                for x in self._new_rows(X)
                for part in blocks(x.shape[1], kernels.rows_at_once)
            ]
        return np.concatenate(pieces)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def _read_rows(
        self, X: Any, *, reset: bool
    ) -> Float[ndarray, "rows columns"] | sparse.csr_matrix:
        if self.metric == "precomputed":
            return self._read_weights(plain_table(X), reset)
        if not reset:
            return self._encoder.transform(X)
        self._encoder: ColumnEncoder = ColumnEncoder().fit(X)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self._encoder, name):
                setattr(self, name, getattr(self._encoder, name))
            elif hasattr(self, name):
                delattr(self, name)  # of an earlier fit
        return self._encoder.transform(X)

    def _read_weights(self, X: Any, reset: bool) -> Any:
        """Return weights as an array, or as a sparse matrix where the backend is sparse."""
        w = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=reset)
        check_non_negative(w, "ICSSLClassifier with metric='precomputed'")
        if not reset:
            w = w.toarray() if sparse.issparse(w) else w
            return comparable_weights(w, self._weight_exponent)
        graph = plan_graph(w, self.backend, self.device)
        self._weight_exponent: int = graph.exponent
        self.backend_ = graph.backend
        return graph.weights

    def _fit_context(self, rows: Any, codes: ndarray) -> FittedContext:
        n, d = rows.shape
        device = device_for(self.device, n)
        self._dtype = dtype_for(n, device)
        from_file = load_context_model(Path(self.model)) if is_file(self.model) else None
        model = deepcopy(from_file or released_model()).to(device, self._dtype)
        is_graph = self.metric == "precomputed"
        # Rows, columns and classes are fitted in an order of their own, and predictions are
        # put back: then no rounding depends on the order in which a table comes.
        self._order = (Order.as_given if is_graph else Order.of_cells)(rows, codes)
        y = torch.as_tensor(self._order.sort_codes(codes), device=device)[None]
        labelled, c = y >= 0, len(self.classes_)
        with torch.no_grad():
            if is_graph:
                views = "given graph"
                fitted = model.fit_graph(self._graph(rows, device), y, labelled, c)
            else:
                backend, views = self._choose(n, d, device, int(labelled.sum()), c)
                self.backend_ = backend.name
                rows = rows[np.ix_(self._order.rows, self._order.columns)]
                x = torch.as_tensor(rows, device=device, dtype=self._dtype)[None]
                fitted = model.fit(x, y, labelled, c, MODELS[views], backend)
        self.model_name_ = f"{self.model}, {views}" if is_file(self.model) else views
        return fitted

    def _choose(
        self, n: int, d: int, device: str, labelled: int, classes: int
    ) -> tuple[Backend, str]:
        """Return how the graph of a table is held, and the name of its views."""
        views = views_for(self.model, self.backend, n, d, device)
        bytes_each = dtype_for(n, device).itemsize
        size = Size(n, d, MODELS[views], labelled, classes, bytes_each)
        return choose_backend(self.backend, self.n_neighbors, size, device), views

    def _graph(self, w: Any, device: str) -> Tensor | SparseGraph:
        if sparse.issparse(w):
            return SparseGraph(w, torch.empty(0, device=device, dtype=self._dtype))
        return torch.as_tensor(w, device=device, dtype=self._dtype)[None]

    def _refuse_what_cannot_fit(self, X: Any) -> None:
        """Raise an error for a table that is too large, before a copy of it is made."""
        shape: tuple[int, ...] = getattr(X, "shape", ())
        if self.metric != "columns" or sparse.issparse(X) or len(shape) != 2:
            return
        n, d = shape
        # Its labels are not known yet: they are counted when the model is fitted.
        self._choose(n, d, device_for(self.device, n), labelled=1, classes=2)

    def _new_rows(self, X: Any) -> Iterator[Float[Tensor, "1 r d"]]:
        """Yield new rows as the model reads them, some at a time."""
        device = self._fitted.coefficients.device
        for part, table in row_chunks(X, show="predicting" if self.verbose else None):
            try:
                rows = self._read_rows(table, reset=False)
            except ValueError as error:
                if not part.start:
                    raise
                raise ValueError(f"from row {part.start:,} on: {error}") from error
            if self.metric == "columns":
                rows = rows[:, self._order.columns]
            yield torch.as_tensor(rows, device=device, dtype=self._dtype)[None]

    def _predict(self, X: Any, *, parts: bool = False) -> Iterator[Prediction]:
        """Yield predictions of new rows, some at a time."""
        check_is_fitted(self)
        for x in self._new_rows(X):
            with torch.no_grad():
                prediction = self._fitted.predict_new(x, parts=parts)
            yield prediction.reorder(self._order.back_classes, self._labelled_places())

    def _predict_context(self, *, parts: bool = False) -> Prediction:
        """Return the prediction of the rows of ``fit``."""
        with torch.no_grad():
            prediction = self._fitted.predict_context(parts=parts)
        places, back = self._labelled_places(), self._order.back
        return prediction.reorder(self._order.back_classes, places, back)

    def _labelled_places(self) -> ndarray:
        """Return where each labelled row stands among those that were fitted."""
        return np.argsort(np.argsort(self._order.back[self._labelled_rows]))

    def _probabilities(self, prediction: Prediction) -> ndarray:
        logits = prediction.logits[0].double().cpu()
        logits = logits + torch.as_tensor(self.class_prior_).log()
        return logits.softmax(dim=-1).numpy()

    def _embed(self, functions: Tensor) -> ndarray:
        eigenmap = self._fitted.kernels.parts[0].graph.eigenmap
        features = eigenmap.diffusion_features(functions, _EMBEDDING_TIME)
        # The first function is constant. Later ones matter less, by how fast they decay.
        return features[0, :, 1 : _COMPONENTS + 1].double().cpu().numpy()


def _reach(prediction: Prediction) -> Float[ndarray, " rows"]:
    return prediction.reach[0].double().cpu().numpy()
