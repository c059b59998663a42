"""Training: configurations, the loss, many models at once, checkpoints."""

from icssl.training.config import TrainConfig, load_config
from icssl.training.loop import train

__all__ = ["TrainConfig", "load_config", "train"]
