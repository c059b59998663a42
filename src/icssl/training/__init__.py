"""Training of the paper's models: configurations, many models at once, checkpoints."""

from icssl.training.config import TrainConfig, load_config
from icssl.training.loop import train

__all__ = ["TrainConfig", "load_config", "train"]
