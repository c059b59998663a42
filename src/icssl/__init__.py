"""In-context semi-supervised learning: label many points from few, in one forward pass."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icssl.classifier.estimator import ICSSLClassifier
    from icssl.classifier.labelled_fold import LabelledFold
    from icssl.classifier.regressor import ICSSLRegressor
    from icssl.episodes.episode import Episode
    from icssl.model.baseline import BaselineConfig, BaselineTransformer
    from icssl.model.build import load_model, save_model
    from icssl.model.model_config import ModelConfig
    from icssl.model.transformer import ICSSLTransformer
    from icssl.tables.label_table import read_table
    from icssl.training.config import TrainConfig, load_config
    from icssl.training.loop import train

    __version__: str

__all__ = [
    "BaselineConfig",
    "BaselineTransformer",
    "Episode",
    "ICSSLClassifier",
    "ICSSLRegressor",
    "ICSSLTransformer",
    "LabelledFold",
    "ModelConfig",
    "TrainConfig",
    "__version__",
    "load_config",
    "load_model",
    "read_table",
    "save_model",
    "train",
]

_MODULES = {
    "BaselineConfig": "icssl.model.baseline",
    "BaselineTransformer": "icssl.model.baseline",
    "Episode": "icssl.episodes.episode",
    "ICSSLClassifier": "icssl.classifier.estimator",
    "ICSSLRegressor": "icssl.classifier.regressor",
    "ICSSLTransformer": "icssl.model.transformer",
    "LabelledFold": "icssl.classifier.labelled_fold",
    "ModelConfig": "icssl.model.model_config",
    "TrainConfig": "icssl.training.config",
    "load_config": "icssl.training.config",
    "load_model": "icssl.model.build",
    "read_table": "icssl.tables.label_table",
    "save_model": "icssl.model.build",
    "train": "icssl.training.loop",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for, since torch alone takes seconds."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if name == "__version__":
        return _installed_version()
    raise AttributeError(f"module 'icssl' has no attribute {name!r}")


def __dir__() -> list[str]:
    # The names to use, and no imports of this file.
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def _installed_version() -> str:
    """Return the version of the installed package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("icssl")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"
