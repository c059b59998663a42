"""
Few labels on a table
=====================

This tutorial labels a table of 178 wines from three labels for each of its three classes.
``fit`` trains no weight: the weights are part of the package, and the classifier reads
the table as a context.
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
rows_of_class = [np.flatnonzero(truth == c) for c in range(3)]
labelled_rows = np.concatenate([rng.choice(rows, 3, False) for rows in rows_of_class])
y = np.full(len(X), -1)  # -1: no label
y[labelled_rows] = truth[labelled_rows]

classifier = ICSSLClassifier().fit(X, y)
hidden = y < 0
print(
    f"accuracy on unlabelled rows: {(classifier.transduction_ == truth)[hidden].mean():.3f}"
)

# %%
# A logistic regression on the same nine labels does not use the other rows.

regression = make_pipeline(StandardScaler(), LogisticRegression())
regression.fit(X[~hidden], y[~hidden])
right = (regression.predict(X) == truth)[hidden].mean()
print(f"logistic regression:         {right:.3f}")

# %%
# This is one data set and one draw. :doc:`/real-data` has ten report data sets with ten
# draws each.
#
# Which predictions to trust
# --------------------------
#
# The probabilities say how undecided a row is between the classes. ``reach_`` says how
# much labelled evidence reached it at all. A row far from all others has a reach of 0 and
# gets the class prior.

sure = classifier.label_distributions_.max(axis=1)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
# The second component shows one wine far from all others, which would hide the rest.
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
# The head is a sum over labelled rows, so the contribution of each of them is exact, not an
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
# To label a file without Python: ``icssl classify table.csv --target species``.
# :doc:`/classifier` says what tables may contain, and has all options.
