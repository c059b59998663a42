"""The benchmark on real data, on small sets that stand in for the real ones."""

import json
import multiprocessing
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier

pytest.importorskip("pandas")

import pandas as pd

from helpers import run_command, text_of
from icssl import ICSSLClassifier
from icssl._util.random import generator_for
from icssl.bench.pool import Lane, Pool
from icssl.bench.real import cells as summary
from icssl.bench.real import comparisons, pages
from icssl.bench.real import datasets as suite
from icssl.bench.real import scores as bench
from icssl.bench.real.datasets import HALVES, SETS, draw_context, fingerprint, read_set
from icssl.bench.real.scores import RealSpec, score, specs_of
from icssl.bench.runner import run_missing
from icssl.bench.store import Store
from icssl.bench.work import row_of as run_spec
from icssl.classifier.weights import weights_id
from icssl.episodes.episode import Episode
from icssl.evaluation import metrics
from icssl.methods import peers, registry
from icssl.methods.peers import as_numbers
from icssl.methods.registry import (
    LABELLED_ONLY,
    OURS,
    REGISTRY,
    Recipe,
    choose_methods,
    names_in,
    recipe_of,
)

FAST = ["logistic_regression", "nearest_neighbour"]
OWN = [OURS, LABELLED_ONLY]
PEERS = [name for name in names_in("real") if name not in OWN]


def peer(name):
    return recipe_of("real", name).method


def replace_peer(monkeypatch, name, method, settings="other"):
    """Let another method run under a name, with other settings in the key."""
    entry = replace(REGISTRY[name], where={"real": Recipe(lambda: method, settings)})
    monkeypatch.setitem(REGISTRY, name, entry)


def graph_learning():
    """GraphLearning is compiled: it is not on every machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # not ours to mend
        return pytest.importorskip("graphlearning")


def blobs(n=61, c=3, d=3, seed=0, spread=0.3):
    """Classes that lie far apart."""
    centres = 10 * np.eye(c, d)
    x, y = make_blobs(n, centers=centres, cluster_std=spread, random_state=seed)
    names = np.array(["red", "green", "blue", "grey"])
    return pd.DataFrame(x, columns=[f"column{i}" for i in range(d)]).assign(target=names[y])


def mixed(n=50):
    """Numbers and categories, some cells missing."""
    rng = np.random.default_rng(0)
    table = blobs(n, c=2, d=2)
    table["kind"] = np.where(rng.random(n) < 0.4, "a", "b")
    table.loc[3, "kind"] = None
    table.loc[[5, 7], "column0"] = np.nan
    return table


@pytest.fixture
def folder(tmp_path):
    read_set.cache_clear()
    bench._context.cache_clear()
    data = tmp_path / "data"
    data.mkdir()
    blobs().to_parquet(data / "iris.parquet")
    mixed().to_parquet(data / "penguins.parquet")
    blobs(40, c=2, seed=1).to_parquet(data / "wine.parquet")
    yield data
    read_set.cache_clear()
    bench._context.cache_clear()


def context_of(table=None, labels=2, draw=0):
    return draw_context(blobs() if table is None else table, "iris", draw, labels)


def test_the_halves_share_no_set_and_are_nineteen():
    development, report = (set(own) for own in HALVES.values())
    assert not development & report
    assert len(development | report) == len(SETS) == 19


def test_a_context_is_rows_of_the_table_with_their_classes():
    table = blobs(1500).assign(number=np.arange(1500.0))
    context = context_of(table)
    rows = context.table["number"].to_numpy().astype(int)
    assert len(set(rows)) == len(rows) == suite.MOST_ROWS
    classes = np.unique(table["target"])
    np.testing.assert_array_equal(classes[context.y], table["target"].to_numpy()[rows])
    known = context.labelled
    np.testing.assert_array_equal(context.visible_labels[known], context.y[known])
    assert (context.visible_labels[~known] == -1).all()
    assert "target" not in context.table


@pytest.mark.parametrize("labels", [1, 2, 5, 10])
def test_so_many_of_each_class_are_labelled(labels):
    context = context_of(labels=labels)
    counts = np.bincount(context.y[context.labelled], minlength=3)
    assert counts.tolist() == [labels] * 3


def uneven(n=1000):
    """Two classes, one of them with a tenth of the rows."""
    table = blobs(n, c=2)
    return table.assign(target=np.where(np.arange(n) % 10 == 0, "rare", "usual"))


def test_labels_at_random_tell_how_frequent_classes_are():
    table = uneven()
    shares = []
    for draw in range(40):
        context = draw_context(table, "iris", draw, 10, "random")
        counts = np.bincount(context.y[context.labelled], minlength=2)
        assert counts.min() >= 1
        # One more than asked for, if none of the rare class was among them.
        assert counts.sum() == 20 + (counts[0] == 1 and counts.sum() == 21)
        shares.append(counts[0] / counts.sum())
    # The mean of 800 draws of a rare row: four standard errors around a tenth, and a
    # little more for contexts that got one more.
    assert 0.06 < np.mean(shares) < 0.15


def test_labels_at_random_are_a_prefix_of_one_order_and_every_class_has_both_kinds():
    table = uneven(200)
    contexts = [draw_context(table, "iris", 3, m, "random") for m in (1, 2, 5, 10, 99)]
    for fewer, more in pairwise(contexts):
        pd.testing.assert_frame_equal(fewer.table, more.table)
        assert more.labelled[fewer.labelled].all()
    for context in contexts:
        for c in range(2):
            assert 0 < context.labelled[context.y == c].sum() < (context.y == c).sum()
    per_class = draw_context(table, "iris", 3, 5)
    pd.testing.assert_frame_equal(per_class.table, contexts[2].table)
    with pytest.raises(ValueError, match=r"unknown protocol 'any'.*'per-class', 'random'"):
        draw_context(table, "iris", 0, 5, "any")


def test_the_draw_and_the_set_decide_and_more_labels_add_to_fewer():
    table = blobs()
    one, same, other = (context_of(table, draw=d) for d in (0, 0, 1))
    pd.testing.assert_frame_equal(one.table, same.table)
    np.testing.assert_array_equal(one.labelled, same.labelled)
    assert not one.table.equals(other.table)
    assert not one.table.equals(draw_context(table, "wine", 0, 2).table)
    more = context_of(table, labels=5)
    pd.testing.assert_frame_equal(one.table, more.table)
    assert more.labelled[one.labelled].all()


def test_small_classes_keep_an_unlabelled_row_and_single_rows_are_left_out():
    table = blobs(40, c=2)
    table.loc[:2, "target"] = "few"
    table.loc[3, "target"] = "lone"
    context = context_of(table, labels=10)
    assert context.n_classes == 3
    assert len(context.y) == 39
    few = np.flatnonzero(np.bincount(context.y) == 3)
    assert context.labelled[context.y == few].sum() == 2
    with pytest.raises(ValueError, match="needs two classes with two rows"):
        context_of(pd.DataFrame({"x": [1.0, 2, 3], "target": ["a", "a", "b"]}))


def test_a_set_that_cannot_be_used_is_refused_by_name(folder):
    with pytest.raises(FileNotFoundError, match=r"digits.parquet.*fetch_real_data.py"):
        read_set(folder, "digits")
    (folder / "vowel.parquet").write_text("no table")
    with pytest.raises(ValueError, match=r"vowel.parquet cannot be read as .parquet"):
        read_set(folder, "vowel")
    blobs().drop(columns="target").to_parquet(folder / "pima.parquet")
    with pytest.raises(ValueError, match=r"pima.parquet has no column 'target'"):
        read_set(folder, "pima")
    table = blobs()
    table.loc[4, "target"] = None
    table.to_parquet(folder / "olive.parquet")
    with pytest.raises(ValueError, match=r"olive.parquet: 1 row\(s\) have no target"):
        read_set(folder, "olive")


def test_the_fingerprint_is_of_the_cells_and_not_of_how_they_are_stored():
    table = mixed()
    same = table.astype({"kind": object, "target": "category"})
    assert fingerprint(table) == fingerprint(same)
    changed = [table.copy() for _ in range(3)]
    changed[0].loc[0, "column1"] += 1e-9
    changed[1].loc[0, "kind"] = "c"
    changed[2] = table.rename(columns={"kind": "sort"})
    assert len({fingerprint(t) for t in (table, *changed)}) == 4


def test_peers_get_standardised_numbers_and_one_hot_categories():
    table = mixed().drop(columns="target").assign(empty=np.nan)
    found = as_numbers(table)
    filled = table["column0"].fillna(table["column0"].median())
    wanted = (filled - filled.mean()) / filled.std(ddof=0)
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(found[:, 2], 0)  # nothing is known of it
    kinds = [table["kind"] == "a", table["kind"] == "b", table["kind"].isna()]
    np.testing.assert_array_equal(found[:, 3:], np.stack(kinds, axis=1))


@pytest.mark.parametrize("name", PEERS)
def test_peers_solve_what_is_easy_and_see_no_hidden_class(name):
    if name == "poisson_mbo":
        graph_learning()
    if not recipe_of("real", name).is_installed:
        pytest.skip(f"{name} is not installed")
    context = context_of(blobs(30))  # a multiple of three: PoissonMBO ends soon
    found = peer(name)(context, seed=3)
    scores = score(found, context)
    assert scores["accuracy"] == 1
    assert scores["undecided"] == 0
    hidden = np.where(context.labelled, context.y, (context.y + 1) % 3)
    blind = peer(name)(replace(context, y=hidden), seed=3)
    np.testing.assert_array_equal(blind, found)


def test_two_classes_and_decision_functions():
    """scikit-learn gives the decision of two classes as one number."""
    context = context_of(blobs(40, c=2))
    found = peer("svc")(context, seed=0)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-10)
    x, known = as_numbers(context.table), context.labelled
    machine = clone(peer("svc").estimator).fit(x[known], context.y[known])
    decision = machine.decision_function(x) / peer("svc").temperature
    np.testing.assert_allclose(found[:, 1], 1 / (1 + np.exp(-decision)), rtol=1e-10)


def test_scores_are_those_of_the_other_implementation(generator):
    context = context_of(blobs(90, spread=8))
    drawn = torch.rand(90, 3, generator=generator, dtype=torch.float64)
    probabilities = drawn / drawn.sum(dim=1, keepdim=True)
    found = score(probabilities.numpy(), context)
    episode = Episode.single(
        as_numbers(context.table), context.y, context.labelled, n_classes=3
    )
    for name in ("accuracy", "balanced_accuracy", "log_loss"):
        wanted = getattr(metrics, name)(probabilities[None], episode).item()
        assert found[name] == pytest.approx(wanted, abs=1e-5)


def test_rows_without_probabilities_get_equal_ones_and_are_counted():
    context = context_of()
    probabilities = np.eye(3)[context.y]
    first, second = np.flatnonzero(~context.labelled & (context.y > 0))[:2]
    probabilities[first] = np.nan
    probabilities[second] = 0
    probabilities[np.flatnonzero(context.labelled)[0]] = np.nan  # is not scored
    found = score(probabilities, context)
    n = int((~context.labelled).sum())
    assert found["undecided"] == 2
    assert found["accuracy"] == pytest.approx(1 - 2 / n, abs=1e-5)
    assert found["log_loss"] == pytest.approx(2 / n * np.log(3), abs=1e-5)
    with pytest.raises(ValueError, match=r"probabilities must be \(61, 3\), got \(61, 2\)"):
        score(probabilities[:, :2], context)


def test_calibration_is_pooled_over_draws(generator):
    table, drawn, histograms = blobs(90, spread=8), [], []
    for draw in range(4):
        context = context_of(table, draw=draw)
        p = torch.rand(90, 3, generator=generator, dtype=torch.float64).softmax(dim=1)
        histograms.append(score(p.numpy(), context)["bins"])
        x = as_numbers(context.table)
        drawn.append((p, Episode.single(x, context.y, context.labelled, n_classes=3)))
    wanted = metrics.expected_calibration_error(
        torch.stack([p for p, _ in drawn]),
        Episode.concat([episode for _, episode in drawn]),
        generator=generator_for(0, "bootstrap"),
    )
    assert sum(v[0] for h in histograms for v in h.values()) == 4 * (90 - 6)
    found = summary.calibration_error(histograms)
    assert found == pytest.approx(wanted.mean, abs=1e-5)


def trial_of(folder, name="iris", method="nearest_neighbour", labels=2, draw=0):
    data = fingerprint(read_set(folder, name))
    return RealSpec(name, labels, draw, method, data, folder)


def measure(spec):
    return run_spec(spec, (), "cpu")


def test_a_row_is_what_a_person_would_compute(folder):
    row = measure(trial_of(folder, "penguins", "logistic_regression"))
    context = draw_context(read_set(folder, "penguins"), "penguins", 0, 2)
    x, known = as_numbers(context.table), context.labelled
    model = clone(peer("logistic_regression").estimator).fit(x[known], context.y[known])
    wanted = balanced_accuracy_score(context.y[~known], model.predict(x[~known]))
    assert row["balanced_accuracy"] == pytest.approx(wanted, abs=1e-5)
    assert row["classes"] == 2
    assert row["scored"] == 50 - 4
    assert json.loads(json.dumps(row)) == row


def test_an_error_is_a_row(folder, monkeypatch):
    replace_peer(monkeypatch, "svc", peers.Supervised(KNeighborsClassifier(50)))
    row = measure(trial_of(folder, method="svc"))
    assert row["error"].startswith("ValueError: Expected n_neighbors <= n_samples_fit")
    assert "accuracy" not in row


def test_warnings_of_a_method_are_kept(folder, monkeypatch):
    hasty = peers.Supervised(LogisticRegression(max_iter=1))
    replace_peer(monkeypatch, "logistic_regression", hasty)
    row = measure(trial_of(folder, method="logistic_regression"))
    assert row["warned"] == ["ConvergenceWarning"]


def test_the_key_is_of_everything(folder, monkeypatch):
    trial = trial_of(folder)
    others = [
        replace(trial, set="wine"),
        replace(trial, labels=5),
        replace(trial, draw=1),
        replace(trial, method="svc"),
        replace(trial, data="other"),
        replace(trial, protocol="random"),
    ]
    keys = {t.key for t in (trial, *others)}
    assert len(keys) == 7
    assert "protocol" not in trial.describe()  # rows from before the second one
    other = peers.Supervised(KNeighborsClassifier(2))
    replace_peer(monkeypatch, trial.method, other)
    assert trial.key not in keys


def test_rows_are_the_same_again_and_draws_are_not(folder):
    def numbers(row):
        return {k: v for k, v in row.items() if k != "seconds"}

    trial = trial_of(folder, method="random_forest", labels=1)
    assert numbers(measure(trial)) == numbers(measure(trial))
    other = measure(replace(trial, draw=1))
    assert other["bins"] != measure(trial)["bins"]


def test_a_run_that_was_interrupted_goes_on(folder, tmp_path):
    trials = specs_of(folder, ["iris", "penguins"], [1, 2], 2, FAST)
    assert len(trials) == 2 * 2 * 2 * 2
    path = tmp_path / "out" / "rows.jsonl"

    def interrupt(progress):
        assert (progress.done, progress.total) == (1, 16)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_missing(trials, Store(path), executor=Pool(), report=interrupt)
    assert not multiprocessing.active_children()
    (before,) = Store(path)
    store = Store(path)
    assert run_missing(trials, store, executor=Pool(), minutes=0) == 0
    assert run_missing(trials, store, executor=Pool(2)) == 15
    assert len(path.read_text().splitlines()) == 16  # none twice
    assert store[before["key"]] == before
    for trial in trials[::5]:
        alone = measure(trial)
        assert store[trial.key] == {**alone, "seconds": store[trial.key]["seconds"]}
    assert run_missing(trials, store, executor=Pool()) == 0
    lines = (path.parent / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line)["rows"] for line in lines] == [1, 15]


def test_a_method_that_does_not_end_is_killed_and_the_next_one_runs(folder, tmp_path):
    graph_learning()
    # The shares of three classes of 61 rows cannot be met, so it goes on and on.
    endless, next_one = (trial_of(folder, method=m) for m in ("poisson_mbo", *FAST[:1]))
    store = Store(tmp_path / "rows.jsonl")
    assert run_missing([endless, next_one], store, executor=Pool(limit=2.0)) == 2
    row = store[endless.key]
    assert row["error"] == "did not finish in 2 s"
    assert (row["classes"], row["scored"]) == (3, 61 - 6)
    assert store[next_one.key]["accuracy"] == 1


def test_a_process_that_dies_leaves_a_row(folder):
    lane = Lane(Pool(limit=60))
    try:
        lane.pipe.poll(60)
        assert lane.take() is None
        assert lane.is_free
        lane.give(trial_of(folder, method="random_forest"))
        lane._process.kill()
        lane._process.join()
        row = lane.take()
        assert row["error"] == "its process died (out of memory?)"
        assert (row["classes"], row["scored"]) == (3, 61 - 6)
        assert lane.spec is None
        lane._process.kill()  # the new one, before it has anything to do
        lane._process.join()
        with pytest.raises(RuntimeError, match="ended before it had anything to do"):
            lane.take()
    finally:
        lane.close()


def row_of(name, labels, draw, method, accuracy, **values):
    """As if it had been measured: all rows in one bin of confidence."""
    spec = {"set": name, "labels": labels, "draw": draw, "method": method}
    measured = {
        "accuracy": accuracy,
        "balanced_accuracy": accuracy,
        "log_loss": 1 - accuracy,
        "bins": {"14": [100, 96.0, 100 * accuracy]},
        "undecided": 0,
    }
    return {"spec": spec, "classes": 4, "scored": 100, "seconds": 0.5, **measured, **values}


def made_rows(generator, methods, sets=("iris", "wine", "olive", "bupa")):
    """Random accuracies."""
    return [
        row_of(*each, float(torch.rand(1, generator=generator)))
        for each in product(sets, (1, 5), range(3), methods)
    ]


def test_ranks_by_hand():
    values = [[0.9, 0.5, 0.5], [0.7, 0.8, 0.1]]
    index = pd.MultiIndex.from_product([["iris"], [1, 5]], names=["set", "labels"])
    found = pages.ranking_of(pd.DataFrame(values, index, ["a", "b", "c"]))
    assert found.ranks == {"a": 1.5, "b": 1.75, "c": 2.75}
    assert list(found.ranks) == ["a", "b", "c"]


def test_ranks_and_their_test_by_scipy(generator):
    rows = made_rows(generator, ["svc", "laplace", "poisson", "self_training"])
    cells = summary.cells_of(summary.frame_of(rows), "accuracy")
    assert cells.shape == (8, 4)
    ranking = pages.ranking_of(cells)
    wanted = stats.friedmanchisquare(*(cells[name] for name in cells))
    assert ranking.p_value == pytest.approx(wanted.pvalue)
    each = cells.rank(axis=1, ascending=False).mean()
    assert ranking.ranks == pytest.approx(each.to_dict())
    assert list(ranking.ranks.values()) == sorted(ranking.ranks.values())
    assert ranking.critical_sets == pytest.approx(ranking.critical * 2**0.5)


@pytest.mark.parametrize(("k", "quantile"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_the_published(k, quantile):
    """Table 5 of Demsar, JMLR 7 (2006)."""
    wanted = quantile * (k * (k + 1) / (6 * 14)) ** 0.5
    assert pages.critical_difference(k, 14) == pytest.approx(wanted, rel=1e-3)


def test_differences_are_paired_over_sets(generator):
    table = summary.frame_of(made_rows(generator, [OURS, "svc"]))
    found = comparisons.difference(summary.cells_of(table, "accuracy"), OURS, "svc")
    by_set = table.pivot_table("accuracy", "set", "method", aggfunc="mean")
    wanted = stats.ttest_rel(by_set[OURS], by_set["svc"]).confidence_interval(0.95)
    assert found.difference.count == 4
    assert (found.difference.low, found.difference.high) == pytest.approx(tuple(wanted))


def test_only_contexts_with_every_method_count_and_failures_are_guesses():
    rows = [row_of("iris", 1, d, m, 0.9) for d, m in product(range(3), FAST)]
    del rows[-1]
    failed = {k: v for k, v in rows[0].items() if k in ("spec", "classes", "scored")}
    rows[0] = {**failed, "error": "did not finish in 60 s", "seconds": 60.0}
    table = summary.keep_shared_contexts(summary.frame_of(rows), FAST)
    assert len(table) == 4
    means = summary.cells_of(table, "accuracy").loc[("iris", 1)]
    assert means[FAST[0]] == pytest.approx((1 / 4 + 0.9) / 2)
    assert means[FAST[1]] == pytest.approx(0.9)
    assert table["failed"].sum() == 1
    losses = summary.cells_of(table, "log_loss").loc[("iris", 1)]
    assert losses[FAST[0]] == pytest.approx((np.log(4) + 0.1) / 2)
    errors = summary.calibration_of(table).loc[("iris", 1)]
    assert errors[FAST[0]] == pytest.approx((96 - 90) / 200)  # a guess is calibrated
    assert errors[FAST[1]] == pytest.approx(0.06)


def test_the_page_shows_losses_as_plainly_as_wins(tmp_path):
    ours = {"iris": 0.9, "vowel": 0.5}
    rows = []
    for name, labels, draw in product(ours, (1, 5), range(2)):
        for method, value in {
            OURS: ours[name],
            LABELLED_ONLY: ours[name] - 0.05,
            "svc": 0.7,
            "laplace": 0.6,
        }.items():
            rows.append(row_of(name, labels, draw, method, value))
    page = pages.write_half("development", rows, 40, tmp_path)
    text = page.read_text()
    assert "32 of 40 rows are there" in text
    assert "ICSSL minus SVC, the best single peer, cell by cell" in text
    assert "Ahead in 2 cells, behind in 2." in text
    assert "| iris | +0.200 | +0.200 | +0.200 |" in text
    assert "| vowel | -0.200 | -0.200 | -0.200 |" in text
    assert "| all | +0.050 ± 0.000 | ahead |" in text
    assert "| SVC | +0.000 ± 2.541 | level | 1 | 1 |" in text  # 0.2 * 12.706
    assert "| iris | **0.900** | 0.850 | 0.700 | 0.600 |" in text
    assert "\\toprule" in page.with_suffix(".tex").read_text()
    assert (tmp_path / "development-ranks.png").read_bytes().startswith(b"\x89PNG")
    figure = (tmp_path / "development-ranks.svg").read_text()
    for text in ("ICSSL (2.00)", "SVC (2.00)", "critical difference 2.35"):
        assert re.search(rf"<!--\s+{re.escape(text)}\s+-->", figure), text


def test_a_page_of_peers_alone_compares_nothing_with_ours(generator, tmp_path):
    rows = made_rows(generator, ["svc", "laplace", "poisson"])
    text = pages.write_half("report", rows, len(rows), tmp_path).read_text()
    assert "Mean ranks" in text
    assert "minus" not in text
    assert pages.write_half("report", [], 5, tmp_path) is None
    one = pages.write_half("report", made_rows(generator, ["svc"]), 24, tmp_path)
    assert "Mean ranks" not in one.read_text()


def rows_of_draws(generator, draws):
    """Random accuracies of methods that have so many draws each, of three sets."""
    return [
        row_of(name, labels, draw, method, float(torch.rand(1, generator=generator)))
        for method, count in draws.items()
        for name, labels, draw in product(("iris", "wine", "olive"), (1, 5), range(count))
    ]


def test_a_method_on_fewer_contexts_does_not_change_the_other_tables(generator, tmp_path):
    whole = rows_of_draws(generator, {OURS: 5, LABELLED_ONLY: 5, "svc": 5, "laplace": 5})
    few = rows_of_draws(generator, {"tabpfn": 2})
    before, after = (
        pages.write_half("report", rows, 132, tmp_path).read_text()
        for rows in (whole, [*whole, *few])
    )
    first_line = "3 sets, 30 contexts, 4 methods"
    assert first_line in before
    assert first_line in after
    assert "132 of 132 rows are there. On fewer contexts: TabPFN v1." in after
    # What remains without its table and the first lines is the page as it was.
    start, _, rest = after.partition("**Methods on fewer contexts: TabPFN v1**")
    table, title, end = rest.partition("**Mean ranks by accuracy**")
    assert table.count("TabPFN v1") == 2  # its note and its line
    without = start + title + end
    assert without.splitlines()[3:] == before.splitlines()[3:]


def test_a_method_on_fewer_contexts_is_compared_on_its_own(generator):
    rows = rows_of_draws(generator, {OURS: 5, "svc": 5, "laplace": 5, "tabpfn": 2})
    for row in rows:  # the best peer is known, and is so on every context
        row["accuracy"] += row["spec"]["method"] == "laplace"
        row["balanced_accuracy"] = row["accuracy"] ** 2
    everything = summary.frame_of(rows)
    main, fewer = summary.split_by_contexts(everything)
    assert (main, fewer) == ([OURS, "svc", "laplace"], ["tabpfn"])
    cells = summary.cells_of(summary.keep_shared_contexts(everything, main), "accuracy")
    (table,) = comparisons.on_fewer_contexts(everything, "tabpfn", cells)
    lines = {line[0]: dict(zip(table.header, line, strict=True)) for line in table.rows}
    assert list(lines) == ["ICSSL", "Laplace learning", "TabPFN v1"]

    values = {}
    for row in rows:
        spec = row["spec"]
        if spec["draw"] < 2:
            place = values.setdefault((spec["method"], spec["set"]), [])
            place.append((row["accuracy"], row["balanced_accuracy"], row["log_loss"]))
    for method, title in ((OURS, "ICSSL"), ("laplace", "Laplace learning")):
        means = np.mean(
            [values[method, name] for name in ("iris", "wine", "olive")], (0, 1)
        )
        shown = [lines[title][name] for name in ("accuracy", "balanced", "log-loss")]
        assert shown == [f"{value:.3f}" for value in means]
        assert lines[title]["contexts"] == "12"
    by_set = {
        method: [np.mean(values[method, name], 0) for name in ("iris", "wine", "olive")]
        for method in (OURS, "tabpfn")
    }
    for metric, column in enumerate(("difference in accuracy", "difference in balanced")):
        ours, its = (np.array(by_set[method])[:, metric] for method in (OURS, "tabpfn"))
        low, high = stats.ttest_rel(ours, its).confidence_interval(0.95)
        wanted = f"{(ours - its).mean():+.3f} ± {(high - low) / 2:.3f}"
        assert lines["TabPFN v1"][column] == wanted


def test_a_run_that_was_interrupted_keeps_its_methods_on_the_page(generator, tmp_path):
    rows = rows_of_draws(generator, {OURS: 2, "svc": 2, "laplace": 2})
    del rows[-5:]  # laplace has 7 of 12 contexts
    page = pages.write_half("report", rows, 36, tmp_path).read_text()
    assert "7 contexts, 3 methods" in page
    assert "fewer contexts" not in page
    del rows[-2:]  # 5 of 12 are fewer than half
    page = pages.write_half("report", rows, 36, tmp_path).read_text()
    assert "12 contexts, 2 methods" in page
    assert "On fewer contexts: Laplace learning." in page
    assert "29 of 36 rows are there" in page
    assert "Not counted" not in page
    rows = [r for r in rows if (r["spec"]["method"], r["spec"]["set"]) != ("svc", "wine")]
    page = pages.write_half("report", rows, 36, tmp_path).read_text()
    assert "2 sets, 8 contexts, 2 methods" in page
    assert "Not counted, since some methods have no rows: wine." in page


def test_methods_on_fewer_contexts_where_ours_is_missing_or_among_them(generator):
    rows = rows_of_draws(generator, {"svc": 5, "laplace": 5, OURS: 2})
    for name, wanted in ((OURS, "ICSSL"), ("tabpfn", "TabPFN v1")):
        for row in rows:
            if row["spec"]["method"] == OURS:
                row["spec"]["method"] = name
        everything = summary.frame_of(rows)
        main, fewer = summary.split_by_contexts(everything)
        assert (main, fewer) == (["svc", "laplace"], [name])
        cells = summary.cells_of(everything, "accuracy")[main]
        (table,) = comparisons.on_fewer_contexts(everything, name, cells)
        assert [line[0] for line in table.rows][1] == wanted
        has_difference = [bool(line[8]) for line in table.rows]
        assert has_difference == [name == OURS, False]
    elsewhere = everything.assign(
        draw=everything["draw"] + 9 * (everything["method"] == "tabpfn")
    )
    assert comparisons.on_fewer_contexts(elsewhere, "tabpfn", cells) == []


def test_draws_are_those_of_the_protocol_and_of_the_method_unless_given(folder):
    methods = ["svc", "tabpfn"]

    def count(draws, protocol):
        specs = specs_of(folder, ["iris", "wine"], [1, 5], draws, methods, protocol)
        return [sum(spec.method == name for spec in specs) // 4 for name in methods]

    assert count(None, "per-class") == [10, 1]
    assert count(None, "random") == [1, 1]
    assert count(3, "per-class") == count(3, "random") == [3, 3]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("protocol", suite.PROTOCOLS)
def test_the_documentation_has_the_numbers_of_the_committed_pages(half, protocol):
    root = Path(__file__).parents[1]
    name = half if protocol == "per-class" else f"{half}-{protocol}"
    page = (root / "results" / "real" / f"{name}.md").read_text()
    text = (root / "docs" / "real-data.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith(f"| {half}, {protocol}")]
    assert len(lines) == 3  # two of methods, one of what is counted
    for line in lines[:2]:
        _, method, *scores, difference = line.removeprefix("| ")[:-2].split(" | ")
        assert f"| {method} | {' | '.join(scores)} |" in page
        assert difference == "" or f"| {method} | {difference} |" in page
    counted = re.search(r"\d+ sets, \d+ contexts", page)[0]
    assert f"| {half}, {protocol} | {counted} |" in text


run = partial(run_command, "bench", "real")


def test_the_command_runs_draws_and_goes_on(folder, tmp_path):
    output = tmp_path / "out"
    given = ["--data", folder, "-o", output, "--labels", "1,2", "--workers", 1]
    given += ["--methods", ",".join(FAST)]
    result = run(*given, "--sets", "iris,wine", "--draws", 2)
    assert result.exit_code == 0, result.output
    assert "32 rows added, 32 of 32 are there." in text_of(result)
    for half in HALVES:
        assert "| 1-NN |" in (output / f"{half}.md").read_text()
        at_random = (output / f"{half}-random.md").read_text()
        assert "| 1-NN |" in at_random
        assert "labels drawn at random" in at_random
    given += ["--protocol", "per-class"]
    (output / "report.md").unlink()
    result = run(*given, "--sets", "wine", "--draws", 3, "--minutes", 0)
    assert result.exit_code == 0, result.output
    assert "0 rows added, 8 of 12 are there." in text_of(result)
    assert "Run the same command again" in text_of(result)
    assert "8 of 12 rows" in (output / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--half", "best"], "unknown half 'best': choose one of 'both', 'development'"),
        (["--sets", "mnist"], "unknown set 'mnist'"),
        (["--protocol", "even"], "unknown protocol 'even': choose one of 'both'"),
        (["--half", "report", "--sets", "iris"], "unknown set of the report half 'iris'"),
        (["--sets", ","], "--sets names no set"),
        (["--methods", "svm"], "unknown method 'svm'"),
        (
            ["--methods", "svc", "--labels", "1,many"],
            "counts of at least 1 such as 1,2,5, got '1,many'",
        ),
        (["--methods", "svc", "--labels", "0"], "counts of at least 1"),
        (["--draws", "0"], "--draws"),
        (["--sets", "digits", "--methods", "svc"], "fetch_real_data.py makes it"),
    ],
)
def test_bad_arguments_exit_with_2_and_say_why(folder, tmp_path, arguments, words):
    result = run("--data", folder, "-o", tmp_path / "out", *arguments)
    assert result.exit_code == 2, result.output
    assert words in text_of(result)
    assert not (tmp_path / "out").exists()


def test_methods_by_name_and_by_group(monkeypatch):
    assert choose_methods("real", ["svc", "icssl"]) == [OURS, "svc"]
    monkeypatch.setattr(registry, "find_spec", lambda name: name)  # installed or not
    monkeypatch.setattr("icssl.methods.tabpfn.has_tabpfn", lambda: True)
    assert choose_methods("real", ["all"]) == names_in("real") == [*OWN, *PEERS]
    assert choose_methods("real", ["peers"]) == PEERS
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs GraphLearning.*icssl\[peers\]"):
        choose_methods("real", ["poisson_mbo"])
    assert "poisson_mbo" not in choose_methods("real", ["peers"], skip_missing=True)


def test_ours_with_and_without_the_unlabelled_rows(folder):
    context = draw_context(read_set(folder, "penguins"), "penguins", 0, 2)
    known, y = context.labelled, context.y
    guesses = {
        OURS: ICSSLClassifier()
        .fit(context.table, context.visible_labels)
        .transduction_[~known],
        LABELLED_ONLY: ICSSLClassifier()
        .fit(context.table[known], y[known])
        .predict(context.table[~known]),
    }
    for name, guess in guesses.items():
        row = measure(trial_of(folder, "penguins", name))
        assert row["accuracy"] == pytest.approx((guess == y[~known]).mean(), abs=1e-5)
        assert measure(trial_of(folder, "iris", name))["accuracy"] == 1
        assert weights_id() in trial_of(folder, method=name).describe()["settings"]


def test_without_unlabelled_rows_a_prediction_is_of_its_row_alone():
    context = context_of(mixed())
    kept = np.flatnonzero(context.labelled)
    kept = np.sort(np.append(kept, np.flatnonzero(~context.labelled)[:5]))
    fewer = replace(
        context,
        table=context.table.iloc[kept].reset_index(drop=True),
        y=context.y[kept],
        labelled=context.labelled[kept],
    )
    whole, part = (peer(LABELLED_ONLY)(c, seed=0) for c in (context, fewer))
    np.testing.assert_allclose(part, whole[kept], rtol=1e-4, atol=1e-5)
