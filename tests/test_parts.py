"""The benchmark of the classifier's parts: its contexts and variants are what they say."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from helpers import skip_without_reader
from icssl import ICSSLClassifier
from icssl.classifier.gate import HEADS

pd = pytest.importorskip("pandas")

import parts  # noqa: E402
from icssl.bench.real.datasets import draw_context  # noqa: E402
from icssl.methods.peers import Context  # noqa: E402

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def iris():
    table = load_iris(as_frame=True).frame
    return table.assign(target=table["target"].astype(str))


@pytest.fixture(scope="module")
def context(iris):
    return draw_context(iris, "iris", 0, 2)


@pytest.fixture(scope="module")
def fitted(context):
    with torch.no_grad():
        return parts.fit_variants(context)


@pytest.mark.parametrize("n_classes", [2, 3, 11])
def test_uneven_shares_are_within_their_bounds(n_classes):
    drawn = np.stack(
        [parts.uneven_shares(n_classes, np.random.default_rng(seed)) for seed in range(200)]
    )
    np.testing.assert_allclose(drawn.sum(axis=1), 1)
    least = 0.05 if n_classes == 2 else 0.03 / (1 + 0.03 * n_classes)
    assert least <= drawn.min() < 1.5 * least  # they are uneven, too
    assert len(set(drawn.argmax(axis=1))) == n_classes  # any class can be the largest


@pytest.mark.parametrize("seed", range(5))
def test_uneven_tables_have_the_shares_that_were_drawn(seed):
    y = np.repeat(["a", "b"], [4000, 3000])
    table = pd.DataFrame({"column": np.arange(7000.0), "target": y})
    sample = parts.subsample(table, np.random.default_rng(seed))
    expected = parts.uneven_shares(2, np.random.default_rng(seed))
    counts = sample["target"].value_counts().sort_index().to_numpy()
    np.testing.assert_allclose(counts, parts.MOST_ROWS * expected, atol=0.51)
    assert sample["column"].is_unique


@pytest.mark.parametrize("column_scale", ["auto", "each", "common"])
def test_variants_predict_as_the_classifier_does(context, fitted, column_scale):
    name = "released" if column_scale == "auto" else f'column_scale="{column_scale}"'
    each = fitted[name]
    probabilities = each.log_probabilities(each.predict_context())[0].exp().numpy()
    classifier = ICSSLClassifier(column_scale=column_scale, device="cpu")
    classifier.fit(context.table, context.visible_labels)
    np.testing.assert_allclose(
        probabilities[~context.labelled],
        classifier.label_distributions_[~context.labelled],
        atol=1e-5,
    )


def test_heads_that_are_left_out_have_no_weight(fitted):
    linear = HEADS.index("linear")
    assert fitted["released"].weights[0, linear] > 0
    assert fitted["without the linear head"].weights[0, linear] == 0
    assert fitted["linear head alone"].weights[0, linear] == 1


def test_parts_that_are_left_out_had_an_effect(fitted):
    """Iris has columns of one unit. The rule for noisy tables does not concern it."""
    logs = {
        name: each.log_probabilities(each.predict_context())
        for name, each in fitted.items()
    }
    released = logs.pop("released")
    for name in ("heads as trained", "shares as trained"):
        del logs[name]
    for name, other in logs.items():
        assert (released - other).abs().max() > 1e-3, name


def test_noise_raises_the_weight_of_lines_unless_heads_are_as_trained():
    linear, raised = HEADS.index("linear"), []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(300, 6))
        y = x[:, 0] + x[:, 1] + 1.5 * rng.normal(size=300) > 0
        table = pd.DataFrame(x * 10.0 ** np.arange(6))
        context = Context(table, y.astype(np.int64), np.arange(300) < 20, 2)
        with torch.no_grad():
            fitted = parts.fit_variants(context)
        released, trained, plain = (
            fitted[name].weights[0, linear].item()
            for name in ("released", "heads as trained", "without corrections")
        )
        assert trained == plain
        raised.append(released - trained)
    assert min(raised) > -1e-9  # the rule never lowers it
    assert np.mean(raised) > 0.03


def test_parts_are_measured_at_toy_size(tmp_path, iris):
    skip_without_reader("iris.parquet")
    iris.to_parquet(tmp_path / "iris.parquet")
    few = ["--sets", "iris", "--labels", "2", "--draws", "1", "--workers", "2"]
    places = ["--data", tmp_path, "--json", tmp_path / "parts.json"]
    script = ROOT / "benchmarks" / "parts.py"
    result = subprocess.run(
        [sys.executable, script, *places, *few], check=True, capture_output=True, text=True
    )
    line = json.loads((tmp_path / "parts.json").read_text())
    assert json.loads(result.stdout.splitlines()[-1]) == line
    assert set(line["kinds"]) == {"per-class", "random", "uneven"}
    for lines in line["kinds"].values():
        assert lines[0]["variant"] == "released"
        assert all(0 < each["accuracy"] <= 1 for each in lines)
        assert f"| {lines[0]['accuracy']:.4f} |" in result.stdout
