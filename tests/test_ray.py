"""``--engine ray``: the work of one process, by workers of a cluster that may die."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Thread

import numpy as np
import psutil
import pytest

from bench_helpers import FEW, FIRST, SPHERE, TOY_PROFILE, toy_specs, without_time
from helpers import F32, run_command, text_of, toy_config
from icssl import ICSSLClassifier
from icssl._util.files import replacing_folder
from icssl._util.ray import RETRIES, ray_cluster, start_here
from icssl.app.label_options import LabelOptions
from icssl.app.labelling_pieces import _note_beginning, drawn_rows, label_pieces
from icssl.bench import ray_runner as spread
from icssl.bench.paper.artefact import PROFILES
from icssl.bench.ray_runner import FailedSpecsError, run_on_ray
from icssl.bench.runner import run_missing
from icssl.bench.spec import Scores
from icssl.bench.store import Store, key_of, read_runs
from icssl.tables.pieces import Piece, are_labels, pieces_of
from icssl.tables.targets import read_targets

ray = pytest.importorskip("ray", reason="Ray is not installed")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")

# Ray Data sets fields of its own that it calls deprecated.
pytestmark = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\.data\..*")

LONG = toy_config("orig_icl", "steps=400")  # long enough to be killed in the middle


@pytest.fixture(scope="module")
def cluster():
    """Two workers, and a GPU that is only counted."""
    start_here(ray, num_cpus=2, num_gpus=1, object_store_memory=10**8)
    # Workers know the package and not the tests.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield ray
    ray.shutdown()


# So wide that no path of a temporary folder is broken in two.
run = partial(run_command, wide=True)


@contextmanager
def beside(watch):
    """Call ``watch`` again and again beside the block, until it says that it is done."""
    stop = Event()

    def loop():
        while not stop.wait(0.01) and not watch():
            pass

    thread = Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# --- Who can reach a cluster

# Where a process is to join a cluster on loopback: Ray looks for it on a network else.
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def listening_addresses():
    """Where this process and all that it started wait for connections, by process."""
    found = []
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            found += [
                (process.name(), connection.laddr.ip)
                for connection in connections_of(process)
                if connection.status == psutil.CONN_LISTEN
            ]
    return found


def connections_of(process):
    # psutil 6 has a new name for it.
    read = getattr(process, "net_connections", None) or process.connections
    return read("inet")


def is_loopback(address):
    ip = ip_address(address)
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


def worker_pid():
    return os.getpid()


def test_a_cluster_of_this_machine_listens_on_loopback_alone(cluster):
    assert cluster.get(cluster.remote(worker_pid).remote()) != os.getpid()
    found = listening_addresses()
    names = {name for name, _ in found}
    assert {"gcs_server", "raylet"} <= names, names  # or nothing was looked at
    assert [(name, ip) for name, ip in found if not is_loopback(ip)] == []


OWNER = """
import os, subprocess, sys
from pathlib import Path
from icssl._util.ray import ray_cluster
with ray_cluster() as ray:
    address = ray.get_runtime_context().gcs_address
    stranger = [sys.executable, "-c", sys.argv[1], address]
    for home, mode in (("owner", "token"), ("stranger", "token"), ("stranger", "disabled")):
        env = os.environ | {"HOME": str(Path.cwd() / home), "RAY_AUTH_MODE": mode}
        done = subprocess.run(stranger, env=env, capture_output=True, text=True)
        print(home, mode, "ENTERED" in done.stdout)
"""
STRANGER = """
import sys
import ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
print("ENTERED", ray.cluster_resources())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes of files")
def test_a_stranger_without_the_token_is_refused(tmp_path):
    for home in ("owner", "stranger"):
        (tmp_path / home).mkdir()
    other = tmp_path / "stranger" / ".ray"
    other.mkdir()
    (other / "auth_token").write_text("0" * 64)
    own = {name: os.environ[name] for name in os.environ if not name.startswith("RAY_")}
    options = ON_LOOPBACK | {
        "RAY_gcs_server_port_wait_time_s": "1",
        "RAY_py_gcs_connect_timeout_s": "5",
    }
    done = subprocess.run(
        [sys.executable, "-c", OWNER, STRANGER],
        cwd=tmp_path,
        env=own | options | {"HOME": str(tmp_path / "owner")},
        capture_output=True,
        text=True,
        check=False,
    )
    entered = {
        tuple(line.split()[:2]): line.split()[2] for line in done.stdout.splitlines()
    }
    assert entered == {
        ("owner", "token"): "True",
        ("stranger", "token"): "False",
        ("stranger", "disabled"): "False",
    }, done.stderr
    token = tmp_path / "owner" / ".ray" / "auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
    assert [file.name for file in token.parent.iterdir()] == ["auth_token"]


# --- Specs


@dataclass(frozen=True)
class Notes:
    """A spec that notes the process of every beginning in a file.

    ``act`` is what it does then: "wait", the first time, to be killed; "fail"; "die".
    """

    path: Path
    act: str = ""
    trainings: tuple = ()

    @property
    def key(self):
        return key_of(self.describe())

    @property
    def title(self):
        return self.path.name

    def describe(self):
        return {"path": str(self.path)}

    def measure(self, models, device):
        first = not self.path.exists()
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if self.act == "wait" and first:
            time.sleep(600)
        if self.act == "fail":
            raise ArithmeticError(f"{self.title} cannot be measured\nat all")
        if self.act == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"held": ray.get_runtime_context().get_assigned_resources()}

    @property
    def begun(self):
        """Processes, in their order."""
        return self.path.read_text().split() if self.path.exists() else []


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "rows.jsonl")


def keys_in(store):
    """As they stand in the file, line by line."""
    keys = [row["key"] for row in Store(store.path)]
    assert len(store.path.read_text().splitlines()) == len(keys)
    return sorted(keys)


def kill_training():
    """Kill a worker of this process that trains, if there is one."""
    for process in psutil.Process().children(recursive=True):
        try:
            if "ray::_train" in " ".join(process.cmdline()):
                os.kill(process.pid, signal.SIGKILL)
                return True
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return False


def test_rows_are_those_of_one_process_though_workers_are_killed(cluster, store, tmp_path):
    own = [*toy_specs(), Scores("orig_icl", SPHERE, 5, (LONG,), **FEW)]
    alone = Store(tmp_path / "alone.jsonl")
    run_missing(own, alone)
    notes = Notes(tmp_path / "notes", "wait")
    told, killed = [], []

    def watch():
        if "training" not in killed and kill_training():
            killed.append("training")
        if "measuring" not in killed and len(notes.begun) == 1:
            os.kill(int(notes.begun[0]), signal.SIGKILL)
            killed.append("measuring")
        return len(killed) == 2

    with beside(watch):
        added = run_on_ray([notes, *own, *own], store, cluster, report=told.append)
    assert added == len(own) + 1
    assert len(killed) == len(set(notes.begun)) == 2
    assert keys_in(store) == sorted(spec.key for spec in (notes, *own))
    for spec in own:
        assert without_time(store[spec.key]) == without_time(alone[spec.key])
    assert {progress.total for progress in told} == {len(own) + 1}
    assert [p.done for p in told] == sorted(p.done for p in told)
    assert told[-1].seconds_left is not None
    assert read_runs(store)[-1]["device"].startswith("Ray cluster, machines: 1, CPUs: 2")
    assert run_on_ray([notes, *own], Store(store.path), cluster) == 0


def test_what_fails_is_reported_at_the_end_and_the_rest_is_stored(
    cluster, store, tmp_path, monkeypatch
):
    monkeypatch.setattr(spread, "RETRIES", 1)
    good, fails, dies = (Notes(tmp_path / act, act) for act in ("good", "fail", "die"))
    ruined = toy_config("transformer", "steps=5", "learning_rate=1e30")
    unstable = Scores("transformer", SPHERE, 3, (ruined,), **FEW)
    with (
        pytest.warns(RuntimeWarning, match=r"no row of transformer.* stay finite"),
        pytest.raises(FailedSpecsError) as raised,
    ):
        run_on_ray([fails, dies, unstable, good], store, cluster)
    assert keys_in(store) == [good.key]
    titles = [title for title, _ in raised.value.failures]
    assert sorted(titles) == ["die", "fail"]
    lines = str(raised.value).splitlines()
    assert lines[0] == "2 specs failed:"
    assert "fail: ArithmeticError: fail cannot be measured" in lines
    assert len(lines) == 3
    assert len(dies.begun) == 2
    assert len(fails.begun) == 1


def test_an_interrupted_run_keeps_its_rows_and_goes_on(cluster, store, tmp_path):
    quick, slow = Notes(tmp_path / "quick"), Notes(tmp_path / "slow", "wait")

    def interrupt(progress):
        if progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_on_ray([slow, quick], store, cluster, report=interrupt)
    assert keys_in(store) == [quick.key]
    slow.path.touch()  # or it would wait again, had it not begun
    assert run_on_ray([slow, quick], Store(store.path), cluster) == 1
    assert keys_in(store) == sorted([quick.key, slow.key])
    assert len(quick.begun) == 1


def test_a_task_with_a_model_holds_its_share_of_a_gpu(cluster, store, tmp_path):
    trained, classical = (
        Notes(tmp_path / n, "", t) for n, t in (("a", (FIRST,)), ("b", ()))
    )
    run_on_ray([trained, classical], store, cluster, gpus_per_task=0.25)
    assert store[trained.key]["held"] == {"CPU": 1.0, "GPU": 0.25}
    assert store[classical.key]["held"] == {"CPU": 1.0}
    with (
        pytest.raises(ValueError, match="needs 2 GPUs, and the Ray cluster has 1"),
        ray_cluster(gpus_per_task=2),
    ):
        pytest.fail("a cluster that cannot do it")


def test_nothing_is_begun_too_late(store, tmp_path):
    late = spread._Job("cpu", time.time() - 1, str(tmp_path))
    notes = Notes(tmp_path / "notes")
    assert spread._train([FIRST], late) is None
    assert spread._measure(notes, late) is None
    in_time = spread._Job("cpu", time.time() + 1e6, str(tmp_path))
    assert spread._measure(notes, in_time, None) is None  # its training was too late
    assert run_on_ray([notes], store, None, minutes=0) == 0  # no cluster is asked
    assert notes.begun == []


def test_cli_reproduces_on_a_cluster(cluster, tmp_path, monkeypatch):
    monkeypatch.setitem(PROFILES, "quick", TOY_PROFILE)
    where = ["--engine", "ray", "--no-draw", "-o", tmp_path / "out"]
    result = run("reproduce", "ablation", *where)
    assert result.exit_code == 0, result.output
    found = re.search(r"(\d+) rows added, (\d+) of (\d+) are there", text_of(result))
    assert len(set(found.groups())) == 1
    assert "go on" not in text_of(result)


def test_cli_names_what_failed(cluster, tmp_path, monkeypatch):
    known = [Notes(tmp_path / "good"), Notes(tmp_path / "fail", "fail")]
    monkeypatch.setattr(
        "icssl.bench.paper.catalogue.all_specs", lambda names, profile: known
    )
    where = ["--engine", "ray", "--no-draw", "-o", tmp_path / "out"]
    result = run("reproduce", "params", *where)
    assert result.exit_code == 1, result.output
    text = "1 rows added, 1 of 2 are there. 1 specs failed: fail: ArithmeticError: fail"
    assert text in text_of(result)
    assert "Run the same command again to go on." in text_of(result)


def test_cli_joins_a_cluster_that_runs(cluster):
    address = cluster.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "icssl", "reproduce", "params", "--no-draw"]
    options = ["--engine", "ray", "--address", address]
    found = subprocess.run(
        [*command, *options],
        env=os.environ | ON_LOOPBACK,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "0 rows added, 0 of 0 are there." in found.stdout


# --- Parquet


def mixed(count):
    """Columns of every kind, some cells missing, two classes that are far apart."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=count)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(300 * kind + rng.integers(9), "D")
    target = np.full(count, "", dtype=object)
    labelled = rng.permutation(count)[:12]
    target[labelled] = np.array(["cat", "dog"])[kind[labelled]]
    return pd.DataFrame(
        {
            "id": np.arange(count),
            "size": np.where(rng.random(count) < 0.1, np.nan, rng.normal(4 * kind, 1)),
            "weight": rng.integers(9, size=count) - 3 * kind,
            "coat": pd.Categorical(np.where(rng.random(count) < 0.2, "soft", "rough")),
            "born": days.strftime("%Y-%m-%d"),
            "species": target,
        },
        index=pd.Index([f"row {i}" for i in range(count)], name="name"),
    )


def features_of(frame):
    """As the classifier should see them."""
    return frame.assign(born=pd.to_datetime(frame["born"]))[
        ["size", "weight", "coat", "born"]
    ]


def killing_label(folder, killed):
    """Kill the worker of a piece that was begun and is not written; see it begin again."""

    def watch():
        for note in folder.glob(".*/.part-*.begun"):
            try:
                pids = note.read_text().split()
            except FileNotFoundError:
                continue
            part = note.with_name(note.name.removeprefix(".").removesuffix(".begun"))
            if not killed and pids and not part.exists():
                os.kill(int(pids[0]), signal.SIGKILL)
                killed.append(note.name)
            elif killed == [note.name] and len(pids) == 2:
                killed.append("begun again")
            elif killed == [note.name] and part.exists():
                killed.clear()  # it had just been written: another one, then
        return len(killed) == 2

    return watch


def test_pieces_are_labelled_as_in_one_process_though_a_worker_is_killed(cluster, tmp_path):
    frame, folder = mixed(3000), tmp_path / "in"
    folder.mkdir()
    frame[:1700].to_parquet(folder / "a.parquet", row_group_size=300)
    later = frame[1700:].astype({"weight": float})[frame.columns[::-1]]
    later.to_parquet(folder / "b.parquet")
    killed, told = [], []
    with beside(killing_label(tmp_path, killed)):
        tally, seconds = label_pieces(
            LabelOptions(
                folder,
                "species",
                tmp_path / "out",
                drop=("id",),
                context_rows=300,
                seed=3,
            ),
            cluster,
            piece_rows=400,
            on_progress=lambda done, total: told.append((done, total)),
        )
    assert killed[1:] == ["begun again"]
    parts = sorted((tmp_path / "out").iterdir())
    assert [part.name for part in parts] == [f"part-{i:06}.parquet" for i in range(9)]
    found = pd.concat(
        [pd.read_parquet(part)[[*frame, "label", "probability", "reach"]] for part in parts]
    )
    pd.testing.assert_frame_equal(
        found[list(frame)], frame, check_dtype=False, check_categorical=False
    )
    assert told[-1] == (3000, 3000)
    assert seconds > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]

    labelled = (frame["species"] != "").to_numpy()
    whole = [Piece(0, folder, 0, 3000)]
    rows = drawn_rows(whole, {0: np.flatnonzero(labelled)}, 300, 3)[0]
    features, target = features_of(frame), frame["species"].replace("", None)
    classifier = ICSSLClassifier(device="cpu").fit(features.iloc[rows], target.iloc[rows])
    p, reach = classifier.predict_proba(features), classifier.predict_reach(features)
    p[rows], reach[rows] = classifier.label_distributions_, classifier.reach_
    np.testing.assert_array_equal(found["label"], classifier.classes_[p.argmax(axis=1)])
    np.testing.assert_allclose(found["probability"], p.max(axis=1), **F32)
    np.testing.assert_allclose(found["reach"], reach, **F32)
    assert tally.rows.tolist() == [(found["label"] == c).sum() for c in tally.classes]
    assert tally.labelled.sum() == 12
    np.testing.assert_allclose(tally.confidence, p.max(axis=1)[~labelled].sum(), **F32)


def test_a_table_that_fits_the_context_is_labelled_as_without_a_cluster(cluster, tmp_path):
    path = tmp_path / "pets.parquet"
    mixed(120).to_parquet(path)
    common = ["classify", path, "-t", "species", "--drop", "id"]
    # Hidden labels are not tried on a cluster, where tables are large.
    local = run(*common, "--no-score", "-o", tmp_path / "local.parquet")
    on_ray = run(*common, "--engine", "ray")
    assert local.exit_code == on_ray.exit_code == 0, on_ray.output
    # Without a cluster, all columns are read before; what they are is told first.
    summary = str(path) + text_of(local).partition("Rows:")[0].partition(str(path))[2]
    assert "120 rows, 12 labelled, 4 columns, 2 classes" in summary
    assert text_of(on_ray).partition("Rows:")[0] == summary
    out = tmp_path / "pets-labelled.parquet"
    assert out.is_dir()
    pd.testing.assert_frame_equal(
        pd.read_parquet(out), pd.read_parquet(tmp_path / "local.parquet"), check_exact=True
    )

    again = run(*common, "--engine", "ray")
    assert again.exit_code == 2
    assert "exists already: --force" in text_of(again)
    (out / "mine.txt").write_text("mine")
    forced = run(*common, "--engine", "ray", "--force")
    assert forced.exit_code == 2
    assert "holds 'mine.txt', which is no part" in text_of(forced)


def test_a_cell_that_cannot_be_read_is_named_and_leaves_no_folder(cluster, tmp_path):
    path = tmp_path / "a.parquet"
    frame = mixed(1500)
    infinite = frame.assign(size=frame["size"].where(frame["id"] != 1200, np.inf))
    infinite.to_parquet(path)
    common = ["classify", path, "-t", "species", "--engine", "ray", "--context-rows", 50]
    result = run(*common)
    assert result.exit_code == 2, result.output
    assert "a.parquet, from row 1,024 on" in text_of(result)
    assert "row 176, column 'size'" in text_of(result)
    odd = frame.assign(born=frame["born"].where(frame["id"] != 1200, "some day"))
    odd.to_parquet(path)
    result = run(*common)
    assert result.exit_code == 2, result.output
    assert "column 'born': 'some day' is no date" in text_of(result)
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


def test_large_labels_and_row_numbers_keep_their_identity_in_pieces(cluster, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    labels = [2**53, 2**53 + 1, 2**63 - 1]
    kind = np.arange(60) % 3
    place = 50.0 * kind + np.random.default_rng(0).normal(size=60)
    ids = [None if row % 7 == 0 else 2**53 + row for row in range(60)]
    y = [labels[kind[row]] if row % 10 < 4 else None for row in range(60)]
    table = pa.table({"id": ids, "x": place, "y": y})
    parquet.write_table(table[:40], folder / "a.parquet")
    # Floats, as pandas has a column of which all cells are missing.
    blank = table[40:].set_column(2, "y", pa.array([None] * 20, pa.float64()))
    parquet.write_table(blank, folder / "b.parquet")
    options = LabelOptions(folder, "y", out, drop=("id",), context_rows=50)
    label_pieces(options, cluster, piece_rows=16)
    parts = [parquet.read_table(part) for part in sorted(out.iterdir())]
    assert [cell for part in parts for cell in part["id"].to_pylist()] == ids
    found = [cell for part in parts for cell in part["label"].to_pylist()]
    assert found == [labels[k] for k in kind]


# --- Without a cluster


@pytest.mark.parametrize("most", [1, 7, 50, 99, 100, 1000])
def test_pieces_are_the_table(tmp_path, most):
    frame = pd.DataFrame({"x": np.arange(250), "y": ["a", "b"] * 125})
    (tmp_path / "in").mkdir()
    frame[:100].to_parquet(tmp_path / "in" / "1.parquet", row_group_size=33)
    frame[100:].to_parquet(tmp_path / "in" / "2.parquet", row_group_size=64)
    pieces = pieces_of(tmp_path / "in", ["y"], most=most)
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    tables = [piece.read() for piece in pieces]
    assert [len(table) for table in tables] == [len(piece) for piece in pieces]
    assert max(map(len, pieces)) <= most
    assert pa.concat_tables(tables)["x"].to_pylist() == list(range(250))
    assert pieces[-1].read(["y"]).column_names == ["y"]


def test_large_tables_are_cut_so_that_pieces_fit_and_all_workers_have_some(tmp_path):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"x": np.zeros(2**19 + 5, dtype=np.int8)}).to_parquet(path)
    assert [len(piece) for piece in pieces_of(path)] == [2**18, 2**18, 5]
    assert len(pieces_of(path, several=16)) == 16
    assert len(pieces_of(path, several=10**6)) == 2**9 + 1


TARGETS = {
    "texts": ["a", "", None, "  ", "-1", "b", "nan"],
    "whole": [0, 1, -1, 2, -1],
    "floats": [0.0, -1.0, float("nan"), 3.0, None],
    "booleans": [True, None, False],
    "counts": pd.array([1, 2, None], dtype="UInt8"),
    "categories": pd.Categorical(["x", None, "y"]),
    "bytes": [b"a", b"", None, b"  ", b"-1", b"b", b"\xff"],
    "bytes and numbers": [b"-1", b"", None, b"2"],
    "large": pd.array(["p", "", "q"], dtype=pd.ArrowDtype(pa.large_string())),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_labels_are_those_of_a_table_in_memory(tmp_path, kind):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"y": TARGETS[kind]}).to_parquet(path)
    cells = pd.read_parquet(path)["y"].to_numpy(dtype=object)
    cells = [None if isinstance(c, str) and not c.strip() else c for c in cells]
    (piece,) = pieces_of(path)
    np.testing.assert_array_equal(
        are_labels(piece.read()["y"]), read_targets(np.array(cells, dtype=object))[1] >= 0
    )


@pytest.mark.parametrize("count", [0, 5, 12, 40, 1000])
def test_a_context_is_all_labelled_rows_and_others_whatever_the_pieces(count):
    labelled = np.array([0, 1, 2, 30, 31, 64, 65, 99])
    found = []
    for size in (100, 33, 1):
        pieces = [
            Piece(i, Path("x"), start, min(start + size, 100))
            for i, start in enumerate(range(0, 100, size))
        ]
        own = {
            p.number: labelled[(labelled >= p.start) & (labelled < p.stop)] - p.start
            for p in pieces
        }
        drawn = drawn_rows(pieces, own, count, seed=1)
        assert all(len(rows) for rows in drawn.values())
        found.append(np.concatenate([rows + pieces[i].start for i, rows in drawn.items()]))
    assert len(found[0]) == min(max(count, 8), 100)
    assert set(labelled) <= set(found[0])
    assert len(set(found[0])) == len(found[0])
    assert all(np.array_equal(rows, found[0]) for rows in found)


def test_every_row_is_as_likely_to_be_drawn():
    pieces = [Piece(0, Path("x"), 0, 6), Piece(1, Path("x"), 6, 20)]
    labelled = {0: np.array([1, 2]), 1: np.array([0])}
    counts = np.zeros(20)
    for seed in range(2000):
        for i, rows in drawn_rows(pieces, labelled, 8, seed).items():
            counts[rows + pieces[i].start] += 1
    known = [1, 2, 6]
    assert (counts[known] == 2000).all()
    # Five of seventeen: 588 each, with a standard deviation of 20.
    assert (np.abs(np.delete(counts, known) - 2000 * 5 / 17) < 100).all()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"x": [1.0], "y": ["a"]}, "has no 'z'"),
        ({"x": [1.0], "y": ["a"], "z": [1], "w": [2]}, "has 'w' more"),
        ({"x": ["1"], "y": ["a"], "z": [1]}, "string in 'x' and not int64"),
    ],
)
def test_files_of_other_columns_are_named(tmp_path, other, words):
    folder = tmp_path / "in"
    folder.mkdir()
    pd.DataFrame({"x": [1, 2], "y": ["a", None], "z": [0.5, 1]}).to_parquet(
        folder / "1.parquet"
    )
    alike = {"x": [None], "y": [None], "z": [1]}
    pd.DataFrame(alike).to_parquet(folder / "2.parquet")
    assert len(pieces_of(folder)) == 2
    pd.DataFrame(other).to_parquet(folder / "3.parquet")
    with pytest.raises(ValueError, match=r"3\.parquet differs in its columns") as raised:
        pieces_of(folder)
    assert words in str(raised.value)


def test_a_folder_is_replaced_when_it_is_whole_alone(tmp_path):
    path = tmp_path / "out"
    for text in ("old", "new"):
        with replacing_folder(path) as unfinished:
            (unfinished / "part").write_text(text)
            assert not path.exists() or (path / "part").read_text() == "old"

    def interrupted():
        with replacing_folder(path) as unfinished:
            (unfinished / "part").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert (path / "part").read_text() == "new"


def test_a_piece_that_kills_its_workers_is_given_up(tmp_path):
    piece = Piece(3, Path("big.parquet"), 500, 900)
    for _ in range(RETRIES + 1):
        _note_beginning(piece, tmp_path)
    with pytest.raises(ValueError, match=r"big.parquet, rows 500 to 900: 6 workers died"):
        _note_beginning(piece, tmp_path)
    with pytest.raises(FileNotFoundError, match="a disk that all machines"):
        _note_beginning(piece, tmp_path / "elsewhere")


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


COMMANDS = {
    "reproduce": ["reproduce", "depth"],
    "classify": ["classify", "a.parquet", "-t", "y"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_options_of_an_engine_are_named(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"x": [1, 2], "y": ["a", "b"]}).to_parquet("a.parquet")
    nowhere = f"127.0.0.1:{closed_port()}"
    for options, words in (
        (["--engine", "rai"], "choose one of 'local', 'ray'. Did you mean 'ray'?"),
        (["--address", "auto"], "--address auto is for --engine ray, not for local"),
        (["--gpus-per-task", "0.5"], "--gpus-per-task 0.5 is for --engine ray"),
        (["--engine", "ray", "--gpus-per-task", "1.5"], "a whole number of them, got 1.5"),
        (["--engine", "ray", "--address", "here"], "must be auto or HOST:PORT, got 'here'"),
        (["--engine", "ray", "--address", "ray://a:1"], "must be auto or HOST:PORT"),
        (["--engine", "ray", "--address", nowhere], f"no Ray cluster answers at {nowhere}"),
    ):
        result = run(*COMMANDS[command], *options)
        assert result.exit_code == 2, result.output
        assert words in text_of(result)
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    result = run(*COMMANDS[command], "--engine", "ray")
    assert result.exit_code == 2
    assert "--engine ray needs Ray: pip install 'icssl[ray]'" in text_of(result)
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["classify", "--demo", "--engine", "ray"], "--demo is for --engine local"),
        (
            ["classify", "a.parquet", "-t", "y", "--engine", "ray", "--report", "a.html"],
            "--report is for --engine local",
        ),
        (["classify", "a.parquet", "--engine", "ray"], "--target must name the column"),
        (
            ["reproduce", "depth", "--engine", "ray", "--workers", "2"],
            "--workers is for --engine local",
        ),
        (
            ["reproduce", "depth", "--engine", "ray", "--gpus-per-task", "0.5"],
            "--device cpu does not go with --gpus-per-task 0.5",
        ),
        (
            ["reproduce", "depth", "--engine", "ray", "--device", "cuda:1"],
            "unknown device 'cuda:1': choose one of 'cpu', 'cuda'",
        ),
    ],
)
def test_options_that_do_not_go_together(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in text_of(result)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_labelled_in_pieces_is_named(cluster, tmp_path):
    for name, content, words in (
        ("a.csv", b"x,y\n1,a\n", "a.csv must end in .parquet, or be a folder"),
        ("b.parquet", b"PAR1 and no more", "b.parquet cannot be read as .parquet"),
        ("c", None, "c is a folder without a .parquet file"),
        ("d.parquet", None, "d.parquet does not exist"),
        ("e.parquet", {"x": [1], "yy": ["a"]}, "has no column 'y': it has 'x', 'yy'"),
        ("f.parquet", {"x": [], "y": []}, "f.parquet has no rows"),
    ):
        path = tmp_path / name
        if isinstance(content, dict):
            pd.DataFrame(content).to_parquet(path)
        elif content is not None:
            path.write_bytes(content)
        elif name == "c":
            path.mkdir()
        result = run("classify", path, "-t", "y", "--engine", "ray")
        assert result.exit_code == 2, result.output
        assert words in text_of(result)
    assert len(list(tmp_path.iterdir())) == 5
