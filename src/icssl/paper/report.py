"""All artefacts and verdicts on one HTML page."""

import html
from pathlib import Path

from icssl.experiments.render import Item, Table
from icssl.experiments.store import Store
from icssl.files import replacing
from icssl.paper.claims import claims_markdown, claims_table
from icssl.paper.cost import cost_markdown, cost_table, provenance
from icssl.paper.profiles import Profile
from icssl.paper.registry import ARTEFACTS, render
from icssl.paper.verdicts import BREAK

_STYLE = """
body { font-family: sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.8rem; margin: 1rem 0; }
th, td { border: 1px solid #ccc; padding: 0.2rem 0.5rem; text-align: left; }
th { background: #f3f3f3; } img { max-width: 100%; } nav a { margin-right: 1rem; }
"""


def write_report(
    profile: Profile, store: Store, folder: Path, claims: Path | None = None
) -> list[Path]:
    """Draw everything from rows; the pages written."""
    cost = cost_markdown(profile, store)  # first, as it may find a damaged file
    items = {name: render(name, profile, store, folder) for name in ARTEFACTS}
    page = folder / "report.html"
    with replacing(page) as unfinished:
        unfinished.write_text(_page(profile, store, items), encoding="utf-8")
    verdicts = claims_markdown(profile, store)
    pages = {folder / "claims.md": verdicts}
    if claims is not None:
        pages[claims] = verdicts
    pages[folder / "cost.md"] = cost
    for path, text in pages.items():
        with replacing(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    return [page, *pages]


def _page(profile: Profile, store: Store, items: dict[str, list[Item]]) -> str:
    links = "".join(f'<a href="#{name}">{name}</a>' for name in ARTEFACTS)
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>icssl, {profile.name}"
        f"</title><style>{_STYLE}</style><h1>In-context semi-supervised learning: every "
        f"table and figure</h1><p>{html.escape(profile.note)}</p>",
        f"<p>{html.escape(provenance(profile, store))}</p><nav>{links}</nav>",
        f"<h2 id='claims'>Claims</h2>{_with_lines(claims_table(profile, store))}",
    ]
    for name, artefact in ARTEFACTS.items():
        parts.append(f"<h2 id='{name}'>{html.escape(artefact.title)}</h2>")
        parts.append(f"<p><b>The paper:</b> {html.escape(artefact.says)}</p>")
        parts += [item.html() for item in items[name]]
    parts.append(f"<h2 id='cost'>Cost</h2>{cost_table(profile, store).html()}")
    return "\n".join([*parts, "</html>"])


def _with_lines(table: Table) -> str:
    """A table escapes its cells; the break between lines is the one tag that is meant."""
    return table.html().replace(html.escape(BREAK), BREAK)
