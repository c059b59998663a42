"""Files of models and of runs: what comes back, what is refused, what a kill leaves."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import random_episode, toy, toy_config
from icssl import BaselineConfig, ModelConfig, __version__
from icssl._util.files import read_tensors, write_tensors
from icssl.model.build import KIND as MODEL_KIND
from icssl.model.build import build_model, config_to_dict, load_model, save_model
from icssl.training.checkpoint import (
    KIND,
    configs_of_checkpoint,
    load_checkpoint,
    models_of_checkpoint,
    save_checkpoint,
    save_models,
    training_of,
)
from icssl.training.group import Group
from icssl.training.loop import train
from icssl.training.step import AdamState

N = 20
MODELS = {
    "free": ModelConfig.preset("free"),
    "paper": ModelConfig.preset("paper", n_points=N),
    "orig_icl": ModelConfig.preset("orig_icl"),
    "encoder": ModelConfig.preset("encoder", width=16),
    "lemma": ModelConfig.constructed(iterations=2),
    "transformer": BaselineConfig(width=16, feed_forward=32),
}


def random_state(configs):
    """A state as it might be in the middle of a run."""
    generator = torch.Generator().manual_seed(0)
    state = AdamState.fresh(Group(configs).fresh_weights())
    for tensor in state.tensors().values():
        tensor.copy_(torch.rand(tensor.shape, generator=generator))
    return state


def checkpoint_in(folder, *, models=1):
    configs = [toy_config("orig_icl", f"seed={i}") for i in range(models)]
    save_checkpoint(folder, configs, 3, random_state(configs))
    return configs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_bit_for_bit(tmp_path, generator, name, dtype):
    model = build_model(MODELS[name]).to(dtype).eval()
    episode = random_episode(generator, n=N)
    path = tmp_path / "new folder" / "model.safetensors"
    save_model(model, path, step=7)
    loaded = load_model(path)
    assert loaded.config == MODELS[name]
    assert not loaded.training
    assert next(loaded.parameters()).dtype == dtype
    assert torch.equal(loaded(episode), model(episode))


@pytest.mark.parametrize("preset", ["orig_icl", "transformer"])
def test_the_file_beside_a_model_says_how_it_was_made(tmp_path, preset):
    config = toy_config(preset, "seed=5")
    (path,) = save_models(tmp_path, [config], [build_model(config.model)], 3)
    about = json.loads(path.with_suffix(".json").read_text())
    assert about["model"] == config_to_dict(config.model)
    assert (about["step"], about["seed"], about["version"]) == (3, 5, __version__)
    assert about["training"] == json.loads(json.dumps(config.to_dict()))


def test_several_models_have_files_of_their_own(tmp_path):
    configs = [toy_config("orig_icl", f"seed={seed}") for seed in (4, 9)]
    models = [build_model(config.model) for config in configs]
    paths = save_models(tmp_path, configs, models, 3)
    assert [path.name for path in paths] == ["model-0.safetensors", "model-1.safetensors"]
    for path, model in zip(paths, models, strict=True):
        assert torch.equal(load_model(path).head.embedding, model.head.embedding)
    assert json.loads(paths[1].with_suffix(".json").read_text())["seed"] == 9


def test_equal_states_are_equal_bytes(tmp_path):
    first = checkpoint_in(tmp_path / "a")
    again = checkpoint_in(tmp_path / "b")
    assert first == again
    for name in ("checkpoint.safetensors", "checkpoint.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("models", [1, 3])
def test_a_checkpoint_comes_back_bit_for_bit(tmp_path, models):
    configs = [toy_config("orig_icl", f"seed={i}") for i in range(models)]
    state = random_state(configs)
    save_checkpoint(tmp_path, configs, 3, state)
    step, loaded = load_checkpoint(tmp_path, configs, "cpu")
    assert step == 3
    for name, tensor in state.tensors().items():
        assert torch.equal(loaded.tensors()[name], tensor), name
    assert loaded.alive.all()
    about = json.loads((tmp_path / "checkpoint.json").read_text())
    assert (about["step"], about["seeds"]) == (3, list(range(models)))
    assert about["version"] == __version__


@pytest.mark.parametrize("models", [1, 3])
def test_models_of_a_checkpoint_are_those_of_its_run(tmp_path, models):
    configs = [toy_config("transformer", "steps=2", f"seed={i}") for i in range(models)]
    trained = train(configs, output=tmp_path)
    found = models_of_checkpoint(tmp_path / "checkpoint.safetensors")
    for model, reference in zip(found, trained, strict=True):
        assert model.config == reference.config
        for one, other in zip(model.parameters(), reference.parameters(), strict=True):
            assert torch.equal(one, other)


# A header's length takes 8 bytes, then the header comes, then the numbers.
@pytest.mark.parametrize("kept", [0, 5, 8, 40, 0.5, 0.99])
def test_a_torn_file_is_refused_by_name(tmp_path, kept):
    configs = checkpoint_in(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: kept if isinstance(kept, int) else int(kept * len(whole))])
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.*or a torn one"):
        load_checkpoint(tmp_path, configs, "cpu")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.*or a torn one"):
        train(configs, output=tmp_path, resume=True)


FOREIGN = {
    "text": lambda path: path.write_text("These are the weights.\n" * 9),
    "tensors": lambda path: save_file({"weights": torch.zeros(3)}, path),
    "folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_file_is_refused_by_name(tmp_path, make):
    path = tmp_path / "checkpoint.safetensors"
    make(path)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))} is no icssl-model file"):
        load_model(path)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))} is no icssl-checkpoint"):
        load_checkpoint(tmp_path, [toy_config("orig_icl")], "cpu")


def test_a_checkpoint_is_no_model_and_a_model_no_checkpoint(tmp_path):
    configs = checkpoint_in(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors is no icssl-model file"):
        load_model(path)
    (model,) = save_models(tmp_path, configs, [build_model(configs[0].model)], 3)
    shutil.copy(model, path)
    with pytest.raises(ValueError, match=r"is no icssl-checkpoint file: its header"):
        load_checkpoint(tmp_path, configs, "cpu")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.safetensors"):
        load_model(tmp_path / "gone.safetensors")


def test_weights_that_do_not_fit_their_configuration(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(build_model(ModelConfig(k=4)), path)
    header = {"model": config_to_dict(ModelConfig(k=5))}
    write_tensors(path, load_file(path), MODEL_KIND, header)
    with pytest.raises(
        ValueError, match=r"model\.safetensors holds what this version .*Error.* loading"
    ):
        load_model(path)


def test_another_run_is_refused_with_the_fields_that_differ(tmp_path):
    configs = checkpoint_in(tmp_path)
    data = replace(configs[0].data, sources=("torus",))
    other = [replace(configs[0], learning_rate=0.5, data=data)]
    with pytest.raises(ValueError, match="is of another run") as caught:
        load_checkpoint(tmp_path, other, "cpu")
    message = str(caught.value)
    assert str(tmp_path / "checkpoint.safetensors") in message
    assert "data.sources: ['sphere'] in the checkpoint, ['torus'] given" in message
    assert "learning_rate: 0.01 in the checkpoint, 0.5 given" in message
    assert "batch" not in message
    assert f"To take what it holds: icssl train --resume --output {tmp_path}" in message
    assert configs_of_checkpoint(tmp_path / "checkpoint.safetensors") == configs


def test_a_checkpoint_from_before_a_field_was_added_can_be_resumed(tmp_path):
    configs = checkpoint_in(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    tensors, header = read_tensors(path, KIND)
    del header["configs"][0]["data"]["train_classes"]
    write_tensors(path, tensors, KIND, header)
    assert load_checkpoint(tmp_path, configs, "cpu")[0] == 3
    data = replace(configs[0].data, train_classes=2)
    with pytest.raises(ValueError, match="train_classes: 6 in the checkpoint, 2 given"):
        load_checkpoint(tmp_path, [replace(configs[0], data=data)], "cpu")


def test_a_file_says_how_far_its_model_was_trained(tmp_path):
    (config,) = checkpoint_in(tmp_path)  # after step 3
    model = build_model(config.model)
    (path,) = save_models(tmp_path, [config], [model], 3)
    assert training_of(path) == (3, config)
    assert training_of(tmp_path / "checkpoint.safetensors") == (3, config)
    save_model(model, tmp_path / "mine.safetensors")
    assert training_of(tmp_path / "mine.safetensors") is None


@pytest.mark.parametrize(("kept", "given"), [(1, 2), (2, 1)])
def test_another_number_of_models_is_refused(tmp_path, kept, given):
    checkpoint_in(tmp_path, models=kept)
    configs = [toy_config("orig_icl", f"seed={i}") for i in range(given)]
    with pytest.raises(ValueError, match=rf"holds {kept} model\(s\), got {given}"):
        load_checkpoint(tmp_path, configs, "cpu")


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


FILES_OF_A_SAVE = 4  # a model and a checkpoint, each with the JSON beside it


@pytest.mark.parametrize("survived", range(2 * FILES_OF_A_SAVE))
def test_a_kill_between_any_two_files_changes_nothing_in_the_end(
    tmp_path, monkeypatch, survived
):
    config = toy_config("orig_icl", "steps=4")
    train([config], output=tmp_path / "whole", checkpoint_every=2)
    put, moves = Path.replace, []

    def put_or_die(self, target):
        if len(moves) == survived:
            raise Killed
        moves.append(target)
        return put(self, target)

    monkeypatch.setattr(Path, "replace", put_or_die)
    with pytest.raises(Killed):
        train([config], output=tmp_path / "killed", checkpoint_every=2)
    monkeypatch.undo()
    train([config], output=tmp_path / "killed", checkpoint_every=2, resume=True)
    for name in ("model.safetensors", "model.json", "checkpoint.safetensors"):
        expected = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "killed" / name).read_bytes() == expected, name


FULL_DISK = """
import resource, shutil, signal, sys
from pathlib import Path
from icssl.training.config import load_config
from icssl.training.loop import train

folder = Path(sys.argv[1])
checkpoint = folder / "run" / "checkpoint.safetensors"

def fill_the_disk(progress):
    if progress.step == 4:
        shutil.copy(checkpoint, folder / "before.safetensors")
        limit = checkpoint.stat().st_size - 100  # not for the model, which is smaller
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

config = load_config("transformer", sys.argv[2:])
try:
    train([config], output=folder / "run", checkpoint_every=2, report=fill_the_disk)
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on file sizes")
def test_a_full_disk_leaves_the_checkpoint_before_whole(tmp_path):
    overrides = toy("transformer", "steps=4")
    result = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), *overrides],
        capture_output=True,
        text=True,
        check=True,
    )
    folder = tmp_path / "run"
    path = folder / "checkpoint.safetensors"
    assert f"{path} could not be written" in result.stdout
    assert path.read_bytes() == (tmp_path / "before.safetensors").read_bytes()
    step, state = load_checkpoint(folder, [toy_config("transformer", "steps=4")], "cpu")
    assert (step, state.steps.tolist()) == (2, [2])
    wanted = {"checkpoint.json", "checkpoint.safetensors", "model.json"}
    assert {p.name for p in folder.iterdir()} == wanted | {"model.safetensors"}
