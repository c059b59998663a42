"""``explain`` in words, as a frame and as a picture; pictures of a fitted classifier."""

import re

import matplotlib
import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_wine

from icssl import ICSSLClassifier
from icssl.classifier.explanation import Explanation

matplotlib.use("Agg")

NAMES = np.array(["grower A", "grower B", "<b>$C_1$"])


@pytest.fixture(scope="module")
def wine():
    """Wines of three growers, three of each with a label."""
    X, truth = load_wine(return_X_y=True)
    y = np.full(len(X), None, dtype=object)
    rng = np.random.default_rng(0)
    for c, name in enumerate(NAMES):
        y[rng.choice(np.flatnonzero(truth == c), 3, replace=False)] = name
    return X, y, ICSSLClassifier().fit(X, y)


def test_sentences_name_class_probability_and_the_rows_of_most_weight(wine):
    _, y, classifier = wine
    explanation = classifier.explain()
    for row in np.flatnonzero(y == None)[:40]:  # noqa: E711
        words = r"row (\d+): ((?:> )?\d+%) (.+), because of rows? ([\d, and]+)"
        number, share, name, named = re.fullmatch(words, explanation.sentence(row)).groups()
        assert int(number) == row
        assert name == classifier.transduction_[row]
        largest = classifier.label_distributions_[row].max()
        assert share == ("> 99%" if f"{largest:.0%}" == "100%" else f"{largest:.0%}")
        assert y[[int(n) for n in re.findall(r"\d+", named)]].tolist().count(name) > 0
    labelled = int(np.flatnonzero(y == "grower B")[0])
    assert explanation.sentence(labelled) == f"row {labelled}: grower B, its own label"


def test_decisive_rows_by_hand():
    """Three labelled rows of two classes; the first two speak for class 0."""
    parts = np.array([[[3.0, -3.0], [1.0, -1.0], [-1.0, 1.0]], [[0.0, 0.0]] * 3])
    base = np.log([[0.25, 0.75]] * 2)
    labels = np.array([0, 0, 1])
    explanation = Explanation(
        parts, base, np.array(["a", "b"]), np.array([4, 7, 9]), labels, is_new=True
    )
    np.testing.assert_allclose(explanation.evidence(0), [3, 1, -1])
    np.testing.assert_allclose(explanation.evidence(0, 1), [-3, -1, 1])
    assert explanation.decisive_rows(0) == [4]  # three quarters of what speaks for it
    p = softmax([3 + np.log(0.25), -3 + np.log(0.75)])[0]
    assert explanation.sentence(0) == f"new row 0: {p:.0%} a, because of row 4"
    assert explanation.sentence(1) == (
        "new row 1: 75% b, because of the shares of the classes: no label is near"
    )
    assert str(explanation).splitlines() == explanation.sentences()
    with pytest.raises(ValueError, match=r"row must be from 0 to 1, .* got 2"):
        explanation.sentence(2)


def test_the_frame_sums_to_the_logits(wine):
    pytest.importorskip("pandas")
    X, _, classifier = wine
    explanation = classifier.explain(X[:20])
    parts, base = explanation
    frame = explanation.to_frame([3, 17])
    assert len(frame) == 2 * 3 * (9 + 1)
    sums = frame.groupby(["row", "class"])["part"].sum().unstack()[NAMES.tolist()]
    places = [classifier.classes_.tolist().index(name) for name in NAMES]
    expected = (parts.sum(axis=1) + base)[[3, 17]][:, places]
    np.testing.assert_allclose(sums, expected, rtol=1e-12)
    rows = frame["labelled_row"].dropna().unique().tolist()
    assert rows == classifier._labelled_rows.tolist()
    one = frame[(frame["row"] == 17) & (frame["labelled_row"] == rows[4])]
    np.testing.assert_array_equal(one["part"], parts[17, 4])
    np.testing.assert_allclose(
        explanation.probabilities, classifier.predict_proba(X[:20]), rtol=1e-9
    )


def test_an_explanation_shows_itself_in_few_words(wine):
    explanation = wine[2].explain()
    assert len(explanation) == 178
    assert repr(explanation).startswith("<Explanation of 178 rows by 9 labelled rows")
    assert str(explanation).endswith("and 168 rows more")


def test_pictures_have_all_points_bars_and_names(wine):
    import matplotlib.pyplot as plt

    _, y, classifier = wine
    is_labelled = y != None  # noqa: E711
    axes = classifier.plot_embedding()
    circles, stars = axes.collections[:2]
    assert len(circles.get_offsets()) == (~is_labelled).sum()
    assert len(stars.get_offsets()) == is_labelled.sum()
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == classifier.classes_.tolist()
    reach = classifier.plot_reach()
    values = np.sort(reach.collections[0].get_array())
    np.testing.assert_allclose(values, np.sort(classifier.reach_))
    bars = classifier.explain().plot(3, most=5)
    widths = [bar.get_width() for bar in bars.patches]
    evidence = classifier.explain().evidence(3)
    np.testing.assert_allclose(sorted(map(abs, widths)), np.sort(np.abs(evidence))[-5:])
    for drawn in (axes, reach, bars):
        drawn.figure.canvas.draw()  # names with dollar signs are no formulas
        plt.close(drawn.figure)


def test_the_embedding_fills_its_frame_though_one_row_is_far_off(wine):
    """Half of the points are not within a tenth of an axis of the median."""
    import matplotlib.pyplot as plt

    X, y, _ = wine
    X = np.vstack([X, 100 * X[:1]])
    axes = ICSSLClassifier().fit(X, np.append(y, None)).plot_embedding()
    points = np.vstack([c.get_offsets().data for c in axes.collections[:2]])
    for axis, low_high in zip(points.T, (axes.get_xlim(), axes.get_ylim()), strict=True):
        near = np.abs(axis - np.median(axis)) < 0.1 * np.ptp(low_high)
        assert near.mean() < 0.5
    plt.close(axes.figure)
