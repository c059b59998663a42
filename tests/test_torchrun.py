"""Processes that share every batch train the weights that one process would."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from icssl.app.cli import app
from icssl.classifier.model import ContextConfig, ContextModel
from icssl.classifier.pretraining import train as pretrain_file
from icssl.classifier.pretraining.processes import ALONE, Processes
from icssl.classifier.pretraining.synthetic_tables import TaskSpec
from icssl.classifier.pretraining.train import (
    PretrainConfig,
    draw_task,
    features_of_task,
    loss_of,
    pretrain,
)
from icssl.classifier.weights import RELEASED, load_context_model

TOY = PretrainConfig(
    model=ContextConfig(k=4, steps=3, width=8, embedding=4, members=2),
    tasks=TaskSpec(points=(20, 30), columns=(2, 5), classes=(2, 3), most_numbers=200),
    steps=6,
    batch=4,
    draws=2,
)

# Two processes sum a batch in two parts, in float32: losses and weights were 6e-8 apart
# after these steps, and other machines may sum otherwise. A wrong share of the loss, or
# gradients that are not added, put them 3e-4 apart.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
# Kernels and heads are weighed by softmaxes, which a common bias does not change: its
# gradient is rounding alone, and Adam makes steps of it. That of heads is the first of two.
IDLE = re.compile(r"gates\.\d+\.(weigh|head)\.4\.bias")

DRIVER = """
import json, sys
from pathlib import Path
import torch
from test_torchrun import TOY, raw_losses
from icssl.classifier.pretraining.train import pretrain
from icssl.classifier.pretraining.processes import processes_of_torchrun

torch.set_num_threads(1)
folder = Path(sys.argv[1])
with processes_of_torchrun("cpu") as (processes, device):
    for name in ("straight", "resumed"):
        told = []
        model = pretrain(
            TOY,
            device=device,
            checkpoint=folder / name / "checkpoint.safetensors",
            report=told.append,
            processes=processes,
        )
        rank = processes.rank
        torch.save(model.state_dict(), folder / f"{name}-{rank}.pt")
        (folder / f"{name}-{rank}.json").write_text(json.dumps(raw_losses(told)))
"""


def raw_losses(told):
    """Of every step, from the moving averages that are reported."""
    means = [progress.loss for progress in told]
    later = [(b - 0.99 * a) / 0.01 for a, b in pairwise(means)]
    return means[:1] + later


def torchrun(*arguments, processes=2):
    """Run a script by torchrun; its exit code, and all that was printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={processes}", *map(str, arguments)]
    here = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": here, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    return found.returncode, found.stdout + found.stderr


@pytest.fixture(scope="module")
def alone():
    """Losses and weights of one process."""
    told = []
    model = pretrain(TOY, report=told.append)
    return raw_losses(told), model.state_dict()


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """A folder with what two processes did: a whole run, and the rest of another's."""
    folder = tmp_path_factory.mktemp("together")

    checkpoint, now = folder / "resumed" / "checkpoint.safetensors", SimpleNamespace(s=0)

    def a_minute_passes(_):
        now.s += 60

    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(monotonic=lambda: now.s)
        patch.setattr(pretrain_file, "time", clock)
        done = pretrain(TOY, checkpoint=checkpoint, minutes=1.5, report=a_minute_passes)
    assert done is None
    (folder / "driver.py").write_text(DRIVER)
    code, output = torchrun(folder / "driver.py", folder)
    assert code == 0, output
    return folder


def read(folder, name, rank):
    losses = json.loads((folder / f"{name}-{rank}.json").read_text())
    return losses, torch.load(folder / f"{name}-{rank}.pt")


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        used = slice(1 if IDLE.fullmatch(name) else 0, None)
        torch.testing.assert_close(
            found[name][used],
            tensor[used],
            **CLOSE,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def test_two_processes_have_the_losses_and_weights_of_one(alone, together):
    expected_losses, expected = alone
    losses, weights = read(together, "straight", 0)
    assert len(losses) == TOY.steps
    assert max(losses) - min(losses) > 0.05  # a curve, not a line
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected_losses), **CLOSE)
    assert_close(weights, expected)


def test_a_run_of_one_process_goes_on_in_two(alone, together):
    expected_losses, expected = alone
    losses, weights = read(together, "resumed", 0)
    assert len(losses) == TOY.steps - 2
    rest = torch.tensor(expected_losses[2:])
    torch.testing.assert_close(torch.tensor(losses), rest, **CLOSE)
    assert_close(weights, expected)


@pytest.mark.parametrize("name", ["straight", "resumed"])
def test_only_the_first_process_writes_and_reports(together, name):
    losses, weights = read(together, name, 1)
    assert losses == []
    for key, tensor in read(together, name, 0)[1].items():
        assert torch.equal(weights[key], tensor), key  # both have the same model
    written = sorted(path.name for path in (together / name).iterdir())
    assert written == ["checkpoint.json", "checkpoint.safetensors"]


def test_parts_add_up_to_the_whole():
    """Also where contexts have unlike numbers of unlabelled rows."""
    torch.manual_seed(0)
    model, unlike = ContextModel(TOY.model), 0
    for step in range(6):
        whole = draw_task(TOY, "pretrain", step, "cpu")
        expected = gradient_of(
            model, loss_of(model, features_of_task(whole, TOY, step), whole)
        )
        total = torch.zeros_like(expected)
        for rank in range(2):
            task = whole.part(Processes(rank, 2).part(TOY.batch))
            total += gradient_of(
                model, loss_of(model, features_of_task(task, TOY, step), task, whole)
            )
        torch.testing.assert_close(total, expected, rtol=1e-3, atol=1e-5)
        counts = (~whole.labelled).sum(dim=1)
        unlike += int(counts[:2].sum() != counts[2:].sum())
    assert unlike > 0


def gradient_of(model, loss):
    """The loss, and its gradient, as one vector."""
    model.zero_grad()
    loss.backward()
    found = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat([loss.detach()[None], *found])


def test_a_batch_that_does_not_divide_is_refused(tmp_path):
    with pytest.raises(ValueError, match="multiple of the number of processes, 3, got 4"):
        pretrain(TOY, checkpoint=tmp_path / "checkpoint", processes=Processes(0, 3))
    assert not list(tmp_path.iterdir())
    assert [ALONE.part(4), Processes(1, 2).part(4)] == [slice(0, 4), slice(2, 4)]


# The command

COMMAND = """
from functools import partial
from test_torchrun import TOY
from icssl.classifier.pretraining import train as pretrain_file
from icssl.app.cli import app

sizes = {"model": TOY.model, "tasks": TOY.tasks}
pretrain_file.PretrainConfig = partial(pretrain_file.PretrainConfig, **sizes)
app()
"""


def test_the_command_under_torchrun(tmp_path, monkeypatch):
    (tmp_path / "command.py").write_text(COMMAND)
    # Several would be trained in processes of their own, and each on its own tables.
    options = ("pretrain", "--steps", "3", "--batch", "2", "--members", "1", "-o")
    code, output = torchrun(tmp_path / "command.py", *options, tmp_path / "two")
    assert code == 0, output
    assert "".join(output.split()).count(RELEASED) == 1
    sizes = {"model": TOY.model, "tasks": TOY.tasks}
    monkeypatch.setattr(pretrain_file, "PretrainConfig", partial(PretrainConfig, **sizes))
    result = CliRunner().invoke(app, [*options, str(tmp_path / "one")])
    assert result.exit_code == 0, result.output
    two, one = (
        load_context_model(tmp_path / name / RELEASED).state_dict()
        for name in ("two", "one")
    )
    assert_close(two, one)


def test_the_command_refuses_a_batch_that_does_not_divide(tmp_path):
    arguments = ("-m", "icssl", "pretrain", "--batch", "3", "-o", tmp_path / "new")
    code, output = torchrun(*arguments)
    assert code != 0
    plain = " ".join(re.sub(r"[│╭╮╰╯─]", " ", output).split())
    assert "multiple of the number of processes, 2, got 3" in plain
    assert not list(tmp_path.iterdir())
