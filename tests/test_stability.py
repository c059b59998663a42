"""Signs, and the order of rows, columns and classes, do not change probabilities.

Where eigenvectors are iterated, in float32, they are not fully converged; they start from
the same columns nevertheless, so that what is left of the difference is rounding.
"""

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_moons

from helpers import SAME, few_labels
from icssl import ICSSLClassifier

SAME_GPU = 5e-4  # where float32 sums over thousands of rows have no fixed order
SIZES = [
    (300, "dense"),
    (1100, "dense"),  # beyond FEW_SOLVED_ROWS
    (1200, "sparse"),
    (4200, "sparse"),  # beyond SOLVED_ROWS: iterated, float32
    (4200, "exact"),
]


def draw_table(kind, n):
    if kind == "moons":
        return make_moons(n, noise=0.1, random_state=0)
    return make_classification(n, 8, n_informative=5, n_classes=3, random_state=0)


@pytest.mark.parametrize("kind", ["moons", "clusters"])
@pytest.mark.parametrize(("n", "backend"), SIZES)
def test_probabilities_do_not_depend_on_signs_and_order(kind, n, backend):
    check_signs_and_order(kind, n, backend, "cpu", SAME)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["moons", "clusters"])
def test_nor_do_they_on_a_gpu(kind):
    check_signs_and_order(kind, 4200, "exact", "cuda", SAME_GPU)


def check_signs_and_order(kind, n, backend, device, tolerance):
    x, truth = draw_table(kind, n)
    rng = np.random.default_rng(0)
    y = few_labels(truth, 5, rng)
    model = "one view" if backend == "exact" else "all views"

    def probabilities(x, y):
        classifier = ICSSLClassifier(model=model, backend=backend, device=device)
        return classifier.fit(x, y).label_distributions_

    expected = probabilities(x, y)
    signs = np.where(np.arange(x.shape[1]) % 2, 1, -1)
    np.testing.assert_allclose(
        probabilities(x * signs, y), expected, rtol=0, atol=tolerance
    )
    # All at once: a table that has other signs, rows, columns and names of classes.
    rows, columns = rng.permutation(n), rng.permutation(x.shape[1])
    classes = rng.permutation(expected.shape[1])
    other = np.append(classes, -1)[y]
    moved = probabilities((x * -signs)[rows][:, columns], other[rows])
    found = np.empty_like(expected)
    found[rows] = moved[:, classes]
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
