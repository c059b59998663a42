"""Files of rows under several processes, kills, full disks and editors."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pytest
from typer.testing import CliRunner

from icssl._util.jsonl import append_line, read_lines
from icssl.app.cli import app
from icssl.bench import runner
from icssl.bench.batches import families_of
from icssl.bench.paper.catalogue import ARTEFACTS, specs_of
from icssl.bench.pool import Pool
from icssl.bench.runner import InProcess, run_missing
from icssl.bench.store import (
    SharedQueue,
    Store,
    key_of,
    read_runs,
    record_run,
    runs_file,
)
from icssl.training.config import TrainConfig

SPAWN = get_context("spawn")
TORN = b'{"key":"half","va'
PATIENCE = 120  # seconds after which a process that waits for another gives up


def keys_in(path):
    """Keys of all lines, with those that occur twice."""
    return [row["key"] for row in read_lines(path)[0]]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.jsonl"


def run_processes(target, *arguments, count=2):
    """Run a function in processes that start it together; all must end well."""
    barrier = SPAWN.Barrier(count)
    processes = [
        SPAWN.Process(target=target, args=(barrier, number, *arguments))
        for number in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0


# --- B1: two writers


def test_b1_two_writers_of_a_torn_store_keep_each_others_rows(path):
    first = {"key": "a"}
    append_line(path, first)
    with path.open("ab") as file:
        file.write(TORN)
    one, other = Store(path), Store(path)
    for store, key in ((one, "A1"), (one, "A2"), (other, "B1"), (one, "A3")):
        store.append({"key": key})
    assert keys_in(path) == ["a", "A1", "A2", "B1", "A3"]
    assert "B1" in one
    assert {"A1", "A2"} <= {row["key"] for row in other}


def _append_many(barrier, number, path):
    store = Store(path)  # reads the torn line
    barrier.wait(PATIENCE)
    for i in range(30):
        store.append({"key": f"{number}-{i}", "values": list(range(500))})


def test_b1_processes_that_append_at_once_lose_no_row_and_tear_none(path):
    append_line(path, {"key": "a"})
    with path.open("ab") as file:
        file.write(TORN)
    run_processes(_append_many, path, count=3)
    keys = keys_in(path)
    assert sorted(keys) == sorted(["a", *(f"{n}-{i}" for n in range(3) for i in range(30))])


def test_b1_a_torn_line_is_cut_off_in_place(path):
    append_line(path, {"key": "a"})
    whole = path.read_bytes()
    path.write_bytes(whole + TORN)
    inode = path.stat().st_ino
    append_line(path, {"key": "b"})
    assert path.stat().st_ino == inode
    assert path.read_bytes().startswith(whole + b'{"key":"b"')


# --- B1: work is shared


@dataclass(frozen=True)
class Slow:
    """A spec that leaves a note whenever it is measured, and waits for the other process.

    The first two that are measured meet: none of them ends before both have begun, so both
    processes are at work at the same time.
    """

    name: str
    notes: Path
    trainings: tuple[TrainConfig, ...] = ()

    @property
    def key(self):
        return key_of(self.describe())

    @property
    def title(self):
        return self.name

    def describe(self):
        return {"name": self.name}

    def measure(self, models, device):
        with self.notes.open("a") as file:
            file.write(f"{self.name} {os.getpid()}\n")
        patience = time.monotonic() + PATIENCE
        while len(self.notes.read_text().split()) < 4 and time.monotonic() < patience:
            time.sleep(0.01)
        return {}


class Broken(Slow):
    """A spec that cannot be measured."""

    def measure(self, models, device):
        return {"value": 1 / 0}


class Recorded(Broken):
    """One whose failure becomes its row."""

    def failure(self, why):
        return {"error": why}


def _run_slow(barrier, number, path, notes, executor):
    specs = [Slow(f"spec {i}", notes) for i in range(8)]
    store = Store(path)
    barrier.wait(PATIENCE)
    run_missing(specs, store, executor=executor)
    assert all(spec.key in store for spec in specs)  # also those of the other process


# The paper's executor, that of real tables, and that of the suite by size.
EXECUTORS = {
    "in process": InProcess(),
    "pool": Pool(limit=PATIENCE),
    "fresh pool": Pool(threads=None, is_fresh=True),
}


@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
def test_b1_two_runs_of_the_same_specs_divide_them(path, tmp_path, executor):
    notes = tmp_path / "notes"
    run_processes(_run_slow, path, notes, executor)
    noted = [line.rsplit(" ", 1) for line in notes.read_text().splitlines()]
    assert sorted(name for name, _ in noted) == [f"spec {i}" for i in range(8)]
    is_fresh = getattr(executor, "is_fresh", False)  # then every spec has a new process
    assert len({process for _, process in noted}) == (8 if is_fresh else 2)
    assert len(set(keys_in(path))) == len(keys_in(path)) == 8
    assert sum(run["rows"] for run in read_runs(Store(path))) == 8
    assert not path.with_name(f".{path.name}.claims").exists()


HOLD_CLAIMS = """
import sys, time
from pathlib import Path
from icssl.bench.store import Store

with Store(Path(sys.argv[1])).claims() as claims:
    claims.take(["mine", "also mine"])
    print("claimed", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_b1_what_a_killed_process_had_begun_is_free_again(path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_CLAIMS, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "claimed\n"
        with Store(path).claims() as claims:
            assert claims.take(["mine", "free"]) == {"free"}
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert claims.take(["mine", "free"]) == {"mine", "free"}
    assert not path.with_name(f".{path.name}.claims").exists()


def test_a_run_waits_for_rows_of_others_and_takes_what_they_leave(path, tmp_path):
    notes = tmp_path / "notes"
    notes.write_text("two words of\nno spec\n")  # so that nobody waits for the other
    theirs, left = Slow("theirs", notes), Slow("left", notes)
    told, other = [], Store(path)
    with other.claims() as claims:
        claims.take([theirs.key, left.key])

        def report(progress):
            told.append(progress.doing)
            if told == ["another process runs the rest"]:
                other.append({"key": theirs.key, "spec": theirs.describe(), "of": "other"})
                claims.drop([theirs.key, left.key])

        store = Store(path)
        assert run_missing([theirs, left], store, report=report) == 1
    assert store[theirs.key]["of"] == "other"
    assert left.key in store
    assert told[-1] == "left"


def test_an_error_in_a_pool_names_its_spec_and_leaves_no_process(path, tmp_path):
    broken = Broken("broken", tmp_path / "notes")
    with pytest.raises(ZeroDivisionError) as caught:
        run_missing([broken], Store(path), executor=Pool())
    assert "while it measured: broken" in caught.value.__notes__
    assert not multiprocessing.active_children()
    assert not path.with_name(f".{path.name}.claims").exists()


def test_a_failure_that_is_recorded_is_a_row_and_is_run_again_if_asked(path, tmp_path):
    spec = Recorded("recorded", tmp_path / "notes")
    store = Store(path)
    assert run_missing([spec], store, executor=Pool()) == 1
    assert store[spec.key]["error"] == "ZeroDivisionError: division by zero"
    assert run_missing([spec], store, executor=Pool()) == 0
    assert run_missing([spec], store, executor=Pool(), retry_failed=True) == 1
    assert len(keys_in(path)) == 2


def test_nobody_waits_for_others_when_time_is_up(path, tmp_path, monkeypatch):
    spec = Slow("theirs", tmp_path / "notes")
    with Store(path).claims() as claims:
        claims.take([spec.key])
        answers = iter([True, False, False])  # there is time to begin, none to wait
        monkeypatch.setattr(runner.Clock, "has_time", lambda clock: next(answers))
        assert run_missing([spec], Store(path), minutes=1) == 0


def test_specs_that_share_models_belong_together():
    a, b, c = (TrainConfig(seed=seed) for seed in range(3))
    notes = Path("notes")
    one, both = Slow("one", notes, (a,)), Slow("both", notes, (a, b))
    other, free = Slow("other", notes, (c,)), Slow("free", notes)
    families = families_of([one, other, both, free])
    assert families == {
        a: {one.key, both.key},
        b: {one.key, both.key},
        c: {other.key},
    }
    bridge = Slow("bridge", notes, (b, c))
    families = families_of([one, other, both, bridge])
    assert len(set(map(frozenset, families.values()))) == 1
    assert len(families[a]) == 4


def test_a_shared_queue_gives_every_item_once(path, tmp_path):
    items = [Slow(str(i), tmp_path / "notes") for i in range(4)]
    stores = Store(path), Store(path)
    with stores[0].claims() as first, stores[1].claims() as second:
        queues = [
            SharedQueue(items, claims, lambda item, store=store: item.key in store)
            for claims, store in zip((first, second), stores, strict=True)
        ]
        given = [queues[0].pop(), queues[1].pop(), queues[0].pop(), queues[1].pop()]
        assert given == items
        assert queues[0].pop() is queues[1].pop() is None
        assert [len(queue) for queue in queues] == [2, 2]  # those of the other
        for item in items:
            stores[0].append({"key": item.key})
        assert queues[0].pop() is queues[1].pop() is None
        assert [len(queue) for queue in queues] == [0, 0]


# --- B3: a full disk

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from icssl.bench.store import Store

store = Store(Path(sys.argv[1]))
store.append({"key": "before"})
size = store.path.stat().st_size
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))
try:
    store.append({"key": "lost", "values": [0] * 1000})
except OSError as error:
    print(error)
assert store.path.stat().st_size == size
assert "lost" not in store
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.append({"key": "after"})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on file sizes")
def test_b3_a_full_disk_leaves_the_store_readable_and_the_next_row_whole(path):
    result = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{path} could not take another line" in result.stdout
    assert keys_in(path) == ["before", "after"]


# --- B4: lines that are none


WHOLE_BUT_NO_ROW = {
    "a word": b"whole",
    "a number": b"12",
    "a list": b"[1]",
    "an object": b"{}",
    "without a checksum": b'{"key":"b"}',
    "cut short": TORN,
    "nothing": b"",
    "deep": b"[" * 100_000,
    "no text": b"\xff\xfe",
    "a long number": b'{"key":' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("line", WHOLE_BUT_NO_ROW.values(), ids=WHOLE_BUT_NO_ROW.keys())
def test_b4_a_last_line_that_is_whole_and_no_row_is_named(path, line):
    append_line(path, {"key": "a"})
    with path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2, is no row: .*Delete this"):
        Store(path)


@pytest.mark.parametrize("line", [b"12", b"{}", b'{"key":"b"}'])
def test_b4_a_last_line_without_an_end_is_torn_only_if_it_is_no_json(path, line):
    append_line(path, {"key": "a"})
    with path.open("ab") as file:
        file.write(line)
    with pytest.raises(ValueError, match=r"line 2, is no row: it has no checksum"):
        Store(path)


def leaves_of(value, path=()):
    """Paths to all plain values inside a row."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves_of(item, (*path, name))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from leaves_of(item, (*path, i))
    else:
        yield path


def test_b4_a_row_edited_anywhere_is_named(path):
    row = {"key": "a", "metrics": {"accuracy": {"mean": 0.5}}, "seeds": [1, 2], "at": None}
    append_line(path, row)
    whole = json.loads(path.read_text())
    for place in leaves_of(whole):
        edited = json.loads(json.dumps(whole))
        *parents, last = place
        inside = edited
        for name in parents:
            inside = inside[name]
        inside[last] = "edited"
        path.write_text(json.dumps(edited) + "\n")
        with pytest.raises(ValueError, match="line 1, is no row: it was changed since"):
            Store(path)
    path.write_text(json.dumps(whole, indent=None, sort_keys=True) + "\n")
    assert list(Store(path)) == [row]  # the same values, written in another way


def test_b4_a_row_whose_key_is_not_that_of_its_spec_is_named(path):
    spec = {"labels": 3}
    append_line(path, {"key": key_of(spec), "spec": spec})
    append_line(path, {"key": key_of({"labels": 5}), "spec": spec})
    with pytest.raises(ValueError, match="line 2, is no row: its key is"):
        Store(path)


def test_a_row_whose_key_is_not_that_of_its_spec_is_not_taken(path):
    with pytest.raises(ValueError, match="takes no row like this: its key is 'a'"):
        Store(path).append({"key": "a", "spec": {"labels": 3}})
    assert not path.exists()


@pytest.mark.parametrize("row", [{"value": 1}, {"key": 3}, {"key": None}])
def test_b4_a_row_without_a_key_is_named(path, row):
    append_line(path, row)
    with pytest.raises(ValueError, match="line 1, is no row: its key is"):
        Store(path)


def test_lines_taken_out_while_the_store_is_open_are_missed(path):
    store = Store(path)
    for key in "abc":
        store.append({"key": key})
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[2])
    store.refresh()
    assert [row["key"] for row in store] == ["a", "c"]


def test_the_line_of_a_run_survives_a_torn_one(path):
    store = Store(path)
    for key in "ab":
        with record_run(store, {"device": "a CPU"}):
            store.append({"key": key})
        with runs_file(store).open("ab") as file:
            file.write(b'{"rows": 1, "sec')
    assert [run["rows"] for run in read_runs(store)] == [1, 1]


def test_a_row_is_on_the_disk_before_append_returns(path, monkeypatch):
    synced = []
    fsync = os.fsync

    def sync(number):
        fsync(number)
        synced.append(path.read_bytes())

    monkeypatch.setattr(os, "fsync", sync)
    Store(path).append({"key": "a"})
    assert synced == [path.read_bytes()]


def test_a_store_can_be_read_where_nothing_can_be_written(path):
    append_line(path, {"key": "a"})
    lock = path.with_name(f".{path.name}.lock")
    lock.unlink()
    assert "a" in Store(path)
    assert not lock.exists()


# --- The command line


def _reproduce(barrier, number, names, folder):
    """``icssl reproduce`` at toy size, as a process of its own."""
    from bench_helpers import TOY_PROFILE
    from icssl.app.cli import app
    from icssl.bench.paper.artefact import PROFILES
    from icssl.episodes import stream

    PROFILES["quick"], stream.EPISODES_AT_ONCE = TOY_PROFILE, 4
    barrier.wait(PATIENCE)
    result = CliRunner().invoke(app, ["reproduce", names[number], "-o", str(folder)])
    (folder / f"said-{number}").write_text(result.output)
    assert result.exit_code == 0


@pytest.mark.parametrize("names", [("depth", "alignment"), ("depth", "depth")])
def test_b1_two_commands_into_one_folder_with_a_torn_line(tmp_path, names):
    from bench_helpers import TOY_PROFILE

    (tmp_path / "rows.jsonl").write_bytes(TORN)
    run_processes(_reproduce, names, tmp_path)
    wanted = {
        spec.key
        for name in names
        for spec in specs_of(ARTEFACTS[name], TOY_PROFILE).values()
    }
    assert sorted(keys_in(tmp_path / "rows.jsonl")) == sorted(wanted)
    for number, name in enumerate(names):
        count = len({s.key for s in specs_of(ARTEFACTS[name], TOY_PROFILE).values()})
        said = (tmp_path / f"said-{number}").read_text()
        assert f"{count} of {count} are there." in said
        assert (tmp_path / f"{name}.md").exists()


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (["report"], "rows.jsonl"),
        (["report"], "runs.jsonl"),
        (["reproduce", "depth"], "rows.jsonl"),
        (["bench", "scale", "--sizes", "100"], "rows.jsonl"),
        (["bench", "real", "--methods", "icssl"], "rows.jsonl"),
    ],
)
def test_b4_edited_rows_are_one_sentence_and_no_traceback(tmp_path, command, file):
    spec = {"kind": "scores"}
    append_line(tmp_path / "rows.jsonl", {"key": key_of(spec), "spec": spec})
    append_line(tmp_path / "runs.jsonl", {"rows": 1, "seconds": 2, "device": "a CPU"})
    text = (tmp_path / file).read_text()
    (tmp_path / file).write_text(text.replace("scores", "other").replace("2", "true"))
    result = CliRunner().invoke(app, [*command, "-o", str(tmp_path)])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    said = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())
    assert "line 1, is no row: it was changed since it was written" in said


FULL_RUN = """
import resource, signal, sys
sys.path.insert(0, sys.argv.pop(1))
from bench_helpers import TOY_PROFILE
from icssl.bench.paper.artefact import PROFILES
PROFILES["quick"] = TOY_PROFILE
from icssl.app.cli import app
from icssl.bench import runner

row_of, made = runner.row_of, []

def fill_the_disk(*arguments):
    made.append(row_of(*arguments))
    if len(made) == 2:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    return made[-1]

runner.row_of = fill_the_disk
app(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on file sizes")
def test_b3_a_command_on_a_full_disk_says_so_in_words(tmp_path):
    command = ["reproduce", "ablation", "--no-draw", "-o", str(tmp_path)]
    tests = str(Path(__file__).parent)
    result = subprocess.run(
        [sys.executable, "-c", FULL_RUN, tests, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "Stopped: " in result.stderr
    assert "rows.jsonl could not take another line: file too large" in result.stderr
    assert "Traceback" not in result.stderr
    assert len(Store(tmp_path / "rows.jsonl")) == 1
