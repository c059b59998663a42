"""Types of the estimators' parameters, for editors and type checkers.

At run time all of them are ``Any``: scikit-learn wants parameters to be stored as they are
given, and ``fit`` says in words what is wrong with them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    ModelName = Literal["auto", "all views", "main views", "one view"]
    ModelOrFile = ModelName | str | Path
    _Prior = Literal["estimate", "labels", "uniform"]
    ClassPrior = _Prior | Sequence[float] | Mapping[Any, float] | Any
    ColumnScale = Literal["auto", "each", "common"]
    Metric = Literal["columns", "precomputed"]
    BackendName = Literal["auto", "dense", "exact", "sparse"]
    DeviceName = Literal["auto", "cpu", "cuda"] | str
    Neighbours = int
    Verbose = bool
else:
    ModelName = ModelOrFile = ClassPrior = ColumnScale = Metric = Any
    BackendName = DeviceName = Neighbours = Verbose = Any
