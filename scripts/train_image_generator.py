"""Train the image generator that ships with icssl, on Fashion-MNIST.

The generator is the decoder of a variational autoencoder. Its noise level is that of its
own reconstructions (the optimal sigma), so it need not be tuned. Debian's package
dataset-fashion-mnist has the data:

    apt-get install dataset-fashion-mnist
    python scripts/train_image_generator.py /usr/share/dataset-fashion-mnist OUT.safetensors

This takes about a minute on an H200. It writes the decoder in half precision, and beside it
a picture of samples from the prior above images of the data.
"""

import argparse
import gzip
import math
import time
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from icssl._util.files import write_tensors
from icssl.episodes.images import KIND, LATENT, WIDTH, FashionDecoder

EPOCHS, BATCH, LEARNING_RATE, SEED = 150, 512, 2e-3, 0
# More than one: samples of the prior then fall where images were encoded.
KL_WEIGHT = 4.0


def read_images(folder, device):
    """Return all 60,000 training images, (n, 28, 28) in [0, 1]."""
    (path,) = sorted(Path(folder).rglob("train-images*"))
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        raw = np.frombuffer(file.read(), np.uint8)[16:]
    return torch.tensor(raw.reshape(-1, 28, 28), device=device).float() / 255


class Encoder(nn.Module):
    """Encoder that gives mean and log-variance of the latent of an image."""

    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(2 * width * 49, 2 * LATENT),
        )

    def forward(self, images):
        """Return mean and log-variance."""
        return self.layers(images[:, None]).chunk(2, dim=-1)


def loss_of(encoder, decoder, images, kl_weight):
    """Return the negative evidence lower bound per image in nats, at the optimal noise."""
    mean, log_variance = encoder(images)
    latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
    error = (decoder(latent) - images).square()
    reconstruction = 0.5 * images[0].numel() * error.mean().log()
    divergence = (
        kl_weight
        * 0.5
        * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=-1)
    )
    return reconstruction + divergence.mean(), error.mean()


def train(images, device, epochs=EPOCHS, kl_weight=KL_WEIGHT):
    """Return encoder and decoder after all epochs; the decoder's weights are averaged."""
    torch.manual_seed(SEED)
    encoder, decoder = Encoder().to(device), FashionDecoder().to(device)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=1e-4)
    steps = epochs * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, steps)
    average = torch.optim.swa_utils.AveragedModel(
        decoder, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)
    )
    start = time.time()
    for epoch in range(epochs):
        for rows in torch.randperm(len(images), device=device).split(BATCH):
            if len(rows) < BATCH:
                continue
            loss, error = loss_of(encoder, decoder, images[rows], kl_weight)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            schedule.step()
            average.update_parameters(decoder)
        if epoch % 10 == 9:
            print(
                f"epoch {epoch + 1}: loss {loss.item():.1f} nats, error "
                f"{math.sqrt(error.item()):.4f}, {time.time() - start:.0f} s",
                flush=True,
            )
    return encoder, average.module


def draw_samples(decoder, images, path, device):
    """Draw five rows of samples from the prior and five of the data."""
    with torch.no_grad():
        samples = decoder(torch.randn(50, LATENT, device=device)).cpu()
    figure = Figure(figsize=(6, 6), layout="tight")
    for axes, image in zip(
        figure.subplots(10, 10).flat, [*samples, *images[:50].cpu()], strict=True
    ):
        axes.imshow(image, cmap="gray", vmin=0, vmax=1)
        axes.axis("off")
    figure.savefig(path, dpi=100)


def main():
    """Read the images, train the autoencoder and save the decoder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images = read_images(options.data, device)
    _, decoder = train(images, device)
    half = {
        name: value.half().cpu().contiguous()
        for name, value in decoder.state_dict().items()
    }
    header = {"latent": LATENT, "width": WIDTH}
    write_tensors(options.output, half, KIND, header)
    draw_samples(decoder, images, options.output.with_suffix(".png"), device)
    print(f"{options.output}: {options.output.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
