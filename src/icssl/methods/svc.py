"""The support vector classifier with a Gaussian kernel."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icssl._util.errors import check_positive
from icssl.episodes.episode import Episode
from icssl.methods.base import SCALINGS, Grid, Scoring, label_matrix, scaled
from icssl.methods.graphs import gaussian_kernel


@dataclass(frozen=True)
class SupportVectors(Scoring):
    """scikit-learn's ``SVC``, one episode after the other.

    Parameters
    ----------
    bandwidth : float
        Of exp(-d^2 / 2 h^2), in units of the root mean square distance from the mean.
    C : float
        Weight of the labelled points against the penalty.
    scaling : {"isotropic", "coordinate"}
    temperature : float
        Of the softmax of the decision function. scikit-learn's own probabilities need
        more labels than an episode has.
    """

    bandwidth: float = 1.0
    C: float = 10.0
    scaling: str = "isotropic"
    temperature: float = 1.0

    grids: ClassVar[tuple[Grid, ...]] = (
        {
            "scaling": SCALINGS,
            "bandwidth": [0.5, 0.8, 1.4, 2.8],
            "C": [1.0, 10.0, 100.0, 1e3],
        },
    )

    def __post_init__(self) -> None:
        check_positive("C", self.C)

    def scores(self, episode: Episode) -> Float[Tensor, "b n c"]:
        """The decision function; -inf for a class that no labelled point has."""
        from sklearn import config_context  # a second, that no other method needs

        kernel = gaussian_kernel(scaled(episode.x, self.scaling), self.bandwidth)
        classes = label_matrix(episode).argmax(dim=-1)
        known = [t.cpu().numpy() for t in (kernel, classes, episode.labelled)]
        c = episode.n_classes
        # The episode was checked; of a fit this small, more checks would be half the time.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            found = [self._decide(k, y, m, c) for k, y, m in zip(*known, strict=True)]
        return torch.from_numpy(np.stack(found)).to(episode.x.device)

    def _decide(
        self, kernel: np.ndarray, classes: np.ndarray, labelled: np.ndarray, c: int
    ) -> np.ndarray:
        """Scores of one episode."""
        from sklearn.svm import SVC

        shown = np.unique(classes[labelled])
        scores = np.full((len(classes), c), -np.inf)
        scores[:, shown] = 0.0
        if len(shown) > 1:
            machine = SVC(C=self.C, kernel="precomputed", tol=1e-6)
            machine.fit(kernel[np.ix_(labelled, labelled)], classes[labelled])
            decision = machine.decision_function(kernel[:, labelled])
            two = decision.ndim == 1  # then positive for the second class
            scores[:, shown] = np.stack([-decision, decision], 1) / 2 if two else decision
        return scores
