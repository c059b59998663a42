"""
Few labels on a table
=====================

A table of 178 wines, three labels for each of its three classes, and a label for every
other row. ``fit`` trains nothing: the weights are inside the package, and it reads the
table as a context.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icssl import ICSSLClassifier
from icssl.bench.plots import COLOURS, scatter_points

X, truth = load_wine(return_X_y=True, as_frame=True)
truth = truth.to_numpy()
rng = np.random.default_rng(0)
known = np.concatenate([rng.choice(np.flatnonzero(truth == c), 3, False) for c in range(3)])
y = np.full(len(X), -1)  # -1: no label
y[known] = truth[known]

classifier = ICSSLClassifier().fit(X, y)
hidden = y < 0
print(f"accuracy without a label: {(classifier.transduction_ == truth)[hidden].mean():.3f}")

# %%
# A logistic regression on the same nine labels sees nothing of the other rows.

lone = make_pipeline(StandardScaler(), LogisticRegression())
lone.fit(X[~hidden], y[~hidden])
print(f"logistic regression:      {(lone.predict(X) == truth)[hidden].mean():.3f}")

# %%
# That is one set and one draw. Ten report sets, with ten draws each, are in
# :doc:`/real-data`.
#
# Which rows to trust
# -------------------
#
# Probabilities say how torn a row is between the classes, ``reach_`` how much labelled
# evidence came to it at all. A row far from everything has a reach of 0, and the class
# prior.

sure = classifier.label_distributions_.max(axis=1)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
# The second component is that of one wine far from all others: it would hide the rest.
scatter_points(axes[0], classifier.embedding_[:, [0, 2]], classifier.transduction_, ~hidden)
axes[0].set_title("embedding_, coloured by transduction_")
wrong = (classifier.transduction_ != truth) & hidden
axes[1].scatter(sure[hidden], classifier.reach_[hidden], s=14, color=COLOURS[0])
axes[1].scatter(sure[wrong], classifier.reach_[wrong], s=60, marker="x", color=COLOURS[5])
_ = axes[1].set(title="wrong rows are crosses", xlabel="probability", ylabel="reach_")

# %%
# Why a row got its label
# -----------------------
#
# The head is a sum over labelled rows, so what each of them contributed is exact, not an
# approximation: the parts and the base add up to the logits.

doubtful = int(np.flatnonzero(hidden)[sure[hidden].argmin()])
parts, base = classifier.explain(X.iloc[[doubtful]])
print(
    f"row {doubtful}, of class {truth[doubtful]}, got {classifier.transduction_[doubtful]}"
)
for row, part in zip(np.flatnonzero(~hidden), parts[0], strict=True):
    print(f"  labelled row {row:>3}, class {y[row]}: {np.round(part, 2)}")
print(f"  base: {np.round(base[0], 2)}")
plt.show()

# %%
# From a file, without Python: ``icssl classify table.csv --target species``. What tables
# may hold, and all options: :doc:`/classifier`.
