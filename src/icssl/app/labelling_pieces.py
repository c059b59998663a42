"""Label Parquet of any size on a Ray cluster, piece by piece, against one context.

Ray Data could read, predict and write by itself. Here it only hands out pieces: its reader
gives a file to one worker, however large the file is, loses what pandas notes in a schema,
and does not keep the order of rows; its writer leaves torn parts when a worker dies.
"""

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
from icssl.app.label_options import LabelOptions
from icssl.app.labelling import Labelling, fit_classifier, labelling_of
from icssl.app.tally import Tally
from icssl.classifier.estimator import ICSSLClassifier
from icssl.tables.frame_reading import apply_readings
from icssl.tables.label_table import LabelTable, choose_target
from icssl.tables.output import write_table
from icssl.tables.parquet import arrow_labels
from icssl.tables.pieces import Piece, are_labels, pieces_of
from icssl.tables.table_file import FileTable, ReadOptions

_AT_ONCE = 512  # rows: with more, what is between them and the context leaves the cache


@dataclass(frozen=True, eq=False)
class Context:
    """A fitted classifier that any machine can use, and the rows it was fitted to.

    Parameters
    ----------
    classifier : bytes
        The classifier as torch saves it, whose tensors can then be loaded without a GPU.
    labelling : Labelling
        What it says about the rows of the context.
    pieces, rows : ndarray of int
        The number of the piece that each of these rows is from, and its place there.
    """

    classifier: bytes
    labelling: Labelling
    pieces: Int[ndarray, " n"]
    rows: Int[ndarray, " n"]

    def label(self, piece: Piece, name: str, device: str = "cpu") -> Labelling:
        """Label a piece: rows of the context as it says, all others as new rows."""
        stored = piece.read()
        frame = stored.to_pandas()
        context, in_piece = self.labelling, np.flatnonzero(self.pieces == piece.number)
        rows = self.rows[in_piece]
        features = _as_in_context(frame, context.table, piece)
        distributions, reach = self._predict(features, piece, device)
        distributions[rows] = context.distributions[in_piece]
        reach[rows] = context.reach[in_piece]
        codes = np.full(len(frame), -1)
        codes[rows] = context.given_codes[in_piece]
        table = LabelTable(name, features, None, stored)
        no_embedding = np.empty((len(frame), 0))
        return Labelling(
            table,
            context.classes,
            codes,
            distributions,
            no_embedding,
            reach,
            (),
            context.model,
        )

    def _predict(
        self, features: Any, piece: Piece, device: str
    ) -> tuple[Float[ndarray, "n c"], Float[ndarray, " n"]]:
        """Return probabilities and reach of every row, each predicted by itself."""
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


def _as_in_context(frame: Any, context: LabelTable, piece: Piece) -> Any:
    """Return the columns of the context, with texts read as it read them."""
    names = list(context.features)
    used = frame.set_axis([str(name) for name in frame.columns], axis=1)[names]
    # A column without values says nothing of its kind: the context does not compare it.
    absent = [name for name in names if context.features[name].isna().all()]
    used = used.assign(**dict.fromkeys(absent))
    readings = {name: context.readings[name] for name in names if name in context.readings}
    try:
        return apply_readings(used, readings, frozenset())
    except ValueError as error:
        raise ValueError(
            f"{piece.path}, rows {piece.start:,} to {piece.stop:,}: {error}"
        ) from error


def _read_options(options: LabelOptions) -> ReadOptions:
    return ReadOptions(
        decimal=options.decimal, missing=options.missing, types=options.types
    )


def label_pieces(
    options: LabelOptions,
    ray: Any,
    *,
    piece_rows: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Tally, float]:
    """Label all rows of a Parquet file, or of a folder of them, into a folder of parts.

    The context is fitted once, in this process. Every worker reads a piece, predicts its
    rows and writes a part, whole or not at all, under a name of its own. So a worker that
    dies costs the time of its piece, and no row is lost or written twice.

    Parameters
    ----------
    options : LabelOptions
        With ``data``, ``target`` and ``output``; all machines of the cluster must see both
        paths. The folder appears when all parts are written.
    ray : module
        As :func:`icssl._util.ray.ray_cluster` gives it.
    piece_rows : int, optional
        Most rows per piece; by default as many as fit the memory easily, and some pieces
        for every worker.
    on_progress : callable, optional
        Called with the number of rows that are done and the number of all rows.

    Returns
    -------
    tally : Tally
        The result in numbers.
    seconds : float
        Processor time of all pieces, without waiting for disks.
    """
    path, target, output = options.data, options.target, options.output
    assert path is not None
    assert target is not None
    assert output is not None
    cores = int(ray.cluster_resources().get("CPU", 1))
    # Several pieces per core: or one waits long for another, and a death costs much.
    pieces = pieces_of(
        path,
        [target, *options.drop],
        unread=options.drop,
        most=piece_rows,
        several=4 * cores,
    )
    context = _fit_context(options, target, pieces, ray)
    total, rows_done, seconds = sum(map(len, pieces)), 0, 0.0
    tallies = []
    with replacing_folder(output) as folder:
        on_gpu = options.gpus_per_task > 0
        work = partial(_label_piece, ray.put(context), str(path), folder, on_gpu)
        for tally, piece_seconds in _map_pieces(ray, pieces, work, options.gpus_per_task):
            tallies.append(tally)
            seconds += piece_seconds
            rows_done += int(tally.rows.sum())
            on_progress(rows_done, total)
        _check_whole(folder, pieces)
    return reduce(add, tallies), seconds


def _fit_context(
    options: LabelOptions, target: str, pieces: Sequence[Piece], ray: Any
) -> Context:
    """Find the labelled rows, draw others, and fit the classifier to them."""
    import pyarrow as pa

    labelled = dict(_map_pieces(ray, pieces, partial(_labelled_rows, target)))
    chosen = drawn_rows(pieces, labelled, options.context_rows, options.seed)
    chosen_pieces = [piece for piece in pieces if piece.number in chosen]
    rows_of_piece = dict(_map_pieces(ray, chosen_pieces, _Take(chosen)))
    numbers = sorted(rows_of_piece)
    tables = [rows_of_piece[number] for number in numbers]
    # Labels are taken from each table by itself: one type for whole numbers and floats of
    # several files would change some of them.
    unlabelled = [
        table.set_column(table.schema.get_field_index(target), target, pa.nulls(len(table)))
        for table in tables
    ]
    frame = pa.concat_tables(unlabelled, promote_options="permissive").to_pandas()
    file = FileTable(frame, partial(arrow_labels, tables))
    table = choose_target(
        str(options.data), file, target, options.drop, _read_options(options), store=False
    )
    classifier = fit_classifier(
        table,
        model=options.model,
        column_scale=options.column_scale,
        device=options.device,
    )
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
    """Return rows of each piece: all labelled ones, and others that make up ``count``."""
    others = np.array([len(piece) - len(labelled[piece.number]) for piece in pieces])
    ends = np.cumsum(others)
    most = max(0, count - sum(map(len, labelled.values())))
    rng = np.random.default_rng(seed)
    places = rng.choice(ends[-1], min(most, ends[-1]), replace=False, shuffle=False)
    of_piece = np.searchsorted(ends, places, side="right")
    chosen = {}
    for i, piece in enumerate(pieces):
        rows = labelled[piece.number]
        drawn = places[of_piece == i] - (ends[i] - others[i])  # among the others alone
        # Each is as many rows farther on as there are labelled ones before it.
        drawn = drawn + np.searchsorted(rows - np.arange(len(rows)), drawn, side="right")
        if len(rows) + len(drawn):
            chosen[piece.number] = np.union1d(rows, drawn)
    return chosen


def _map_pieces(
    ray: Any, pieces: Sequence[Piece], work: Callable[[Piece], Any], gpus: float = 0
) -> Iterator[Any]:
    """Yield what ``work`` returns for every piece, in the order in which workers end.

    Ray Data maps a dataset of numbers of pieces; the worker reads the piece itself.
    """
    numbers = [{"place": place} for place in range(len(pieces))]
    dataset = ray.data.from_items(numbers, override_num_blocks=len(numbers))
    dataset.context.enable_progress_bars = False
    function = partial(_run_in_worker, work, pieces)
    for row in dataset.map(function, num_cpus=1, num_gpus=gpus or None).iter_rows():
        result = pickle.loads(row["result"])
        if isinstance(result, _Fault):
            raise ValueError(result.reason)
        yield result


@dataclass(frozen=True)
class _Fault:
    """An error that a person can correct, sent back from a worker."""

    reason: str


def _run_in_worker(
    work: Callable[[Piece], Any], pieces: Sequence[Piece], item: dict[str, Any]
) -> dict[str, bytes]:
    """Return the result of a piece, or the error that a person has to correct."""
    try:
        result = work(pieces[item["place"]])
    except (ValueError, OSError) as error:
        result = _Fault(str(error))
    return {"result": pickle.dumps(result)}


def _labelled_rows(target: str, piece: Piece) -> tuple[int, ndarray]:
    """Return the number of a piece and which of its rows have a label (in a worker)."""
    cells = piece.read([target]).column(target)
    return piece.number, np.flatnonzero(are_labels(cells))


@dataclass(frozen=True, eq=False)
class _Take:
    """A function that takes chosen rows of a piece as a table of Arrow (in a worker)."""

    chosen: Mapping[int, ndarray]

    def __call__(self, piece: Piece) -> tuple[int, Any]:
        return piece.number, piece.read().take(self.chosen[piece.number])


def _label_piece(
    reference: Any, name: str, folder: Path, on_gpu: bool, piece: Piece
) -> tuple[Tally, float]:
    """Predict a piece and write its part; return processor seconds too (in a worker)."""
    import ray

    began = time.process_time()
    _note_beginning(piece, folder)
    context: Context = ray.get(reference)
    labelling = context.label(piece, name, "cuda" if on_gpu else "cpu")
    _check_there(folder)  # or it would be made again after a person ended the run
    write_table(labelling.table, labelling.columns, folder / piece.part)
    return labelling.tally, time.process_time() - began


def _note_beginning(piece: Piece, folder: Path) -> None:
    """Give up a piece whose workers always die; Ray Data would try it forever."""
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
    """Check that every piece has a part with as many rows, and no other file is there."""
    from pyarrow.parquet import read_metadata

    for leftover in folder.glob(".*"):
        leftover.unlink()  # notes, and what a worker was writing when it was killed
    parts = {part.name: read_metadata(part).num_rows for part in folder.iterdir()}
    if parts != {piece.part: len(piece) for piece in pieces}:
        raise RuntimeError(f"{len(parts)} parts are not those of {len(pieces)} pieces.")
