"""
Train your own model
====================

This tutorial trains a model of the paper's three stages on episodes of a Swiss roll. It
has 902 weights. Sixty steps on one core are enough to see that it learns, but not how
good it can become.
"""

import matplotlib.pyplot as plt
import torch

from icssl import load_config, train
from icssl._util.colours import COLOURS
from icssl.episodes.data_config import DataConfig
from icssl.evaluation.predictors import ModelMethod
from icssl.evaluation.scoring import evaluate
from icssl.methods import BASELINES

# %%
# Choose the model and the data
# -----------------------------
#
# Start from a preset and change any field, as on the command line. The same in a shell:
# ``icssl train e2e_icl data.sources=swiss_roll steps=60 batch=16 --output runs/tiny``.

config = load_config("e2e_icl", ["data.sources=swiss_roll", "steps=60", "batch=16"])

# %%
# Accuracy during training
# ------------------------
#
# ``observe`` maps steps to functions that are called with the weights after that step.
# Here they store the weights, which are then tested on the same episodes.

moments = (1, 5, 10, 20, 40, 60)
weights: dict[int, torch.Tensor] = {}
observe = {s: lambda step, w: weights.update({step: w[0].clone()}) for s in moments}
(model,) = train([config], observe=observe)
print(sum(p.numel() for p in model.parameters()), "weights")

data = DataConfig(sources=("swiss_roll",))
curve = []
for step in moments:
    torch.nn.utils.vector_to_parameters(weights[step], model.parameters())
    (row,) = evaluate({"model": ModelMethod(model)}, data, [10], episodes=50, tuning=1)
    curve.append(row.metrics["accuracy"])

# %%
# Comparison with a classical method
# ----------------------------------
#
# The same 50 test episodes with 10 labels of 100 points; label spreading is tuned on other
# episodes.

(peer,) = evaluate(
    {"spreading": BASELINES["label_spreading"]}, data, [10], episodes=50, tuning=20
)
figure, axes = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
axes.errorbar(
    moments,
    [c.mean for c in curve],
    yerr=[c.half_width for c in curve],
    fmt="o-",
    capsize=2,
    color=COLOURS[0],
    label="the model",
)
spreading = peer.metrics["accuracy"].mean
axes.axhline(spreading, color=COLOURS[1], linestyle="--", label="label spreading, tuned")
axes.set(xlabel="steps of 16 episodes", ylabel="accuracy, 95% interval")
_ = axes.legend()
print(f"after {moments[-1]} steps {curve[-1].mean:.3f}, label spreading {spreading:.3f}")
plt.show()

# %%
# :doc:`/training` explains longer runs, checkpoints, many seeds at once, and GPUs.
# :doc:`/reproduce` has the accuracy of models that were trained for long. The weights of
# ``ICSSLClassifier`` belong to another model and are made by ``icssl pretrain``:
# :doc:`/model-card`.
