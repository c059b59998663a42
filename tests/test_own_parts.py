"""Heads and kernels of one's own, learned scales by name, and runs that go on."""

import re
import shutil
import subprocess
import sys

import pytest
import torch

from helpers import F64, random_episode, run_command, text_of, toy_config
from icssl import ICSSLTransformer, ModelConfig, load_model, save_model
from icssl._util.references import ReferenceNotFoundError, object_at
from icssl.evaluation.metrics import accuracy
from icssl.model import head as heads
from icssl.model.build import build_model
from icssl.model.head import GradientDescentHead
from icssl.model.model_config import OF_TRAINING, PRESETS
from icssl.model.tokens import TokenTransformer
from icssl.training.config import TrainConfig, config_from, load_config
from icssl.training.group import Group, episode_drawer
from icssl.training.loop import train
from icssl.training.presets import PRESETS as TRAINING_PRESETS

MODULE = '''
import torch
from torch import nn

SIZE = 3


class NearestMean(nn.Module):
    """Logits from squared distances to the mean feature of each class."""

    def __init__(self, config):
        super().__init__()
        self.sharpness = nn.Parameter(torch.tensor(1.0))
        self.n_classes = config.n_classes

    def forward(self, phi, y, labelled, *, n_classes=None, points=None,
                backend="dense", record=None):
        shown = torch.where(labelled, y, self.n_classes)
        member = nn.functional.one_hot(shown, self.n_classes + 1)[..., :-1].to(phi.dtype)
        mean = member.mT @ phi / member.sum(dim=1)[..., None].clamp(min=1)
        return -self.sharpness * (phi[:, :, None] - mean[:, None]).square().sum(dim=-1)


def laplace(query, key, gamma):
    gaps = (query[:, :, None] - key[:, None]).abs().sum(dim=-1)
    return (-gamma * gaps).exp()


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.share = nn.Parameter(torch.tensor(0.5))

    def forward(self, query, key, gamma):
        return self.share * laplace(query, key, gamma) + query @ key.mT
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with a module of one's own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_parts.py").write_text(MODULE)
    return tmp_path


OWN = {
    "a head": {"head": "own_parts:NearestMean"},
    "a kernel": {"kernel": "own_parts:laplace"},
    "a kernel with weights": {"kernel": "own_parts:Mixed", "steps": 2},
}


@pytest.mark.parametrize("changes", OWN.values(), ids=OWN)
def test_own_parts_are_trained_resumed_saved_and_loaded(own, changes):
    options = [f"model.{name}={value}" for name, value in changes.items()]
    config = toy_config("e2e_icl", *options)
    (whole,) = train([config], output=own / "whole", checkpoint_every=3)
    for step in ("first", "second"):
        if step == "first":  # cut short after three of six steps
            with pytest.raises(KeyboardInterrupt):
                train([config], output=own / "cut", checkpoint_every=3, observe={4: _stop})
        else:
            (resumed,) = train([config], output=own / "cut", resume=True)
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    loaded = load_model(own / "whole")
    assert loaded.config == config.model
    episode = episode_drawer([config], "cpu")(0)[0]
    assert torch.equal(loaded(episode), whole(episode))
    fresh = Group([config]).models_of(Group([config]).fresh_weights())[0]
    moved = [
        name
        for name, value in whole.state_dict().items()
        if name.startswith("head") and not torch.equal(fresh.state_dict()[name], value)
    ]
    assert moved, "training left every weight of the head as it was"


def _stop(step, weights):
    raise KeyboardInterrupt


def test_own_head_is_trained_from_the_command_line(own):
    output = own / "run"
    overrides = ["model.head=own_parts:NearestMean", "steps=2", "batch=2", "data.n=12"]
    result = run_command(
        "train", "e2e_icl", *overrides, "labels=3", "--output", output, "--no-tensorboard"
    )
    assert result.exit_code == 0, result.output
    result = run_command(
        "evaluate", output, "--labels", "3", "--episodes", "4", "--data", "sphere"
    )
    assert result.exit_code == 0, result.output


def test_own_kernel_is_what_the_head_descends_with(own, generator):
    """The built-in RBF kernel, written again as one's own, gives the same model."""
    (own / "again.py").write_text(
        "def rbf(query, key, gamma):\n"
        "    gaps = (query[:, :, None] - key[:, None]).square().sum(dim=-1)\n"
        "    return (-gamma * gaps).exp()\n"
    )
    episode = random_episode(generator, k=3)
    builtin = GradientDescentHead("rbf", 3, 2, gamma=0.7).double()
    written = GradientDescentHead("again:rbf", 3, 2, gamma=0.7).double()
    for backend in ("dense", "matrix_free"):
        arguments = (episode.features, episode.y, episode.labelled)
        torch.testing.assert_close(
            written(*arguments, backend=backend), builtin(*arguments), **F64
        )


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"head": "own_parts:Nearest"}, ImportError, "has no 'Nearest'. Did you mean"),
        ({"head": "gone_module:Head"}, ImportError, "there is no module 'gone_module'"),
        ({"head": "own_parts:SIZE"}, ValueError, "must be a class of torch.nn.Module"),
        ({"kernel": "own_parts:SIZE"}, ValueError, "must be a function or a class"),
        ({"head": "descnet"}, ValueError, "'encoder', or module:Class of your own"),
        ({"kernel": "rfb"}, ValueError, "unknown kernel 'rfb'.*Did you mean 'rbf'"),
    ],
)
def test_own_parts_that_are_not_there(own, changes, error, message):
    with pytest.raises(error, match=message):
        build_model(ModelConfig(**changes))


def test_a_model_whose_module_is_gone_says_so(own, monkeypatch):
    (own / "passing.py").write_text(MODULE)
    config = ModelConfig(features="coordinates", head="passing:NearestMean")
    save_model(ICSSLTransformer(config), "model.safetensors")
    (own / "passing.py").unlink()
    shutil.rmtree(own / "__pycache__", ignore_errors=True)
    monkeypatch.delitem(object_at("sys:modules"), "passing")
    with pytest.raises(ReferenceNotFoundError, match="no module 'passing'"):
        load_model("model.safetensors")


def test_a_kernel_without_a_branch_is_an_error_and_not_softmax(generator, monkeypatch):
    monkeypatch.setattr(heads, "KERNELS", (*heads.KERNELS, "laplace"))
    episode = random_episode(generator, k=3)
    head = GradientDescentHead("laplace").double()
    arguments = (episode.features, episode.y, episode.labelled)
    with pytest.raises(NotImplementedError, match="no branch for 'laplace'"):
        head(*arguments)
    tokens = TokenTransformer(head, *arguments)
    with pytest.raises(NotImplementedError, match="no attention for the kernel 'laplace'"):
        tokens.logits()


def test_a_model_that_would_not_load_again_is_not_saved(own):
    model = ICSSLTransformer(ModelConfig.preset("orig_icl"))
    model.head = torch.nn.Linear(3, 2)
    with pytest.raises(ValueError, match="head is a Linear, and the configuration says"):
        save_model(model, own / "model.safetensors")
    model = ICSSLTransformer(ModelConfig.preset("orig_icl"))
    model.head.embedding = torch.nn.Parameter(torch.zeros(2, 7))
    with pytest.raises(ValueError, match="weights of the model are not those"):
        save_model(model, own / "model.safetensors")
    assert not (own / "model.safetensors").exists()


def test_a_folder_of_several_models_is_not_one_model(own):
    for name in ("model-0", "model-1"):
        save_model(ICSSLTransformer(ModelConfig.preset("orig_icl")), f"{name}.safetensors")
    with pytest.raises(ValueError, match="folder with 2 models"):
        load_model(own)


def test_learned_scales_have_names():
    model = ICSSLTransformer(ModelConfig(sigma=2.0, laplacian_heads=1, steps=3))
    with torch.no_grad():
        model.laplacian.key_scale.fill_(0.5)
        model.laplacian.query_scale.fill_(0.125)
        model.eigenmap.key_r.fill_(2.0)
        model.eigenmap.query_r.fill_(-1.0)
        model.head.log_gamma.fill_(0.0)
    scales = model.learned_scales()
    torch.testing.assert_close(scales["laplacian.bandwidth"], torch.full((2, 1), 4.0))
    assert scales["laplacian.attracts"].all()
    assert scales["eigenmap.power"].eq(-2).all()
    assert scales["head.gamma"] == 1
    assert scales["head.step_size"].tolist() == [1.0, 1.0, 1.0]
    text = repr(model)
    for part in ("bandwidths=[[4.0], [4.0]]", "power=[-8.0", "gamma=1", "step_size=[1.0"):
        assert part in text  # four heads of -2 each
    alone = ICSSLTransformer(ModelConfig.preset("orig_icl", kernel="linear"))
    assert set(alone.learned_scales()) == {"head.step_size"}


def test_a_run_can_be_extended(own):
    config = toy_config("orig_icl")
    train([config], output=own / "run")
    longer = config_from({**config.to_dict(), "steps": 9})
    (model,) = train([longer], output=own / "run", resume=True)
    assert len(list((own / "run").glob("model*.safetensors"))) == 1
    before = toy_config("orig_icl", "steps=5")
    with pytest.raises(ValueError, match="steps: 9 in the checkpoint, 5 given"):
        train([before], output=own / "run", resume=True)
    result = run_command(
        *("train", "--resume", "--output", own / "run", "--extend-to", "12"),
        "--no-tensorboard",
    )
    assert result.exit_code == 0, result.output
    assert "step 12 of 12" in text_of(result)
    assert not torch.equal(load_model(own / "run").head.step_size, model.head.step_size)
    for wrong in (["--extend-to", "20"], ["--resume", "--extend-to", "12"]):
        result = run_command("train", "orig_icl", "--output", own / "run", *wrong)
        assert result.exit_code == 2
        assert "--extend-to" in text_of(result)


def test_a_run_can_start_from_weights(own):
    config = toy_config("orig_icl", "learning_rate=1e-9", "steps=1")
    model = ICSSLTransformer(config.model)
    with torch.no_grad():
        model.head.step_size.fill_(7.0)
    save_model(model, own / "first.safetensors")
    (trained,) = train([config], start=own / "first.safetensors")
    torch.testing.assert_close(trained.head.step_size, model.head.step_size)
    other = ICSSLTransformer(ModelConfig.preset("orig_icl", steps=2))
    save_model(other, own / "other.safetensors")
    message = r"has other weights.*head.step_size is \(2,\) in it and \(1,\) here"
    with pytest.raises(ValueError, match=message):
        train([config], start=own / "other.safetensors")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: load_config("e2e_icl", ["lr=0.1"]),
            "Did you mean 'learning_rate'",
        ),
        (
            lambda: ModelConfig.preset("e2e_icl"),
            r"preset of `icssl train`; its model starts from ModelConfig.preset\('free'\)",
        ),
        (
            lambda: load_config("transformer", ["gamma_rate=0.1"]),
            "gamma_rate=0.1 and a model without a descent head exclude",
        ),
        (
            lambda: load_config("e2e_icl", ["gamma_rate=0.1", "model.kernel=linear"]),
            "kernel='linear' exclude",
        ),
    ],
)
def test_messages_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()


WRONG_TYPES = """
import torch
from icssl import ICSSLTransformer, ModelConfig
from icssl.training.config import load_config
from icssl.training.loop import train

for call in (
    lambda: train("e2e_icl"),
    lambda: train(load_config("e2e_icl")),
    lambda: train([ModelConfig()]),
    lambda: ICSSLTransformer()(torch.zeros(1, 5, 3)),
):
    try:
        call()
    except TypeError as error:
        print(error)
"""


def test_wrong_types_are_explained():
    """In a process of its own: here beartype would refuse them before we can."""
    result = subprocess.run(
        [sys.executable, "-c", WRONG_TYPES], capture_output=True, text=True, check=True
    )
    lines = result.stdout.splitlines()
    parts = ("train([load_config(...)])", "train([config])", "got ModelConfig: make one")
    for line, part in zip(lines, (*parts, "takes an Episode, got Tensor"), strict=True):
        assert part in line


def test_a_misspelt_source_is_refused_before_it_is_printed():
    result = run_command("train", "e2e_icl", "data.sources=tours", "--show")
    assert result.exit_code == 2
    assert "Did you mean 'torus'" in text_of(result)


def test_presets_of_training_know_their_models():
    for name, base in OF_TRAINING.items():
        assert TRAINING_PRESETS[name]["model"]["preset"] == base
    staged = {
        name
        for name, preset in TRAINING_PRESETS.items()
        if "preset" in preset["model"] and name not in PRESETS
    }
    assert staged == {*OF_TRAINING}


def best_loss_at(model, gamma, episode):
    """The loss at a gamma with the best of many step sizes, which move no prediction."""
    losses = []
    for step_size in (2.0**i for i in range(8)):
        with torch.no_grad():
            model.head.log_gamma.fill_(torch.tensor(gamma).log())
            model.head.step_size.fill_(step_size)
            logits = model(episode)
        hidden = ~episode.labelled
        loss = torch.nn.functional.cross_entropy(logits[hidden], episode.y[hidden])
        losses.append(loss.item())
    return min(losses), accuracy(logits.softmax(dim=-1), episode).mean().item()


def test_a_head_that_trains_only_gamma_reaches_the_best_of_a_scan():
    """Scanned on episodes that training has not seen; at the usual rate it is missed.

    With the exact expectation and one step, gamma alone decides every prediction.
    """
    model = {"preset": "orig_icl", "embedding": "simplex", "gamma": 0.0001}
    values = {
        "model": {**model, "step_size": 8.0},
        "data": {"n": 40},
        "labels": [10],
        "steps": 120,
        "batch": 16,
    }
    fitted = config_from({**values, "gamma_rate": 0.3})
    source = fitted.data.build()
    episode = source.draw(200, generator=torch.Generator().manual_seed(1), labels=10)
    scanned = build_model(fitted.model)
    scan = [best_loss_at(scanned, 0.0001 * 2**i, episode) for i in range(18)]
    least, most = min(loss for loss, _ in scan), max(right for _, right in scan)

    def scores(config):
        (trained,) = train([config])
        gamma = trained.learned_scales()["head.gamma"].item()
        return best_loss_at(scanned, gamma, episode)

    loss, right = scores(fitted)
    # Fresh episodes of batches of sixteen: the optimum is flat, and training is noisy.
    assert loss < least + 0.02
    assert right > most - 0.02
    assert scores(config_from(values))[0] > least + 0.05


def test_gamma_has_its_rate_and_no_other_weight_has():
    config = toy_config("e2e_icl", "gamma_rate=0.1", "steps=1", "warmup=0")
    plain = toy_config("e2e_icl", "steps=1", "warmup=0")
    group = Group([config])
    place = group.place_of("head.log_gamma")
    (first,), start = train([config]), group.fresh_weights()[0]
    (second,) = train([plain])
    moved, usual = (group.row_of(model) - start for model in (first, second))
    torch.testing.assert_close(moved[place], 10 * usual[place], rtol=1e-3, atol=1e-6)
    moved[place] = usual[place] = 0
    assert torch.equal(moved, usual)
    assert "gamma_rate" not in TrainConfig().to_dict()
    with pytest.raises(ValueError, match=re.escape("no parameter 'gamma'")):
        group.place_of("gamma")
