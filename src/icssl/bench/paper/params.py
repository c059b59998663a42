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
_PUBLISHED = {
    ("paper", "laplacian"): 2_592,
    ("paper", "eigenmap"): 7_684,
    ("paper", "head"): 576,
    ("paper", "total"): 10_852,
    ("orig_icl", "total"): 576,
    ("eig_icl", "total"): 576,
    ("transformer", "total"): 1_442_178,
}
# Tables of accuracy name methods by these presets of training.
_TRAINED = ("e2e_icl", "e2e_wide", "lap_linear", "lap_pe_1layer", "e2e_encoder")


@dataclass(frozen=True)
class _ParameterCount:
    """The number of trainable parameters of one stage, ours and the published one."""

    model: str
    stage: str
    parameters: int
    published: int | None


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
        counts += [(name, stage, count) for stage, count in by_stage if count]
        counts.append((name, "total", _count(model)))
    baseline = BaselineTransformer(BaselineConfig(d=d))
    for stage, module in baseline.named_children():
        counts.append(("transformer", stage, _count(module)))
    counts.append(("transformer", "total", _count(baseline)))
    return [
        _ParameterCount(model, stage, count, _PUBLISHED.get((model, stage)))
        for model, stage, count in counts
    ]


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """Draw one table."""
    lines = tuple(
        (c.model, c.stage, f"{c.parameters:,}", f"{c.published:,}" if c.published else "")
        for c in parameter_counts()
    )
    return [Table("Trainable parameters", ("model", "stage", "ours", "paper"), lines)]


ARTEFACT = Artefact(
    "params",
    "Parameter counts",
    "E2E has 10,852 trainable parameters, of which 576 are the head's, and the Transformer "
    "baseline 1,442,178. The sizes of E2E's layers are not printed.",
    no_specs,
    draw,
)
