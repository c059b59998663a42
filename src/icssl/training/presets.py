"""The trained methods by name: values of :class:`icssl.training.config.TrainConfig`."""

from typing import Any

# Those with "paper" in their names, and `transformer_unscaled`, see points as they are; all
# others see points scaled by their own context.
_PAPER_MODEL = {"preset": "paper"}
_PAPER_RATE = {"learning_rate": 5e-3}
# log gamma may move by some twenty in five hundred steps, by two at the usual rate.
_FITTED_GAMMA = {"gamma_rate": 0.1}
# A step of the descent that starts at 1 moves by two or three in training, and should be
# sixteen or more: that cost seven points on the sphere (benchmarks/starts.py).
_LONG_STEP = {"step_size": 16.0}
_OURS = {"preset": "free", "start": "waves", **_LONG_STEP}
PRESETS: dict[str, dict[str, Any]] = {
    "e2e_icl": {"model": _OURS},
    # The linear kernel has no bound: a step of 16 and a rate of 1e-2 are too much for it.
    "e2e_linear": {
        "model": {**_OURS, "kernel": "linear", "step_size": 1.0},
        "learning_rate": 5e-3,
    },
    "e2e_wide": {"model": {**_OURS, "k": 12, "steps": 4}},
    "e2e_encoder": {
        "model": {"preset": "encoder", "k": 12},
        "learning_rate": 2e-3,
    },
    "eig_icl": {
        "model": {"preset": "eig_icl", **_LONG_STEP},
        "data": {"episodes": 20_000},
        **_FITTED_GAMMA,
    },
    "orig_icl": {"model": {"preset": "orig_icl", **_LONG_STEP}, **_FITTED_GAMMA},
    "transformer": {
        "model": {"kind": "transformer", "centre": True, "scale": "neighbour"},
        "learning_rate": 5e-4,
    },
    "transformer_unscaled": {"model": {"kind": "transformer"}, "learning_rate": 5e-4},
    "transformer_positions": {
        "model": {"kind": "transformer", "positions": 200, "feature_norm": True},
        "learning_rate": 5e-4,
    },
    "lap_linear": {"model": {**_OURS, "laplacian_kernel": "linear"}},
    "lap_pe_1layer": {
        "model": {
            **_OURS,
            "laplacian_layers": 1,
            "eigenmap_layers": 1,
            "layer_loops": 1,
            "stage_loops": 1,
        }
    },
    "paper": {"model": _PAPER_MODEL, **_PAPER_RATE},
    "paper_linear": {"model": {**_PAPER_MODEL, "kernel": "linear"}, **_PAPER_RATE},
    "paper_combined": {
        "model": _PAPER_MODEL,
        "laplacian_weight": 1.0,
        "eigenmap_weight": 1.0,
        "data": {"episodes": 20_000},
        **_PAPER_RATE,
    },
    "paper_8_32_8": {"model": {"preset": "paper_8_32_8"}, **_PAPER_RATE},
    "paper_24": {"model": {"preset": "paper_24"}, **_PAPER_RATE},
    "paper_lap_linear": {
        # Without our bound, as printed.
        "model": {"preset": "paper_lap_linear", "laplacian_kernel": "linear_unbounded"},
        **_PAPER_RATE,
    },
    "paper_lap_pe_1layer": {"model": {"preset": "paper_lap_pe_1layer"}, **_PAPER_RATE},
    "paper_orig_icl": {"model": {"preset": "paper_orig_icl"}, **_FITTED_GAMMA},
    "paper_eig_icl": {
        "model": {"preset": "paper_eig_icl"},
        "data": {"episodes": 20_000},
        **_FITTED_GAMMA,
    },
    "paper_scalars": {"model": {"preset": "paper_scalars"}},
}
