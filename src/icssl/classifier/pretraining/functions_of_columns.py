"""Synthetic tables whose classes are functions of the columns.

Axis names: b = tables, n = rows, d = columns, c = classes.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from icssl.classifier.pretraining.draws import (
    Draws,
    TablePlan,
    apply_linear,
    apply_network,
    pick,
    standardise,
)
from icssl.classifier.pretraining.latent_columns import draw_correlated_columns
from icssl.classifier.pretraining.table_classes import classes_of_scores

Points = tuple[Float[Tensor, "b n d"], Int[Tensor, "b n"]]


def _noise_of_borders(draws: Draws, c: int) -> float:
    """Draw how noisy scores are: real tables are often far from separable.

    The same noise would leave nothing to learn where there are many classes.
    """
    return draws.between(0, 1.3) * (2 / c) ** 0.7


def draw_linear_classes(draws: Draws, plan: TablePlan) -> Points:
    """Draw classes by linear scores of some of the columns."""
    x = draw_correlated_columns(draws, plan)
    scores = apply_linear(draws, x[..., : draws.whole(1, plan.d)], plan.c)
    return x, classes_of_scores(draws, scores, plan, noise=_noise_of_borders(draws, plan.c))


def draw_network_classes(draws: Draws, plan: TablePlan) -> Points:
    """Draw classes by a random network of some of the columns."""
    x = draw_correlated_columns(draws, plan)
    inputs = x[..., : draws.whole(1, min(plan.d, 20))]
    scores = apply_network(draws, inputs, plan.c, depth=draws.whole(1, 3), width=16)
    return x, classes_of_scores(draws, scores, plan, noise=_noise_of_borders(draws, plan.c))


def draw_tree_classes(draws: Draws, plan: TablePlan) -> Points:
    """Draw classes by the sum of a few random trees on some of the columns."""
    x = draw_correlated_columns(draws, plan)
    b, n, c = plan.b, plan.n, plan.c
    # Where columns have one unit, those that vary more are split more often.
    variance = x[..., : draws.whole(1, min(plan.d, 20))].var(dim=1) + 1e-3
    scores = x.new_zeros(b, n, c)
    for _ in range(draws.whole(1, 5)):
        depth = draws.whole(1, 4)
        leaf = torch.zeros(b, n, dtype=torch.long, device=x.device)
        for _ in range(depth):
            # One column per table, split at one of its own values: each level of the tree
            # doubles the number of leaves.
            which = torch.multinomial(variance, 1, generator=draws.generator)
            column = pick(x.mT, which)[:, 0]
            border = column.gather(1, draws.below(n, b, 1))
            leaf = 2 * leaf + (column > border)
        scores = scores + pick(draws.normal(b, 2**depth, c), leaf)
    return x, classes_of_scores(draws, scores, plan, noise=_noise_of_borders(draws, plan.c))


def draw_causal_classes(draws: Draws, plan: TablePlan) -> Points:
    """Draw columns and scores as nodes of one random graph: causes, effects, neither."""
    b, n, d, c = plan.b, plan.n, plan.d, plan.c
    # New nodes are functions of all nodes before them, so that the graph has no cycle.
    nodes = draws.normal(b, n, draws.whole(2, 8))
    while nodes.shape[-1] < d + c:
        width = min(draws.whole(2, 32), d + c - nodes.shape[-1])
        effects = apply_network(draws, nodes, width, depth=1, width=16)
        noise = draws.log_between(0.02, 0.5) * draws.normal(b, n, width)
        nodes = torch.cat([nodes, standardise(effects) + noise], dim=-1)
    nodes = nodes[..., draws.order(nodes.shape[-1])]
    scores = nodes[..., d : d + c]
    noise_of_scores = 0.5 * _noise_of_borders(draws, plan.c)
    return nodes[..., :d], classes_of_scores(draws, scores, plan, noise=noise_of_scores)
