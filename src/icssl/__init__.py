"""In-context semi-supervised learning: label many points from few, in one forward pass."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from icssl.episode import Episode
from icssl.model.baseline import BaselineConfig, BaselineTransformer
from icssl.model.config import ModelConfig
from icssl.model.transformer import ICSSLTransformer

if TYPE_CHECKING:
    from icssl.estimator import ICSSLClassifier

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


def __getattr__(name: str) -> Any:
    """The classifier when it is asked for: it loads scikit-learn, which models do not."""
    if name == "ICSSLClassifier":
        from icssl.estimator import ICSSLClassifier

        return ICSSLClassifier
    raise AttributeError(f"module 'icssl' has no attribute {name!r}")
