"""Warnings that point at the line of the caller's own code."""

import sys
import warnings

# Frames of this package, and of what may wrap its functions, are not the caller's.
_NOT_THE_CALLER = {"icssl", "sklearn", "joblib", "jaxtyping", "beartype"}


def warn_caller(warning: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn with the file and line of the code that called this package."""
    frame, level = sys._getframe(), 1
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_CALLER
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, category, stacklevel=level)
