"""Artefact ``params``: trainable parameters of every model, by stage, beside the paper's.

The paper publishes totals (its table of parameter counts) but not the layers, heads and
widths they come from. Ours are sums over the presets as they are, those of ``ModelConfig``
first, then those that ``icssl train`` makes of them.
"""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from icssl.bench.paper.artefact import Artefact, Profile, Rows, no_specs
from icssl.bench.render import Item, Table
from icssl.model.baseline import BaselineConfig, BaselineTransformer
from icssl.model.model_config import PRESETS, ModelConfig
from icssl.model.transformer import ICSSLTransformer
from icssl.training.config import load_config

STAGES = ("laplacian", "eigenmap", "head")

# The paper's table of parameter counts. Logistic regressions are fitted to each context
# and have no weights of their own here; the paper counts 627 or 628 for them.
PUBLISHED = {
    ("paper", "laplacian"): 2_592,
    ("paper", "eigenmap"): 7_684,
    ("paper", "head"): 576,
    ("paper", "total"): 10_852,
    ("orig_icl", "total"): 576,
    ("eig_icl", "total"): 576,
    ("transformer", "total"): 1_442_178,
}
# As tables of accuracy have them, which name methods by the presets of training.
TRAINED: dict[str, tuple[str, ...]] = {
    "e2e_icl": (),
    "e2e_wide": (),
    "lap_linear": (),
    "lap_pe_1layer": (),
    "e2e_encoder": (),
    "e2e_encoder, 4 layers": ("model.encoder_layers=4",),  # on all sources but the roll
}


@dataclass(frozen=True)
class ParameterCount:
    """One row: how many trainable numbers a stage of a model has."""

    model: str
    stage: str
    parameters: int
    published: int | None


def count_parameters(module: nn.Module | None) -> int:
    """Trainable parameters of a module; none for a stage that a model lacks."""
    if module is None:
        return 0
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def parameter_counts(d: int = 3) -> list[ParameterCount]:
    """Rows for every preset and the Transformer baseline on ``d`` coordinates."""
    configs = {preset: ModelConfig.preset(preset) for preset in PRESETS}
    for name, overrides in TRAINED.items():
        config = load_config(name.partition(",")[0], overrides).model
        assert isinstance(config, ModelConfig)  # the baseline has stages of its own
        configs[name] = config
    counts: list[tuple[str, str, int]] = []
    for name, config in configs.items():
        model = ICSSLTransformer(config)
        by_stage = [(stage, count_parameters(getattr(model, stage))) for stage in STAGES]
        counts += [(name, stage, count) for stage, count in by_stage if count]
        counts.append((name, "total", count_parameters(model)))
    baseline = BaselineTransformer(BaselineConfig(d=d))
    for stage, module in baseline.named_children():
        counts.append(("transformer", stage, count_parameters(module)))
    counts.append(("transformer", "total", count_parameters(baseline)))
    return [
        ParameterCount(model, stage, count, PUBLISHED.get((model, stage)))
        for model, stage, count in counts
    ]


def draw(profile: Profile, rows: Rows, folder: Path) -> list[Item]:
    """One table."""
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
