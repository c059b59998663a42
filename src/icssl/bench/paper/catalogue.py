"""All artefacts by name, their rows, and the pages that are made from them."""

from collections.abc import Iterable
from pathlib import Path

from icssl.bench.paper import (
    ablation,
    as_published,
    curves,
    depth,
    id_ood,
    illustrations,
    image_transfer,
    imagenet,
    imagenet_published,
    learned_stages,
    params,
    sample_efficiency,
)
from icssl.bench.paper.artefact import Artefact, Profile, Rows, Specs
from icssl.bench.paper.null_cells import null_specs, null_table
from icssl.bench.render import Item, write_page
from icssl.bench.spec import Spec
from icssl.bench.store import Store

ARTEFACTS: dict[str, Artefact] = {
    artefact.name: artefact
    for artefact in (
        params.ARTEFACT,
        illustrations.OVERVIEW,
        illustrations.MANIFOLDS,
        illustrations.IMAGE_GRID,
        id_ood.ARTEFACT,
        curves.ARTEFACT,
        ablation.ARTEFACT,
        depth.ARTEFACT,
        image_transfer.ARTEFACT,
        imagenet.ARTEFACT,
        imagenet.ALIGNMENT,
        imagenet_published.ARTEFACT,
        sample_efficiency.ARTEFACT,
        learned_stages.ARTEFACT,
        as_published.ARTEFACT,
    )
}


def all_specs(names: Iterable[str], profile: Profile) -> list[Spec]:
    """Return what these artefacts need, each spec once, with null models beside them."""
    artefacts = [ARTEFACTS[name] for name in names]
    specs = [s for a in artefacts for s in specs_of(a, profile).values()]
    return list({spec.key: spec for spec in specs}.values())


def specs_of(artefact: Artefact, profile: Profile) -> Specs:
    """Return the specs of an artefact and of the null models beside them."""
    specs = artefact.specs(profile)
    return specs | null_specs(specs)


def rows_of(artefact: Artefact, profile: Profile, store: Store) -> Rows:
    """Return the stored rows of an artefact, by cell."""
    return {
        cell: store[spec.key]
        for cell, spec in specs_of(artefact, profile).items()
        if spec.key in store
    }


def render(name: str, profile: Profile, store: Store, folder: Path) -> list[Item]:
    """Draw one artefact from stored rows alone and write its page."""
    artefact = ARTEFACTS[name]
    specs = specs_of(artefact, profile)
    rows = rows_of(artefact, profile, store)
    items = artefact.draw(profile, rows, folder)
    if nulls := null_table(rows):
        items = [*items, nulls]
    text = [f"**The paper:** {artefact.says}"]
    if specs:
        text.append(f"{profile.note} {len(rows)} of {len(specs)} rows are there.")
    write_page(artefact.title, "\n\n".join(text), items, folder / f"{name}.md")
    return items
