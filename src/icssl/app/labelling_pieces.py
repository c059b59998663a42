"""Label Parquet of any size on a Ray cluster, piece by piece, against one context."""

import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from io import BytesIO
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray

from icssl._util.files import replacing_folder
from icssl._util.ray import RETRIES
from icssl.app.labelling import Labelling, Tally, fitted, labelling_of
from icssl.classifier.estimator import ICSSLClassifier
from icssl.tables.files import LabelTable, arrow_labels, frame_table, write_table
from icssl.tables.pieces import Piece, are_labels, pieces_of

CONTEXT_ROWS = 2_000
"""Of a context, unless asked for. All rows of a table are compared with these, so that more
make every row slower; so many are read in all views however many columns they have."""

_AT_ONCE = 512  # rows: with more, what is between them and the context leaves the cache


@dataclass(frozen=True, eq=False)
class Context:
    """A fitted classifier that any machine can use, and the rows it was fitted to.

    Parameters
    ----------
    classifier : bytes
        As torch saves it, which says of no tensor that it must be on a GPU.
    labelling : Labelling
        Of the context's own rows.
    pieces, rows : ndarray of int
        The piece from which each of them is, and its place there.
    """

    classifier: bytes
    labelling: Labelling
    pieces: Int[ndarray, " n"]
    rows: Int[ndarray, " n"]

    def label(self, piece: Piece, name: str, device: str = "cpu") -> Labelling:
        """The rows of a piece: those of the context as it says, others as new rows."""
        rows_of_piece = piece.read()
        frame = rows_of_piece.to_pandas()
        known, own = self.labelling, np.flatnonzero(self.pieces == piece.number)
        rows = self.rows[own]
        features = _as_in_context(frame, known.table.features, piece)
        distributions, reach = self._predicted(features, piece, device)
        distributions[rows], reach[rows] = known.distributions[own], known.reach[own]
        given = np.full(len(frame), -1)
        given[rows] = known.given[own]
        table = LabelTable(name, features, None, rows_of_piece)
        nowhere = np.empty((len(frame), 0))
        return Labelling(
            table, known.classes, given, distributions, nowhere, reach, (), known.model
        )

    def _predicted(
        self, features: Any, piece: Piece, device: str
    ) -> tuple[Float[ndarray, "n c"], Float[ndarray, " n"]]:
        """Probabilities and reach of every row, each by itself."""
        classifier: ICSSLClassifier = torch.load(
            BytesIO(self.classifier), map_location=device, weights_only=False
        )
        parts = []
        for start in range(0, len(features), _AT_ONCE):
            try:
                some = features.iloc[start : start + _AT_ONCE]
                parts.append(classifier.predict_proba_and_reach(some))
            except ValueError as error:
                begin = piece.start + start
                raise ValueError(f"{piece.path}, from row {begin:,} on: {error}") from error
        probabilities, reaches = zip(*parts, strict=True)
        return np.concatenate(probabilities), np.concatenate(reaches)


def _as_in_context(frame: Any, context: Any, piece: Piece) -> Any:
    """The columns of a context, with dates in texts read where it read them."""
    import pandas as pd

    used = frame.set_axis([str(name) for name in frame.columns], axis=1)[list(context)]
    changed: dict[str, Any] = {}
    for name in context:
        if context[name].isna().all():
            changed[name] = None  # nothing is known of the column, numbers or texts
        elif context[name].dtype.kind == "M" and used[name].dtype.kind != "M":
            try:
                times = pd.to_datetime(used[name], format="ISO8601", utc=True)
            except ValueError as error:
                raise ValueError(
                    f"{piece.path}: all cells of {name!r} in the context are dates, and "
                    f"one in rows {piece.start:,} to {piece.stop:,} is none: {error}"
                ) from error
            changed[name] = times.dt.tz_localize(None)
    return used.assign(**changed)


def label_pieces(
    path: Path,
    target: str,
    output: Path,
    ray: Any,
    *,
    drop: Sequence[str] = (),
    model: str = "auto",
    device: str = "auto",
    gpus_per_task: float = 0,
    context_rows: int = CONTEXT_ROWS,
    seed: int = 0,
    piece_rows: int | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Tally, float]:
    """Label all rows of a Parquet file, or of a folder of them, into a folder of parts.

    The context is fitted once, in this process; workers read a piece each, predict its rows
    and write a part, whole or not at all, under a name of its own. So a worker that dies
    costs the time of its piece, and no row is lost or there twice.

    Parameters
    ----------
    path : Path
        Like ``output``, on a disk that all machines of the cluster see.
    target : str
        The column with labels in some rows.
    output : Path
        The folder, which appears when all parts are written.
    ray : module
        As :func:`icssl._util.ray.ray_cluster` gives it.
    drop : sequence of str
        Columns that the classifier must not see.
    model, device : str
        Of the context, as :class:`icssl.ICSSLClassifier` has them.
    gpus_per_task : float
        That each worker holds to predict; with 0 it predicts on the CPU.
    context_rows : int
        The context: every row that has a label, and as many others as make up this number,
        drawn from all of them by ``seed``.
    piece_rows : int, optional
        Rows of a piece; by default as many as fit the memory easily, and some pieces for
        every worker.
    report : callable, optional
        Is told how many rows are done, of how many.

    Returns
    -------
    tally : Tally
    seconds : float
        Of processor time that all pieces took, waiting for disks not counted.
    """
    cores = int(ray.cluster_resources().get("CPU", 1))
    # Several each: or one waits long for another, and a death costs much.
    pieces = pieces_of(
        path, [target, *drop], unread=drop, most=piece_rows, several=4 * cores
    )
    context = read_context(
        path, pieces, target, ray, drop, context_rows, seed, model, device
    )
    total, done, seconds = sum(map(len, pieces)), 0, 0.0
    tallies = []
    with replacing_folder(output) as folder:
        work = partial(_label, ray.put(context), str(path), folder, gpus_per_task > 0)
        for tally, took in _over(ray, pieces, work, gpus_per_task):
            tallies.append(tally)
            seconds += took
            done += int(tally.rows.sum())
            report(done, total)
        _check_whole(folder, pieces)
    return reduce(add, tallies), seconds


def read_context(
    path: Path,
    pieces: Sequence[Piece],
    target: str,
    ray: Any,
    drop: Sequence[str] = (),
    context_rows: int = CONTEXT_ROWS,
    seed: int = 0,
    model: str = "auto",
    device: str = "auto",
) -> Context:
    """Find the labelled rows, draw others, and fit the classifier to them."""
    import pyarrow as pa

    labelled = dict(_over(ray, pieces, partial(_labelled_rows, target)))
    chosen = drawn_rows(pieces, labelled, context_rows, seed)
    found = dict(_over(ray, [p for p in pieces if p.number in chosen], _Take(chosen)))
    numbers = sorted(found)
    tables = [found[number] for number in numbers]
    # Labels apart: one type for whole numbers and floats of several files spoils some.
    others = [
        table.set_column(table.schema.get_field_index(target), target, pa.nulls(len(table)))
        for table in tables
    ]
    frame = pa.concat_tables(others, promote_options="permissive").to_pandas()
    table = frame_table(path, frame, target, partial(arrow_labels, tables), drop=drop)
    classifier = fitted(table, model=model, device=device)
    saved = BytesIO()
    torch.save(classifier, saved)
    return Context(
        saved.getvalue(),
        labelling_of(table, classifier),
        np.repeat(numbers, [len(chosen[number]) for number in numbers]),
        np.concatenate([chosen[number] for number in numbers]),
    )


def drawn_rows(
    pieces: Sequence[Piece], labelled: Mapping[int, ndarray], count: int, seed: int
) -> dict[int, ndarray]:
    """Rows of pieces: all that are labelled, and others that make up a number."""
    others = np.array([len(piece) - len(labelled[piece.number]) for piece in pieces])
    ends = np.cumsum(others)
    most = max(0, count - sum(map(len, labelled.values())))
    rng = np.random.default_rng(seed)
    places = rng.choice(ends[-1], min(most, ends[-1]), replace=False, shuffle=False)
    of_piece = np.searchsorted(ends, places, side="right")
    chosen = {}
    for i, piece in enumerate(pieces):
        known = labelled[piece.number]
        drawn = places[of_piece == i] - (ends[i] - others[i])  # among the others alone
        # Each is as many rows farther on as there are labelled ones before it.
        drawn = drawn + np.searchsorted(known - np.arange(len(known)), drawn, side="right")
        if len(known) + len(drawn):
            chosen[piece.number] = np.union1d(known, drawn)
    return chosen


def _over(
    ray: Any, pieces: Sequence[Piece], work: Callable[[Piece], Any], gpus: float = 0
) -> Iterator[Any]:
    """What ``work`` makes of every piece, as it comes, through Ray Data.

    A dataset of pieces, each of which is read where it is worked on: Ray's own reader gives
    a file to one worker, however large it is, and loses what pandas notes in a schema.
    """
    numbers = [{"place": place} for place in range(len(pieces))]
    dataset = ray.data.from_items(numbers, override_num_blocks=len(numbers))
    dataset.context.enable_progress_bars = False
    worked = partial(_worked, work, pieces)
    for row in dataset.map(worked, num_cpus=1, num_gpus=gpus or None).iter_rows():
        result = pickle.loads(row["result"])
        if isinstance(result, _Fault):
            raise ValueError(result.reason)
        yield result


@dataclass(frozen=True)
class _Fault:
    reason: str


def _worked(
    work: Callable[[Piece], Any], pieces: Sequence[Piece], item: dict[str, Any]
) -> dict[str, bytes]:
    """In a worker: what comes of a piece, or what a person has to mend."""
    try:
        result = work(pieces[item["place"]])
    except (ValueError, OSError) as error:
        result = _Fault(str(error))
    return {"result": pickle.dumps(result)}


def _labelled_rows(target: str, piece: Piece) -> tuple[int, ndarray]:
    """In a worker: which rows of a piece have a label."""
    cells = piece.read([target]).column(target)
    return piece.number, np.flatnonzero(are_labels(cells))


@dataclass(frozen=True, eq=False)
class _Take:
    """In a worker: rows of a piece as a table of Arrow."""

    chosen: Mapping[int, ndarray]

    def __call__(self, piece: Piece) -> tuple[int, Any]:
        return piece.number, piece.read().take(self.chosen[piece.number])


def _label(
    context: Any, name: str, folder: Path, gpu: bool, piece: Piece
) -> tuple[Tally, float]:
    """In a worker: predict a piece and write its part."""
    import ray

    began = time.process_time()
    _note_beginning(piece, folder)
    known: Context = ray.get(context)
    labelling = known.label(piece, name, "cuda" if gpu else "cpu")
    _check_there(folder)  # or it would be made again when a person has ended it all
    write_table(labelling.table, labelling.columns, folder / piece.part)
    return labelling.tally, time.process_time() - began


def _note_beginning(piece: Piece, folder: Path) -> None:
    """Give up a piece whose workers always die; Ray Data would go on with it for ever."""
    _check_there(folder)
    note = folder / f".{piece.part}.begun"
    with note.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if len(note.read_text().split()) > RETRIES + 1:
        raise ValueError(
            f"{piece.path}, rows {piece.start:,} to {piece.stop:,}: {RETRIES + 1} workers "
            "died with them, perhaps for want of memory."
        )


def _check_there(folder: Path) -> None:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not on this machine: the output must be on a disk that all "
            "machines of the cluster see."
        )


def _check_whole(folder: Path, pieces: Sequence[Piece]) -> None:
    """Every piece has a part with as many rows, and there is no other file."""
    from pyarrow.parquet import read_metadata

    for left in folder.glob(".*"):
        left.unlink()  # notes, and what a worker was writing when it was killed
    found = {part.name: read_metadata(part).num_rows for part in folder.iterdir()}
    if found != {piece.part: len(piece) for piece in pieces}:
        raise RuntimeError(f"{len(found)} parts are not those of {len(pieces)} pieces.")
