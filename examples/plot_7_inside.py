"""
Look inside a layer
===================

``trace`` returns what every layer computed, by name. With it we check whether the stages do
what the lemmas say: do the rows of the walk sum to one, is R the Laplacian, do the features
approach the true eigenvectors, does the head descend?
"""

import matplotlib.pyplot as plt
import torch

from icssl import ICSSLTransformer, ModelConfig
from icssl._util.colours import COLOURS
from icssl._util.random import generator_for
from icssl.episodes.ground_truth import affinity, right_normalised_laplacian
from icssl.episodes.synthetic import ManifoldSpec
from icssl.evaluation.representations import eigenmap_angles, principal_angles

spec = ManifoldSpec("cylinder", labels=10, eigenvectors=3)
episode = spec.draw(1, generator=generator_for(0, "tutorial"), dtype=torch.float64)
config = ModelConfig.constructed(k=3, iterations=1_000, steps=20, step_size=3.0)
model = ICSSLTransformer(config)
with torch.no_grad():
    trace = model.trace(episode)
print([name for name in trace if not name.startswith(("eigenmap", "head"))])

# %%
# The walk, and R
# ---------------
#
# Lemma 1: one layer of RBF attention with these weights gives :math:`R = I - D^{-1} A`.
# Here the same matrix is computed from its formula, without attention.

walk = trace["laplacian.0.walk"][0, 0]
print(f"rows of the walk sum to one: {(walk.sum(dim=1) - 1).abs().max():.0e}")
by_formula = right_normalised_laplacian(affinity(trace["x"], sigma=config.sigma))
print(
    f"R is the Laplacian:          {(trace['laplacian.0.R'] - by_formula).abs().max():.0e}"
)

# %%
# The eigenmap
# ------------
#
# Lemma 2: linear attention is power iteration with Gram-Schmidt. One iteration is k layers.
# The principal angle between the features so far and the bottom eigenvectors of
# :math:`R R^\top` goes to zero.

angles = eigenmap_angles(model, episode)
layers = torch.arange(1, len(angles.steps) + 1)
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.loglog(layers, angles.to_operator[:, 0], color=COLOURS[0], label="of R R^T")
axes.loglog(layers, angles.to_truth[:, 0], color=COLOURS[1], label="of the 6-NN graph")
axes.set(xlabel="layer of stage 2", ylabel="largest principal angle, radians")
_ = axes.legend(title="to the eigenvectors")

# %%
# The second curve compares with another graph, that of the paper's ground truth. It does
# not go to zero, because the two graphs differ. All three angles after the last layer:

eigenvectors = torch.linalg.eigh(by_formula @ by_formula.mT).eigenvectors[..., :3]
for name, true in (("R R^T", eigenvectors), ("6-NN graph", episode.features)):
    radians = principal_angles(trace["phi"], true)[0]
    print(f"{name:<10}", " ".join(f"{angle:.1e}" for angle in radians))

# %%
# The descent
# -----------
#
# Each layer of the head is one gradient step on the cross-entropy of the labelled points.
# Their loss falls with every step. The accuracy on the other points, which is what we
# want, need not rise with it; here it hardly changes after the first step.

shown, hidden = episode.labelled[0], ~episode.labelled[0]
steps = [name for name in trace if name.startswith("head.") and name.endswith(".logits")]
loss, right = [], []
for name in steps:
    logits = trace[name][0]
    loss.append(
        torch.nn.functional.cross_entropy(logits[shown], episode.y[0, shown]).item()
    )
    right.append((logits.argmax(-1) == episode.y[0])[hidden].double().mean().item())
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
axes[0].plot(range(1, len(loss) + 1), loss, "o-", color=COLOURS[0])
axes[0].set(title="cross-entropy of the 10 labels", xlabel="step")
axes[1].plot(range(1, len(right) + 1), right, "o-", color=COLOURS[2])
_ = axes[1].set(title="accuracy of the 90 other points", xlabel="step", ylim=(0.5, 1))
plt.show()

# %%
# A trained model can be inspected in the same way. Its stages 1 and 2 need not compute
# eigenvectors, and mostly do not: ``icssl reproduce mechanism`` measures this, and
# ``results/full/mechanism.md`` has the results.
