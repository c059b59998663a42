"""
New rows
========

New rows are rows that were not in the table of ``fit``. Each is predicted alone: it reads
the table, and neither the table nor other new rows read it. So its label does not depend
on the rows that are predicted with it.
"""

import pickle

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from icssl import ICSSLClassifier
from icssl.bench.plots import scatter_points

X, truth = make_moons(300, noise=0.08, random_state=0)
y = np.full(300, -1)
for label in (0, 1):
    y[np.flatnonzero(truth == label)[:2]] = label
classifier = ICSSLClassifier().fit(X, y)

new, new_truth = make_moons(1000, noise=0.08, random_state=1)
print(f"accuracy on new rows: {(classifier.predict(new) == new_truth).mean():.3f}")

# %%
# Alone or together
# -----------------

together = classifier.predict_proba(new[:5])
alone = np.vstack([classifier.predict_proba(new[[i]]) for i in range(5)])
print(f"largest difference: {np.abs(together - alone).max():.1e}")

# %%
# Rows far from all data
# ----------------------
#
# A softmax always names a class, however far away the row is. Here a row far from all
# others has a reach of zero and gets the class prior. Reach and probability are
# different: at the far end of a moon the class is clear, although the labelled rows are
# far away.

side = np.linspace(-1.7, 2.7, 60)
plane = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
panels = {
    "probability of class 1": classifier.predict_proba(plane)[:, 1],
    "reach": classifier.predict_reach(plane),
}
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, (title, value) in zip(axes, panels.items(), strict=True):
    ax.pcolormesh(side, side, value.reshape(60, 60), cmap="cividis", vmin=0, vmax=1)
    scatter_points(ax, X, classifier.transduction_, y >= 0)
    ax.set_title(title)

# %%
# Save a fitted classifier
# ------------------------
#
# The classifier behaves like any other estimator of scikit-learn: it can be cloned and
# pickled, and works in a pipeline. ``transform`` places new rows in the embedding.

again = pickle.loads(pickle.dumps(classifier))
print((again.predict(new) == classifier.predict(new)).all(), again.transform(new[:3]).shape)
plt.show()
