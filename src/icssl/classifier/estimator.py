"""``ICSSLClassifier``: few labels and a table in, classes and probabilities out."""

from copy import deepcopy
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from icssl._util.progress import bar_on_standard_error
from icssl._util.warn import warn_caller
from icssl.classifier.class_shares import prior_for
from icssl.classifier.context_estimator import (
    ContextEstimator,
    limit_threads_if_small,
    reach_of,
)
from icssl.classifier.explanation import Explanation, rows_worth_labelling
from icssl.classifier.fitted import (
    FittedContext,
    Prediction,
    concatenate_predictions,
)
from icssl.classifier.gate import HEADS
from icssl.classifier.graphs import SPARSE_NEIGHBOURS
from icssl.classifier.label_score import LabelScore, judge_labels, judge_logistic
from icssl.classifier.label_weights import check_every_class_counts, read_label_weights
from icssl.classifier.labelled_rows import check_known, labelled_part
from icssl.classifier.parameter_types import (
    BackendName,
    ClassPrior,
    ColumnScale,
    DeviceName,
    Metric,
    ModelOrFile,
    Neighbours,
    Verbose,
)
from icssl.classifier.plan import check_explanation, is_file
from icssl.classifier.weights import load_context_model, released_model
from icssl.tables.target_doubts import doubts_about_labels
from icssl.tables.targets import read_targets, warn_of_conflicts


class ICSSLClassifier(ClassifierMixin, ContextEstimator):  # type: ignore[misc]
    """Label rows from few labels and all rows, in one forward pass of a pretrained model.

    ``fit`` trains nothing: it reads the table as a context. Rows without a label count as
    much as those with one for how the table is represented: several views of its columns,
    graphs of its rows in each, and their eigenmaps. These give kernels, which form three
    heads: two scales of the columns, and linear. A gate that was trained on synthetic
    tables weighs the kernels within every head, and the heads; each head descends on the
    labels in its mixture. Nothing is random: equal data give equal results.

    Parameters
    ----------
    model : str, default "auto"
        "all views" is the strongest, "main views" leaves out whitened columns, and "one
        view" makes one graph instead of up to nine. "auto" is the first that is not too
        slow for the table: docs/scale.md has the rule, which depends on rows, columns,
        backend and device. It can also be a file of weights that ``icssl pretrain`` made,
        with views as for "auto".
    class_prior : {"estimate", "labels", "uniform"}, array, dict or Series
        How frequent the classes are: by default estimated from all rows and from the counts
        of the labels; as among the labels, plus one each; equally; or by shares that sum to
        one, as an array in the order of ``classes_``, or by class.
    column_scale : {"auto", "each", "common"}
        How columns of numbers are made comparable: each divided by its own deviation; or
        those of one unit by a common number, so that their spreads stay as they are, which
        suits pixels, coordinates, embeddings, spectra and counts. By default both are read,
        and the model weighs them. Not used with ``metric="precomputed"``.
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
        Whether to show a progress bar while fitting, and while predicting many rows.

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
        From 0 to 1: how alike a row is to the labelled row that is most like it, in the
        kernels that predict it. A labelled row has 1. Where it is little, the prediction
        rests on hardly any label: a row far from all others has 0 and the class prior. A
        row between two classes has a high reach and an undecided probability.
    label_score_ : LabelScore
        The accuracy on labelled rows, each predicted with its label hidden, with a 95%
        interval. It is computed when it is first asked for, by up to ten refits of the
        table that ``fit`` was given.
    label_baseline_ : LabelScore
        The accuracy of logistic regression, without rows that have no label, on the same
        hidden labels: what a simple method would have given.
    class_prior_ : ndarray of shape (n_classes,)
        The shares of the classes that predictions assume.
    geometry_ : dict of str to float
        The weights of the ways in which the table was read: "each" column in its own scale,
        columns of one unit in a "common" one, and a "linear" reading of either.
    model_name_, backend_ : str
        The views and the backend that were used.
    columns_ : ColumnTable
        What was understood of every column: how it was read, its distinct and missing
        cells, and an example. ``columns_.to_frame()`` is a data frame.
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
        model: ModelOrFile = "auto",
        *,
        class_prior: ClassPrior = "estimate",
        column_scale: ColumnScale = "auto",
        metric: Metric = "columns",
        backend: BackendName = "auto",
        n_neighbors: Neighbours = SPARSE_NEIGHBOURS,
        device: DeviceName = "auto",
        verbose: Verbose = False,
    ) -> None:
        self.model = model
        self.class_prior = class_prior
        self.column_scale = column_scale
        self.metric = metric
        self.backend = backend
        self.n_neighbors = n_neighbors
        self.device = device
        self.verbose = verbose

    @limit_threads_if_small
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "ICSSLClassifier":
        """Fit a table and the labels of some rows.

        Parameters
        ----------
        X : array, data frame or sparse matrix of shape (n_rows, n_columns)
            Numbers, booleans, times, texts and categories; cells may be missing; masked
            cells count as missing.
        y : array of shape (n_rows,)
            Whole numbers, texts or booleans; -1, None, NaN, ``pd.NA`` or masked for no
            label. Whole numbers have at most 64 bits.
        sample_weight : array of shape (n_rows,), optional
            How much the label of each row counts in the descent and among the counts of
            ``class_prior``; only ratios matter. A row of weight zero counts as one without
            a label. Weights of rows without a label are not used, and the gate does not see
            weights when it weighs kernels.
        """
        rows = self._read_context(X, y)
        codes, weights = self._read_labels(rows, y, sample_weight)
        if self.metric == "columns":
            warn_of_conflicts(rows, codes)
        self._fitted = self._fit_context(rows, codes, weights)
        if isinstance(self.class_prior, str) and self.class_prior == "estimate":
            shares = self._fitted.shares[0].double().cpu().numpy()
            self.class_prior_ = shares[self._order.back_classes]
        head_weights = self._fitted.weights[0].double().cpu().tolist()
        self.geometry_ = dict(zip(HEADS, head_weights, strict=True))
        self._given, self._unfitted = (self._table, codes, weights), clone(self)
        self._label_score: LabelScore | None = None
        is_labelled = codes >= 0
        self._labelled_rows = np.flatnonzero(is_labelled)
        prediction = self._predict_context()
        self.label_distributions_ = self._probabilities(prediction)
        certain = np.eye(len(self.classes_))
        self.label_distributions_[is_labelled] = certain[codes[is_labelled]]
        self.transduction_ = self.classes_[self.label_distributions_.argmax(axis=1)]
        self._describe_context(prediction)
        return self

    @property
    def label_score_(self) -> LabelScore:
        """The accuracy on labelled rows, each predicted with its label hidden."""
        check_is_fitted(self)
        if self._label_score is None:
            table, codes, weights = self._given
            # As it was fitted: parameters may have been set since.
            refit = clone(self._unfitted).set_params(verbose=False)
            prior = refit.class_prior
            if not (prior is None or isinstance(prior, str)):
                refit.set_params(class_prior=self.class_prior_)  # its names are codes now
            with bar_on_standard_error(bool(self.verbose)):
                self._label_score = judge_labels(refit, table, codes, weights, self._order)
        return self._label_score

    @property
    def label_baseline_(self) -> LabelScore:
        """The accuracy of logistic regression on the hidden labels of ``label_score_``."""
        check_is_fitted(self)
        if self.metric == "precomputed":
            return LabelScore.of_hits(0, 0)  # it needs columns
        table, codes, weights = self._given
        rows = self._encoder.transform(table)
        return judge_logistic(rows, codes, weights, self._order)

    def __dir__(self) -> list[str]:
        # Tools that list attributes also read them, as scikit-learn does for notebooks.
        # That must not start the refits: the score is listed once it has been computed.
        names = set(object.__dir__(self))
        if getattr(self, "_label_score", None) is None:
            names.discard("label_score_")
        # These take a moment, and are always there.
        slow = {"columns_", "label_baseline_"}
        return sorted(name for name in names if name in slow or hasattr(self, name))

    def fit_predict(self, X: Any, y: Any, sample_weight: Any = None) -> ndarray:
        """Fit a table, and return the label of every row: ``transduction_``."""
        return self.fit(X, y, sample_weight).transduction_

    def predict(self, X: Any) -> ndarray:
        """Return the likeliest class of new rows, each predicted by itself."""
        pieces = [self._logits(piece).argmax(dim=1).numpy() for piece in self._predict(X)]
        return self.classes_[np.concatenate(pieces)]

    def decision_function(self, X: Any) -> ndarray:
        """Return logits of new rows, with the class prior.

        Returns
        -------
        ndarray of shape (n_rows, n_classes), or (n_rows,) for two classes
            The softmax of the logits is ``predict_proba``. With two classes it is the logit
            of the second less that of the first, positive where the second is predicted.
        """
        logits = np.concatenate([self._logits(piece).numpy() for piece in self._predict(X)])
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on the rows of ``X`` that have a label.

        Rows without one (-1, None or NaN) are left out, and a warning says how many. Use
        ``LabelledFold`` in cross-validation, whose test rows all have a label.
        """
        check_is_fitted(self)
        labels, rows, weights = labelled_part(X, y, sample_weight)
        check_known(labels, self.classes_)
        right = self.predict(rows).astype(object) == labels.astype(object)
        return float(np.average(right, weights=weights))

    def predict_proba(self, X: Any) -> Float[ndarray, "rows classes"]:
        """Return probabilities of the classes for new rows, each predicted by itself."""
        return np.concatenate([self._probabilities(piece) for piece in self._predict(X)])

    def predict_proba_and_reach(
        self, X: Any
    ) -> tuple[Float[ndarray, "rows classes"], Float[ndarray, " rows"]]:
        """Return probabilities and reach of new rows, in the time of one of them."""
        pairs = (
            (self._probabilities(piece), reach_of(piece)) for piece in self._predict(X)
        )
        probabilities, reach = zip(*pairs, strict=True)
        return np.concatenate(probabilities), np.concatenate(reach)

    def explain(self, X: Any = None) -> Explanation:
        """Return what each labelled row contributes to the logits of rows, exactly.

        The result has a sentence per row (print it), ``to_frame``, ``plot`` and the arrays
        ``parts`` and ``base``.

        Parameters
        ----------
        X : table, optional
            New rows; by default the rows of ``fit``.
        """
        check_is_fitted(self)
        rows = self.reach_ if X is None else X
        count = rows.shape[0] if hasattr(rows, "shape") else len(rows)
        m, device = len(self._labelled_rows), self._fitted.coefficients.device
        check_explanation(count, m, len(self.classes_), str(device))
        if X is None:
            prediction = self._predict_context(parts=True)
        else:
            prediction = concatenate_predictions(list(self._predict(X, parts=True)))
        assert prediction.parts is not None
        parts = prediction.parts[0].double().cpu().numpy()
        base = np.broadcast_to(np.log(self.class_prior_), (count, len(self.classes_)))
        classes = self.label_distributions_[self._labelled_rows].argmax(axis=1)
        labelled = self._labelled_rows
        return Explanation(parts, base, self.classes_, labelled, classes, X is not None)

    def plot_embedding(self, ax: Any = None) -> Any:
        """Draw the rows of ``fit`` in the embedding, coloured by class; stars have a label.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        """
        check_is_fitted(self)
        from icssl.classifier.pictures import draw_embedding

        codes = self.label_distributions_.argmax(axis=1)
        shown = self.embedding_, codes, self._is_labelled(), self.classes_
        return draw_embedding(*shown, ax)

    def plot_reach(self, ax: Any = None) -> Any:
        """Draw the rows of ``fit`` in the embedding, coloured by ``reach_``.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default in a new figure.
        """
        check_is_fitted(self)
        from icssl.classifier.pictures import draw_reach

        return draw_reach(self.embedding_, self.reach_, self._is_labelled(), ax)

    def _is_labelled(self) -> ndarray:
        return np.isin(np.arange(len(self.reach_)), self._labelled_rows)

    def suggest(self, k: int = 10) -> ndarray:
        """Return rows without a label that are worth labelling next, the best first.

        They are uncertain, or random walks from them hardly meet a labelled row, and they
        are far from each other in the embedding. If fewer rows than ``k`` have no label,
        these are all.
        """
        check_is_fitted(self)
        unlabelled = np.setdiff1d(np.arange(len(self.reach_)), self._labelled_rows)
        if not isinstance(k, Integral) or k < 1:
            raise ValueError(f"k must be at least 1, and whole, got {k!r}.")
        if not len(unlabelled):
            return unlabelled
        k = min(k, len(unlabelled))
        p, reach = self.label_distributions_[unlabelled], self._walk_reach[unlabelled]
        return unlabelled[rows_worth_labelling(p, reach, self.embedding_[unlabelled], k)]

    def _read_labels(
        self, rows: Any, y: Any, sample_weight: Any
    ) -> tuple[ndarray, ndarray | None]:
        """Set classes and prior; return codes of rows, -1 for none, and their weights."""
        self.classes_, codes = read_targets(y)
        for doubt in doubts_about_labels(y, self.classes_, codes):
            warn_caller(doubt)
        self._check_rows(rows, codes)
        weights = read_label_weights(sample_weight, codes >= 0)
        if weights is None:
            counts = np.bincount(codes[codes >= 0]).astype(float)
        else:
            codes = np.where(weights > 0, codes, -1)
            labelled, count = codes >= 0, len(self.classes_)
            counts = np.bincount(codes[labelled], weights[labelled], minlength=count)
            check_every_class_counts(counts, self.classes_)
        self.class_prior_ = prior_for(self.class_prior, counts, self.classes_)
        return codes, weights

    def _fit_context(
        self, rows: Any, codes: ndarray, weights: ndarray | None
    ) -> FittedContext:
        from_file = load_context_model(Path(self.model)) if is_file(self.model) else None
        model = from_file or released_model()
        k, first = model.config.k, model.graphs[0]
        features = self._context_features(rows, codes, len(self.classes_), k, first)
        row_weight = None
        if weights is not None:
            in_order = weights[self._order.rows][codes[self._order.rows] >= 0]
            row_weight = torch.as_tensor(in_order).to(features.target)[None]
        with torch.no_grad():
            model = deepcopy(model).to(features.target)
            return model.fit_features(features, row_weight=row_weight)

    def _probabilities(self, prediction: Prediction) -> Float[ndarray, "rows classes"]:
        return self._logits(prediction).softmax(dim=-1).numpy()

    def _logits(self, prediction: Prediction) -> Float[Tensor, "rows classes"]:
        logits = prediction.logits[0].double().cpu()
        return logits + torch.as_tensor(self.class_prior_).log()
