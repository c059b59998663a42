"""
The idea in pictures
====================

There are a hundred points, and three of them have a label. How can the rest be labelled?

The model has three stages, and every stage is a few layers of attention:

1. RBF attention between the points computes a random walk, and from it a graph Laplacian.
2. Linear attention finds the bottom eigenvectors of the Laplacian. They are new
   coordinates, in which connected points are close.
3. Attention to the labelled points is gradient descent on their labels.

No weight below is trained. Lemmas 1 and 2 of the paper give the weights of the first two
stages.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression

from icssl import Episode, ICSSLTransformer, ModelConfig
from icssl._util.colours import COLOURS
from icssl.bench.plots import scatter_points

x, y = make_moons(100, noise=0.06, random_state=0)
labelled = np.isin(np.arange(100), [3, 40, 77])
# Sort the points by moon, so that the pictures of matrices are readable.
order = np.lexsort((x[:, 0], y))
x, y, labelled = x[order], y[order], labelled[order]
episode = Episode.single(x, y, labelled)

# %%
# The model and what every layer computed
# ---------------------------------------
#
# 2,000 power iterations make a deep model, and are still too few for the exact
# eigenvectors of this cloud, which take tens of thousands (:doc:`/LOG`). A trained model
# has a handful of layers.

config = ModelConfig.constructed(k=3, iterations=2_000, steps=20, step_size=3.0)
model = ICSSLTransformer(config)
with torch.no_grad():
    trace = model.trace(episode)
walk = trace["laplacian.0.walk"][0, 0]
features = trace["phi"][0]
guess = trace["logits"][0].argmax(dim=-1).numpy()

# %%
# Stage 1: which points attend to each other
# ------------------------------------------
#
# The left picture is the attention matrix: a band along each moon, and almost nothing
# between the moons. The right picture is the attention of one point (the cross): it reads
# its neighbours.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
axes[0].imshow(walk.sqrt(), cmap="Greys")
axes[0].set(title="walk (square root)", xlabel="point read", ylabel="point that reads")
reader = 25
axes[1].scatter(*x.T, c=walk[reader].sqrt(), cmap="viridis", s=25)
axes[1].plot(*x[reader], "x", color=COLOURS[5], markersize=12, markeredgewidth=3)
_ = axes[1].set(title="what one point reads", xticks=[], yticks=[])

# %%
# Stage 2: coordinates that follow the shape
# ------------------------------------------
#
# The first eigenvector is constant. The next ones pull the moons apart: a straight line
# can now separate them, which no line could do in the plane.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
scatter_points(axes[0], x, y, labelled)
axes[0].set_title("the points, their classes, three labels (stars)")
scatter_points(axes[1], features[:, 1:3].numpy(), y, labelled)
_ = axes[1].set_title("features 2 and 3 of stage 2")

# %%
# Stage 3: descent on three labels
# --------------------------------
#
# The right picture is a logistic regression, which never sees the points without a label.

line = LogisticRegression().fit(x[labelled], y[labelled]).predict(x)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
pairs = (("icssl", guess), ("logistic regression", line))
for ax, (name, predicted) in zip(axes, pairs, strict=True):
    scatter_points(ax, x, predicted, labelled)
    title = f"{name}: {(predicted == y)[~labelled].mean():.0%} correct"
    ax.set_title(title)
    print(title)
plt.show()

# %%
# One cloud proves nothing. ``icssl demo`` does the same over 20 draws of two clouds, with
# intervals and a comparison with label spreading; :doc:`/real-data` has nineteen real
# tables.
