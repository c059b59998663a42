"""Entries of the paper's regressions as printed, and of what learns nothing at all."""

from typing import Any

from icssl.methods.null_models import (
    BestHead,
    KernelHead,
    LabelVote,
    LinearHead,
    PositionVote,
)
from icssl.methods.registry import MethodEntry, Recipe
from icssl.methods.untuned import (
    UntunedEigenvectorRegression,
    UntunedKernelRegression,
    UntunedRegression,
)


def _null_entry(name: str, title: str, method: Any, stated: str) -> MethodEntry:
    """Return the entry of a method that appears on episodes only, without a curve."""
    return MethodEntry(name, title, {"evaluate": Recipe(lambda: method, stated)})


# The paper's regressions as printed, and what is reached without learning anything.
UNTUNED = (
    _null_entry(
        "orig_lr_untuned",
        "Orig+LR, untuned",
        UntunedRegression(),
        "UntunedRegression(C=1.0)",
    ),
    _null_entry(
        "orig_rbf_lr_10",
        "Orig+RBF-LR, gamma = 10",
        UntunedKernelRegression(gamma=10.0),
        "UntunedKernelRegression(C=1.0, gamma=10.0)",
    ),
    _null_entry(
        "orig_rbf_lr_scale",
        "Orig+RBF-LR, gamma = scale",
        UntunedKernelRegression(gamma="scale"),
        "UntunedKernelRegression(C=1.0, gamma='scale')",
    ),
    _null_entry(
        "eig_lr_untuned",
        "Eig+LR, untuned",
        UntunedEigenvectorRegression(),
        "UntunedEigenvectorRegression(C=1.0, k=4)",
    ),
)
NULL_MODELS = (
    _null_entry("label_vote", "Vote of the labels", LabelVote(), "LabelVote()"),
    _null_entry("position_vote", "Nearest position", PositionVote(), "PositionVote()"),
    _null_entry(
        "free_head_linear",
        "Training-free head (linear)",
        LinearHead(),
        "LinearHead(features='points', k=4)",
    ),
    _null_entry(
        "free_head_rbf",
        "Training-free head (best gamma)",
        KernelHead(),
        "KernelHead(features='points', k=4, gamma=1.0)",
    ),
    _null_entry(
        "free_head_eig_linear",
        "Training-free head on eigenvectors (linear)",
        LinearHead("eigenvectors"),
        "LinearHead(features='eigenvectors', k=4)",
    ),
    _null_entry(
        "free_head_eig_rbf",
        "Training-free head on eigenvectors (best gamma)",
        KernelHead("eigenvectors"),
        "KernelHead(features='eigenvectors', k=4, gamma=1.0)",
    ),
    _null_entry(
        "free_head",
        "Training-free head (best)",
        BestHead(),
        "BestHead(features='points', k=4, gamma=1.0, kernel='linear')",
    ),
)
