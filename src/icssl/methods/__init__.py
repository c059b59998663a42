"""Reference methods: an episode in, class probabilities out.

Every method is a value of one signature, :class:`Method`:

>>> from icssl.episodes.synthetic import ManifoldSpec
>>> from icssl._util.random import generator_for
>>> spec = ManifoldSpec("cylinder", labels=21)
>>> training, test = (spec.draw(9, generator=generator_for(0, s)) for s in ("tune", "test"))
>>> method = BASELINES["label_spreading"].tune(training)
>>> method(test).shape
torch.Size([9, 100, 2])
"""

from icssl.methods import entries as _entries  # noqa: F401  (fills the registry)
from icssl.methods.base import Method, mean_accuracy
from icssl.methods.registry import RegistryView

BASELINES: RegistryView[Method] = RegistryView(
    lambda entry: "evaluate" in entry.where, lambda entry: entry.where["evaluate"].method
)
"""Classical methods on episodes, by name."""

TRAINED: RegistryView[str] = RegistryView(
    lambda entry: entry.is_trained, lambda entry: entry.title
)
"""Titles of models that are trained on the data first, by name."""

TITLES: RegistryView[str] = RegistryView(lambda entry: True, lambda entry: entry.title)
"""Titles of all methods, by name, as tables and figures show them."""

__all__ = ["BASELINES", "TITLES", "TRAINED", "Method", "mean_accuracy"]
