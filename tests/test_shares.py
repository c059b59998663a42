"""Shares of classes, against a textbook's loop."""

import math

import numpy as np
import torch
from scipy.special import softmax

from heads_helpers import context, random_model
from helpers import F64, F64_DEEP
from icssl.classifier.context_features import features_of_tables
from icssl.classifier.descent import (
    estimate_shares,
    guess_shares,
)
from icssl.classifier.gate import (
    head_members,
)
from icssl.classifier.kernels import (
    GRAPHS,
)


def em_by_loop(logits, counted, guess, strength, rounds):
    """Expectation and maximisation for one context, row by row, as a textbook has it."""
    shares = guess.copy()
    for _ in range(rounds):
        expected = np.zeros(len(guess))
        for row, counts in zip(logits, counted, strict=True):
            if counts:
                p = shares * np.exp(row)
                expected += p / p.sum() / counted.sum()
        shares = (strength * guess + expected) / (strength + 1)
    return shares


def shares_case(generator, rows=30):
    logits = 2 * torch.randn(2, rows, 3, generator=generator, dtype=torch.float64)
    logits[..., 0] += 1
    unlabelled = (torch.arange(rows) % 5 > 0).double().expand(2, -1)
    guess = torch.tensor([[0.5, 0.3, 0.2], [1 / 3] * 3], dtype=torch.float64)
    return logits, unlabelled, guess


def test_shares_are_those_of_a_plain_loop(generator):
    logits, unlabelled, guess = shares_case(generator)
    strength = torch.tensor([[0.3], [2.0]]).double()
    found = estimate_shares(logits, unlabelled, guess, strength)
    for i in range(2):
        case = (logits[i].numpy(), unlabelled[i].numpy(), guess[i].numpy())
        expected = em_by_loop(*case, strength[i].item(), 10)
        np.testing.assert_allclose(found[i], expected, **F64)


def test_shares_are_near_the_largest_posterior(generator):
    """With a strong prior ten rounds have converged: there the gradient vanishes."""
    logits, unlabelled, guess = shares_case(generator)
    strength = torch.full((2, 1), 3.0).double()
    found = estimate_shares(logits, unlabelled, guess, strength).requires_grad_()
    likelihood = (logits.softmax(-1) @ found[..., None])[..., 0].log()
    count = unlabelled.sum(-1, keepdim=True)
    posterior = (unlabelled * likelihood / count).sum(-1, keepdim=True)
    posterior = posterior + strength * (guess * found.log()).sum(-1, keepdim=True)
    (gradient,) = torch.autograd.grad(posterior.sum(), found)
    # On the simplex all entries of the gradient are the same at the maximum.
    spread = gradient - gradient.mean(-1, keepdim=True)
    assert spread.abs().max() < 1e-5


def test_a_strong_prior_gives_the_guess_and_a_weak_one_what_is_predicted(generator):
    logits, unlabelled, guess = shares_case(generator)
    strong = torch.full((2, 1), 1e9).double()
    found = estimate_shares(logits, unlabelled, guess, strong)
    torch.testing.assert_close(found, guess, rtol=0, atol=1e-8)
    classes = torch.tensor([0, 1, 1, 1, 2, 2] * 5).expand(2, -1)
    certain = 200 * torch.nn.functional.one_hot(classes, 3).double()
    found = estimate_shares(certain, unlabelled, guess, 0 * strong)
    for i in range(2):
        counted = classes[i][unlabelled[i] > 0]
        expected = torch.bincount(counted, minlength=3).double() / len(counted)
        torch.testing.assert_close(found[i], expected, **F64)


def test_shares_without_rows_that_count_are_the_guess(generator):
    logits, _, guess = shares_case(generator)
    strength = torch.ones(2, 1).double()
    found = estimate_shares(logits, torch.zeros(2, 30).double(), guess, strength)
    torch.testing.assert_close(found, guess, **F64)


def test_the_guess_is_between_equal_shares_and_those_of_the_labels():
    counts = torch.tensor([[3.0, 1.0, 0.0]]).double()
    for trust, expected in ((0.0, [1, 1, 1]), (1.0, [4, 2, 1]), (0.5, [2.5, 1.5, 1])):
        found = guess_shares(counts, torch.tensor([[trust]]).double())
        wanted = torch.tensor([expected]).double() / sum(expected)
        torch.testing.assert_close(found, wanted, **F64)


def test_shares_of_a_context_are_those_of_its_own_logits(generator):
    """In training, where nothing corrects them."""
    model = random_model().train()
    x, y, labelled, c = context(generator)
    features = features_of_tables(x, y, labelled, c, GRAPHS, 48)
    weight = 0.5 + torch.rand(2, 7, generator=generator, dtype=torch.float64)
    fitted = model.fit_features(features, row_weight=weight)
    kernels = features.kernels.kernels
    said = [
        gate(features.inputs, range(len(kernels)), head_members(kernels))[3]
        for gate in model.gates
    ]
    strength, trust = torch.stack(said).mean(0)[:, 2:].split(1, dim=-1)
    logits = fitted.predict_context().logits
    for i in range(2):
        counts = np.zeros(c)
        for place, label in enumerate(y[i][labelled[i]].tolist()):
            counts[label] += float(weight[i, place])
        guess = counts / (1 + math.exp(-float(trust[i]))) + 1
        rows = (~labelled[i]).double().numpy()
        expected = em_by_loop(
            logits[i].numpy(), rows, guess / guess.sum(), math.exp(float(strength[i])), 10
        )
        np.testing.assert_allclose(fitted.shares[i], expected, **F64_DEEP)
    found = fitted.log_probabilities(fitted.predict_context())
    expected = softmax(logits[0].numpy() + np.log(fitted.shares[0].numpy()), axis=1)
    np.testing.assert_allclose(found[0].exp(), expected, **F64_DEEP)
