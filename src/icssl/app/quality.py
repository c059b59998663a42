"""How good labels are here: the sentence for terminal, report and page."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icssl.classifier.label_score import LabelScore

QUESTION = "How good is it here? "
"""How a line about the score begins, where no heading asks this."""

_NOT_MEASURED = "How good it is here was not measured"
_FEW_LABELS = 30


def not_measured(rows: int, what_to_do: str) -> str:
    """Return why a table of more than so many rows has no score, and how to get one."""
    return f"{_NOT_MEASURED}, since the table has more than {rows:,} rows. {what_to_do}"


def quality_lines(score: "LabelScore | None", baseline: "LabelScore | None") -> list[str]:
    """Return how good the labels are here, as far as those that were given tell.

    Parameters
    ----------
    score, baseline : LabelScore, optional
        ``label_score_`` and ``label_baseline_`` of the classifier, if they were measured.
    """
    if score is None or baseline is None:
        return [f"{_NOT_MEASURED}."]
    if not score.rows:
        return [f"How good it is here cannot be told: {score}"]
    line = f"{QUESTION}{score}"
    if baseline.rows:
        line += f" Logistic regression predicts {baseline.accuracy:.2f} of the same."
    if score.rows < _FEW_LABELS:
        line += " With so few labels this is rough: label more to know."
    return [line]
