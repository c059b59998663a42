"""Reference methods: an episode in, class probabilities out.

Every method is a value of one signature, :class:`Method`:

>>> from icssl.episodes.synthetic import ManifoldSpec
>>> from icssl._util.random import generator_for
>>> spec = ManifoldSpec("cylinder", labels=21)
>>> training, test = (spec.draw(9, generator=generator_for(0, s)) for s in ("tune", "test"))
>>> method = BASELINES["label_spreading"].tuned(training)
>>> method(test).shape
torch.Size([9, 100, 2])
"""

from icssl.methods.base import Method, mean_accuracy
from icssl.methods.logistic import (
    EigenvectorRegression,
    KernelRegression,
    LogisticRegression,
)
from icssl.methods.mixture import GaussianMixture
from icssl.methods.propagation import (
    LabelPropagation,
    LabelSpreading,
    LaplaceLearning,
    PoissonLearning,
)
from icssl.methods.simple import BayesCeiling, Majority, NearestNeighbour
from icssl.methods.svc import SupportVectors

BASELINES: dict[str, Method] = {
    "eig_lr": EigenvectorRegression(),
    "orig_rbf_lr": KernelRegression(),
    "orig_lr": LogisticRegression(),
    "label_spreading": LabelSpreading(),
    "label_propagation": LabelPropagation(),
    "laplace_learning": LaplaceLearning(),
    "poisson_learning": PoissonLearning(),
    "nearest_neighbour": NearestNeighbour(),
    "svc_rbf": SupportVectors(),
    "gaussian_mixture_em": GaussianMixture(),
    "majority": Majority(),
    "bayes_ceiling": BayesCeiling(),
}

# As tables and figures name them; the first two are the paper's names.
TITLES: dict[str, str] = {
    "eig_lr": "Eig+LR",
    "orig_rbf_lr": "Orig+RBF-LR",
    "orig_lr": "Orig+LR",
    "label_spreading": "Label spreading",
    "label_propagation": "Label propagation",
    "laplace_learning": "Laplace learning",
    "poisson_learning": "Poisson learning",
    "nearest_neighbour": "1-NN",
    "svc_rbf": "RBF-SVC",
    "gaussian_mixture_em": "Gaussian mixture EM",
    "majority": "Majority class",
    "bayes_ceiling": "Bayes ceiling",
}

__all__ = ["BASELINES", "TITLES", "Method", "mean_accuracy"]
