"""Train every model of the accuracy table and of the curves, as many at once as there are.

Each job is one architecture; its sources and seeds are trained together. Models go to
FOLDER/JOB/SOURCE-SEED.safetensors; jobs whose models are there, trained as the job says,
are not trained again, so an interrupted run goes on. benchmarks/accuracy.py reads them.
About ten minutes on an H200.

    python scripts/train_table.py FOLDER [--device cuda] [--only JOB,JOB] [--steps N]
"""

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from icssl._util.errors import check_choice
from icssl.model.build import save_model
from icssl.training.config import load_config
from icssl.training.loop import train

SURFACES = ("sphere", "cylinder", "torus", "swiss_roll", "cone")
SIZES = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
ONCE = ((32, 32), (96, 32), (320, 32), (960, 32), (1600, 64), (2000, 512))  # steps, batch


@dataclass(frozen=True)
class Job:
    """Models of one architecture: a preset with fields changed, sources, seeds, lengths."""

    name: str
    preset: str
    overrides: tuple[str, ...] = ()
    sources: tuple[str, ...] = SURFACES
    seeds: int = 3
    steps: int = 800
    batch: int = 128
    sizes: tuple[int, ...] = (0,)  # different episodes; 0 for fresh ones at every step

    def runs(self):
        """File name and configuration of every model."""
        for source in self.sources:
            for size in self.sizes:
                for seed in range(self.seeds):
                    name = f"{source}-{seed}" if not size else f"{source}-{size}-{seed}"
                    overrides = [f"data.sources={source}", f"seed={seed}"]
                    overrides += [f"steps={self.steps}", f"batch={self.batch}"]
                    overrides += [f"data.episodes={size}"] if size else []
                    yield name, load_config(self.preset, [*self.overrides, *overrides])


PRODUCT: dict = {"sources": ("product",), "steps": 1500, "batch": 256, "seeds": 1}
# Encoders still gain on the product where descent heads have stopped.
LONG_PRODUCT: dict = {**PRODUCT, "steps": 3000, "batch": 512}
CURVE: dict = {"sources": ("cylinder",), "seeds": 1}
CURVES = ("e2e_wide", "e2e_encoder", "transformer")
JOBS = [
    Job("e2e_icl", "e2e_icl"),
    Job("e2e_icl_linear", "e2e_icl", ("model.kernel=linear",)),
    Job("e2e_wide", "e2e_wide"),
    Job("e2e_wide_linear", "e2e_wide", ("model.kernel=linear",)),
    Job("e2e_encoder", "e2e_encoder", steps=1500),
    Job("orig_icl", "orig_icl"),
    Job("transformer", "transformer", steps=1500, seeds=1),
    Job("product/e2e_icl", "e2e_icl", **PRODUCT),
    Job("product/e2e_wide", "e2e_wide", **PRODUCT),
    Job("product/e2e_wide_linear", "e2e_wide", ("model.kernel=linear",), **PRODUCT),
    Job(
        "product/e2e_encoder",
        "e2e_encoder",
        ("model.encoder_layers=4", "learning_rate=1e-3"),
        **LONG_PRODUCT,
    ),
    Job("product/transformer", "transformer", ("model.d=15",), **LONG_PRODUCT),
    # Accuracy against the number of training episodes: so many of them again and again,
    # or a longer and longer run in which every one is seen once.
    *(
        Job(f"again/{name}", name, sizes=SIZES, steps=1600, batch=64, **CURVE)
        for name in CURVES
    ),
    *(
        Job(f"once-{steps * batch}/{name}", name, steps=steps, batch=batch, **CURVE)
        for steps, batch in ONCE
        for name in CURVES
    ),
]


def run(job, folder, device):
    """Train the models of a job and save them, each with how it was trained."""
    names, configs = zip(*job.runs(), strict=True)
    # Encoders are mostly products of matrices, which can do with TF32.
    encoder = job.preset in ("e2e_encoder", "transformer")
    torch.set_float32_matmul_precision("high" if encoder else "highest")
    started, last = time.perf_counter(), []
    models = train(list(configs), device=device, report=last.append)
    seconds = time.perf_counter() - started
    for i, (name, config, model) in enumerate(zip(names, configs, models, strict=True)):
        save_model(
            model,
            folder / job.name / f"{name}.safetensors",
            training=config.to_dict(),
            step=config.steps,
            seed=config.seed,
            loss=last[-1].loss[i],
        )
    line = {
        "job": job.name,
        "models": len(models),
        "episodes": len(models) * job.steps * job.batch,
        "seconds": round(seconds, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
    print(json.dumps(line), flush=True)


def is_whole(job, folder):
    """Whether all models of a job are there, trained as it says."""
    for name, config in job.runs():
        path = folder / job.name / f"{name}.json"
        wanted = json.loads(json.dumps(config.to_dict()))
        if not path.exists() or json.loads(path.read_text())["training"] != wanted:
            return False
    return True


def main():
    """Train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", help="Names of jobs, separated by commas.")
    parser.add_argument("--steps", type=int, help="Fewer steps, for a trial.")
    options = parser.parse_args()
    names = [job.name for job in JOBS]
    wanted = options.only.split(",") if options.only else names
    for name in wanted:
        check_choice("job", name, names)
    for job in JOBS:
        if job.name not in wanted:
            continue
        if options.steps:
            job = replace(job, steps=options.steps, batch=4)  # noqa: PLW2901
        if not is_whole(job, options.folder):
            run(job, options.folder, options.device)


if __name__ == "__main__":
    main()
