"""The paper's statements judged: one page, written from stored rows alone.

:func:`imbalance` explains three published columns by arithmetic alone.
"""

import math

from icssl.bench.paper.artefact import Profile, Rows, published_values
from icssl.bench.paper.as_published import UNEVEN, literal_cell
from icssl.bench.paper.catalogue import ARTEFACTS, rows_of
from icssl.bench.paper.nested import nested_table
from icssl.bench.paper.null_cells import VOTE, null_row
from icssl.bench.paper.params import parameter_counts, published_parameters
from icssl.bench.paper.published import published_lines, summary
from icssl.bench.paper.statements import CLAIMS, Claim
from icssl.bench.paper.table_cells import source_title
from icssl.bench.paper.verdicts import (
    NOT_RUN,
    RULES,
    SURVIVES,
    TOO_SMALL,
    UNTESTED,
    Evidence,
    Finding,
    tally,
)
from icssl.bench.render import Table
from icssl.bench.store import Store


def imbalance() -> list[tuple[str, str, float, str]]:
    """Return shares of the larger class at radius 0.5: the centre and 99 other points."""
    r, others = 0.5, 99
    cap = (1 - math.cos(r)) / 2
    # A disc around a point of the strip, less what lies beyond its two edges, on average.
    strip = (math.pi * r**2 - 2 / 3 * r**3) / (4 * math.pi)
    square = math.pi * r**2 / (2 * math.pi) ** 2
    manifolds = (
        ("sphere, by area", "(1 - cos r) / 2", cap, ".930"),
        ("cylinder", "(pi r^2 - 2/3 r^3) / 4 pi", strip, ".935"),
        ("torus", "pi r^2 / 4 pi^2", square, ".970"),
    )
    return [
        (name, formula, 1 - (1 + others * share) / 100, paper)
        for name, formula, share, paper in manifolds
    ]


def _imbalance_markdown() -> str:
    """Return the section of the page of claims about class imbalance."""
    shares = "\n".join(
        f"| {name} | {formula} | {share:.3f} | {printed} |"
        for name, formula, share, printed in imbalance()
    )
    return _IMBALANCE_PAGE.format(shares=shares)


def _vote_table(profile: Profile, rows: Rows) -> Table:
    """Return the vote of the labels beside printed columns of E2E: it learns nothing."""
    lines = {}
    for (_, cell), (value, _) in published_values().items():
        literal = literal_cell(cell)
        uneven = literal.threshold == UNEVEN or (
            cell.setting == "ood" and cell.source in ("cone", *_BALLS)
        )
        row = null_row(rows, literal, VOTE)
        if uneven and (cell.method, cell.kernel) == ("e2e_icl", "rbf") and row is not None:
            vote = f"{row['metrics']['accuracy']['mean']:.3f}"
            share = f"{row['majority_rate']:.3f}"
            place = (source_title(cell.source), f"{literal.labels:g}")
            lines[place] = (*place, f"{value:.3f}", vote, share)
    ordered = sorted(lines.values(), key=lambda line: (line[0], int(line[1])))
    columns = ("published, E2E (RBF)", "vote of the labels", "largest class")
    header = ("source", "labels", *columns)
    note = (
        "Surfaces out of distribution with a ball of radius 0.5, the cone from s = .1, and "
        f"the product with a larger class of .744; {profile.episodes} test episodes."
    )
    return Table("The vote of the labels beside the print", header, tuple(ordered), (note,))


_BALLS = ("cylinder", "sphere", "torus")
_IMBALANCE_PAGE = """## Uneven classes explain five printed columns

Class 1 is a ball of radius r around one of the 100 points, so it holds that point and each
of the other 99 with the probability that two random points are closer than r. With the
areas written out, r = 0.5 leaves the larger class with

| manifold | area in the ball | share of the larger class | published, OOD |
|---|---|---|---|
{shares}

On the cylinder, of height 2 and area 4 pi, a disc loses r^3 / 3 beyond each edge on
average. The published accuracies of E2E out of distribution on these three manifolds, with
either kernel, are within .002 of these numbers at 21 and 39 labels, and within about a
point of them at 3: a rule that always names the larger class has them too. So tables of
manifolds carry the share of the largest class, those in and out of distribution balanced
accuracy as well, and the fair protocol has balanced classes. On the cone out of
distribution and on the product no formula is simple: the table below has the vote of the
labels beside the print. All this shows what is enough to have these numbers, not what was
done to get them.
"""


def evidence(profile: Profile, store: Store) -> Evidence:
    """Return the stored rows of all artefacts."""
    return {name: rows_of(artefact, profile, store) for name, artefact in ARTEFACTS.items()}


def judge_claims(profile: Profile, rows: Evidence) -> list[tuple[Claim, Finding, Finding]]:
    """Return every statement with what rows say as published and under a fair protocol.

    A profile that is too small only judges what needs no rows.
    """
    answers = []
    for claim in CLAIMS:
        published, fair = claim.published(profile, rows), claim.fair(profile, rows)
        if not profile.judges and not claim.by_proof:
            published, fair = (
                Finding(f.ours, f.null, TOO_SMALL) for f in (published, fair)
            )
        answers.append((claim, published, fair))
    return answers


def claims_table(profile: Profile, store: Store) -> Table:
    """Return one line per statement, with the number of statements per verdict above."""
    return _table(profile, evidence(profile, store))


def _table(profile: Profile, rows: Evidence) -> Table:
    answers = judge_claims(profile, rows)
    lines = [
        (
            claim.says,
            claim.about,
            claim.tables(),
            published.ours,
            published.null,
            _verdict_text(claim, published),
            fair.ours,
            fair.null,
            SURVIVES.get(fair.verdict, fair.verdict),
        )
        for claim, published, fair in answers
    ]
    header = (
        "the paper says",
        "about",
        "its own tables",
        "as published, ours",
        "null models there",
        "as published",
        "fair, ours",
        "null models there",
        "survives a fair protocol",
    )
    totals = {c.model: c.parameters for c in parameter_counts() if c.stage == "total"}
    numbers = {"free": totals["free"], "paper": totals["paper"], "tuning": profile.tuning}
    printed = published_parameters("paper")
    rules = [rule.format(**numbers, printed=printed) for rule in RULES]
    notes = (headline(answers), profile.note, *rules)
    return Table("Statements and verdicts", header, tuple(lines), notes)


def _verdict_text(claim: Claim, finding: Finding) -> str:
    if not claim.stand_in or finding.verdict in (NOT_RUN, TOO_SMALL):
        return finding.verdict
    return f"{UNTESTED}; with {claim.stand_in}: {finding.verdict}"


def headline(answers: list[tuple[Claim, Finding, Finding]]) -> str:
    """Return the sentence that README and the documents begin with."""
    here = [(p.verdict, f.verdict) for claim, p, f in answers if not claim.stand_in]
    published, fair = zip(*here, strict=True)
    return tally(published, fair, len(answers) - len(here))


def claims_markdown(profile: Profile, store: Store) -> str:
    """Return the page: statements, nested models, and the arithmetic of the imbalance."""
    rows = evidence(profile, store)
    parts = ["# Statements of the paper, judged", _table(profile, rows).markdown()]
    numbers = summary(published_lines(profile, rows))
    parts += ["## Every printed number", numbers, "## Models that failed to train"]
    parts += [nested_table(rows).markdown(), _imbalance_markdown()]
    parts.append(_vote_table(profile, rows.get("as-published", {})).markdown())
    return "\n\n".join(parts)
