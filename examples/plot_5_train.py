"""
Train your own
==============

A model of the paper's three stages, trained on episodes of a Swiss roll. It has 902
weights; sixty steps on one core are enough to see it learn, not to see how good it gets.
"""

import matplotlib.pyplot as plt
import torch

from icssl.bench.plots import COLOURS
from icssl.episodes.data_config import DataConfig
from icssl.evaluation.predictors import ModelMethod
from icssl.evaluation.scoring import evaluate
from icssl.methods import BASELINES
from icssl.training import load_config, train

# %%
# What is trained, and on what
# ----------------------------
#
# A preset, and any field of it as on the command line. The same from a shell:
# ``icssl train e2e_icl data.sources=swiss_roll steps=60 batch=16 --output runs/tiny``.

config = load_config("e2e_icl", ["data.sources=swiss_roll", "steps=60", "batch=16"])

# %%
# The accuracy as it goes
# -----------------------
#
# ``observe`` is called with the weights after the steps it names. Here it keeps them, and
# each is tested on the same episodes.

moments = (1, 5, 10, 20, 40, 60)
kept: dict[int, torch.Tensor] = {}
observe = {step: lambda step, w: kept.update({step: w[0].clone()}) for step in moments}
(model,) = train([config], observe=observe)
print(sum(p.numel() for p in model.parameters()), "weights")

data = DataConfig(sources=("swiss_roll",))
curve = []
for step in moments:
    torch.nn.utils.vector_to_parameters(kept[step], model.parameters())
    (row,) = evaluate({"model": ModelMethod(model)}, data, [10], episodes=50, tuning=1)
    curve.append(row.metrics["accuracy"])

# %%
# Beside classical methods
# ------------------------
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
# Longer runs, checkpoints, many seeds at once, GPUs: :doc:`/training`. What models reach
# that were trained for long: :doc:`/reproduce`. The weights of ``ICSSLClassifier`` are of
# another model and made by ``icssl pretrain``: :doc:`/model-card`.
