"""Image manifolds: paths between two latents, decoded frame by frame.

A generator decodes latents to pictures; a manifold is the path of 100 pictures between two
of its latents. Manifolds are made once, into a folder with a file for each, so that an
interrupted run goes on where it stopped; :class:`ImageSpec` then draws episodes from it.

The small generator of clothes is the decoder of a variational autoencoder that
``scripts/train_image_generator.py`` trained on Fashion-MNIST; only the decoder is shipped.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8
from numpy import ndarray
from PIL import Image
from torch import Generator, Tensor, nn

from icssl._util.errors import DamagedFileError, check_choice
from icssl._util.files import FileKind, making_sense, read_tensors, replacing
from icssl._util.random import generator_for
from icssl.episodes.labels import PLACEMENTS, DrawnPoints, PointSource, label_count

KIND = FileKind("icssl-image-generator", "scripts/train_image_generator.py")
LATENT = 16
WEIGHTS = "fashion-generator.safetensors"
_FRAMES = 100  # pictures of a manifold
SIDE = 32  # pixels of a picture
TRAIN, TEST = 500, 450  # the paper's numbers of manifolds
WIDTH = 96  # channels of the decoder


class FashionDecoder(nn.Module):
    """Decoder of latents (n, 16) to grey images (n, 28, 28) in [0, 1]."""

    def __init__(self) -> None:
        super().__init__()
        width = WIDTH
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
        """Decode latents to images."""
        cells = self.start(z).unflatten(-1, (2 * WIDTH, 7, 7))
        return self.layers(cells)[:, 0].sigmoid()


@lru_cache(maxsize=1)
def _load_fashion_decoder() -> FashionDecoder:
    """Return the decoder with its shipped weights, ready for use."""
    decoder = FashionDecoder()
    path = Path(str(files("icssl.episodes").joinpath(WEIGHTS)))
    tensors, _ = read_tensors(path, KIND)
    with making_sense(path, KIND):
        decoder.load_state_dict({name: value.float() for name, value in tensors.items()})
    return decoder.eval().requires_grad_(False)


@runtime_checkable
class ImageGenerator(Protocol):
    """A generator that decodes latents to pictures."""

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """Shape of one latent; its entries have a standard normal prior."""
        ...

    def decode(self, latents: Float[Tensor, "n ..."]) -> Shaped[ndarray, "n rows cols ..."]:
        """Return grey (n, h, w) or coloured (n, h, w, 3) pictures, values in [0, 1]."""
        ...


@dataclass(frozen=True)
class FashionGenerator:
    """The generator that ships with the package: clothes, 28 x 28, grey.

    A stand-in for Stable Diffusion that needs no download.
    """

    latent_shape: tuple[int, ...] = (LATENT,)

    @torch.no_grad()
    def decode(self, latents: Float[Tensor, "n 16"]) -> Float[ndarray, "n 28 28"]:
        """Return pictures, computed on the CPU."""
        return _load_fashion_decoder()(latents.float().cpu()).numpy()


class StableDiffusionGenerator:
    """Stable Diffusion v1.5 from the user's own copy, through ``diffusers``.

    Latents are the noise that the denoising starts from, and there is no classifier
    guidance, as in the paper. Needs ``pip install 'icssl[diffusion]'``.

    Parameters
    ----------
    path : Path
        Folder of the pipeline, as ``save_pretrained`` writes it. Nothing is downloaded.
    steps : int
        Denoising steps per picture.
    device : str
        Where the pipeline runs.
    prompts : sequence of str
        A prompt for each manifold, the first for manifold 0. The paper has one per
        manifold, and does not print them; without any, all prompts are empty.
    """

    def __init__(
        self,
        path: Path,
        *,
        steps: int = 50,
        device: str = "cpu",
        prompts: Sequence[str] = (),
    ) -> None:
        try:
            from diffusers import StableDiffusionPipeline
        except ImportError as error:
            raise ImportError(
                "Stable Diffusion needs diffusers: pip install 'icssl[diffusion]'."
            ) from error
        if not (path / "model_index.json").is_file():
            raise FileNotFoundError(
                f"{path} holds no pipeline: it has no model_index.json. Give the folder of "
                "your own copy of Stable Diffusion v1.5."
            )
        pipeline = StableDiffusionPipeline.from_pretrained(
            path, local_files_only=True, safety_checker=None, requires_safety_checker=False
        )
        pipeline.set_progress_bar_config(disable=True)
        self.pipeline: Any = pipeline.to(device)
        self.steps = steps
        self.prompts, self.prompt = tuple(prompts), ""

    def for_manifold(self, index: int) -> "StableDiffusionGenerator":
        """Return the generator with the prompt of one manifold."""
        if not self.prompts:
            return self
        if index >= len(self.prompts):
            raise ValueError(
                f"manifold {index} has no prompt: {len(self.prompts)} prompts were given, "
                "and each manifold needs one."
            )
        prompted = copy(self)
        prompted.prompt = self.prompts[index]
        return prompted

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """Channels, height and width of the latent."""
        unet = self.pipeline.unet.config
        return (unet.in_channels, unet.sample_size, unet.sample_size)

    @torch.no_grad()
    def decode(self, latents: Float[Tensor, "n c h w"]) -> Float[ndarray, "n rows cols 3"]:
        """Return pictures in colour, one latent at a time: memory does not grow with n."""
        unet = self.pipeline.unet
        frames = [
            self.pipeline(
                prompt=self.prompt,
                latents=latent[None].to(unet.device, unet.dtype),
                num_inference_steps=self.steps,
                guidance_scale=1.0,
                output_type="np",
            ).images[0]
            for latent in latents
        ]
        return np.stack(frames)


def slerp(
    a: Float[Tensor, "*shape"], b: Float[Tensor, "*shape"], steps: int = _FRAMES
) -> Float[Tensor, "steps *shape"]:
    """Return points at equal angles on the great circle from ``a`` to ``b``.

    Both ends are included. Lengths are interpolated too, so that a path between draws of a
    normal distribution stays where such draws lie; a straight line would cut through the
    empty middle.
    """
    length_a, length_b = a.norm(), b.norm()
    unit_a, unit_b = a / length_a, b / length_b
    angle = torch.atan2((unit_a - unit_b).norm(), (unit_a + unit_b).norm()) * 2
    t = torch.linspace(0, 1, steps, dtype=a.dtype).reshape(-1, *[1] * a.ndim)
    # Where the ends coincide, both weights are 0 / 0 and any of them will do.
    sine = angle.sin().clamp(min=torch.finfo(a.dtype).tiny)
    first = torch.where(angle > 0, ((1 - t) * angle).sin() / sine, 1 - t)
    second = torch.where(angle > 0, (t * angle).sin() / sine, t)
    length = (1 - t) * length_a + t * length_b
    return length * (first * unit_a + second * unit_b)


def process_frames(pictures: Shaped[ndarray, "n h w ..."]) -> UInt8[ndarray, "n 32 32"]:
    """Return pictures in grey, 32 x 32 by Lanczos interpolation, as bytes."""
    frames = []
    for picture in pictures:
        image = Image.fromarray((255 * picture.clip(0, 1)).round().astype(np.uint8))
        frames.append(
            np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS))
        )
    return np.stack(frames)


def manifold_path(folder: Path, index: int) -> Path:
    """Return the file of one manifold."""
    return folder / f"manifold-{index:04d}.npy"


def make_image_manifolds(
    generator: ImageGenerator,
    folder: Path,
    count: int = TRAIN + TEST,
    *,
    seed: int = 0,
    progress: Callable[[range], Iterable[int]] = iter,
) -> None:
    """Make the manifolds that ``folder`` does not hold yet, each in a file of its own.

    Manifold i depends on (seed, i) alone, and its file appears when it is whole: stopped
    at any moment, the next call goes on. ``progress`` may wrap the loop to show it.
    """
    if isinstance(generator, StableDiffusionGenerator):
        generator.for_manifold(count - 1)  # too few prompts are refused now, not at the end
    for index in progress(range(count)):
        if not manifold_path(folder, index).exists():
            make_image_manifold(generator, folder, index, seed=seed)


def make_image_manifold(
    generator: ImageGenerator, folder: Path, index: int, *, seed: int = 0
) -> None:
    """Make the manifold of (seed, index); its file appears when it is whole."""
    if isinstance(generator, StableDiffusionGenerator):
        generator = generator.for_manifold(index)
    source = generator_for(seed, "image-manifold", index)
    a, b = torch.randn(2, *generator.latent_shape, generator=source)
    frames = process_frames(generator.decode(slerp(a, b)))
    with replacing(manifold_path(folder, index)) as unfinished:
        np.save(unfinished, frames)


@dataclass(frozen=True)
class ImageSpec(PointSource):
    """Source of episodes whose points are the pictures of one image manifold.

    Parameters
    ----------
    folder : Path
        Folder that :func:`make_image_manifolds` filled.
    split : {"train", "test"}
        Whether the first ``train_count`` manifolds or those after them are drawn.
    train_count : int
        Number of manifolds for training.
    labels, placement
        Number and choice of labelled pictures: see
        :class:`icssl.episodes.synthetic.ManifoldSpec`.
    pixel_scale : float
        Factor of pixels in [0, 1]; the paper's is 0.001.
    shuffle : bool
        Put the frames in a random order. In the order of the path, the first half is one
        class: a model that knows places by number would need no pictures.
    eigenvectors, neighbours : int
        Ground-truth eigenvectors to compute, 0 for none, and neighbours in their graph; the
        paper's graph has four.
    make : bool
        Make a manifold of the shipped generator when it is first drawn, out of as many as
        the paper has.
    """

    folder: Path
    split: str = "train"
    train_count: int = TRAIN
    labels: float = 10
    placement: str = "random"
    pixel_scale: float = 1.0
    shuffle: bool = True
    eigenvectors: int = 0
    neighbours: int = 4
    make: bool = False

    def __post_init__(self) -> None:
        check_choice("split", self.split, ["train", "test"])
        check_choice("placement", self.placement, PLACEMENTS)
        label_count(self.labels, _FRAMES)
        if not self.pixel_scale > 0:
            raise ValueError(f"pixel_scale must be positive, got {self.pixel_scale}.")

    def indices(self) -> list[int]:
        """Return the numbers of the manifolds of this split that the folder holds."""
        if self.make:
            first = self.split == "train"
            ends = (0, self.train_count) if first else (self.train_count, TRAIN + TEST)
            return list(range(*ends))
        numbers = sorted(int(path.stem[-4:]) for path in self.folder.glob("manifold-*.npy"))
        return [i for i in numbers if (i < self.train_count) == (self.split == "train")]

    def draw_points(
        self, b: int, *, generator: Generator, dtype: torch.dtype
    ) -> DrawnPoints:
        """Draw ``b`` manifolds with replacement; class 1 is the second half of a path."""
        indices = self.indices()
        if not indices:
            raise FileNotFoundError(
                f"{self.folder} holds no {self.split} manifold: make them with "
                "make_image_manifolds, or `icssl images`."
            )
        device = generator.device
        chosen = torch.randint(len(indices), (b,), generator=generator, device=device)
        frames = np.stack([self._read(indices[i]) for i in chosen.tolist()])
        x = torch.tensor(frames, device=device).flatten(2).to(dtype) / 255
        y = (torch.arange(_FRAMES, device=device) >= _FRAMES // 2).long().repeat(b, 1)
        if self.shuffle:
            order = torch.rand(b, _FRAMES, generator=generator, device=device).argsort(
                dim=1
            )
            x, y = x.gather(1, order[..., None].expand_as(x)), y.gather(1, order)
        return DrawnPoints(self.pixel_scale * x, y, n_classes=2)

    def _read(self, index: int) -> UInt8[ndarray, "100 32 32"]:
        """Return the frames of a manifold, which is made first where it has to be."""
        path = manifold_path(self.folder, index)
        if not self.make:
            return _load_frames(path)
        if path.exists():
            try:
                return _load_frames(path)
            except DamagedFileError as error:
                warnings.warn(f"{error} Making it again.", RuntimeWarning, stacklevel=2)
        make_image_manifold(FashionGenerator(), self.folder, index)
        return _load_frames(path)


def _load_frames(path: Path) -> UInt8[ndarray, "100 32 32"]:
    try:
        with path.open("rb") as file:
            frames = np.load(file)
    except (ValueError, OSError, EOFError, SyntaxError) as error:
        raise DamagedFileError(f"{path} cannot be read as a manifold: {error}.") from error
    if frames.shape != (_FRAMES, SIDE, SIDE) or frames.dtype != np.uint8:
        raise DamagedFileError(
            f"{path} must hold {_FRAMES} pictures of {SIDE} x {SIDE} bytes, got "
            f"{frames.dtype} of shape {frames.shape}."
        )
    return frames
