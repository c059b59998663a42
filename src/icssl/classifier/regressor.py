"""``ICSSLRegressor``: few targets and a table in, a number for every row out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.stats import rankdata
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from icssl._util.errors import check_choice
from icssl.classifier.context_estimator import ContextEstimator, limit_threads_if_small
from icssl.classifier.eigenmap import EIGENFUNCTIONS
from icssl.classifier.fitted import Prediction
from icssl.classifier.graphs import SPARSE_NEIGHBOURS
from icssl.classifier.kernels import GRAPHS
from icssl.classifier.label_weights import read_label_weights
from icssl.classifier.labelled_rows import labelled_part
from icssl.classifier.parameter_types import (
    BackendName,
    ColumnScale,
    DeviceName,
    Metric,
    ModelName,
    Neighbours,
    Verbose,
)
from icssl.classifier.plan import MODELS
from icssl.classifier.ridge import FittedRidge, fit_ridge
from icssl.tables.numeric_targets import read_numbers

_BINS = 3  # that numeric targets are divided into, where columns are weighed by them


class ICSSLRegressor(RegressorMixin, ContextEstimator):  # type: ignore[misc]
    """Predict a number for rows, from few targets and all rows.

    It reads the table as :class:`~icssl.ICSSLClassifier` does: the same views, graphs,
    eigenmaps and kernels, in which rows without a target count as much as those with one.
    The head is kernel ridge regression in a mixture of the kernels. No network weighs
    them: their weights follow from how well each predicts targets that are left out.
    Nothing is random: equal data give equal results.

    Parameters
    ----------
    model : {"auto", "all views", "main views", "one view"}
        As for the classifier.
    column_scale : {"auto", "each", "common"}
        How columns of numbers are made comparable, as for the classifier. Not used with
        ``metric="precomputed"``.
    metric : {"columns", "precomputed"}
        Whether ``X`` is a table, or weights between rows.
    backend : {"auto", "dense", "exact", "sparse"}
        How the graph of the rows is held.
    n_neighbors : int, default 32
        Neighbours each row keeps in the sparse graph; at least 12.
    device : str, default "auto"
        "cpu" or "cuda"; "auto" is a GPU, where there is one and the table is not small.
    verbose : bool, default False
        Whether to show a progress bar while fitting, and while predicting many rows.

    Attributes
    ----------
    transduction_ : ndarray of shape (n_rows,)
        The target of every row: the given one, else the predicted.
    embedding_ : ndarray of shape (n_rows, n_components)
        Eigenmap of the graph of the first view, or of the graph that was given.
    reach_ : ndarray of shape (n_rows,)
        From 0 to 1: how alike a row is to the row with a target that is most like it, as
        for the classifier. A row far from all others has reach 0 and the mean target.
    kernel_weights_ : dict of str to float
        Weight of every kernel, by name.
    penalty_ : float
        The penalty that was chosen, relative to kernels of mean trace one.
    model_name_, backend_ : str
        The views and the backend that were used.
    n_features_in_, feature_names_in_
        Number and names of the columns, as everywhere in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> X, position = make_swiss_roll(300, random_state=0)
    >>> y = np.where(np.arange(300) % 10 == 0, position, np.nan)  # every tenth is known
    >>> regressor = ICSSLRegressor().fit(X, y)
    >>> bool(regressor.score(X, position) > 0.9)
    True
    """

    _fitted: FittedRidge

    def __init__(
        self,
        model: ModelName = "auto",
        *,
        column_scale: ColumnScale = "auto",
        metric: Metric = "columns",
        backend: BackendName = "auto",
        n_neighbors: Neighbours = SPARSE_NEIGHBOURS,
        device: DeviceName = "auto",
        verbose: Verbose = False,
    ) -> None:
        self.model = model
        self.column_scale = column_scale
        self.metric = metric
        self.backend = backend
        self.n_neighbors = n_neighbors
        self.device = device
        self.verbose = verbose

    @limit_threads_if_small
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "ICSSLRegressor":
        """Fit a table and the targets of some rows.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n_rows, n_columns)
            Numbers, booleans, times, texts and categories; cells may be missing.
        y : array of shape (n_rows,)
            Numbers; NaN, None, ``pd.NA`` or masked for no target. At least two are needed.
        sample_weight : array of shape (n_rows,), optional
            How much the target of each row counts; only ratios matter. A row of weight zero
            counts as one without a target. Weights of other rows are not used.
        """
        check_choice("model", self.model, ["auto", *MODELS])  # no file: nothing is trained
        rows = self._read_context(X, y)
        target = read_numbers(y)
        self._check_rows(rows, target)
        weights = read_label_weights(sample_weight, np.isfinite(target))
        if weights is None:
            weights = np.ones(len(target))
        has_target = np.isfinite(target) & (weights > 0)
        count = int(has_target.sum())
        if count < 2:
            raise ValueError(
                f"y has {count} known target{'s' * (count != 1)} in {len(target)} rows, "
                "and at least 2 are needed; NaN or None marks a row without one."
            )
        self._fitted = self._fit_context(rows, target, has_target, weights)
        self._labelled_rows = np.flatnonzero(has_target)
        names = map(str, self._fitted.kernels.kernels)
        weighed = self._fitted.mixture.flatten().tolist()
        self.kernel_weights_ = dict(zip(names, weighed, strict=True))
        self.penalty_ = self._fitted.penalty
        prediction = self._predict_context()
        self.transduction_ = np.where(has_target, target, self._numbers(prediction))
        self._describe_context(prediction)
        return self

    def fit_predict(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Float[ndarray, " rows"]:
        """Fit a table, and return the target of every row: ``transduction_``."""
        return self.fit(X, y, sample_weight).transduction_

    def predict(self, X: Any) -> Float[ndarray, " rows"]:
        """Return a number for new rows, each predicted by itself."""
        return np.concatenate([self._numbers(piece) for piece in self._predict(X)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R squared on the rows of ``X`` that have a target.

        Rows without one (NaN or None) are left out, and a warning says how many.
        """
        check_is_fitted(self)
        target, rows, weights = labelled_part(X, y, sample_weight, _find_numbers)
        return float(r2_score(target, self.predict(rows), sample_weight=weights))

    def _fit_context(
        self, rows: Any, target: ndarray, has_target: ndarray, weights: ndarray
    ) -> FittedRidge:
        codes = np.full(len(target), -1)
        codes[has_target] = _bins(target[has_target])
        features = self._context_features(rows, codes, _BINS, EIGENFUNCTIONS, GRAPHS[0])
        in_order = self._order.rows[has_target[self._order.rows]]
        self._scale = _TargetScale.fit(target[in_order])
        device = features.target.device
        weight = torch.as_tensor(weights[in_order] / weights[in_order].mean())
        scaled = torch.as_tensor(self._scale(target[in_order]))
        return fit_ridge(features, scaled.to(device), weight.to(device))

    def _numbers(self, prediction: Prediction) -> Float[ndarray, " rows"]:
        return self._scale.back(prediction.logits[0, :, 0].double().cpu().numpy())

    def _class_places(self) -> Int[ndarray, " c"]:
        return np.zeros(1, dtype=np.int64)  # one number instead of classes


@dataclass(frozen=True)
class _TargetScale:
    """Size, mean and deviation of targets, without overflow up to the largest float."""

    size: float
    mean: float
    deviation: float

    @classmethod
    def fit(cls, target: Float[ndarray, " m"]) -> "_TargetScale":
        size = float(np.abs(target).max()) or 1.0
        unit = target / size
        return cls(size, float(unit.mean()), float(unit.std()) or 1.0)

    def __call__(self, target: Float[ndarray, " m"]) -> Float[ndarray, " m"]:
        return (target / self.size - self.mean) / self.deviation

    def back(self, scaled: Float[ndarray, " r"]) -> Float[ndarray, " r"]:
        return (scaled * self.deviation + self.mean) * self.size


def _bins(target: Float[ndarray, " m"]) -> Int[ndarray, " m"]:
    """Return which third each target is in; equal ones are in the same."""
    rank = rankdata(target) - 0.5  # the mean rank of equal targets
    return np.minimum(rank * _BINS / len(target), _BINS - 1).astype(np.int64)


def _find_numbers(y: Any) -> tuple[ndarray, ndarray]:
    numbers = read_numbers(y)
    return numbers, np.isfinite(numbers)
