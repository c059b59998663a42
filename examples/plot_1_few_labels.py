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
from icssl._util.colours import COLOURS

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
# alike a row is to the labelled row that is most like it, in the kernels that predict it. A
# labelled row has 1. A row far from all others has 0 and gets the class prior.

sure = classifier.label_distributions_.max(axis=1)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
classifier.plot_embedding(axes[0])
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

explanation = classifier.explain()
doubtful = int(np.flatnonzero(hidden)[sure[hidden].argmin()])
print(explanation.sentence(doubtful), f"(in truth {truth[doubtful]})")
explanation.plot(doubtful)
plt.show()

# %%
# The same as a data frame, for this row: summed over labelled rows and the base, ``part``
# is the logit of the class. ``explanation.parts`` and ``explanation.base`` are the arrays.

frame = explanation.to_frame([doubtful])
print(frame.groupby("class")["part"].sum())
print(frame.head(4).to_string())

# %%
# To label a file without Python: ``icssl classify table.csv --target species``.
# :doc:`/classifier` says what tables may contain, and has all options.
