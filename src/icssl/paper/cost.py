"""Where rows come from, and how long the runs took that made them."""

from collections import Counter
from dataclasses import replace
from typing import Any

from icssl.experiments.render import Table, escape_markdown
from icssl.experiments.runs import read_runs
from icssl.experiments.store import Store
from icssl.paper.profiles import Profile
from icssl.paper.registry import ARTEFACTS, all_specs


def provenance(profile: Profile, store: Store) -> str:
    """How many rows there are, what they come from, and how long it took in all."""
    rows = _own_rows(profile, store)
    made = Counter(
        f"{row['device']}, torch {row['torch']}, icssl {row['version']} ({row['commit']})"
        for row in rows
    )
    origins = "; ".join(f"{count} on {origin}" for origin, count in made.most_common())
    wanted = len(all_specs(ARTEFACTS, profile))
    text = f"{len(rows)} of {wanted} rows: {origins or 'none yet'}."
    seconds: Counter[str] = Counter()
    for run in read_runs(store):
        seconds[run["device"]] += run["seconds"]
    parts = [f"{total / 60:.1f} minutes on {name}" for name, total in seconds.items()]
    return f"{text} Wall time: {', '.join(parts)}." if parts else text


def cost_text(profile: Profile, store: Store) -> str:
    """What the runs added up to, and what of it is not in these tables."""
    runs, own = read_runs(store), len(_own_rows(profile, store))
    if not runs:
        return "No run has noted its time."
    minutes = sum(run["seconds"] for run in runs) / 60
    longest = max(run["seconds"] for run in runs) / 60
    noted = sum(run["rows"] for run in runs)
    parts = [
        f"{len(runs)} runs, the longest of {longest:.1f} minutes, took {minutes:.1f} "
        f"minutes in all and added {noted:,} rows.",
        f"The store has {len(store):,}: {own:,} of this profile, and {len(store) - own:,} "
        "of what it was before.",
    ]
    if len(store) > noted:
        parts.append(
            f"{len(store) - noted:,} of them stand in no run's line: a run that is killed "
            "leaves none, and its time is missing here."
        )
    return " ".join(parts)


def cost_table(profile: Profile, store: Store) -> Table:
    """One line a run."""
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
    """A page of its own."""
    table = cost_table(profile, store)
    rows = tuple(tuple(map(escape_markdown, row)) for row in table.rows)
    made = escape_markdown(provenance(profile, store))
    parts = ["# What the rows cost", profile.note, made]
    return "\n\n".join([*parts, replace(table, rows=rows).markdown()]) + "\n"


def _own_rows(profile: Profile, store: Store) -> list[dict[str, Any]]:
    keys = [spec.key for spec in all_specs(ARTEFACTS, profile)]
    return [store[key] for key in keys if key in store]
