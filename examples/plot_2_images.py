"""
Images by features
==================

Give images to the classifier as rows of features. Here they are scikit-learn's digits:
scans of 8 x 8 pixels, so small that the 64 pixels can be the features. Larger images
should go through a neural network first: ``icssl features FOLDER -o features.npz`` does
this with EfficientNet-Lite0 (see :doc:`/data`). Everything else is as below.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.semi_supervised import LabelSpreading

from icssl import ICSSLClassifier
from icssl._util.colours import COLOURS

digits = load_digits()
rng = np.random.default_rng(0)
rows = rng.choice(len(digits.data), 600, replace=False)
X, truth, images = digits.data[rows], digits.target[rows], digits.images[rows]

# %%
# One, two and five labels per digit
# ----------------------------------
#
# Label spreading gets the kernel and the number of neighbours that suit these data; its
# default, an RBF of width one, would be at chance. ``ICSSLClassifier`` has no setting to
# choose.

candidates = np.array([rng.permutation(np.flatnonzero(truth == c))[:5] for c in range(10)])
accuracy = {"ICSSLClassifier": [], "label spreading": []}
for count in (1, 2, 5):
    y = np.full(len(X), -1)
    labelled_rows = candidates[:, :count].ravel()
    y[labelled_rows] = truth[labelled_rows]
    classifier = ICSSLClassifier().fit(X, y)
    spreading = LabelSpreading(kernel="knn", n_neighbors=7).fit(X, y)
    for name, fitted in (("ICSSLClassifier", classifier), ("label spreading", spreading)):
        right = (fitted.transduction_ == truth)[y < 0].mean()
        accuracy[name].append(right)
        print(f"{count} per digit, {name}: {right:.3f}")

figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
for name, colour in zip(accuracy, COLOURS, strict=False):
    axes.plot((1, 2, 5), accuracy[name], "o-", color=colour, label=name)
axes.set(xlabel="labels per digit", ylabel="accuracy on unlabelled rows", xticks=(1, 2, 5))
_ = axes.legend()

# %%
# Digits are among the data sets on which the kernels of the classifier were chosen (the
# development half of :doc:`/real-data`), but no weight was trained on them.
#
# The least certain predictions
# -----------------------------

sure = classifier.label_distributions_.max(axis=1)
figure, axes = plt.subplots(2, 6, figsize=(8, 3.2), layout="constrained")
for ax, row in zip(axes.flat, np.argsort(sure)[:12], strict=True):
    ax.imshow(images[row], cmap="Greys")
    predicted = classifier.transduction_[row]
    colour = "black" if predicted == truth[row] else "C3"
    ax.set_title(f"{predicted}, {sure[row]:.0%}", color=colour)
    ax.axis("off")
_ = figure.suptitle("predicted class and its probability; red where wrong")
plt.show()
