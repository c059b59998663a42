"""``Store``: rows in a file of JSON lines, found by the hash of their spec.

Any number of processes may append to one store; a process claims the rows that it is about
to compute, so that no other process computes them too.
"""

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable
from uuid import uuid4

from filelock import FileLock, Timeout

from icssl._util.jsonl import START, append_line, lock_of, not_a_row, read_lines

_GLANCE = 0.5  # seconds between two looks at what another process is doing


class Claims:
    """Keys of rows that this process has begun, told to others through a hidden folder.

    Every process has a list of keys there, and a lock beside it for as long as it lives.
    The operating system lets go of a lock when its process ends, however it ends: the list
    of one that was killed is deleted by the next that looks.

    Parameters
    ----------
    path : Path
        The file of the rows.
    refresh : callable
        Reads the rows that were added, while no other process can claim any.
    """

    def __init__(self, path: Path, refresh: Callable[[], None]) -> None:
        self._path, self._refresh = path, refresh
        self._folder = path.with_name(f".{path.name}.claims")
        self._list = self._folder / f"{uuid4().hex}.json"
        self._alive = FileLock(self._list.with_suffix(".lock"))
        self._keys: set[str] = set()

    def __enter__(self) -> "Claims":
        with lock_of(self._path):
            self._folder.mkdir(exist_ok=True)
            self._alive.acquire(timeout=0)
            self._write()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with lock_of(self._path):
            self._alive.release()
            _forget(self._list)
            if not any(self._folder.iterdir()):
                self._folder.rmdir()

    def take(self, keys: Collection[str]) -> set[str]:
        """Claim keys, and return those that no other process works on.

        The rows have been read anew when this returns: one whose key is free now may have
        been stored in the meantime.
        """
        with lock_of(self._path):
            free = self._free(keys)
            self._keys |= free
            self._write()
        return free

    def free(self, keys: Collection[str]) -> set[str]:
        """Return the keys that no other process works on, without claiming them."""
        with lock_of(self._path):
            return self._free(keys)

    def drop(self, keys: Iterable[str]) -> None:
        """Give up keys whose rows are stored, or will not come."""
        with lock_of(self._path):
            self._keys -= set(keys)
            self._write()

    def _free(self, keys: Collection[str]) -> set[str]:
        self._refresh()
        return set(keys) - self._taken_by_others()

    def _write(self) -> None:
        unfinished = self._list.with_suffix(".new")
        unfinished.write_text(json.dumps(sorted(self._keys)), encoding="utf-8")
        unfinished.replace(self._list)

    def _taken_by_others(self) -> set[str]:
        taken: set[str] = set()
        for file in self._folder.glob("*.lock"):
            listed = file.with_suffix(".json")
            if listed == self._list:
                continue
            lock = FileLock(file)
            try:
                lock.acquire(timeout=0)
            except Timeout:  # its process is alive
                taken.update(json.loads(listed.read_text(encoding="utf-8")))
            else:
                lock.release()
                _forget(listed)
        return taken


def _forget(listed: Path) -> None:
    for suffix in (".new", ".json", ".lock"):
        listed.with_suffix(suffix).unlink(missing_ok=True)


@runtime_checkable
class _HasKey(Protocol):
    """Anything whose row has a key."""

    @property
    def key(self) -> str:
        """A hash of everything that decides the row."""
        ...


T = TypeVar("T", bound=_HasKey)


def run_shared(
    items: Iterable[T],
    claims: Claims,
    is_done: Callable[[T], bool],
    run: Callable[[list[T]], set[str]],
    may_wait: Callable[[], bool],
) -> None:
    """Run what no other process runs, wait for the others, and run what they leave.

    Parameters
    ----------
    items : iterable
        What is to be run; none is run twice, even if it gives no row.
    claims : Claims
    is_done : callable
        Whether an item has its row.
    run : callable
        Claims and runs some of the items, and returns the keys that it claimed.
    may_wait : callable
        Whether there is time; it may tell a person that another process is at work.
    """
    left = list(items)
    while left:
        if claims.free([item.key for item in left]):
            tried = run(left)
            claims.drop(tried)
            left = [item for item in left if item.key not in tried]
        left = [item for item in left if not is_done(item)]
        if left and not may_wait():
            return
        if left:
            time.sleep(_GLANCE)


class SharedQueue(Generic[T]):
    """Items that several processes share, each given to one of them.

    Parameters
    ----------
    items : iterable
    claims : Claims
    is_done : callable
        Whether an item has its row.
    """

    def __init__(
        self, items: Iterable[T], claims: Claims, is_done: Callable[[T], bool]
    ) -> None:
        self._left, self._claims, self._is_done = deque(items), claims, is_done

    def __len__(self) -> int:
        return len(self._left)

    def pop(self) -> T | None:
        """Claim and return the next item; None if other processes have all that are left.

        Items of others stay in the queue until they have a row, or their process ends.
        """
        for _ in range(len(self._left)):
            item = self._left.popleft()
            free = self._claims.take([item.key])
            if self._is_done(item):
                self._claims.drop(free)
            elif free:
                return item
            else:
                self._left.append(item)
        return None


Row = dict[str, Any]


class Store:
    """Append-only rows, which several processes may add to at the same time.

    Parameters
    ----------
    path : Path
        The file, which need not exist yet.

    Attributes
    ----------
    added : int
        Rows that were appended here; others may come from other processes.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Store(Path(folder) / "rows.jsonl").append({"key": "a", "value": 1})
    ...     "a" in Store(Path(folder) / "rows.jsonl")
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.added = 0
        self._rows: dict[str, Row] = {}
        self._place = START
        self.refresh()

    def refresh(self) -> None:
        """Read what was appended since, by this process or another one."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < self._place.offset:  # somebody took lines out
            self._rows, self._place = {}, START
        if not size:
            return
        before = self._place.lines
        rows, self._place = read_lines(self.path, self._place)
        for number, row in enumerate(rows, before + 1):
            if fault := _fault_of_key(row):
                raise not_a_row(self.path, number, fault)
            self._rows[row["key"]] = row

    def append(self, row: Row) -> None:
        """Add a row, which is on the disk when this returns."""
        if fault := _fault_of_key(row):
            raise ValueError(f"{self.path} takes no row like this: {fault}.")
        append_line(self.path, row)
        self.added += 1
        self.refresh()

    def claims(self) -> Claims:
        """Return what says, while it is entered, which rows this process is working on."""
        return Claims(self.path, self.refresh)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Row:
        return self._rows[key]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)


@contextmanager
def record_run(store: Store, about: Mapping[str, Any]) -> Iterator[None]:
    """Record how long a run took that added rows, even if it was interrupted."""
    before, began = store.added, time.perf_counter()

    def record() -> None:
        added = store.added - before
        if added:
            seconds = round(time.perf_counter() - began, 3)
            append_line(runs_file(store), {"rows": added, "seconds": seconds, **about})

    try:
        yield
    except BaseException:
        with suppress(OSError):  # on a full disk, the error before this one says more
            record()
        raise
    record()


def runs_file(store: Store) -> Path:
    """Return the file beside the rows that has a line for every run that added some."""
    return store.path.with_name("runs.jsonl")


def read_runs(store: Store) -> list[dict[str, Any]]:
    """Return what :func:`record_run` recorded."""
    path = runs_file(store)
    return read_lines(path)[0] if path.exists() else []


def _fault_of_key(row: Row) -> str:
    """Say what is wrong with the key of a row; nothing if it is that of its spec."""
    key = row.get("key")
    wanted = key_of(row["spec"]) if "spec" in row else key
    if isinstance(key, str) and key == wanted:
        return ""
    return f"its key is {key!r}, and that of its spec {wanted!r}"


def key_of(values: Any) -> str:
    """Return a short hash of plain values."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
