"""Alignment against loops over its definitions; angles against SciPy and Lemma 2."""

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.datasets import make_blobs

from helpers import F64, bottom_eigenvectors, random_episode
from icssl import Episode
from icssl.evaluation.representations import (
    ALIGNMENTS,
    cycle_knn,
    eigenmap_angles,
    lcs_knn,
    mutual_knn,
    principal_angles,
)
from icssl.model.model_config import ModelConfig
from icssl.model.transformer import ICSSLTransformer


def naive_lists(x, k):
    """Of every point, the k others of largest cosine similarity, in order."""
    x = [row / np.linalg.norm(row) for row in x.cpu().numpy()]
    return [
        sorted((j for j in range(len(x)) if j != i), key=lambda j: -np.dot(x[i], x[j]))[:k]
        for i in range(len(x))
    ]


def naive_lcs(one, two):
    if not one or not two:
        return 0
    if one[0] == two[0]:
        return 1 + naive_lcs(one[1:], two[1:])
    return max(naive_lcs(one[1:], two), naive_lcs(one, two[1:]))


def naive_mutual(a, b, k):
    return np.mean([len({*one} & {*two}) / k for one, two in zip(a, b, strict=True)])


def naive_cycle(a, b, k):
    return np.mean([any(i == back for j in b[i] for back in a[j]) for i in range(len(a))])


def naive_lcs_share(a, b, k):
    return np.mean([naive_lcs(one, two) / k for one, two in zip(a, b, strict=True)])


def naive_cycle_share(a, b, k):
    shares = [sum(i in a[j] for j in b[i]) / k for i in range(len(a))]
    return np.mean(shares)


NAIVE = {
    "mutual_knn": naive_mutual,
    "cycle_knn": naive_cycle,
    "cycle_share_knn": naive_cycle_share,
    "lcs_knn": naive_lcs_share,
}


def two_views(generator, *, b=3, n=14, noise=0.5):
    """A representation and a noisy linear image of it in another dimension."""
    a = torch.randn(b, n, 4, generator=generator, dtype=torch.float64)
    image = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    extra = torch.randn(b, n, 6, generator=generator, dtype=torch.float64)
    return a, a @ image + noise * extra


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("name", ALIGNMENTS)
def test_alignment_is_its_definition(generator, device, name, k):
    a, b = (x.to(device) for x in two_views(generator))
    expected = [
        NAIVE[name](naive_lists(one, k), naive_lists(two, k), k)
        for one, two in zip(a, b, strict=True)
    ]
    result = ALIGNMENTS[name](a, b, k)
    torch.testing.assert_close(result.cpu(), torch.tensor(expected), **F64)
    single = ALIGNMENTS[name](a[0], b[0], k)
    assert single.shape == ()
    assert single == result[0]


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_rotation_and_scale_change_nothing(generator, name):
    a, b = two_views(generator, n=30)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator).double()).Q
    lengths = 0.1 + torch.rand(3, 30, 1, generator=generator, dtype=torch.float64)
    assert ALIGNMENTS[name](lengths * a @ rotation, b).equal(ALIGNMENTS[name](a, b))


def test_identical_representations(generator):
    a, b = two_views(generator, n=30)
    ones = torch.ones(3, dtype=torch.float64)
    for measure in (mutual_knn, lcs_knn):
        torch.testing.assert_close(measure(a, a), ones, **F64)
        torch.testing.assert_close(measure(a, b), measure(b, a), **F64)
    assert (lcs_knn(a, b) <= mutual_knn(a, b)).all()


def test_cycle_is_not_symmetric():
    a, b = two_views(torch.Generator().manual_seed(0), b=20, n=30)
    forth, back = cycle_knn(a, b, 3), cycle_knn(b, a, 3)
    assert not forth.equal(back)
    lists = naive_lists(a[0], 3), naive_lists(b[0], 3)
    assert forth[0].item() == pytest.approx(naive_cycle(*lists, 3))


def test_cycle_counts_a_point_that_nobody_is_near():
    """Points 0 and 1 are each other's nearest; so no way leads back to point 2."""
    x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    assert cycle_knn(x, x, 1).item() == pytest.approx(2 / 3)
    assert cycle_knn(x, x, 2).item() == 1


def test_independent_noise_is_aligned_by_chance(generator):
    a, b = torch.randn(2, 20, 101, 5, generator=generator)
    assert mutual_knn(a, b).mean().item() == pytest.approx(10 / 100, abs=0.01)
    assert cycle_knn(a, b).mean().item() == pytest.approx(1 - np.exp(-1), abs=0.08)


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_alignment_needs_more_points_than_neighbours(generator, name):
    a, b = two_views(generator, n=10)
    with pytest.raises(ValueError, match="k < n, got k = 10, n = 10"):
        ALIGNMENTS[name](a, b)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        ALIGNMENTS[name](a, b, 0)


def test_principal_angles_are_scipys(generator, device):
    a, b = torch.randn(2, 3, 9, 4, generator=generator, dtype=torch.float64)
    result = principal_angles(a.to(device), b.to(device)).cpu()
    for one, two, angles in zip(a.numpy(), b.numpy(), result, strict=True):
        expected = torch.tensor(scipy.linalg.subspace_angles(one, two))
        torch.testing.assert_close(angles, expected, **F64)


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-6, 1.0, np.pi / 2 - 1e-9, np.pi / 2])
def test_principal_angles_have_all_digits(angle):
    """Two planes that share a line; acos would see nothing below 1e-8."""
    a = torch.eye(4, 2, dtype=torch.float64)
    b = a.clone()
    b[1:3, 1] = torch.tensor([np.cos(angle), np.sin(angle)])
    basis = torch.tensor([[2.0, 1.0], [0.5, 3.0]]).double()
    result = principal_angles(a[None], b[None] @ basis)[0]
    assert result.tolist() == pytest.approx([angle, 0.0], rel=1e-6, abs=1e-14)


def two_rings(n=12):
    """Far apart and all points alike: the bottom eigenvectors are constant on each ring."""
    turn = 2 * torch.pi * torch.arange(n, dtype=torch.float64) / n
    ring = torch.stack([turn.cos(), turn.sin()], dim=-1)
    truth = torch.eye(2, dtype=torch.float64).repeat_interleave(n, dim=0)
    x, y = torch.cat([ring, ring + 50]), truth[:, 1].long()
    return Episode.single(x, y, torch.arange(2 * n) % 6 == 0, features=truth)


def test_constructed_model_reaches_the_eigenvectors(device):
    """Lemma 2: the angle falls to zero, and of two rings so does that to the truth."""
    config = ModelConfig.constructed(k=2, iterations=40, sigma=3.0)
    angles = eigenmap_angles(ICSSLTransformer(config).to(device), two_rings().to(device))
    assert angles.steps == tuple(f"eigenmap.{step}.F" for step in range(80))
    assert angles.to_operator.shape == angles.to_truth.shape == (80, 1)
    for angle in (angles.to_operator, angles.to_truth):
        assert angle[0].item() > 0.01
        assert angle[-1].item() < 1e-8


def test_angle_to_the_operator_falls_on_blobs():
    x, y = make_blobs(40, centers=[[0, 0], [8, 8]], cluster_std=0.5, random_state=0)
    model = ICSSLTransformer(ModelConfig.constructed(k=2, iterations=40, sigma=3.0))
    angles = eigenmap_angles(model, Episode.single(x, y, [True] * 40)).to_operator[::2, 0]
    assert (angles.diff()[:20] < 0).all()
    assert angles[-1].item() < 1e-12


def test_angles_are_read_from_the_trace(generator):
    config = ModelConfig(k=3, laplacian_heads=2, eigenmap_heads=2, eigenmap_layers=2)
    model = ICSSLTransformer(config)
    episode = random_episode(generator, n=14, k=4, dtype=torch.float32)
    angles = eigenmap_angles(model, episode, k=2)
    trace = model.trace(episode)
    r = trace["laplacian.7.R"].detach().double()
    assert "laplacian.8.R" not in trace
    for i in range(2):
        f = trace["eigenmap.5.F"][i, :, :2].detach().double()
        for reference, result in [
            (bottom_eigenvectors(r, 2)[i], angles.to_operator),
            (episode.features[i, :, :2], angles.to_truth),
        ]:
            expected = scipy.linalg.subspace_angles(f, reference.double())[0]
            assert result[5, i].item() == pytest.approx(expected, rel=1e-6)


def test_angles_without_a_truth(generator):
    model = ICSSLTransformer(ModelConfig.constructed(k=2, iterations=2))
    assert eigenmap_angles(model, random_episode(generator)).to_truth is None


def test_angles_need_an_eigenmap_and_enough_columns(generator):
    episode = random_episode(generator, k=2)
    with pytest.raises(ValueError, match="eigenmap stage, got features='coordinates'"):
        eigenmap_angles(ICSSLTransformer(ModelConfig.preset("orig_icl")), episode)
    model = ICSSLTransformer(ModelConfig.constructed(k=3, iterations=2))
    with pytest.raises(ValueError, match=r"k = 4 .* features of the model, got 3"):
        eigenmap_angles(model, episode, k=4)
    with pytest.raises(ValueError, match=r"k = 3 .* columns of episode.features, got 2"):
        eigenmap_angles(model, episode)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        eigenmap_angles(model, episode, k=0)
