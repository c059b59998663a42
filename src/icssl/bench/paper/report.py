"""The report: all artefacts and verdicts on one HTML page, and what the runs cost."""

import html
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from icssl._util.files import replacing
from icssl.bench.paper.artefact import Profile
from icssl.bench.paper.catalogue import ARTEFACTS, all_specs, render
from icssl.bench.paper.claims import claims_markdown, claims_table, evidence
from icssl.bench.paper.published import published_csv, published_lines
from icssl.bench.paper.verdicts import BREAK
from icssl.bench.render import Item, Table, escape_markdown
from icssl.bench.store import Store, read_runs


def _provenance(profile: Profile, store: Store) -> str:
    """Return how many rows are stored, where they come from, and how long it took."""
    rows = _rows_of_profile(profile, store)
    machines = Counter(
        f"{row['device']}, torch {row['torch']}, icssl {row['version']} ({row['commit']})"
        for row in rows
    )
    origins = "; ".join(f"{count} on {origin}" for origin, count in machines.most_common())
    wanted = len(all_specs(ARTEFACTS, profile))
    text = f"{len(rows)} of {wanted} rows: {origins or 'none yet'}."
    seconds: Counter[str] = Counter()
    for run in read_runs(store):
        seconds[run["device"]] += run["seconds"]
    parts = [f"{total / 60:.1f} minutes on {name}" for name, total in seconds.items()]
    return f"{text} Wall time: {', '.join(parts)}." if parts else text


def cost_text(profile: Profile, store: Store) -> str:
    """Return what the runs took in all, and how many rows are not of this profile."""
    runs, n_rows = read_runs(store), len(_rows_of_profile(profile, store))
    if not runs:
        return "No run has noted its time."
    minutes = sum(run["seconds"] for run in runs) / 60
    longest = max(run["seconds"] for run in runs) / 60
    n_added = sum(run["rows"] for run in runs)
    parts = [
        f"{len(runs)} runs, the longest of {longest:.1f} minutes, took {minutes:.1f} "
        f"minutes in all and added {n_added:,} rows.",
        f"The store has {len(store):,}: {n_rows:,} of this profile, and "
        f"{len(store) - n_rows:,} of what it was before.",
    ]
    if len(store) > n_added:
        parts.append(
            f"{len(store) - n_added:,} of them stand in no run's line: a run that is "
            "killed leaves none, and its time is missing here."
        )
    return " ".join(parts)


def _cost_table(profile: Profile, store: Store) -> Table:
    """Return a table with one line per run."""
    lines = [
        (
            f"{run['rows']:,}",
            f"{run['seconds'] / 60:.1f}",
            run["device"],
            run["torch"],
            run["version"],
            run["commit"],
        )
        for run in read_runs(store)
    ]
    header = ("rows added", "minutes", "device of the models", "torch", "icssl", "commit")
    return Table("Runs", header, tuple(lines), (cost_text(profile, store),))


def cost_markdown(profile: Profile, store: Store) -> str:
    """Return the page of what the rows cost."""
    table = _cost_table(profile, store)
    rows = tuple(tuple(map(escape_markdown, row)) for row in table.rows)
    origins = escape_markdown(_provenance(profile, store))
    parts = ["# What the rows cost", profile.note, origins]
    return "\n\n".join([*parts, replace(table, rows=rows).markdown()]) + "\n"


def _rows_of_profile(profile: Profile, store: Store) -> list[dict[str, Any]]:
    keys = [spec.key for spec in all_specs(ARTEFACTS, profile)]
    return [store[key] for key in keys if key in store]


_STYLE = """
body { font-family: sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.8rem; margin: 1rem 0; }
th, td { border: 1px solid #ccc; padding: 0.2rem 0.5rem; text-align: left; }
th { background: #f3f3f3; } img { max-width: 100%; } nav a { margin-right: 1rem; }
"""


def write_report(
    profile: Profile, store: Store, folder: Path, claims: Path | None = None
) -> list[Path]:
    """Draw everything from rows, and return the paths of the pages."""
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
    lines = published_lines(profile, evidence(profile, store))
    pages[folder / "published.csv"] = published_csv(lines)
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
        f"<p>{html.escape(_provenance(profile, store))}</p><nav>{links}</nav>",
        f"<h2 id='claims'>Claims</h2>{_with_lines(claims_table(profile, store))}",
    ]
    for name, artefact in ARTEFACTS.items():
        parts.append(f"<h2 id='{name}'>{html.escape(artefact.title)}</h2>")
        parts.append(f"<p><b>The paper:</b> {html.escape(artefact.says)}</p>")
        parts += [item.html() for item in items[name]]
    parts.append(f"<h2 id='cost'>Cost</h2>{_cost_table(profile, store).html()}")
    return "\n".join([*parts, "</html>"])


def _with_lines(table: Table) -> str:
    """Return a table as HTML: its cells are escaped but for the break between lines."""
    return table.html().replace(html.escape(BREAK), BREAK)
