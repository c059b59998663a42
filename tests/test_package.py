"""What an editor and a person at a prompt find: names, types, progress, Ctrl-C."""

import io
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

import icssl
from icssl import ICSSLClassifier
from icssl._util.progress import showing

ROOT = Path(__file__).parents[1]


def test_tab_completion_offers_the_public_names_and_nothing_else():
    shown = [name for name in dir(icssl) if not name.startswith("_")]
    assert shown == sorted(name for name in icssl.__all__ if not name.startswith("_"))
    assert {"ICSSLClassifier", "read_table"} <= set(shown)


def test_the_package_says_that_it_has_types():
    package = Path(icssl.__file__).parent
    assert (package / "py.typed").exists()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/icssl"]}  # every file of the package is in it


def labelled_iris():
    X, truth = load_iris(return_X_y=True)
    y = np.full(150, -1)
    y[::25] = truth[::25]
    return X, y


def test_fit_tells_how_far_it_is():
    seen = []
    with showing(lambda done, total, text: seen.append((done, total, text))):
        classifier = ICSSLClassifier().fit(*labelled_iris())
    first, *_, last = seen
    assert first[0] == 0
    assert last[0] == last[1] == first[1] > 1
    assert {text for *_, text in seen} == {"graphs of the rows"}
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    seen.clear()
    with showing(lambda done, total, text: seen.append((done, total, text))):
        assert classifier.label_score_.rows == 6
    assert seen[-1] == (6, 6, "predictions of hidden labels")
    assert {text for *_, text in seen} == {"predictions of hidden labels"}


@pytest.mark.parametrize("verbose", [False, True])
def test_verbose_shows_a_bar_and_nothing_else_changes(verbose, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich draws no bar where nobody sees it
    written = io.StringIO()
    with redirect_stderr(written):
        classifier = ICSSLClassifier(verbose=verbose).fit(*labelled_iris())
    assert ("graphs of the rows" in written.getvalue()) == verbose
    quiet = ICSSLClassifier().fit(*labelled_iris())
    np.testing.assert_array_equal(
        classifier.label_distributions_, quiet.label_distributions_
    )


def run_interrupted(folder, *arguments):
    """Run ``interrupted.py`` of a folder, and fail where nothing ends it."""
    return subprocess.run(
        [sys.executable, "-m", "interrupted", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_ctrl_c_while_the_command_is_loading_ends_with_its_code_and_a_word(tmp_path):
    # CPython remembers an interrupt inside exec(), which imports of data classes run: then
    # "python -m" used to end by the signal, without a word.
    (tmp_path / "interrupted.py").write_text(
        "import sys, types\n"
        "cli = sys.modules['icssl.app.cli'] = types.ModuleType('icssl.app.cli')\n"
        "cli.app = lambda **_: exec('raise KeyboardInterrupt')\n"
        "from icssl.__main__ import main\n"
        "main()\n"
    )
    ended = run_interrupted(tmp_path)
    assert ended.returncode == 130, ended.stderr
    # Lines before it are warnings of what is loaded, if there are any.
    assert ended.stderr.splitlines()[-1:] == ["Stopped."]
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C otherwise")
@pytest.mark.parametrize("moment", ["fit", "label_score_"])
def test_ctrl_c_is_answered_in_a_word_and_leaves_no_file(tmp_path, moment):
    pytest.importorskip("pandas")
    (tmp_path / "a.csv").write_text("u,y\n1,a\n2,b\n3,\n4,a\n5,b\n6,\n")
    # The signal is sent by the work itself, so that it comes at the same moment everywhere.
    (tmp_path / "interrupted.py").write_text(
        "import os, signal, time\n"
        "from icssl import ICSSLClassifier\n"
        "def interrupt(self, *args):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(60)\n"
        # Where a shell runs the tests in the background, Ctrl-C is ignored from the start.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"name = {moment!r}\n"
        "kind = property if name.endswith('_') else lambda method: method\n"
        "setattr(ICSSLClassifier, name, kind(interrupt))\n"
        "from icssl.__main__ import main\n"
        "main()\n"
    )
    ended = run_interrupted(tmp_path, "classify", "a.csv", "--score")
    said = ended.stdout + ended.stderr
    assert ended.returncode == 130, said
    assert "Stopped" in said
    assert "Traceback" not in said
    files = {file.name for file in tmp_path.iterdir() if file.is_file()}
    assert files == {"a.csv", "interrupted.py"}


def test_new_rows_of_another_width_are_refused_by_the_estimators_name():
    classifier = ICSSLClassifier().fit(*labelled_iris())
    with pytest.raises(ValueError, match="ICSSLClassifier is expecting 4 features"):
        classifier.predict(np.ones((2, 5)))


def test_equal_names_in_a_data_frame_are_refused_in_words():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.ones((3, 3)), columns=["a", "b", "a"])
    with pytest.raises(ValueError, match="X has several columns called 'a'"):
        ICSSLClassifier().fit(frame, [0, 1, -1])
