"""A small latent generator of images like those of Fashion-MNIST.

Only its decoder ships with the package. ``scripts/train_image_generator.py`` trained it as
the decoder of a variational autoencoder.
"""

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from icssl.files import FileKind, making_sense, read_tensors

KIND = FileKind("icssl-image-generator", "scripts/train_image_generator.py")
LATENT = 16
WIDTH = 96
WEIGHTS = "fashion-generator.safetensors"


class FashionDecoder(nn.Module):
    """Latents (n, 16) to grey images (n, 28, 28) in [0, 1]."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.width = width
        self.start = nn.Linear(LATENT, 2 * width * 7 * 7)
        self.layers = nn.Sequential(
            nn.SiLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.SiLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(2 * width, width, 3, padding=1),
            nn.SiLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(width, width // 2, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(width // 2, 1, 3, padding=1),
        )

    def forward(self, z: Float[Tensor, "n 16"]) -> Float[Tensor, "n 28 28"]:
        """Decoded images."""
        cells = self.start(z).unflatten(-1, (2 * self.width, 7, 7))
        return self.layers(cells)[:, 0].sigmoid()


@lru_cache(maxsize=1)
def load_fashion_decoder() -> FashionDecoder:
    """The decoder with its shipped weights, ready for use."""
    decoder = FashionDecoder()
    path = Path(str(files("icssl.weights").joinpath(WEIGHTS)))
    tensors, _ = read_tensors(path, KIND)
    with making_sense(path, KIND):
        decoder.load_state_dict({name: value.float() for name, value in tensors.items()})
    return decoder.eval().requires_grad_(False)
