"""Methods by name, evaluation on shared episodes, and ``icssl evaluate``."""

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

from helpers import drawn_colours, toy_config
from icssl import Episode, ICSSLTransformer, ModelConfig
from icssl.app.cli import app
from icssl.bench.plots import COLOURS, draw_label_curves
from icssl.episodes.data_config import DataConfig
from icssl.episodes.stream import EpisodeStream
from icssl.evaluation.metrics import METRIC_NAMES, interval
from icssl.evaluation.predictors import (
    METHODS,
    ModelMethod,
    needed_truth,
    predictors_named,
    training_config,
)
from icssl.evaluation.scoring import evaluate
from icssl.methods import BASELINES, TRAINED
from icssl.model.build import save_model
from icssl.training.config import load_config
from icssl.training.loop import train
from icssl.training.presets import PRESETS

ROOT = Path(__file__).parents[1]
SPHERE = DataConfig(("sphere",), n=30)


def invoke(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


@pytest.fixture
def model(generator):
    config = ModelConfig.preset(
        "free", laplacian_layers=1, eigenmap_layers=1, layer_loops=1, stage_loops=1
    )
    return ICSSLTransformer(config)


def test_every_method_of_the_paper_has_a_name():
    path = ROOT / "src" / "icssl" / "bench" / "paper" / "paper_values.csv"
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "accuracy"]
    assert {row["method"] for row in rows} <= set(METHODS)
    assert set(METHODS) == set(TRAINED) | set(BASELINES)
    assert set(TRAINED) == set(PRESETS)


def test_all_methods_see_the_same_episodes_and_none_of_the_tuning_ones(model):
    seen = {}

    class Spy(ModelMethod):
        def tune(self, training):
            seen.setdefault("tune", []).append(training.x)
            return self

        def __call__(self, episode):
            seen.setdefault("test", []).append(episode)
            return super().__call__(episode)

    evaluate({"a": Spy(model), "b": Spy(model)}, SPHERE, [3], episodes=5, tuning=4)
    first, second = seen["test"]
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.labelled, second.labelled)
    assert first.labelled.sum(dim=1).tolist() == [3] * 5
    again = EpisodeStream(SPHERE.build(), 5, 0, "test").at(0, 3)
    assert torch.equal(first.x, again.x)
    same = (seen["tune"][0][:, None] == first.x[None]).flatten(2).all(dim=-1)
    assert not same.any()


def test_rows_hold_every_metric_and_the_majority_rate(model):
    methods = {"model": ModelMethod(model), "1-NN": BASELINES["nearest_neighbour"]}
    rows = evaluate(methods, SPHERE, [3, 0.5], episodes=6, tuning=3)
    assert [(row.method, row.labels) for row in rows] == [
        ("model", 3),
        ("1-NN", 3),
        ("model", 0.5),
        ("1-NN", 0.5),
    ]
    for row in rows:
        assert set(row.metrics) == set(METRIC_NAMES)
        assert row.majority_rate == 0.5  # the median rule
        assert row.metrics["accuracy"].mean == pytest.approx(row.accuracies.mean().item())
        assert json.loads(json.dumps(row.to_dict()))["episodes"] == 6
    assert "scaling" in rows[1].settings
    against = rows[0].versus(rows[1]).difference.mean
    wanted = (rows[0].accuracies - rows[1].accuracies).mean().item()
    assert against == pytest.approx(wanted, abs=1e-6)
    against = rows[0].versus(rows[1], "log_loss").difference.mean
    means = [row.metrics["log_loss"].mean for row in rows[:2]]
    assert against == pytest.approx(means[0] - means[1], abs=1e-5)


def test_models_of_one_name_are_averaged_episode_by_episode():
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        config = ModelConfig.preset("encoder", width=16)
        models.append(ModelMethod(ICSSLTransformer(config)))
    alone = {str(i): model for i, model in enumerate(models)}
    joint, *single = evaluate({"all": models, **alone}, SPHERE, [3], episodes=6, tuning=2)
    assert (joint.models, [row.models for row in single]) == (3, [1, 1, 1])
    assert joint.to_dict()["models"] == 3
    for name in joint.values:
        each = torch.stack([row.values[name] for row in single])
        assert not torch.equal(each[0], each[1])
        torch.testing.assert_close(joint.values[name], each.mean(dim=0))
        assert joint.metrics[name] == interval(joint.values[name])


def test_a_model_is_scored_by_the_softmax_of_its_logits_in_chunks(model):
    episode = EpisodeStream(SPHERE.build(), 300, 0, "test").at(0, 5)
    with torch.no_grad():
        wanted = model(episode).softmax(dim=-1)
    torch.testing.assert_close(ModelMethod(model)(episode), wanted, rtol=1e-4, atol=1e-5)


def test_ground_truth_is_drawn_for_those_that_read_it(model):
    plain = needed_truth({"model": ModelMethod(model)}, SPHERE)
    assert (plain.eigenvectors, plain.distances) == (0, False)
    eig = ModelMethod(ICSSLTransformer(ModelConfig.preset("eig_icl", k=7)))
    truth = needed_truth({"a": eig, "b": BASELINES["bayes_ceiling"]}, SPHERE)
    assert (truth.eigenvectors, truth.distances) == (7, True)
    with pytest.raises(ValueError, match=r"ceiling of 'swiss_roll' with .* is 1"):
        needed_truth({"b": BASELINES["bayes_ceiling"]}, DataConfig(("swiss_roll",)))


def test_ceiling_is_above_every_other_method_in_the_mean():
    names = ("bayes_ceiling", "svc_rbf", "orig_rbf_lr", "majority")
    methods = {name: predictors_named(name, SPHERE) for name in names}
    rows = evaluate(methods, needed_truth(methods, SPHERE), [10], episodes=60, tuning=10)
    best = rows[0].metrics["accuracy"]
    assert all(best.low > row.metrics["accuracy"].mean for row in rows[1:])


@pytest.mark.parametrize(("threshold", "radius"), [("published", torch.pi / 3), (0.5, 0.5)])
def test_ceiling_knows_the_radius_of_the_data(threshold, radius):
    (method,) = predictors_named("bayes_ceiling", replace(SPHERE, threshold=threshold))
    assert method.radius == pytest.approx(radius)


def test_a_trained_method_is_trained_on_the_source_of_the_test():
    config = training_config("transformer", DataConfig(("product",)), steps=7, seed=3)
    assert (config.model.d, config.data.sources) == (15, ("product",))
    assert (config.steps, config.seed) == (7, 3)
    (method,) = predictors_named("orig_icl", SPHERE, steps=2)
    assert method(SPHERE.build().draw(2, generator=torch.Generator())).shape == (2, 30, 2)


def test_cli_compares_files_and_names(tmp_path, model):
    save_model(model, tmp_path / "mine" / "model.safetensors")
    rows, plot = tmp_path / "rows.jsonl", tmp_path / "plot.png"
    result = invoke(
        tmp_path / "mine",
        "majority",
        "--labels=3,10",
        "--episodes=4",
        "--tuning=2",
        f"--rows={rows}",
        f"--plot={plot}",
    )
    assert result.exit_code == 0, result.output
    assert "largest class" in result.output
    assert "sphere: accuracy minus that of mine, paired over episodes" in result.output
    written = [json.loads(line) for line in rows.read_text().splitlines()]
    assert {(r["method"], r["labels"]) for r in written} == {
        (name, labels) for name in ("mine", "majority") for labels in (3, 10)
    }
    assert {COLOURS[0], COLOURS[1]} <= drawn_colours(plot)  # a curve per method


def test_cli_names_a_folder_that_is_called_like_the_data_by_its_path(
    tmp_path, model, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    save_model(model, tmp_path / "runs" / "sphere" / "model.safetensors")
    result = few("runs/sphere", "majority")
    assert result.exit_code == 0, result.output
    assert "sphere: accuracy minus that of runs/sphere, paired" in result.output


def few(*arguments):
    return invoke(*arguments, "--labels=3", "--episodes=4", "--tuning=2")


def test_cli_takes_a_folder_of_several_models(tmp_path):
    configs = [toy_config("orig_icl", f"seed={i}") for i in range(3)]
    train(configs, output=tmp_path / "run")
    rows = tmp_path / "rows.jsonl"
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    result = few(tmp_path / "run", checkpoint, "majority", f"--rows={rows}")
    assert result.exit_code == 0, result.output
    assert "run: 3 models, averaged episode by episode" in result.output
    assert "Warning" not in result.output
    written = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [(row["method"], row["models"]) for row in written] == [
        ("run", 3),
        ("run-checkpoint", 3),
        ("majority", 1),
    ]
    assert written[0]["metrics"] == written[1]["metrics"]


def test_cli_says_that_training_was_cut_short(tmp_path):
    def interrupt(progress):
        raise KeyboardInterrupt

    configs = [toy_config("orig_icl", f"seed={i}") for i in range(2)]
    with pytest.raises(KeyboardInterrupt):
        train(configs, output=tmp_path / "run", report=interrupt)
    result = few(tmp_path / "run")
    assert result.exit_code == 0, result.output
    warning = f"Warning: {tmp_path / 'run'} was trained for 1 of 6 steps."
    assert result.stderr.count(warning) == 1
    assert "Warning" not in result.stdout


@pytest.mark.parametrize(
    ("metric", "shown"),
    [
        ("log_loss", "sphere: log loss minus that of majority, paired over episodes"),
        ("expected_calibration_error", "there are no paired differences"),
    ],
)
def test_cli_compares_by_the_metric_that_was_asked_for(tmp_path, metric, shown):
    rows = tmp_path / "rows.jsonl"
    given = ["majority", "nearest_neighbour", f"--metric={metric}", f"--rows={rows}"]
    result = few(*given)
    assert result.exit_code == 0, result.output
    assert shown in " ".join(result.output.split())
    assert "accuracy" not in result.output
    if metric == "log_loss":
        one, other = (json.loads(line) for line in rows.read_text().splitlines())
        gap = other["metrics"][metric]["mean"] - one["metrics"][metric]["mean"]
        assert f"{gap:+.3f} ±" in result.output


@pytest.fixture
def table(tmp_path):
    """Four classes of fifty rows."""
    values = np.random.default_rng(0).normal(size=(200, 3))
    lines = [",".join(map(str, [*row, i % 4])) for i, row in enumerate(values)]
    path = tmp_path / "four.csv"
    path.write_text("\n".join(["a,b,c,label", *lines]))
    return path


def test_cli_takes_a_table_of_few_classes(tmp_path, table):
    pytest.importorskip("pandas")
    result = few("majority", f"--data={table}")
    assert result.exit_code == 2
    text = "".join(result.output.replace("│", "").split())
    assert "has4classes,0ofthemfortest" in text
    assert "settrain_classesto2" in text
    assert few("majority", f"--data={table}", "--train-classes=2").exit_code == 0
    sources = [f"data.sources={table}", "data.train_classes=3", "labels=3"]
    config = load_config("orig_icl", [*sources, "steps=2", "batch=2"])
    train([config], output=tmp_path / "run")
    result = few(tmp_path / "run", f"--data={table}", "--train-classes=2")
    assert "was trained on 3 classes" in result.stderr
    assert "give --train-classes 3" in result.stderr


def test_cli_lists_methods():
    result = invoke("--list")
    assert result.exit_code == 0
    assert all(name in result.output for name in METHODS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["e2e_icll"], "Did you mean 'e2e_icl'"),
        (["majority", "--labels", "3,many"], "'many'"),
        (["majority", "--labels", "300"], "from 1 to n - 1 = 99"),
        (["majority", "--data", "klein"], "unknown source 'klein'"),
        (["majority", "--metric", "accuraci"], "Did you mean 'accuracy'"),
        (["majority", "--data", "sphre"], "Did you mean 'sphere'"),
        (["runs/nix"], "runs/nix does not exist: give a folder that icssl train wrote"),
        (["nomodule:Class"], "there is no module 'nomodule' here"),
        (["icssl.methods.simple:Majorty"], "Did you mean 'Majority'"),
        (["icssl.methods.simple:SCALINGS"], "is of type tuple, which takes no episode"),
        (["icssl.evaluation.predictors:ModelMethod"], "could not be made without argument"),
        (["nothing.safetensors"], "nothing.safetensors does not exist"),
        (["empty"], "empty holds no model.safetensors: give a file of a model"),
        (["bayes_ceiling", "--data", "digits"], "bayes_ceiling needs true distances"),
        (["bayes_ceiling", "--data", "digits"], "got 'digits': leave it out"),
        (
            ["bayes_ceiling", "--data", "digits", "--threshold", "published"],
            "has classes of its own",
        ),
        (["majority", "--steps", "5"], "--steps 5 and majority exclude each other"),
        (["majority", "-O", "episodes=5"], "episodes cannot be an option here"),
        (["majority", "--train-classes", "5"], "train_classes=5 and sources=sphere"),
        (
            ["majority", "--data=digits", "--train-classes=5", "-O", "share_classes=true"],
            "train_classes=5 and share_classes=True exclude each other",
        ),
        (["majority", "--plot", "plot.txt"], "unknown kind of picture '.txt'"),
    ],
)
def test_cli_says_what_is_wrong(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    result = invoke(*arguments, "--episodes=3", "--tuning=2")
    assert result.exit_code == 2
    assert message.replace(" ", "") in "".join(result.output.replace("│", "").split())


def test_a_model_that_does_not_fit_is_refused_by_what_it_needs(tmp_path):
    config = ModelConfig.preset("paper", n_points=50)
    save_model(ICSSLTransformer(config), tmp_path / "model.safetensors")
    result = invoke(tmp_path, "--labels=3", "--episodes=3", "--tuning=2")
    assert result.exit_code == 2
    assert "built for 50 points" in " ".join(result.output.replace("│", "").split())


def test_rows_of_different_episodes_have_no_pairs():
    methods = {"a": BASELINES["nearest_neighbour"], "b": BASELINES["label_vote"]}
    few = {"episodes": 4, "tuning": 2}
    a3, b3, a9, b9 = evaluate(methods, SPHERE, [3, 9], **few)
    assert a3.versus(b3).difference.mean == pytest.approx(-b3.versus(a3).difference.mean)
    wanted = (a3.accuracies - b3.accuracies).mean().item()
    assert a3.versus(b3).difference.mean == pytest.approx(wanted, abs=1e-6)
    with pytest.raises(ValueError, match="no pairs: labels 3 and 9"):
        a3.versus(b9)
    with pytest.raises(ValueError, match="unknown metric of single episodes 'calibration'"):
        a3.versus(b3, "calibration")
    others = {
        "seed 0 and 1": evaluate(methods, SPHERE, [3], seed=1, **few)[1],
        "threshold 'median' and 0.5": evaluate(
            methods, replace(SPHERE, threshold=0.5), [3], **few
        )[1],
        "episodes 4 and 5": evaluate(methods, SPHERE, [3], episodes=5, tuning=2)[1],
    }
    for reason, row in others.items():
        with pytest.raises(ValueError, match=f"no pairs: {reason}"):
            a3.versus(row)
    # Ground truth beside the points changes no episode.
    truth = evaluate(methods, replace(SPHERE, eigenvectors=4), [3], **few)
    assert a3.versus(truth[1]) == a3.versus(b3)
    assert a3.versus(truth[0]).difference.mean == a9.versus(a9).difference.mean == 0


def test_rows_become_data_frames_that_have_every_episode(tmp_path):
    pd = pytest.importorskip("pandas")
    from icssl.evaluation.frames import read_rows, rows_frame

    file = tmp_path / "rows.jsonl"
    for seed in (0, 1):  # a second run appends
        given = ["majority", "nearest_neighbour", f"--rows={file}", f"--seed={seed}"]
        assert few(*given).exit_code == 0
    rows = read_rows(file)
    assert [(r["method"], r["seed"], r["n"]) for r in rows] == [
        ("majority", 0, 100),
        ("nearest_neighbour", 0, 100),
        ("majority", 1, 100),
        ("nearest_neighbour", 1, 100),
    ]
    frame = rows_frame(rows)
    assert set(METRIC_NAMES) <= set(frame.columns)
    assert set(frame["threshold"]) == {"median"}
    long = rows_frame(rows, per_episode=True)
    assert len(long) == 4 * 4
    means = long.groupby(["method", "seed"])["accuracy"].mean()
    for row in rows:
        mean = row["metrics"]["accuracy"]["mean"]
        assert means[row["method"], row["seed"]] == pytest.approx(mean, abs=1e-5)
    one = evaluate({"vote": BASELINES["label_vote"]}, SPHERE, [3], episodes=4, tuning=2)
    pd.testing.assert_frame_equal(rows_frame(one), rows_frame([one[0].to_dict()]))
    bench = rows_frame(read_rows(ROOT / "results" / "full" / "rows.jsonl")[:3])
    assert {"method", "labels", "source", "accuracy", "key"} <= set(bench.columns)
    with pytest.raises(FileNotFoundError, match="--rows"):
        read_rows(tmp_path / "none.jsonl")


def test_a_class_of_ones_own_is_compared_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_methods.py").write_text(
        """
import torch
from icssl.methods.simple import Majority

class Guess(Majority):
    pass

def always_first(episode):
    zeros = torch.zeros(*episode.y.shape, episode.n_classes)
    zeros[..., 0] = 1
    return zeros
"""
    )
    names = ["own_methods:Guess", "majority", "own_methods:always_first"]
    rows = tmp_path / "rows.jsonl"
    result = few(*names, f"--rows={rows}")
    assert result.exit_code == 0, result.output
    own, theirs, first = map(json.loads, rows.read_text().splitlines())
    assert [r["method"] for r in (own, theirs, first)] == names
    assert own["values"] == theirs["values"]
    assert first["values"]["balanced_accuracy"] == [0.5] * 4


def test_one_source_at_a_time():
    with pytest.raises(ValueError, match="one source at a time"):
        evaluate({}, DataConfig(("sphere", "torus")), [3])


@pytest.mark.parametrize(
    "wrong",
    [
        ["svc_rfb"],
        ["bayes_ceiling", "--data=swiss_roll"],
        ["bayes_ceiling", "--data=digits"],
        ["majority", "--labels=100"],
        ["majority", "--data=digits", "--train-classes=1"],
    ],
)
def test_cli_refuses_before_it_trains(monkeypatch, wrong):
    monkeypatch.setattr("icssl.evaluation.predictors.train", pytest.fail)
    assert invoke("e2e_icl", *wrong).exit_code == 2


@pytest.mark.parametrize(
    "wrong", [["svc_rfb"], ["svc_rbf", "--data=sphre"], ["svc_rbf", "--metric=accuraci"]]
)
def test_cli_refuses_a_typing_error_before_slow_imports(wrong):
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from icssl.app.cli import app\n"
        "result = CliRunner().invoke(app, ['evaluate', *sys.argv[1:]])\n"
        "print(result.exit_code, *sys.modules)"
    )
    command = [sys.executable, "-c", code, *wrong]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    exit_code, *loaded = result.stdout.split()
    assert exit_code == "2"
    assert not {"sklearn", "matplotlib", "pandas"} & set(loaded)


def test_curves_have_ticks_at_the_budgets_and_a_legend_beside_them(tmp_path, monkeypatch):
    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k))
    )
    methods = {"majority": BASELINES["majority"], "1-NN": BASELINES["nearest_neighbour"]}
    rows = evaluate(methods, SPHERE, [3, 5, 21], episodes=4, tuning=2)
    draw_label_curves([row.to_dict() for row in rows], "accuracy", tmp_path / "plot.png")
    (figure,) = drawn
    (axes,), (legend,) = figure.axes, figure.legends
    assert axes.get_xticks().tolist() == [3, 5, 21]
    assert {text.get_text() for text in legend.get_texts()} == {*methods, "largest class"}
    assert not legend.get_window_extent().overlaps(axes.get_tightbbox())


def test_eigenvector_regression_does_not_depend_on_its_company():
    wide = DataConfig(("torus",), n=30, eigenvectors=8).build()
    episode = wide.draw(4, generator=torch.Generator().manual_seed(0))
    narrow = Episode(
        episode.x, episode.y, episode.labelled, features=episode.features[..., :4]
    )
    method = BASELINES["eig_lr"]
    assert torch.equal(method(episode), method(narrow))
