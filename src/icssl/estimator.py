"""``ICSSLClassifier``: label a table from few labels, with weights inside the package."""

import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

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

from icssl.context.model import ContextModel, Prediction, Reading
from icssl.context.views import VIEWS
from icssl.errors import check_choice
from icssl.tabular import ColumnEncoder, read_targets
from icssl.weights.released import load_context_model, released_model

MODELS = {
    "all views": VIEWS,
    "one view": VIEWS[:1],  # at most 24 passes over the rows, and no matrix of them
}
METRICS = ("columns", "precomputed")
_MOST_ROWS = 2_000  # that are read in all views, unless asked for
_EXACT_ROWS = 400  # that are read in float64
_GPU_ROWS = 2_000  # from which a GPU is worth its start
_COMPONENTS = 8  # of the embedding
_TINY = 1e-12


class Explanation(NamedTuple):
    """Why rows are what they are: ``parts.sum(axis=1) + base`` are their logits.

    Parameters
    ----------
    parts : ndarray of shape (rows, labelled rows, classes)
        What each labelled row contributes, in the order of the table.
    base : ndarray of shape (rows, classes)
        What they have without any: the logarithm of ``class_prior_``, and what keeps
        classes from having too many rows.
    """

    parts: Float[ndarray, "rows labelled classes"]
    base: Float[ndarray, "rows classes"]


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
    their mixture. Nothing is drawn: equal data give equal results.

    Parameters
    ----------
    model : str, default "auto"
        "all views", the strongest; "one view", which reads any number of rows; "auto",
        the first up to 2,000 rows; or a file of weights that ``icssl pretrain`` made.
    class_prior : array of shape (n_classes,), "uniform" or None
        How frequent the classes are, in the order of ``classes_``. By default as they are
        among the labels, plus one each.
    metric : {"columns", "precomputed"}
        Whether ``X`` is a table, or an affinity or neighbour graph: weights between rows,
        dense or sparse, and for ``predict`` those of new rows to the rows of ``fit``.
    device : str, default "auto"
        "cpu", "cuda", or a GPU for large tables where there is one.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    transduction_ : ndarray of shape (n_rows,)
        The label of every row: the given one, else the likeliest.
    label_distributions_ : ndarray of shape (n_rows, n_classes)
        Probabilities; of a row with a label, one for it.
    embedding_ : ndarray of shape (n_rows, n_components)
        Eigenmap of the rows' graph: rows near each other belong together.
    reach_ : ndarray of shape (n_rows,)
        From 0 to 1: how much labelled evidence reached a row. A row that nothing reached
        has the class prior; one that is torn between classes has a high reach.
    class_prior_ : ndarray of shape (n_classes,)
    model_name_ : str
        What was used.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

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
        device: Any = "auto",
    ) -> None:
        self.model = model
        self.class_prior = class_prior
        self.metric = metric
        self.device = device

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
        """Read a table and the labels of some rows.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n_rows, n_columns)
            Numbers, booleans, times, texts and categories; cells may be missing.
        y : array of shape (n_rows,)
            Whole numbers, texts or booleans; -1, None, NaN or ``pd.NA`` for no label.
        """
        check_choice("metric", self.metric, METRICS)
        rows = self._read_rows(X, reset=True)
        self.classes_, codes = read_targets(y)
        check_consistent_length(rows, codes)
        if len(rows) < 2:
            raise ValueError(f"At least 2 rows are needed, got n_samples = {len(rows)}.")
        self.class_prior_ = self._prior(codes)
        _warn_of_conflicts(rows, codes)
        self._reading, own = self._read_context(rows, codes)
        self.label_distributions_ = self._probabilities(own)
        known = codes >= 0
        self.label_distributions_[known] = np.eye(len(self.classes_))[codes[known]]
        self.transduction_ = self.classes_[self.label_distributions_.argmax(axis=1)]
        self.reach_ = own.reach[0].double().cpu().numpy()
        self.embedding_ = self._embedded(self._reading.kernels.around[0].own.functions)
        self._n_features_out = self.embedding_.shape[1]
        self._labelled_rows = np.flatnonzero(known)
        return self

    def predict(self, X: Any) -> ndarray:
        """The likeliest class of new rows, each by itself."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> Float[ndarray, "rows classes"]:
        """Probabilities of the classes for new rows, each by itself."""
        return self._probabilities(self._predict(X))

    def predict_reach(self, X: Any) -> Float[ndarray, " rows"]:
        """How much labelled evidence reached new rows, as ``reach_`` says of the fitted."""
        return self._predict(X).reach[0].double().cpu().numpy()

    def explain(self, X: Any = None) -> Explanation:
        """What each labelled row contributes to the logits of rows, exactly.

        Parameters
        ----------
        X : table, optional
            New rows; by default those of ``fit``.
        """
        check_is_fitted(self)
        found = self._predict(X, parts=True) if X is not None else self._own(parts=True)
        assert found.parts is not None
        parts = found.parts[0].double().cpu().numpy()
        base = found.bias[0].double().cpu().numpy() + np.log(self.class_prior_)
        return Explanation(parts, base)

    def suggest(self, k: int = 10) -> ndarray:
        """Rows without a label worth labelling next, the best first.

        Uncertain rows, or such that little evidence reached, far from each other in the
        embedding.
        """
        check_is_fitted(self)
        unlabelled = np.setdiff1d(np.arange(len(self.reach_)), self._labelled_rows)
        if not 1 <= k <= len(unlabelled):
            raise ValueError(
                f"k must be from 1 to {len(unlabelled)}, the rows without a label, got {k}."
            )
        p = np.sort(self.label_distributions_[unlabelled], axis=1)
        doubt = 1 - (p[:, -1] - p[:, -2]) * self.reach_[unlabelled]
        return unlabelled[_spread_out(self.embedding_[unlabelled], doubt, k)]

    def transform(self, X: Any) -> Float[ndarray, "rows components"]:
        """New rows in the embedding, each by itself: among their neighbours of ``fit``."""
        check_is_fitted(self)
        with torch.no_grad():
            placed = self._reading.kernels.place(self._as_tensor(X))
        return self._embedded(placed[0].functions)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_reading")

    def _read_rows(self, X: Any, *, reset: bool) -> Float[ndarray, "rows columns"]:
        if self.metric == "precomputed":
            return self._read_weights(X, reset)
        if not reset:
            return self._encoder.transform(X)
        self._encoder: ColumnEncoder = ColumnEncoder().fit(X)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self._encoder, name):
                setattr(self, name, getattr(self._encoder, name))
            elif hasattr(self, name):
                delattr(self, name)  # of an earlier fit
        return self._encoder.transform(X)

    def _read_weights(self, X: Any, reset: bool) -> ndarray:
        w = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=reset)
        w = w.toarray() if sparse.issparse(w) else w
        check_non_negative(w, "ICSSLClassifier with metric='precomputed'")
        if not reset:
            return w
        if w.shape[0] != w.shape[1]:
            raise ValueError(
                "With metric='precomputed', X must have a column for every row, got shape "
                f"{w.shape}."
            )
        w = np.maximum(w, w.T)  # a graph of nearest neighbours has one direction
        np.fill_diagonal(w, 0.0)
        return w

    def _prior(self, codes: ndarray) -> Float[ndarray, " classes"]:
        count = len(self.classes_)
        if self.class_prior is None:
            share = np.bincount(codes[codes >= 0], minlength=count) + 1.0
        elif isinstance(self.class_prior, str):
            check_choice("class_prior (or an array)", self.class_prior, ("uniform",))
            share = np.ones(count)
        else:
            share = np.asarray(self.class_prior, dtype=float)
        if share.shape != (count,) or not (np.isfinite(share) & (share > 0)).all():
            raise ValueError(
                f"class_prior must have a positive number for each of the {count} classes, "
                f"got {self.class_prior!r}."
            )
        return share / share.sum()

    def _read_context(self, rows: ndarray, codes: ndarray) -> tuple[Reading, Prediction]:
        model, views, self.model_name_ = self._chosen(len(rows))
        device = _device(self.device, len(rows))
        exact = len(rows) <= _EXACT_ROWS
        self._dtype = torch.float64 if exact else torch.float32
        model = deepcopy(model).to(device, self._dtype)
        x = torch.as_tensor(rows, device=device, dtype=self._dtype)[None]
        y = torch.as_tensor(codes, device=device)[None]
        with torch.no_grad():
            if self.metric == "precomputed":
                reading = model.read_graph(x, y, y >= 0, len(self.classes_))
            else:
                reading = model.read(x, y, y >= 0, len(self.classes_), views)
            return reading, reading.own()

    def _chosen(self, n: int) -> tuple[ContextModel, tuple[str, ...], str]:
        """Weights, views, and their name."""
        asked, auto = self.model, "all views" if n <= _MOST_ROWS else "one view"
        if str(asked).endswith(".safetensors"):
            return load_context_model(Path(asked)), MODELS[auto], f"{asked}, {auto}"
        check_choice(
            "model (or a file that ends in .safetensors)", asked, ["auto", *MODELS]
        )
        name = auto if asked == "auto" else asked
        if self.metric == "precomputed":
            return released_model(), (), "given graph"
        return released_model(), MODELS[name], name

    def _as_tensor(self, X: Any) -> Tensor:
        rows = self._read_rows(X, reset=False)
        device = self._reading.coefficients.device
        return torch.as_tensor(rows, device=device, dtype=self._dtype)[None]

    def _predict(self, X: Any, *, parts: bool = False) -> Prediction:
        check_is_fitted(self)
        with torch.no_grad():
            return self._reading.new(self._as_tensor(X), parts=parts)

    def _own(self, *, parts: bool) -> Prediction:
        with torch.no_grad():
            return self._reading.own(parts=parts)

    def _probabilities(self, found: Prediction) -> ndarray:
        logits = found.logits[0].double().cpu()
        logits = logits + torch.as_tensor(self.class_prior_).log()
        return logits.softmax(dim=-1).numpy()

    def _embedded(self, functions: Tensor) -> ndarray:
        # The first function is constant. Later ones matter less, by how fast they decay.
        eigenmap = self._reading.kernels.around[0].eigenmap
        features = eigenmap.at_time(functions, 2.0)[0, :, 1 : _COMPONENTS + 1]
        return features.double().cpu().numpy()


def _device(asked: str, n: int) -> str:
    if asked != "auto":
        return asked
    return "cuda" if n >= _GPU_ROWS and torch.cuda.is_available() else "cpu"


def _warn_of_conflicts(rows: ndarray, codes: ndarray) -> None:
    known = np.flatnonzero(codes >= 0)
    _, group = np.unique(rows[known], axis=0, return_inverse=True)
    pairs = np.unique(np.stack([group.ravel(), codes[known]]), axis=1)[0]
    count = int((np.bincount(pairs) > 1).sum())
    if count:
        warnings.warn(
            f"{count} labelled rows that are equal in all columns have different labels; "
            "all of these labels are used.",
            UserWarning,
            stacklevel=3,
        )


def _spread_out(points: ndarray, worth: ndarray, k: int) -> list[int]:
    """Rows of high worth, each new one also by its distance from those before."""
    chosen = [int(worth.argmax())]
    apart = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < k:
        value = worth * apart / max(apart.max(), _TINY)
        value[chosen] = -1.0
        chosen.append(int(value.argmax()))
        apart = np.minimum(apart, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return chosen
