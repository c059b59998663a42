"""A model, contexts and units for tests of the heads of the gate."""

import torch

from icssl.classifier.geometry import Units
from icssl.classifier.model import ContextConfig, ContextModel
from icssl.tables.units import UNIT_NUMBERS


def random_model(members=2):
    """Weights far from where training starts, so that everything has a part."""
    model = ContextModel(ContextConfig(width=16, embedding=4, members=members))
    with torch.no_grad():
        for p in model.gates.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model.double().eval().requires_grad_(False)


def context(generator, b=2, n=40, d=3, c=3, m=7):
    """Random rows and classes; ``m`` labelled rows, each class among them."""
    x = torch.randn(b, n, d, generator=generator, dtype=torch.float64)
    y = torch.randint(c, (b, n), generator=generator)
    labelled = torch.zeros(b, n, dtype=torch.bool)
    for i in range(b):
        order = torch.randperm(n, generator=generator)[:m]
        y[i, order[:c]] = torch.arange(c)
        labelled[i, order] = True
    return x, y, labelled, c


def units_of(generator, b=2, d=3):
    """Units of tables whose columns can be read in either scale."""
    factors = 0.3 + 2 * torch.rand(b, d, generator=generator, dtype=torch.float64)
    numbers = torch.rand(b, UNIT_NUMBERS, generator=generator, dtype=torch.float64)
    return Units(factors, numbers, torch.ones(b, 2, dtype=torch.bool))
