"""Make pixels and features of Fashion-MNIST (70,000 images) for ``icssl bench scale``.

The features are the latents of a variational autoencoder that is trained here on all
images, without their classes, as in the published experiments of Poisson learning. Debian's
package dataset-fashion-mnist has the data; it takes a minute on a GPU:

    apt-get install dataset-fashion-mnist
    python scripts/fashion_features.py /usr/share/dataset-fashion-mnist data

Writes fashion-features.npz and fashion-pixels.npz, each with arrays x and y.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
from train_image_generator import train

EPOCHS, KL_WEIGHT = 50, 1.0


def read(folder, pattern, offset):
    """Return the bytes of the training file followed by those of the test file."""
    found = []
    for part in ("train", "t10k"):
        (path,) = sorted(Path(folder).rglob(f"{part}-{pattern}*"))
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            found.append(np.frombuffer(file.read(), np.uint8)[offset:])
    return np.concatenate(found)


def main():
    """Read the images, train the autoencoder, encode the images and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pixels, y = (
        read(options.data, "images", 16).reshape(-1, 28, 28),
        read(options.data, "labels", 8),
    )
    images = torch.tensor(pixels, device=device).float() / 255
    encoder, _ = train(images, device, EPOCHS, KL_WEIGHT)
    with torch.no_grad():
        latents = torch.cat([encoder(part)[0] for part in images.split(1000)])
    options.output.mkdir(parents=True, exist_ok=True)
    features = latents.cpu().numpy().astype(np.float32)
    np.savez_compressed(options.output / "fashion-features.npz", x=features, y=y)
    np.savez_compressed(options.output / "fashion-pixels.npz", x=pixels, y=y)
    print(f"{features.shape} features and {pixels.shape} pixels in {options.output}")


if __name__ == "__main__":
    main()
