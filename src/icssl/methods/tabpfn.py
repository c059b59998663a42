"""TabPFN v1 (Hollmann et al., 2023) on contexts of real data, from a folder of its own.

It is a peer to compare with and no dependency: ``scripts/fetch_tabpfn.py`` fetches its code
and weights.
"""

import os
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from sklearn.decomposition import PCA

from icssl.methods.peers import Context, as_numbers

FOLDER_VARIABLE = "ICSSL_TABPFN"
MOST_COLUMNS = 100
MOST_CLASSES = 10
MOST_LABELS = 1000
ONE_AGAINST_REST = 2  # configurations: columns as they are, and after a power transform
_INTERFACE = "tabpfn_v1.scripts.transformer_prediction_interface"
_WEIGHTS = "tabpfn_v1/models_diff/prior_diff_real_checkpoint_n_0_epoch_42.cpkt"


def tabpfn_folder() -> Path:
    """Return the folder of code and weights: ``$ICSSL_TABPFN``, or ``data/tabpfn``."""
    return Path(os.environ.get(FOLDER_VARIABLE) or "data/tabpfn")


def has_tabpfn() -> bool:
    """Return whether code and weights are there."""
    folder = tabpfn_folder()
    code = folder / f"{_INTERFACE.replace('.', '/')}.py"
    return code.exists() and (folder / _WEIGHTS).exists()


@dataclass(frozen=True)
class TabPFN:
    """TabPFN v1, which reads the labelled rows and predicts the others one by one.

    It was trained for at most 100 columns, 10 classes and 1,000 labelled rows. A table with
    more columns is reduced to its leading principal components. More classes are predicted
    one against the rest, with two configurations each. More labelled rows are refused.

    Parameters
    ----------
    configurations : int
        Predictions with permuted columns and classes that are averaged.
    scale_on_all_rows : bool
        Whether columns are standardised by all rows or by the labelled rows alone.
    components : int
        Principal components that replace more than 100 columns. TabPFN gives all of them
        the same scale, so that the last ones of a hundred are mostly noise.
    """

    configurations: int = 8
    scale_on_all_rows: bool = False
    components: int = 5

    def __call__(self, context: Context, *, seed: int) -> Float[ndarray, "n c"]:
        """Return class probabilities of all rows."""
        labelled, c = context.labelled, context.n_classes
        if labelled.sum() > MOST_LABELS:
            raise ValueError(
                f"TabPFN v1 reads {MOST_LABELS} labelled rows at most, got "
                f"{labelled.sum()}."
            )
        x = as_numbers(context.table)
        if x.shape[1] > MOST_COLUMNS:
            count = min(self.components, len(x))
            x = PCA(n_components=count, random_state=seed).fit_transform(x)
        y = context.y[labelled]
        if c <= MOST_CLASSES:
            return self._predict(x, labelled, y, seed, self.configurations)
        one_against_rest = [
            self._predict(x, labelled, (y == k).astype(np.int64), seed, ONE_AGAINST_REST)
            for k in range(c)
        ]
        scores = np.stack([p[:, 1] for p in one_against_rest], axis=1)
        return scores / scores.sum(axis=1, keepdims=True)

    def _predict(
        self,
        x: Float[ndarray, "n d"],
        labelled: Bool[ndarray, " n"],
        y: Int[ndarray, " m"],
        seed: int,
        configurations: int,
    ) -> Float[ndarray, "n c"]:
        # TabPFN seeds torch's generator and changes the filters of warnings.
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")  # of torch, about how TabPFN calls it
            model = _interface(tabpfn_folder()).TabPFNClassifier(
                N_ensemble_configurations=configurations, seed=seed
            )
            model.fit(x[labelled], y)
            probabilities = model.predict_proba(
                x, normalize_with_test=self.scale_on_all_rows
            )
        return np.asarray(probabilities, dtype=np.float64)


@cache
def _interface(folder: Path) -> Any:
    """Return the module of the classifier; the path of imports stays as it was."""
    if not has_tabpfn():
        raise FileNotFoundError(
            f"TabPFN v1 is not in {folder}: python scripts/fetch_tabpfn.py {folder} "
            f"fetches it, and the environment variable {FOLDER_VARIABLE} names another "
            "folder."
        )
    sys.path.insert(0, str(folder.resolve()))
    try:
        return import_module(_INTERFACE)
    finally:
        sys.path.remove(str(folder.resolve()))
