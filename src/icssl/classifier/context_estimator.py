"""``ContextEstimator``: what the classifier and the regressor do with a table alike.

It reads the rows, puts them in an order of their own, computes what the head needs, and
places new rows. What is learned from the targets is left to the two estimators.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
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
from icssl._util.progress import bar_on_standard_error
from icssl._util.threads import one_thread
from icssl._util.warn import warn_caller
from icssl.classifier.context_features import (
    ContextFeatures,
    features_of_graphs,
    features_of_tables,
)
from icssl.classifier.fitted import Prediction
from icssl.classifier.geometry import COLUMN_SCALES, Units
from icssl.classifier.graph_sparse import SparseGraph
from icssl.classifier.graphs import ONE_THREAD_ROWS, SOLVED_ROWS, GraphSpec, blocks
from icssl.classifier.kernels import ContextKernels
from icssl.classifier.plan import (
    MODELS,
    Size,
    check_options,
    choose_backend,
    comparable_weights,
    device_for,
    dtype_for,
    is_file,
    plan_graph,
    views_for,
)
from icssl.tables.cells import plain_table
from icssl.tables.column_table import ColumnTable, describe_encoded, doubts_about_columns
from icssl.tables.columns import ColumnEncoder, row_chunks
from icssl.tables.order import Order
from icssl.tables.table_columns import is_frame

METRICS = ("columns", "precomputed")
_COMPONENTS = 8  # columns of the embedding
_EMBEDDING_TIME = 2.0  # steps of diffusion after which rows are embedded
_Fit = TypeVar("_Fit", bound=Callable[..., Any])


def limit_threads_if_small(fit: _Fit) -> _Fit:
    """Let a ``fit`` use one thread for the products of a table that is small."""

    @wraps(fit)
    def on_one_thread(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        shape = getattr(X, "shape", None)
        n = shape[0] if shape else len(X) if hasattr(X, "__len__") else 0
        # A test of scikit-learn gives estimators without their parameters.
        verbose = bool(getattr(self, "verbose", False))
        with one_thread(when=n <= ONE_THREAD_ROWS), bar_on_standard_error(verbose):
            return fit(self, X, *args, **options)

    return on_one_thread  # type: ignore[return-value]


class _Fitted(Protocol):
    """What a head leaves behind: it predicts rows of the context and new rows."""

    @property
    def coefficients(self) -> Tensor: ...

    @property
    def kernels(self) -> ContextKernels: ...

    def predict_context(self, *, parts: bool = False) -> Prediction: ...

    def predict_new(self, x: Tensor, *, parts: bool = False) -> Prediction: ...


class ContextEstimator(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Base class of the estimators that read a table as a context.

    A subclass stores the parameters below in ``__init__``. Its ``fit`` calls
    ``_read_context``, ``_context_features`` and ``_describe_context``, and sets ``_fitted``
    and ``_labelled_rows`` before the last of them.
    """

    model: Any
    column_scale: Any
    metric: Any
    backend: Any
    n_neighbors: Any
    device: Any
    verbose: Any
    _fitted: _Fitted
    _labelled_rows: ndarray

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.metric == "precomputed"
        columns = self.metric == "columns"
        tags.input_tags.allow_nan = columns
        tags.input_tags.string = columns
        tags.input_tags.categorical = columns
        return tags

    def predict_reach(self, X: Any) -> Float[ndarray, " rows"]:
        """Return how alike new rows are to a labelled row, as in ``reach_``."""
        return np.concatenate([reach_of(piece) for piece in self._predict(X)])

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

    @property
    def columns_(self) -> ColumnTable:
        """What was understood of every column: its ``to_frame()`` is a data frame."""
        check_is_fitted(self)
        if self.metric == "precomputed":
            return ColumnTable()
        return describe_encoded(self._table, self._encoder.readings_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def _read_context(
        self, X: Any, y: Any
    ) -> Float[ndarray, "rows columns"] | sparse.csr_matrix:
        """Check the parameters, and return the rows that ``fit`` was given."""
        check_choice("metric", self.metric, METRICS)
        check_options(self.model, self.backend, self.n_neighbors)
        check_choice("column_scale", self.column_scale, COLUMN_SCALES)
        self._refuse_what_cannot_fit(X)
        rows = self._read_rows(X, reset=True)
        if self.metric == "columns" and is_frame(X):
            for doubt in doubts_about_columns(X, self._encoder.readings_):
                warn_caller(doubt)
        self._table = plain_table(X)  # to describe, and for refits with hidden labels
        if hasattr(y, "__len__") and getattr(y, "shape", True):
            check_consistent_length(rows, y)  # before its values, which may be cut off
        return rows

    def _check_rows(self, rows: Any, codes: ndarray) -> None:
        """Raise ``ValueError`` unless there is a target, or none, for each of some rows."""
        check_consistent_length(rows, codes)
        if rows.shape[0] < 2:
            raise ValueError(
                f"At least 2 rows are needed, got n_samples = {rows.shape[0]}."
            )

    def _context_features(
        self, rows: Any, codes: ndarray, n_classes: int, k: int, first: GraphSpec
    ) -> ContextFeatures:
        """Compute everything that comes before the head.

        Parameters
        ----------
        rows : ndarray or csr_matrix
            The rows that were read.
        codes : ndarray of shape (n,)
            Classes of the rows; -1 for none.
        n_classes : int
            Number of classes.
        k : int
            Eigenfunctions of every graph.
        first : GraphSpec
            The graph whose place a given graph takes.
        """
        n, d = rows.shape
        device = device_for(self.device, n)
        self._dtype = dtype_for(n, device)
        is_graph = self.metric == "precomputed"
        # Rows, columns and classes are fitted in an order of their own, and predictions are
        # put back: then no rounding depends on the order in which a table comes.
        self._order = (Order.as_given if is_graph else Order.of_cells)(rows, codes)
        y = torch.as_tensor(self._order.sort_codes(codes), device=device)[None]
        labelled = y >= 0
        if is_graph:
            views, graph = "given graph", self._graph(rows, device)
            features = features_of_graphs(graph, y, labelled, n_classes, k, first)
        else:
            units = Units.of_encoder(self._encoder, self.column_scale)
            views = views_for(self.model, self.backend, n, d, device)
            graphs = units.graphs(views)
            size = Size(n, d, graphs, int(labelled.sum()), n_classes, self._dtype.itemsize)
            backend = choose_backend(self.backend, self.n_neighbors, size, device)
            self.backend_ = backend.name
            rows = rows[np.ix_(self._order.rows, self._order.columns)]
            x = torch.as_tensor(rows, device=device, dtype=self._dtype)[None]
            units = units.order_columns(self._order.columns).to(x)
            features = features_of_tables(
                x, y, labelled, n_classes, graphs, k, backend, units
            )
        self.model_name_ = f"{self.model}, {views}" if is_file(self.model) else views
        return features

    def _describe_context(self, prediction: Prediction) -> None:
        """Set the attributes that say where the rows of ``fit`` lie."""
        self._walk_reach = prediction.reach[0].double().cpu().numpy()
        self.reach_ = reach_of(prediction)
        self.reach_[self._labelled_rows] = 1.0
        functions = self._fitted.kernels.context_rows()[0].functions
        self.embedding_ = self._embed(functions[:, self._order.back])
        self._n_features_out = self.embedding_.shape[1]

    def _read_rows(
        self, X: Any, *, reset: bool
    ) -> Float[ndarray, "rows columns"] | sparse.csr_matrix:
        if self.metric == "precomputed":
            return self._read_weights(plain_table(X), reset)
        if not reset:
            return self._encode(X)
        self._encoder: ColumnEncoder = ColumnEncoder().fit(X)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self._encoder, name):
                setattr(self, name, getattr(self._encoder, name))
            elif hasattr(self, name):
                delattr(self, name)  # of an earlier fit
        return self._encoder.transform(X)

    def _encode(self, X: Any) -> Float[ndarray, "rows columns"]:
        """Return new rows as numbers; errors name this estimator and not its encoder."""
        try:
            return self._encoder.transform(X)
        except ValueError as error:
            said = str(error).replace("ColumnEncoder", type(self).__name__).rstrip()
            if "feature names" in said and hasattr(X, "columns"):
                said += (
                    "\nA file of new rows is read like the first: icssl.read_table(file, "
                    "like=table)."
                )
            raise ValueError(said) from error

    def _read_weights(self, X: Any, reset: bool) -> Any:
        """Return weights as an array, or as a sparse matrix where the backend is sparse."""
        w = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=reset)
        check_non_negative(w, f"{type(self).__name__} with metric='precomputed'")
        if not reset:
            w = w.toarray() if sparse.issparse(w) else w
            return comparable_weights(w, self._weight_exponent)
        graph = plan_graph(w, self.backend, self.device)
        self._weight_exponent: int = graph.exponent
        self.backend_ = graph.backend
        return graph.weights

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
        device = device_for(self.device, n)
        # Its labels and units are not known yet: both count when the model is fitted.
        graphs = MODELS[views_for(self.model, self.backend, n, d, device)]
        size = Size(n, d, graphs, 1, 2, dtype_for(n, device).itemsize)
        choose_backend(self.backend, self.n_neighbors, size, device)

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
            with torch.no_grad(), one_thread(when=x.shape[1] <= SOLVED_ROWS):
                prediction = self._fitted.predict_new(x, parts=parts)
            yield prediction.reorder(self._class_places(), self._labelled_places())

    def _predict_context(self, *, parts: bool = False) -> Prediction:
        """Return the prediction of the rows of ``fit``."""
        with torch.no_grad():
            prediction = self._fitted.predict_context(parts=parts)
        places, back = self._labelled_places(), self._order.back
        return prediction.reorder(self._class_places(), places, back)

    def _class_places(self) -> ndarray:
        """Return where each class stands among the columns of a prediction."""
        return self._order.back_classes

    def _labelled_places(self) -> ndarray:
        """Return where each labelled row stands among those that were fitted."""
        return np.argsort(np.argsort(self._order.back[self._labelled_rows]))

    def _embed(self, functions: Tensor) -> ndarray:
        eigenmap = self._fitted.kernels.parts[0].graph.eigenmap
        features = eigenmap.diffusion_features(functions, _EMBEDDING_TIME)
        # The first function is constant. Later ones matter less, by how fast they decay.
        return features[0, :, 1 : _COMPONENTS + 1].double().cpu().numpy()


def reach_of(prediction: Prediction) -> Float[ndarray, " rows"]:
    """Return how alike each row is to the labelled row that is most like it."""
    return prediction.likeness[0].double().cpu().numpy()
