"""In-context semi-supervised learning: label many points from few, in one forward pass."""

from importlib.metadata import PackageNotFoundError, version

from icssl.episode import Episode
from icssl.model.baseline import BaselineConfig, BaselineTransformer
from icssl.model.config import ModelConfig
from icssl.model.transformer import ICSSLTransformer

try:
    __version__ = version("icssl")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "BaselineConfig",
    "BaselineTransformer",
    "Episode",
    "ICSSLTransformer",
    "ModelConfig",
    "__version__",
]
