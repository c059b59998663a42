"""In-context semi-supervised learning: label many points from few, in one forward pass."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icssl.classifier.estimator import ICSSLClassifier
    from icssl.episodes.episode import Episode
    from icssl.model.baseline import BaselineConfig, BaselineTransformer
    from icssl.model.model_config import ModelConfig
    from icssl.model.transformer import ICSSLTransformer

try:
    __version__ = version("icssl")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "BaselineConfig",
    "BaselineTransformer",
    "Episode",
    "ICSSLClassifier",
    "ICSSLTransformer",
    "ModelConfig",
    "__version__",
]

_MODULES = {
    "BaselineConfig": "icssl.model.baseline",
    "BaselineTransformer": "icssl.model.baseline",
    "Episode": "icssl.episodes.episode",
    "ICSSLClassifier": "icssl.classifier.estimator",
    "ICSSLTransformer": "icssl.model.transformer",
    "ModelConfig": "icssl.model.model_config",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is asked for: torch alone takes seconds."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'icssl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
