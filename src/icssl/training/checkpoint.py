"""Checkpoints: all that a run needs to go on as if it had never stopped."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from icssl._util.errors import check_whole
from icssl._util.files import (
    FileKind,
    as_json,
    making_sense,
    read_tensors,
    write_described,
)
from icssl.model.build import KIND as MODEL_KIND
from icssl.model.build import AnyModel, save_model
from icssl.training.config import TrainConfig, config_from, differences
from icssl.training.group import Group
from icssl.training.step import AdamState

KIND = FileKind("icssl-checkpoint", "icssl train")
NAME = "checkpoint.safetensors"


def save_checkpoint(
    folder: Path, configs: Sequence[TrainConfig], step: int, state: AdamState
) -> None:
    """Write the state after ``step`` steps; an older checkpoint stays whole until then."""
    from icssl import __version__

    header = {
        "configs": [config.to_dict() for config in configs],
        "step": step,
        "seeds": [config.seed for config in configs],
        "version": __version__,
    }
    write_described(folder / NAME, state.tensors(), KIND, header)


def load_checkpoint(
    folder: Path, configs: Sequence[TrainConfig], device: str
) -> tuple[int, AdamState]:
    """Return the step and the state of a run with these configurations.

    Raises ``ValueError`` if the checkpoint is torn or foreign, or is that of another run:
    then the message says in which fields they differ. More steps than the run had are no
    difference: they extend it.
    """
    path = folder / NAME
    tensors, step, saved_configs = _read(path)
    if len(saved_configs) == len(configs):
        saved_configs = [
            replace(saved, steps=max(saved.steps, wanted.steps))
            for saved, wanted in zip(saved_configs, configs, strict=True)
        ]
    wanted = [as_json(config.to_dict()) for config in configs]
    # A field that is newer than the checkpoint has its default.
    saved = [as_json(config.to_dict()) for config in saved_configs]
    hint = f"To take what it holds: icssl train --resume --output {folder}"
    if len(saved) != len(wanted):
        raise ValueError(
            f"{path} holds {len(saved)} model(s), got {len(wanted)} to resume. {hint}"
        )
    pairs = zip(saved, wanted, strict=True)
    lines = [line for old, new in pairs for line in differences(old, new)]
    if lines:
        listed = "; ".join(dict.fromkeys(lines))
        raise ValueError(f"{path} is of another run: {listed}. {hint}")
    with making_sense(path, KIND):
        state = AdamState.fresh(Group(configs).fresh_weights().to(device))
        for name, tensor in state.tensors().items():
            tensor.copy_(tensors[name])
    return step, state


def _read(path: Path) -> tuple[dict[str, Tensor], int, list[TrainConfig]]:
    """Return tensors, steps made, and one configuration per model of a checkpoint."""
    tensors, header = read_tensors(path, KIND)
    with making_sense(path, KIND):
        configs = [config_from(values) for values in header["configs"]]
        return tensors, _step(header, configs[0]), configs


def _step(header: dict[str, Any], config: TrainConfig) -> int:
    """Return the steps that a header says were made, if such a run can have made them."""
    check_whole("step", header["step"], 0, config.steps)
    return header["step"]


def configs_of_checkpoint(path: Path) -> list[TrainConfig]:
    """Return the configurations that a run was started with, one per model."""
    return _read(path)[2]


def training_of(path: Path) -> tuple[int, TrainConfig] | None:
    """Return the steps made and the configuration; None if a file has neither."""
    if path.name == NAME:
        _, step, configs = _read(path)
        return step, configs[0]
    _, header = read_tensors(path, MODEL_KIND)
    if not {"step", "training"} <= header.keys():
        return None
    with making_sense(path, MODEL_KIND):
        config = config_from(header["training"])
        return _step(header, config), config


def models_of_checkpoint(path: Path) -> list[AnyModel]:
    """Return the models of a checkpoint, as they were when it was written."""
    tensors, _, configs = _read(path)
    with making_sense(path, KIND):
        return Group(configs).models_of(tensors["weights"])


def save_models(
    folder: Path, configs: Sequence[TrainConfig], models: Sequence[AnyModel], step: int
) -> list[Path]:
    """Write one file per model, ``model.safetensors`` if there is one, and return them."""
    paths = []
    for i, (config, model) in enumerate(zip(configs, models, strict=True)):
        name = "model" if len(models) == 1 else f"model-{i}"
        paths.append(folder / f"{name}.safetensors")
        about = {"training": config.to_dict(), "step": step, "seed": config.seed}
        save_model(model, paths[-1], **about)
    return paths
