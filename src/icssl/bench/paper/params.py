"""Artefact ``params``: trainable parameters of every model, by stage, beside the paper's.

The paper publishes totals (its table of parameter counts) but not the layers, heads and
widths they come from. Ours are sums over the presets: those of ``ModelConfig``
first, then those of ``icssl train``.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from icssl.bench.paper.artefact import Artefact, Profile, Rows, no_specs
from icssl.bench.render import Item, Table
from icssl.model.baseline import BaselineConfig, BaselineTransformer
from icssl.model.model_config import PRESETS, ModelConfig
from icssl.model.transformer import ICSSLTransformer
from icssl.training.config import config_from

_STAGES = ("laplacian", "eigenmap", "head")

# The paper's table of parameter counts. Logistic regressions are fitted to each context
# and have no weights of their own here; the paper counts 627 or 628 for them.
_E2E = {"laplacian": 2_592, "eigenmap": 7_684, "head": 576, "total": 10_852}
_PRINTED = ("paper", "paper_8_32_8", "paper_24")
_PUBLISHED = {
    **{(name, stage): count for name in _PRINTED for stage, count in _E2E.items()},
    **dict.fromkeys([("paper_orig_icl", "total"), ("paper_eig_icl", "total")], 576),
    **dict.fromkeys([("orig_icl", "total"), ("eig_icl", "total")], 576),
    ("transformer", "total"): 1_442_178,
    ("transformer_positions", "total"): 1_442_178,
}
# Sizes are not printed: what a model with a printed total shares with it.
_NOTES = {
    ("paper", "head"): "576 and two scalars: step size, gamma; MLP 16-16-16, W 2 x 16",
    ("paper_8_32_8", "head"): "576 and two scalars: MLP 8-32-8, W 3 x 8",
    ("paper_24", "laplacian"): "consistent with 2,592 = 24 x 108: 6 layers x 4 heads",
    ("paper_24", "eigenmap"): "consistent with 7,684 = 24 x 316 + 10 x 10: k = 10",
    ("paper_24", "total"): "consistent with the factor 24, not with the totals",
    ("paper", "total"): "layers and heads are ours",
    ("transformer_positions", "total"): "consistent with 15 coordinates and 200 places",
}
# Tables of accuracy name methods by these presets of training.
_TRAINED = (
    *("e2e_icl", "e2e_linear", "e2e_wide", "lap_linear", "lap_pe_1layer"),
    *("e2e_encoder", "paper_linear", "paper_combined"),
)


@dataclass(frozen=True)
class _ParameterCount:
    """The number of trainable parameters of one stage, ours and the published one."""

    model: str
    stage: str
    parameters: int
    published: int | None
    note: str = ""


def published_parameters(model: str, stage: str = "total") -> int:
    """Return a number of parameters that the paper prints."""
    return _PUBLISHED[model, stage]


def _count(module: nn.Module | None) -> int:
    """Return the trainable parameters of a module; 0 for a stage that a model lacks."""
    if module is None:
        return 0
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def parameter_counts(d: int = 3) -> list[_ParameterCount]:
    """Return counts of every preset and of the Transformer baseline on ``d`` columns."""
    configs = {preset: ModelConfig.preset(preset) for preset in PRESETS}
    for name in _TRAINED:
        config = config_from({"preset": name}).model
        assert isinstance(config, ModelConfig)  # the baseline has stages of its own
        configs[name] = config
    # The encoder head as it is trained on all sources but the Swiss roll.
    configs["e2e_encoder, 4 layers"] = replace(configs["e2e_encoder"], encoder_layers=4)
    counts: list[tuple[str, str, int]] = []
    for name, config in configs.items():
        model = ICSSLTransformer(config)
        by_stage = [(stage, _count(getattr(model, stage))) for stage in _STAGES]
        by_stage.append(
            ("projection", 0 if model.project is None else model.project.numel())
        )
        counts += [(name, stage, count) for stage, count in by_stage if count]
        counts.append((name, "total", _count(model)))
    baselines = {"transformer": BaselineConfig(d=d)}
    # The printed total is that of the product's fifteen coordinates.
    positions = config_from({"preset": "transformer_positions"}).model
    assert isinstance(positions, BaselineConfig)
    baselines["transformer_positions"] = replace(positions, d=15)
    for name, sizes in baselines.items():
        baseline = BaselineTransformer(sizes)
        children = [(stage, _count(module)) for stage, module in baseline.named_children()]
        counts += [(name, stage, count) for stage, count in children if count]
        counts.append((name, "total", _count(baseline)))
    return [
        _ParameterCount(*row, _PUBLISHED.get(row[:2]), _NOTES.get(row[:2], ""))
        for row in counts
    ]


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw one table."""
    lines = tuple(
        (
            c.model,
            c.stage,
            f"{c.parameters:,}",
            f"{c.published:,}" if c.published else "",
            c.note,
        )
        for c in parameter_counts()
    )
    header = ("model", "stage", "ours", "paper", "note")
    return [Table("Trainable parameters", header, lines)]


ARTEFACT = Artefact(
    "params",
    "Parameter counts",
    "E2E has 10,852 trainable parameters, of which 576 are the head's, and the Transformer "
    "baseline 1,442,178. The sizes of E2E's layers are not printed.",
    no_specs,
    draw,
)
