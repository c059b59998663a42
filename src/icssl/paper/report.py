"""All artefacts and verdicts on one HTML page."""

import html
import json
from collections import Counter
from pathlib import Path

from icssl.experiments.render import Item
from icssl.experiments.runner import runs_file
from icssl.experiments.store import Store
from icssl.files import replacing
from icssl.paper.claims import claims_markdown, claims_table
from icssl.paper.profiles import Profile
from icssl.paper.registry import ARTEFACTS, all_specs, render

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
    items = {name: render(name, profile, store, folder) for name in ARTEFACTS}
    page = folder / "report.html"
    with replacing(page) as unfinished:
        unfinished.write_text(_page(profile, store, items), encoding="utf-8")
    written = [page]
    for path in (folder / "claims.md", claims):
        if path is not None:
            with replacing(path) as unfinished:
                text = claims_markdown(profile, store)
                unfinished.write_text(text, encoding="utf-8")
            written.append(path)
    return written


def _page(profile: Profile, store: Store, items: dict[str, list[Item]]) -> str:
    links = "".join(f'<a href="#{name}">{name}</a>' for name in ARTEFACTS)
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>icssl, {profile.name}"
        f"</title><style>{_STYLE}</style><h1>In-context semi-supervised learning: every "
        f"table and figure</h1><p>{html.escape(profile.note)}</p>",
        f"<p>{html.escape(provenance(profile, store))}</p><nav>{links}</nav>",
        f"<h2 id='claims'>Claims</h2>{claims_table(profile, store).html()}",
    ]
    for name, artefact in ARTEFACTS.items():
        parts.append(f"<h2 id='{name}'>{html.escape(artefact.title)}</h2>")
        parts.append(f"<p><b>The paper:</b> {html.escape(artefact.says)}</p>")
        parts += [item.html() for item in items[name]]
    return "\n".join([*parts, "</html>"])


def provenance(profile: Profile, store: Store) -> str:
    """How many rows there are, and what hardware and versions they come from."""
    specs = all_specs(ARTEFACTS, profile)
    rows = [store[spec.key] for spec in specs if spec.key in store]
    made = Counter(
        f"{row['device']}, torch {row['torch']}, icssl {row['version']} ({row['commit']})"
        for row in rows
    )
    origins = "; ".join(f"{count} on {origin}" for origin, count in made.most_common())
    return f"{len(rows)} of {len(specs)} rows: {origins or 'none yet'}.{_wall_time(store)}"


def _wall_time(store: Store) -> str:
    """How long the runs took that made the rows, by device."""
    path = runs_file(store)
    if not path.exists():
        return ""
    seconds: Counter[str] = Counter()
    for line in path.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        seconds[run["device"]] += run["seconds"]
    parts = [f"{total / 60:.1f} minutes on {name}" for name, total in seconds.items()]
    return f" Wall time: {', '.join(parts)}."
