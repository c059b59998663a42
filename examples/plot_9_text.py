"""
Texts by their words
====================

The classifier reads no free text: give it columns that say what a text is about. Here these
are the counts of words, weighed by how rare they are (TF-IDF) and reduced to twenty columns
by scikit-learn. Features of a language model, one row per text, are better; all else is as
below.

The texts are installed already: the first fifty words of the documentation of functions of
SciPy. The task is to say which part of SciPy a function belongs to.
"""

import importlib
import inspect
import re

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from icssl import ICSSLClassifier

PARTS = ("fft", "linalg", "ndimage", "optimize", "signal", "stats")
texts, truth = [], []
for part in PARTS:
    module = importlib.import_module(f"scipy.{part}")
    functions = [getattr(module, name) for name in sorted(module.__all__)]
    for function in filter(inspect.isfunction, functions):
        words = re.findall(r"[a-z]+", (inspect.getdoc(function) or "").lower())[:50]
        texts.append(" ".join(words))
        truth.append(part)
truth = np.array(truth)
print(f"{len(texts)} texts, for example, from {truth[3]}:")
print(texts[3])

# %%
# Columns from words
# ------------------
#
# The vectoriser and the reduction see all texts, with and without a label: neither of
# them looks at labels.

vectorise = make_pipeline(
    TfidfVectorizer(stop_words="english", sublinear_tf=True),
    TruncatedSVD(20, random_state=0),
)
X = vectorise.fit_transform(texts)

# %%
# Two labels per part
# -------------------
#
# One draw of labels says little: here are ten.

right = {"ICSSLClassifier": [], "logistic regression": []}
for seed in range(10):
    rng, y = np.random.default_rng(seed), np.full(len(texts), None, dtype=object)
    for name in PARTS:
        chosen = rng.choice(np.flatnonzero(truth == name), 2, replace=False)
        y[chosen] = name
    hidden = y == None  # noqa: E711
    classifier = ICSSLClassifier().fit(X, y)
    regression = LogisticRegression(C=10).fit(X[~hidden], y[~hidden].astype(str))
    for method, labels in (
        ("ICSSLClassifier", classifier.transduction_),
        ("logistic regression", regression.predict(X)),
    ):
        right[method].append((labels == truth)[hidden].mean())
for method, values in right.items():
    print(f"{method}: {np.mean(values):.3f} right, from {np.min(values):.3f} up")

# %%
# Why a text got its label
# ------------------------

explanation = classifier.explain()
row = int(classifier.suggest(1)[0])
print(explanation.sentence(row), f"(in truth {truth[row]})")
for number in [row, *explanation.decisive_rows(row)]:
    print(f"{number}: {texts[number][:90]} ...")
