"""Choose the settings of the peers of ``icssl bench real`` on the development half.

Every setting of a small grid is scored on the same contexts: 1, 2, 5 and 10 labels per
class, three draws that the benchmark does not use. The setting with the best mean accuracy
is chosen; the temperature of a softmax is then chosen by log-loss. The printed settings are
kept in src/icssl/methods/peers.py.

    python scripts/choose_peers.py data/real
"""

import argparse
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import torch
from lightgbm import LGBMClassifier
from scipy.special import softmax
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import (
    LabelPropagation,
    LabelSpreading,
    SelfTrainingClassifier,
)
from sklearn.svm import SVC
from sslearn.wrapper import (
    CoForest,
    CoTrainingByCommittee,
    DemocraticCoLearning,
    TriTraining,
)

from icssl.bench.real.datasets import HALVES, LABELS, draw_context, read_set
from icssl.bench.real.scores import score
from icssl.methods.peers import OnEpisode, Supervised, Transductive
from icssl.methods.propagation import LaplaceLearning, PoissonLearning
from icssl.methods.tabpfn import TabPFN

FIRST_DRAW = 100  # the benchmark uses smaller ones
NEIGHBOURS = (5, 7, 10, 15, 20)
GAMMAS = (1.0, 3.0, 10.0, 30.0, 100.0)
TEMPERATURES = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 1.4, 2.0, 4.0)
WITH_TEMPERATURE = ("svc", "poisson")


def logistic(c):
    """Return logistic regression with enough iterations to converge."""
    return LogisticRegression(C=c, max_iter=1000)


LEARNERS = [logistic(1.0), GaussianNB(), KNeighborsClassifier(n_neighbors=3)]


def boosted_trees(**settings):
    """Return LightGBM as it must be for few labels: its own defaults predict nothing."""
    return LGBMClassifier(min_data_in_bin=1, n_jobs=1, verbosity=-1, **settings)


GRIDS = {
    "label_spreading": [
        *(
            Transductive(LabelSpreading(kernel="knn", n_neighbors=k, alpha=a))
            for k, a in product(NEIGHBOURS, (0.2, 0.5, 0.8, 0.95))
        ),
        *(
            Transductive(LabelSpreading(kernel="rbf", alpha=a), gamma)
            for gamma, a in product(GAMMAS, (0.2, 0.8, 0.95))
        ),
    ],
    "label_propagation": [
        *(Transductive(LabelPropagation(kernel="knn", n_neighbors=k)) for k in NEIGHBOURS),
        *(Transductive(LabelPropagation(kernel="rbf"), gamma) for gamma in GAMMAS),
    ],
    "logistic_regression": [Supervised(logistic(c)) for c in (0.01, 0.1, 1.0, 10.0, 100.0)],
    "self_training": [
        Transductive(SelfTrainingClassifier(logistic(c), threshold=t))
        for c, t in product((0.1, 1.0, 10.0, 100.0), (0.75, 0.95))
    ],
    "svc": [
        Supervised(SVC(C=c, kernel=kernel))
        for c, kernel in product((0.1, 1.0, 10.0, 100.0), ("rbf", "linear"))
    ],
    # PoissonMBO, which is slow, gets the graph of Poisson learning.
    "poisson": [OnEpisode(PoissonLearning(k)) for k in (5, 10, 20, 40)],
    "laplace": [OnEpisode(LaplaceLearning(k)) for k in (5, 10, 20)],
    "boosted_trees": [
        Supervised(boosted_trees(min_child_samples=m, colsample_bytree=f, extra_trees=e))
        for m, f, e in product((1, 2, 5), (1.0, 0.3, 0.1), (False, True))
    ],
    "co_training": [
        *(Transductive(TriTraining(logistic(c))) for c in (1.0, 10.0, 100.0)),
        *(Transductive(TriTraining(base)) for base in LEARNERS[1:]),
        Transductive(CoTrainingByCommittee(BaggingClassifier(logistic(1.0)))),
        Transductive(CoForest()),
        Transductive(DemocraticCoLearning(LEARNERS)),
        Transductive(DemocraticCoLearning()),
    ],
    # Slow: --draws 1. With 32 configurations a context takes nearly the limit of a minute.
    "tabpfn": [
        *(TabPFN(3, False, components) for components in (5, 10, 100)),
        TabPFN(3, True, 5),
        TabPFN(8, False, 5),
    ],
}


def mean_of(method, contexts):
    """Return the mean accuracy and how often the method failed, which counts as a guess."""
    found, failures = [], 0
    for context in contexts:
        try:
            found.append(score(method(context, seed=0), context)["accuracy"])
        except Exception:  # packages fail in many ways
            found.append(1 / context.n_classes)
            failures += 1
    return float(np.mean(found)), failures


def best_temperature(method, contexts):
    """Return the temperature with the best mean log-loss; the method itself has 1."""
    logs = [np.log(np.clip(method(c, seed=0), 1e-300, 1)) for c in contexts]

    def loss(temperature):
        each = zip(logs, contexts, strict=True)
        return np.mean([score(softmax(p / temperature, 1), c)["log_loss"] for p, c in each])

    return min(TEMPERATURES, key=loss)


def main():
    """Print the accuracy of every setting, and the best setting."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--methods", nargs="*", choices=GRIDS, default=list(GRIDS))
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of settings that are not the best
    draws = range(FIRST_DRAW, FIRST_DRAW + options.draws)
    contexts = [
        draw_context(read_set(options.folder, name), name, draw, labels)
        for name, draw, labels in product(HALVES["development"], draws, LABELS)
    ]
    for name in options.methods:
        scores = {}
        for method in GRIDS[name]:
            scores[method], failures = mean_of(method, contexts)
            print(f"{name}: {scores[method]:.4f}, {failures} failed, {method}", flush=True)
        best = max(scores, key=scores.get)
        print(f"-> {name}: {best}", flush=True)
        if name in WITH_TEMPERATURE:
            print(f"-> at temperature {best_temperature(best, contexts)}", flush=True)


if __name__ == "__main__":
    main()
