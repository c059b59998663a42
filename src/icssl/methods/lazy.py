"""Modules and estimators that entries name, loaded only when a method is made."""

from importlib import import_module
from typing import Any


def peers_module() -> Any:
    """Return the module of peers, which loads scikit-learn."""
    return import_module("icssl.methods.peers")


def tabpfn_module() -> Any:
    """Return the module of TabPFN, which loads scikit-learn too."""
    return import_module("icssl.methods.tabpfn")


def make_estimator(name: str, *, package: str = "sklearn", **settings: Any) -> Any:
    """Return an estimator of scikit-learn, or of a package like it.

    Examples
    --------
    >>> make_estimator("naive_bayes.GaussianNB")
    GaussianNB()
    """
    module, _, kind = f"{package}.{name}".rpartition(".")
    return getattr(import_module(module), kind)(**settings)
