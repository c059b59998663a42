"""Rows of scores as a data frame, and rows that ``icssl evaluate --rows`` wrote."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icssl._util.jsonl import read_lines
from icssl.evaluation.scoring import Row

if TYPE_CHECKING:
    import pandas as pd

Rows = Iterable[Row | Mapping[str, Any]]


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """Return the rows of a file: of ``icssl evaluate --rows``, or a store of the bench."""
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path} does not exist: `icssl evaluate METHOD --rows {path}` writes it."
        )
    return read_lines(Path(path))[0]


def rows_frame(rows: Rows, *, per_episode: bool = False) -> "pd.DataFrame":
    """Return rows as a data frame of pandas, one line per row or per test episode.

    Parameters
    ----------
    rows : iterable of Row or dict
        What :func:`icssl.evaluation.scoring.evaluate` returned, or lines of a file
        (:func:`read_rows`).
    per_episode : bool
        One line per row has every metric and its half-width as a column; one line per
        episode has the metric of that episode, for statistics of your own.

    Examples
    --------
    >>> from icssl.episodes.data_config import DataConfig
    >>> from icssl.evaluation.scoring import evaluate
    >>> from icssl.methods import BASELINES
    >>> methods = {"vote": BASELINES["label_vote"]}
    >>> rows = evaluate(methods, DataConfig(("torus",)), [3, 10], episodes=4, tuning=2)
    >>> rows_frame(rows)[["method", "labels", "majority_rate"]].values.tolist()
    [['vote', 3, 0.5], ['vote', 10, 0.5]]
    >>> len(rows_frame(rows, per_episode=True))
    8
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "a data frame needs pandas: pip install 'icssl[tables]'"
        ) from error
    plain = [row.to_dict() if isinstance(row, Row) else dict(row) for row in rows]
    lines = (_episode_lines if per_episode else _lines)(plain)
    return pd.DataFrame(lines)


def _lines(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_about(row) | _metrics(row) for row in rows]


def _episode_lines(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = []
    for row in rows:
        # Rows of the bench keep the accuracy of every episode, those of evaluate all.
        values = row.get("values") or {"accuracy": row.get("accuracies", [])}
        for number, scores in enumerate(zip(*values.values(), strict=True)):
            each = dict(zip(values, scores, strict=True))
            lines.append(_about(row) | {"episode": number} | each)
    return lines


def _metrics(row: Mapping[str, Any]) -> dict[str, Any]:
    columns = {}
    for name, estimate in row.get("metrics", {}).items():
        columns[name] = estimate["mean"]
        columns[f"{name}_half_width"] = estimate.get("half_width")
    return columns


def _about(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values of a row; of a bench row also those of its spec."""
    spec = row.get("spec", {})
    source = spec.get("data", {}).get("sources", ())
    named = {"source": "+".join(source)} if source else {}
    merged = {**{k: v for k, v in spec.items() if k != "kind"}, **named, **row}
    return {k: v for k, v in merged.items() if not isinstance(v, (dict, list, tuple))}
