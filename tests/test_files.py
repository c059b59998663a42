"""Files of tensors that are damaged, temporary files of killed processes, full disks."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from helpers import random_episode, toy, toy_config
from icssl._util.errors import DamagedFileError
from icssl._util.files import (
    digest_of,
    read_tensors,
    replacing,
    replacing_folder,
    write_tensors,
)
from icssl._util.jsonl import append_line
from icssl.app.cli import app
from icssl.bench.paper.artefact import PROFILES
from icssl.bench.paper.report import cost_markdown
from icssl.bench.store import Store, runs_file
from icssl.classifier.model import ContextConfig, ContextModel
from icssl.classifier.pretraining import train as pretrain
from icssl.classifier.weights import KIND as CONTEXT
from icssl.classifier.weights import load_context_model, save_context_model
from icssl.episodes.images import ImageSpec
from icssl.episodes.stream import KIND as EPISODES
from icssl.episodes.stream import load_episodes, save_episodes
from icssl.model.build import KIND as MODEL
from icssl.model.build import build_model, load_model
from icssl.training.checkpoint import KIND as CHECKPOINT
from icssl.training.checkpoint import (
    load_checkpoint,
    models_of_checkpoint,
    save_checkpoint,
    save_models,
    training_of,
)
from icssl.training.group import Group
from icssl.training.step import AdamState

TRAINING = toy_config("orig_icl")
CONTEXT_CONFIG = ContextConfig(width=8, embedding=4)
PRETRAINING = pretrain.PretrainConfig(model=CONTEXT_CONFIG)


def make_checkpoint(folder):
    weights = Group([TRAINING]).fresh_weights()
    save_checkpoint(folder, [TRAINING], 3, AdamState.fresh(weights))
    return folder / "checkpoint.safetensors"


def make_model(folder):
    torch.manual_seed(0)
    return save_models(folder, [TRAINING], [build_model(TRAINING.model)], 3)[0]


def make_context(folder):
    torch.manual_seed(0)
    save_context_model(ContextModel(CONTEXT_CONFIG), folder / "mine.safetensors")
    return folder / "mine.safetensors"


def make_pretraining(folder):
    state = pretrain._State.fresh(PRETRAINING, "cpu")
    state.save(folder / "pretraining.safetensors", PRETRAINING)
    return folder / "pretraining.safetensors"


def make_episodes(folder):
    episode = random_episode(torch.Generator().manual_seed(0))
    save_episodes(episode, folder / "episodes.safetensors")
    return folder / "episodes.safetensors"


def read_checkpoint(path):
    step, state = load_checkpoint(path.parent, [TRAINING], "cpu")
    (model,) = models_of_checkpoint(path)
    return state.tensors() | model.state_dict(), (step, *training_of(path))


def read_model(path):
    model = load_model(path)
    return model.state_dict(), (model.config, *training_of(path))


def read_context(path):
    model = load_context_model(path)
    return model.state_dict(), model.config


def read_pretraining(path):
    return pretrain.read_checkpoint(path, PRETRAINING)


def read_episodes(path):
    episodes, made_from = load_episodes(path)
    return episodes.tensors(), made_from


KINDS = {
    "checkpoint": (CHECKPOINT, make_checkpoint, read_checkpoint),
    "model": (MODEL, make_model, read_model),
    "context": (CONTEXT, make_context, read_context),
    "pretraining": (pretrain.KIND, make_pretraining, read_pretraining),
    "episodes": (EPISODES, make_episodes, read_episodes),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def flip_bit(content, place, rng):
    content[place] ^= 1 << rng.randrange(8)


def zero_bytes(content, place, rng):
    content[place : place + 64] = bytes(len(content[place : place + 64]))


def same(one, other):
    """Whether two answers of a reader are equal, bit by bit."""
    return one[1] == other[1] and digest_of(one[0]) == digest_of(other[0])


def answer_of(read, path, kind):
    """What a reader returns, or else what it says in one sentence about the file."""
    try:
        return read(path), None
    except kind as error:
        said = str(error)
    if str(path) not in said or len(said.splitlines()) != 1:
        pytest.fail(f"not a sentence about the file: {said}")
    return None, said


@pytest.mark.parametrize("spoil", [flip_bit, zero_bytes])
def test_b2_a_file_damaged_anywhere_is_refused_or_read_bit_for_bit(tmp_path, kind, spoil):
    _, make, read = kind
    path = make(tmp_path)
    whole, expected = path.read_bytes(), read(path)
    header = 8 + int.from_bytes(whole[:8], "little")
    rng = random.Random(0)
    places = [*range(8), *(rng.randrange(8, header) for _ in range(60))]
    places += [rng.randrange(header, len(whole)) for _ in range(40)]
    for place in places:
        content = bytearray(whole)
        spoil(content, place, rng)
        path.write_bytes(content)
        found, refusal = answer_of(read, path, DamagedFileError)
        assert refusal or same(found, expected), place
        # A blank in the header may be another blank; data may be zeros already.
        assert refusal or place < header or content == whole, place


@pytest.mark.parametrize("fill", [float("nan"), 0.5])
def test_b2_other_numbers_in_the_data_are_refused(tmp_path, kind, fill):
    """The review's case: the header as it was, and other tensors of the same shape."""
    about, make, read = kind
    path = make(tmp_path)
    _, text = header_of(path, about)
    tensors = load_file(path)
    name = max(tensors, key=lambda one: tensors[one].numel())
    tensors[name] = torch.full_like(tensors[name], fill)
    save_file(tensors, path, {about.name: text})
    with pytest.raises(DamagedFileError, match=r"is damaged \(its digest is not that of"):
        read(path)


def header_of(path, about):
    """The header of a file, and its text."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    text = json.loads(content[8 : 8 + length])["__metadata__"][about.name]
    return json.loads(text), text


def test_b2_any_other_value_in_the_header_is_refused(tmp_path, kind):
    about, make, read = kind
    path = make(tmp_path)
    header, _ = header_of(path, about)
    tensors = load_file(path)
    for name in header:
        for value in (-5, 3.5, "a", None, [], {}):
            save_file(tensors, path, {about.name: json.dumps({**header, name: value})})
            if header[name] == value:
                continue
            with pytest.raises(DamagedFileError, match=re.escape(str(path))):
                read(path)


def test_b2_a_file_without_a_digest_says_how_to_make_it_anew(tmp_path, kind):
    about, make, read = kind
    path = make(tmp_path)
    header, _ = header_of(path, about)
    del header["digest"]
    save_file(load_file(path), path, {about.name: json.dumps(header)})
    with pytest.raises(DamagedFileError, match=f"has no digest.*{about.made_by}"):
        read(path)


# Values that may be other ones: an object without fields is a configuration of defaults.
MAY_DIFFER = ("made_from", "training")
NONSENSE = {
    "null": None,
    "a text": "a",
    "a number": -5,
    "a fraction": 3.5,
    "a list": [],
    "a list of lists": [[]],
    "an object": {},
    "another object": {"kind": "icssl", "k": "four"},
    "a large number": 10**30,
}


@pytest.mark.parametrize("value", NONSENSE.values(), ids=NONSENSE.keys())
def test_b4_a_header_that_makes_no_sense_is_one_sentence(tmp_path, kind, value):
    """With a digest of its own: somebody, or another version of icssl, wrote it so."""
    about, make, read = kind
    path = make(tmp_path)
    tensors, header = read_tensors(path, about)
    expected = read(path)
    for name in [*header, None]:
        changed = {} if name is None else {**header, name: value}
        write_tensors(path, tensors, about, changed)
        # Not only the one kind of error: a configuration may be that of another run.
        found, refusal = answer_of(read, path, ValueError)
        assert refusal or same(found, expected) or name in MAY_DIFFER


@pytest.mark.parametrize("tensors", [{}, {"weights": torch.zeros(2, 3)}])
def test_b4_other_tensors_are_one_sentence(tmp_path, kind, tensors):
    about, make, read = kind
    path = make(tmp_path)
    _, header = read_tensors(path, about)
    write_tensors(path, tensors, about, header)
    with pytest.raises(DamagedFileError, match=re.escape(str(path))):
        read(path)


@pytest.mark.parametrize("text", ["[" * 100_000, "3", "null", '{"a": ', "9" * 5000])
def test_b4_a_header_that_is_no_object_is_one_sentence(tmp_path, kind, text):
    about, make, read = kind
    path = make(tmp_path)
    save_file(load_file(path), path, {about.name: text})
    with pytest.raises(DamagedFileError, match=re.escape(str(path))):
        read(path)


def test_digests_differ_by_name_type_shape_and_value():
    tensors = [
        {"a": torch.zeros(4)},
        {"b": torch.zeros(4)},
        {"a": torch.zeros(2, 2)},
        {"a": torch.zeros(4, dtype=torch.int32)},
        {"a": torch.zeros(8, dtype=torch.bfloat16)},
        {"a": torch.ones(4)},
        {"a": torch.zeros(4), "b": torch.zeros(0)},
        {"a": torch.tensor(True)},
        {},
    ]
    assert len(set(map(digest_of, tensors))) == len(tensors)
    assert digest_of(tensors[0], MODEL) != digest_of(tensors[0], CONTEXT)
    assert digest_of({}, MODEL, {"a": 1}) != digest_of({}, MODEL, {"a": 2})


# --- Temporary files

WRITE = """
import sys, time
from pathlib import Path
from icssl._util.files import replacing

with replacing(Path(sys.argv[1])) as unfinished:
    unfinished.write_text("half of it")
    print(unfinished, flush=True)
    sys.stdin.readline()
"""

needs_sigkill = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")


def begin_to_write(path):
    """A process that is in the middle of writing, and its temporary file."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, Path(process.stdout.readline().strip())


@needs_sigkill
@pytest.mark.parametrize("name", ["table.csv", "odd [1]*.csv", "without suffix"])
def test_c6_what_a_killed_process_was_writing_is_deleted_by_the_next(tmp_path, name):
    path = tmp_path / name
    process, left = begin_to_write(path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert left.read_text() == "half of it"
    with replacing(path) as unfinished:
        unfinished.write_text("whole")
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert path.read_text() == "whole"


def test_c6_what_a_living_process_is_writing_is_left_to_it(tmp_path):
    path = tmp_path / "table.csv"
    process, left = begin_to_write(path)
    with replacing(path) as unfinished:
        unfinished.write_text("of another")
        assert left.exists()
    assert path.read_text() == "of another"
    process.communicate("\n")
    assert process.returncode == 0
    assert path.read_text() == "half of it"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_files_of_a_similar_name_are_left_alone(tmp_path):
    ends = [".notes", 31 * "a", 32 * "g" + ".csv", 32 * "a" + ".txt"]
    names = [f".table.csv.{end}" for end in ends]
    names += [f".other.csv.{32 * 'a'}.csv", f"table.csv.{32 * 'a'}.csv"]
    for name in names:
        (tmp_path / name).touch()
    with replacing(tmp_path / "table.csv"):
        pass
    assert {file.name for file in tmp_path.iterdir()} == {*names, "table.csv"}


def test_an_error_while_writing_has_the_name_of_the_file(tmp_path):
    path = tmp_path / "table.csv"
    reason = os.strerror(28)

    with (
        pytest.raises(OSError, match=rf"table\.csv could not be written: {reason.lower()}"),
        replacing(path),
    ):
        raise OSError(28, reason)
    with (
        pytest.raises(OSError, match=r"table\.csv could not be written"),
        replacing(path) as unfinished,
    ):
        unfinished.rename(path / "gone")
    with pytest.raises(FileNotFoundError, match=r"other\.csv"), replacing(path):
        (tmp_path / "other.csv").read_text()
    assert list(tmp_path.iterdir()) == []


def test_the_headers_of_all_kinds_hold_what_was_given(tmp_path, kind):
    about, make, _ = kind
    path = make(tmp_path)
    header, _ = header_of(path, about)
    assert header.pop("digest") == digest_of(load_file(path), about, header)
    if about is not EPISODES:
        beside = json.loads(path.with_suffix(".json").read_text())
        assert {k: v for k, v in beside.items() if k != "digest"} == header
    if about is CONTEXT:
        assert header["model"] == asdict(CONTEXT_CONFIG)


WRITE_FOLDER = """
import sys
from pathlib import Path
from icssl._util import files

rename, moves = Path.rename, []

def rename_and_wait(self, target):
    moved = rename(self, target)
    moves.append(target)
    if len(moves) == int(sys.argv[2]):
        print("moved", flush=True)
        sys.stdin.readline()
    return moved

Path.rename = rename_and_wait
with files.replacing_folder(Path(sys.argv[1])) as unfinished:
    (unfinished / "part").write_text("new")
    if sys.argv[2] == "0":
        print("writing", flush=True)
        sys.stdin.readline()
"""


@needs_sigkill
@pytest.mark.parametrize(("moves", "kept"), [(0, "old"), (1, "old"), (2, "new")])
def test_c6_a_folder_survives_a_kill_at_any_moment(tmp_path, moves, kept):
    """While it is filled, after the old one was moved away, and after it took its place."""
    path = tmp_path / "out"
    with replacing_folder(path) as unfinished:
        (unfinished / "part").write_text("old")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOLDER, str(path), str(moves)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(list(tmp_path.iterdir())) > 1
    with pytest.raises(KeyError), replacing_folder(path):
        raise KeyError
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert (path / "part").read_text() == kept


# --- The command line


FULL_DISK = """
import resource, signal, sys
from icssl._util import files
from icssl.app.cli import app

locked_file, made = files._make_locked_file, []

def fill_the_disk(path):
    found = locked_file(path)
    made.append(path)
    if path.name.startswith(sys.argv[1]):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    return found

files._make_locked_file = fill_the_disk
app(sys.argv[2:])
"""


def run_on_full_disk(first, *command):
    """A command for whose file ``first``, and from then on, there is no room."""
    return subprocess.run(
        [sys.executable, "-c", FULL_DISK, first, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
    )


def words_of(text):
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


needs_limits = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no limit on file sizes"
)


@needs_limits
@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
def test_c6_a_full_disk_is_told_with_the_file_and_leaves_no_table(tmp_path, suffix):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2)), ["a", "b"] + 28 * [""]
    table = tmp_path / f"table{suffix}"
    frame = pd.DataFrame(x, columns=["p", "q"]).assign(y=y)
    if suffix == ".npz":
        np.savez(table, x=x, y=np.array(y))
    elif suffix == ".csv":
        frame.to_csv(table, index=False)
    else:
        pytest.importorskip("pyarrow")
        frame.to_parquet(table)
    report, out = tmp_path / "page.html", tmp_path / f"out{suffix}"
    for first in (report, out):
        command = ["classify", table, "-t", "y", "-o", out, "--report", report]
        result = run_on_full_disk(first.name, *command)
        assert result.returncode == 2, result.stderr
        said = words_of(result.stderr).replace(" ", "")  # lines break within names
        assert f"{first}couldnotbewritten:" in said
        assert "Traceback" not in result.stderr
        assert [file.name for file in tmp_path.iterdir()] == [table.name]


@needs_limits
def test_c6_train_on_a_full_disk_is_one_sentence(tmp_path):
    command = ["train", "orig_icl", *toy("orig_icl"), "--no-tensorboard", "-o", tmp_path]
    result = run_on_full_disk("checkpoint.safetensors", *command)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "Stopped" in line]
    path = tmp_path / "checkpoint.safetensors"
    assert line.startswith(f"Stopped: {path} could not be written: ")
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_c6_ctrl_c_while_the_command_is_loading_is_no_traceback(tmp_path):
    """In place of a library that takes its time, one that the person interrupts."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    result = subprocess.run(
        [sys.executable, "-m", "icssl", "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "Stopped.\n")


def command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def loop(tmp_path):
    """Two links that lead to each other."""
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.symlink_to(other)
    other.symlink_to(one)
    return one


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right on Windows")
def test_c6_links_that_lead_in_a_circle_are_no_traceback(tmp_path, loop):
    table = tmp_path / "table.csv"
    table.write_text("x,z,y\n1,3,a\n2,4,b\n3,5,\n")
    result = command("classify", loop, "-t", "y")
    assert result.exit_code == 2
    assert "does not exist" in words_of(result.output)
    for path in (loop / "out.csv", loop / "deeper" / "out.csv"):
        result = command("classify", table, "-t", "y", "-o", path)
        assert result.exit_code == 2
        assert "is a link to nothing" in words_of(result.output)
    result = command("train", "orig_icl", "-o", loop)
    assert result.exit_code == 2
    assert "is a link to nothing" in words_of(result.output)


def test_c6_a_toml_file_that_is_nested_too_deeply_is_no_traceback(tmp_path):
    path = tmp_path / "deep.toml"
    path.write_text(f"steps = {'[' * 3000}{']' * 3000}")
    result = command("train", path, "-o", tmp_path / "run")
    assert result.exit_code == 2
    assert "is no TOML that can be read" in words_of(result.output)
    result = command("train", "orig_icl", f"steps={'[' * 3000}", "-o", tmp_path / "run")
    assert result.exit_code == 2
    assert "steps must be a whole number" in words_of(result.output)


@pytest.mark.parametrize("batch", [10**12, 10**18])
def test_c6_a_batch_that_does_not_fit_the_memory_is_no_traceback(tmp_path, batch):
    result = command("train", "e2e_icl", f"batch={batch}", "-o", tmp_path / "run")
    assert result.exit_code == 2
    assert f"batch={batch} episodes of data.n=100 points do not fit" in words_of(
        result.output
    )


COMMANDS = {
    "classify": ["classify", "--demo"],
    "train": ["train", "orig_icl", "-o", "run"],
    "evaluate": ["evaluate", "majority"],
    "reproduce": ["reproduce", "depth", "-o", "results"],
}


@pytest.mark.parametrize("given", COMMANDS.values(), ids=COMMANDS.keys())
def test_c6_the_device_meta_is_refused(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    result = command(*given, "--device", "meta")
    assert result.exit_code == 2
    assert "device 'meta' cannot be used here, 'cpu' always can" in words_of(result.output)


def test_c6_the_page_of_costs_is_escaped(tmp_path):
    store = Store(tmp_path / "rows.jsonl")
    odd = "<script>x</script> | a\n# b [c](d) `e` *f*"
    about = {"device": odd, "torch": odd, "version": "0.1", "commit": odd}
    append_line(runs_file(store), {"rows": 1, "seconds": 60.0, **about})
    page = cost_markdown(PROFILES["quick"], store)
    escaped = r"&lt;script&gt;x&lt;/script&gt; \| a # b \[c\](d) \`e\` \*f\*"
    assert f"| 1 | 1.0 | {escaped} | {escaped} | 0.1 | {escaped} |" in page
    assert f"1.0 minutes on {escaped}." in page
    assert "<script>" not in page


@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY\x01\x00"])
def test_b4_a_damaged_image_manifold_is_named_and_made_again(tmp_path, content):
    spec = ImageSpec(tmp_path, make=True)
    first = spec.draw(1, generator=torch.Generator().manual_seed(0))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=r"manifold-.*cannot be read.*Making it again"):
        again = spec.draw(1, generator=torch.Generator().manual_seed(0))
    assert torch.equal(first.x, again.x)
    assert path.read_bytes() == whole
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=f"{path.name} cannot be read"):
        ImageSpec(tmp_path).draw(1, generator=torch.Generator().manual_seed(0))
