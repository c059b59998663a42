"""Labels, ground truth, synthetic episodes, streams and the Bayes ceiling."""

import dataclasses
import itertools
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.neighbors import kneighbors_graph

from helpers import F64, principal_angle
from icssl import Episode
from icssl._util.random import generator_for
from icssl.episodes.ground_truth import ground_truth, neighbour_affinity
from icssl.episodes.labels import (
    choose_labelled,
    label_count,
    lower_half,
    majority_rate,
    nearest_centre_labels,
)
from icssl.episodes.manifolds import MANIFOLDS
from icssl.episodes.stream import (
    EpisodeStream,
    Mixture,
    load_episodes,
    make_dataset,
    save_episodes,
)
from icssl.episodes.synthetic import ManifoldSpec
from icssl.methods.simple import bayes_ceiling

SOURCES = [*MANIFOLDS, "product"]


def draw(spec, b=4, seed=0, **options):
    return spec.draw(b, generator=generator_for(seed, "test"), **options)


def checked(episode):
    """The same episode through the checks that ``unchecked`` skipped."""
    names = [field.name for field in dataclasses.fields(Episode)]
    return Episode(**{name: getattr(episode, name) for name in names})


@pytest.mark.parametrize("placement", ["random", "covering"])
@pytest.mark.parametrize("amount", [3, 0.1, 29])
def test_labelled_points_are_as_many_as_asked(generator, placement, amount):
    y = torch.randint(3, (50, 30), generator=generator)
    labelled = choose_labelled(y, amount, placement, n_classes=3, generator=generator)
    count = amount if isinstance(amount, int) else 3
    assert (labelled.sum(dim=1) == count).all()
    if placement == "covering":
        for classes, seen in zip(y, labelled, strict=True):
            assert set(classes[seen].tolist()) == set(classes.tolist())


def test_every_point_is_labelled_equally_often(generator):
    y = torch.zeros(20_000, 10, dtype=torch.long)
    share = choose_labelled(y, 3, generator=generator).double().mean(dim=0)
    assert (share - 0.3).abs().max() < 0.015


def test_covering_passes_over_a_class_that_does_not_occur(generator):
    y = torch.tensor([[0, 0, 2, 2]])
    labelled = choose_labelled(y, 3, "covering", n_classes=3, generator=generator)
    assert set(y[labelled].tolist()) == {0, 2}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: label_count(0, 10), "from 1 to n - 1 = 9, got 0"),
        (lambda: label_count(10, 10), "from 1 to n - 1 = 9, got 10"),
        (lambda: label_count(0.99, 10), "from 1 to n - 1 = 9, got 10"),
        (
            lambda: label_count(1.5, 10),
            r"a fraction of labels must be in \(0, 1\), got 1.5",
        ),
        (
            lambda: choose_labelled(
                torch.zeros(1, 5).long(),
                2,
                "covering",
                n_classes=3,
                generator=torch.Generator(),
            ),
            "covering 3 classes needs at least as many labels, got 2",
        ),
        (
            lambda: choose_labelled(
                torch.zeros(1, 5).long(), 2, "first", generator=torch.Generator()
            ),
            "unknown placement 'first'",
        ),
    ],
)
def test_bad_label_budgets(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_lower_half_is_balanced_even_with_ties():
    values = torch.tensor([[1.0, 1.0, 1.0, 1.0, 5.0], [5.0, 4.0, 3.0, 2.0, 1.0]])
    halves = lower_half(values)
    assert halves.sum(dim=1).tolist() == [2, 2]
    assert halves[1].tolist() == [0, 0, 0, 1, 1]


def test_nearest_centre():
    distance = torch.tensor([[[0.0, 5.0, 2.0], [5.0, 0.0, 1.0]]])
    assert nearest_centre_labels(distance).tolist() == [[0, 1, 1]]


@pytest.mark.parametrize(
    ("source", "measure", "rate"),
    [
        ("torus", "chart", 0.970),
        ("cylinder", "chart", 0.935),
        ("sphere", "area", 0.930),
        ("sphere", "chart", 0.908),
    ],
)
def test_majority_class_rates_at_radius_one_half(source, measure, rate):
    """The published out-of-distribution columns of these manifolds."""
    spec = ManifoldSpec(source, threshold=0.5, measure=measure)
    y = draw(spec, b=3000).y
    assert majority_rate(y, 2).mean().item() == pytest.approx(rate, abs=0.003)


@pytest.mark.parametrize("source", SOURCES)
def test_median_rule_is_balanced(source):
    y = draw(ManifoldSpec(source), b=20).y
    assert (majority_rate(y, 2) == 0.5).all()


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("source", SOURCES)
def test_episodes_pass_the_checks(source, n_classes):
    spec = ManifoldSpec(
        source, n=40, n_classes=n_classes, labels=6, eigenvectors=4, distances=True
    )
    episode = checked(draw(spec))
    assert episode.x.shape == (4, 40, 15 if source == "product" else 3)
    assert episode.x.shape[-1] == spec.d
    assert (episode.labelled.sum(dim=1) == 6).all()
    assert set(episode.y.flatten().tolist()) == set(range(n_classes))
    assert episode.laplacian.shape == episode.distances.shape == (4, 40, 40)
    assert episode.features.shape == (4, 40, 4)


def test_published_radius_is_a_ball_of_that_radius():
    spec = ManifoldSpec("cylinder", threshold="published", distances=True)
    episode = draw(spec, b=20)
    # Some point of the context has exactly the points of class 1 within radius 1.
    balls = (episode.distances < 1.0).long()
    assert (balls == episode.y[:, None]).all(dim=-1).any(dim=-1).all()


def test_swiss_roll_classes_are_its_halves():
    for threshold in ("median", "published"):
        episode = draw(ManifoldSpec("swiss_roll", threshold=threshold, rotation="none"))
        radius = (episode.x - episode.x.mean(dim=1, keepdim=True)).norm(dim=-1)
        inner = radius[episode.y == 1].median()
        assert inner < radius[episode.y == 0].median()


def test_distances_do_not_depend_on_the_motion():
    """Scale, rotation and shift move what is seen, not the geometry or the classes."""
    still = ManifoldSpec(
        "cone", rotation="none", shift=0.0, scale=(1.0, 1.0), distances=True
    )
    moved = dataclasses.replace(still, rotation="planar", shift=1.0, scale=(0.02, 0.1))
    a, b = draw(still, dtype=torch.float64), draw(moved, dtype=torch.float64)
    torch.testing.assert_close(a.distances, b.distances)
    ratio = torch.cdist(b.x, b.x) / torch.cdist(a.x, a.x).clamp(min=1e-9)
    off = ~torch.eye(100, dtype=torch.bool)
    for episode in ratio:
        assert episode[off].std() < 1e-6 * episode[off].mean()


def test_product_can_be_scaled_in_its_distance():
    spec = ManifoldSpec("product", distances=True)
    unscaled = draw(spec).distances
    scaled = draw(dataclasses.replace(spec, factor_distance="scaled")).distances
    ratio = (scaled / unscaled.clamp(min=1e-9))[unscaled > 0.1]
    assert ratio.min() >= 0.02
    assert ratio.max() <= 0.1


def test_product_puts_its_factors_in_another_order_each_time():
    spec = ManifoldSpec(
        "product", factors=("torus", "swiss_roll"), rotation="none", shift=0.0
    )
    third = draw(spec, b=50).x[..., 2]  # zero on the torus, the scale on the Swiss roll
    first_is_torus = (third.abs().amax(dim=1) < 1e-6).double().mean()
    assert 0.2 < first_is_torus < 0.8


def test_random_half_angles_differ_between_episodes():
    spec = ManifoldSpec(
        "cone", half_angle="random", rotation="none", shift=0.0, scale=(1, 1)
    )
    x = draw(spec, b=20).x
    angle = torch.atan2(x[..., :2].norm(dim=-1), x[..., 2])
    assert angle.std(dim=1).max() < 1e-3
    assert angle[:, 0].std() > 0.2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "klein"}, r"unknown source 'klein'.*'cone'.*'torus'"),
        ({"threshold": "mean"}, "unknown threshold 'mean'"),
        ({"threshold": -1.0}, "threshold must be a positive radius, got -1"),
        ({"source": "product", "threshold": "published"}, "gives no radius for it"),
        ({"n": 1}, "n must be at least 2, got 1"),
        ({"n": 3, "n_classes": 4, "labels": 1}, "3 points cannot have 4 classes"),
        ({"labels": 101}, "from 1 to n - 1 = 99, got 101"),
        ({"labels": 0.0}, r"in \(0, 1\), got 0.0"),
        ({"scale": (0.1, 0.02)}, r"0 < low <= high, got \(0.1, 0.02\)"),
        ({"half_angle": 2.0}, r"half_angle must be in \(0, pi / 2\)"),
        ({"factors": ("torus", "disc")}, "unknown factor 'disc'"),
        ({"rotation": "spin"}, "unknown rotation 'spin'"),
        ({"measure": "volume"}, "unknown measure 'volume'"),
    ],
)
def test_bad_specs(changes, message):
    with pytest.raises(ValueError, match=message):
        ManifoldSpec(**changes)


def test_ground_truth_graph_is_scikit_learns(generator):
    x = 0.1 * torch.randn(2, 40, 3, generator=generator, dtype=torch.float64)
    for points, graph in zip(x, neighbour_affinity(x, 6), strict=True):
        joined = kneighbors_graph(points.numpy(), 6, mode="distance").toarray()
        weights = np.where(joined > 0, np.exp(-10 * joined**2), 0.0)
        np.testing.assert_allclose(graph, np.maximum(weights, weights.T), atol=1e-12)


def test_ground_truth_is_scipys_normalised_laplacian(generator):
    from scipy.sparse.csgraph import laplacian

    x = 0.1 * torch.randn(2, 40, 3, generator=generator, dtype=torch.float64)
    graphs = neighbour_affinity(x)
    found, features = ground_truth(x, k=4)
    for graph, matrix, vectors in zip(graphs, found, features, strict=True):
        reference = laplacian(graph.numpy(), normed=True)
        np.testing.assert_allclose(matrix, reference, atol=1e-12)
        exact = torch.tensor(np.linalg.eigh(reference)[1][:, :4])
        assert principal_angle(vectors, exact) < 1e-6
    eye = torch.eye(4, dtype=torch.float64).expand(2, 4, 4)
    torch.testing.assert_close(features.mT @ features, eye, **F64)


def test_ground_truth_of_far_points_is_finite():
    x = 1e6 * torch.randn(1, 20, 3, generator=generator_for(0, "far"))
    laplacian, features = ground_truth(x)
    assert laplacian.isfinite().all()
    assert features.isfinite().all()


def test_ground_truth_refuses_too_many(generator):
    x = torch.randn(1, 5, 3, generator=generator)
    with pytest.raises(ValueError, match="neighbours must be from 1 to n - 1 = 4, got 5"):
        ground_truth(x, neighbours=5)
    with pytest.raises(ValueError, match="k = 6, n = 5"):
        ground_truth(x, k=6, neighbours=2)


def test_bayes_ceiling_by_enumeration(generator):
    """Against a loop over centres, one episode and one point at a time."""
    spec = ManifoldSpec("torus", n=12, labels=3, distances=True)
    episode = draw(spec, b=5)
    found = bayes_ceiling(episode)
    for i in range(5):
        votes = torch.zeros(12)
        possible = 0
        for centre in range(12):
            inside = lower_half(episode.distances[i, centre])
            if all(
                inside[j] == episode.y[i, j] for j in range(12) if episode.labelled[i, j]
            ):
                votes += inside
                possible += 1
        torch.testing.assert_close(found[i, :, 1], votes / possible)
        assert (found[i].argmax(dim=-1) == episode.y[i])[episode.labelled[i]].all()


@pytest.mark.parametrize(
    ("source", "published"),
    [("cylinder", (0.855, 0.944)), ("torus", (0.743, 0.942)), ("product", (0.693, 0.949))],
)
def test_bayes_ceiling_is_that_of_the_design(source, published):
    for labels, level in zip((3, 10), published, strict=True):
        episode = draw(ManifoldSpec(source, labels=labels, distances=True), b=300)
        right = bayes_ceiling(episode).argmax(dim=-1) == episode.y
        assert right[~episode.labelled].double().mean().item() == pytest.approx(
            level, abs=0.03
        )


def test_bayes_ceiling_says_what_it_needs():
    with pytest.raises(ValueError, match="got no distances"):
        bayes_ceiling(draw(ManifoldSpec()))
    with pytest.raises(ValueError, match="got c = 3"):
        bayes_ceiling(draw(ManifoldSpec(n_classes=3, distances=True)))


@pytest.mark.parametrize("source", SOURCES)
def test_a_step_is_the_same_whatever_came_before(source, device):
    spec = ManifoldSpec(source, eigenvectors=4)
    stream = EpisodeStream(spec, batch=3, seed=5, device=device)
    alone = EpisodeStream(spec, batch=3, seed=5, device=device)[7]
    episode = next(itertools.islice(stream, 7, None))
    for name in ("x", "y", "labelled", "features"):
        assert torch.equal(getattr(episode, name), getattr(alone, name)), name
    assert not torch.equal(stream[8].x, alone.x)
    test = EpisodeStream(spec, batch=3, seed=5, name="test", device=device)
    assert not torch.equal(test[7].x, alone.x)


def test_same_seed_gives_the_same_bytes_in_another_process():
    code = (
        "from icssl.episodes.stream import EpisodeStream; import hashlib;"
        "from icssl.episodes.synthetic import ManifoldSpec;"
        "e = EpisodeStream(ManifoldSpec('product'), 4, 3)[2];"
        "print(hashlib.sha256(e.x.numpy().tobytes() + e.y.numpy().tobytes()).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].strip()) == 64


def test_another_number_of_labels_changes_nothing_else():
    stream = EpisodeStream(ManifoldSpec("sphere"), batch=2)
    few, many = stream.at(3, labels=3), stream.at(3, labels=30)
    assert torch.equal(few.x, many.x)
    assert torch.equal(few.y, many.y)
    assert few.labelled.sum(dim=1).tolist() == [3, 3]
    assert many.labelled.sum(dim=1).tolist() == [30, 30]


def test_mixture_draws_its_sources_by_weight():
    mixture = Mixture([ManifoldSpec("sphere", n=20), ManifoldSpec("torus", n=30)], [3, 1])
    stream = EpisodeStream(mixture, batch=1)
    small = [stream[step].x.shape[1] == 20 for step in range(400)]
    assert 0.68 < sum(small) / 400 < 0.82


@pytest.mark.parametrize(
    ("sources", "weights", "message"),
    [
        ([], None, "at least one source"),
        ([ManifoldSpec()], [1, 2], "2 weights for 1 sources"),
        ([ManifoldSpec()], [-1.0], "weights must be >= 0"),
    ],
)
def test_bad_mixtures(sources, weights, message):
    with pytest.raises(ValueError, match=message):
        Mixture(sources, weights)


def test_a_larger_dataset_begins_with_the_smaller():
    spec = ManifoldSpec("cone", n=10, labels=2)
    small, large = make_dataset(spec, 30), make_dataset(spec, 300)
    assert (len(small), len(large)) == (30, 300)
    assert torch.equal(large.x[:30], small.x)


def test_episodes_are_read_back_as_they_were_written(tmp_path):
    path = tmp_path / "deep" / "set.safetensors"
    spec = ManifoldSpec("torus", n=10, labels=2, eigenvectors=2, neighbours=3)
    first = make_dataset(spec, 20)
    save_episodes(first, path, made_from="a torus")
    again, made_from = load_episodes(path)
    for name in ("x", "y", "labelled", "laplacian", "features"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert (again.n_classes, made_from) == (2, "a torus")
    assert [file.name for file in path.parent.iterdir()] == ["set.safetensors"]
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_kill_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("whole")
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from icssl._util.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as new:\n"
        "    new.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    result = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert result.returncode == -signal.SIGKILL
    assert path.read_text() == "whole"


def test_generators_are_refused_a_negative_seed():
    with pytest.raises(ValueError, match="at least 0, got -1 and 0"):
        generator_for(-1, "train")
