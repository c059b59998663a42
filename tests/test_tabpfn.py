"""TabPFN v1 as a peer: its limits, what it leaves behind, and how it is fetched."""

import hashlib
import importlib.util
import io
import sys
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA

pytest.importorskip("pandas")

import pandas as pd

from icssl.methods import tabpfn
from icssl.methods.peers import Context, as_numbers
from icssl.methods.registry import choose_methods
from icssl.methods.tabpfn import TabPFN

SCRIPT = Path(__file__).parents[1] / "scripts" / "fetch_tabpfn.py"


class NearestMean:
    """Stand in for TabPFN's classifier, with its signature and its bad habits."""

    calls: ClassVar[list[int]] = []

    def __init__(self, N_ensemble_configurations, seed):
        self.calls.append(N_ensemble_configurations)
        torch.manual_seed(seed)

    def fit(self, x, y):
        self.means = np.stack([x[y == c].mean(axis=0) for c in np.unique(y)])

    def predict_proba(self, x, normalize_with_test):
        warnings.simplefilter("default")
        distance = np.square(x[:, None] - self.means).sum(axis=-1)
        p = np.exp(-distance)
        return p / p.sum(axis=1, keepdims=True)


@pytest.fixture
def stand_in(monkeypatch):
    class Interface:
        TabPFNClassifier = NearestMean

    NearestMean.calls = []
    monkeypatch.setattr(tabpfn, "_interface", lambda folder: Interface)
    return NearestMean


def context_of(classes, columns=2, per_class=6, labels=2):
    rng = np.random.default_rng(0)
    y = np.arange(classes * per_class) % classes
    angle = 2 * np.pi * y / classes
    x = np.zeros((len(y), columns))
    x[:, 0], x[:, 1] = 9 * np.cos(angle), 9 * np.sin(angle)
    x += rng.normal(scale=0.05, size=x.shape)
    labelled = np.arange(len(y)) < labels * classes
    return Context(pd.DataFrame(x), y, labelled, classes)


def test_more_than_ten_classes_are_one_against_the_rest(stand_in):
    for classes, calls in ((10, [3]), (11, [2] * 11)):
        context = context_of(classes)
        stand_in.calls.clear()
        found = TabPFN(configurations=3)(context, seed=0)
        assert stand_in.calls == calls
        assert found.shape == (len(context.y), classes)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-10)


def test_more_than_a_hundred_columns_become_principal_components(stand_in, monkeypatch):
    seen = []
    fit = stand_in.fit
    monkeypatch.setattr(
        stand_in, "fit", lambda self, x, y: (seen.append(x), fit(self, x, y))
    )
    context = context_of(3, columns=120, per_class=50)
    TabPFN(components=7)(context, seed=0)
    x = as_numbers(context.table)
    wanted = PCA(n_components=7).fit_transform(x)[context.labelled]
    # Components have no sign; products of rows do not depend on it.
    np.testing.assert_allclose(seen[0] @ seen[0].T, wanted @ wanted.T, rtol=1e-6, atol=1e-6)
    narrow = context_of(3, columns=100)
    TabPFN()(narrow, seed=0)
    np.testing.assert_array_equal(seen[1], as_numbers(narrow.table)[narrow.labelled])


def test_generator_and_filters_are_as_before(stand_in):
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    filters = list(warnings.filters)
    TabPFN()(context_of(3), seed=0)
    assert warnings.filters == filters
    torch.testing.assert_close(torch.rand(3), wanted, rtol=0, atol=0)


def test_too_many_labels_are_refused(stand_in):
    context = context_of(2, per_class=600, labels=501)
    with pytest.raises(ValueError, match="1000 labelled rows at most, got 1002"):
        TabPFN()(context, seed=0)


def test_without_the_folder_it_is_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv(tabpfn.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"not in .*fetch_tabpfn.py"):
        TabPFN()(context_of(2), seed=0)
    with pytest.raises(ImportError, match=r"tabpfn needs TabPFN v1: .*fetch_tabpfn.py"):
        choose_methods("real", ["tabpfn"])


@pytest.mark.skipif(not tabpfn.has_tabpfn(), reason="TabPFN v1 was not fetched")
def test_the_real_one_knows_irises():
    x, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    labelled = np.zeros(len(y), dtype=bool)
    for c in range(3):
        labelled[rng.choice(np.flatnonzero(y == c), 10, replace=False)] = True
    context = Context(pd.DataFrame(x), y, labelled, 3)
    path = list(sys.path)
    found = TabPFN(configurations=2)(context, seed=1)
    assert sys.path == path
    assert (found.argmax(axis=1) == y)[~labelled].mean() > 0.9
    again = TabPFN(configurations=2)(context, seed=1)
    np.testing.assert_array_equal(found, again)


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("fetch_tabpfn", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def archives_of(script, folder, monkeypatch):
    """Small archives with what the script looks for, under the names of the real ones."""
    wheel, source = (folder / file for file, _ in script.ARCHIVES.values())
    with zipfile.ZipFile(wheel, "w") as archive:
        for module in script.MODULES:
            old = "\n".join(old for old, _ in script.CHANGES.get(module, ()))
            archive.writestr(f"tabpfn/{module}", f"{old}\nfrom tabpfn.utils import NOP\n")
    with tarfile.open(source, "w:gz") as archive:
        entry = tarfile.TarInfo(f"pfns-0.3.0/{script.WEIGHTS}")
        entry.size = 7
        archive.addfile(entry, io.BytesIO(b"weights"))
    digests = {
        name: (path.name, hashlib.sha256(path.read_bytes()).hexdigest())
        for name, path in (("tabpfn", wheel), ("pfns", source))
    }
    monkeypatch.setattr(script, "ARCHIVES", digests)
    return ["--tabpfn", str(wheel), "--pfns", str(source)]


def test_the_script_unpacks_what_is_needed(script, tmp_path, monkeypatch, capsys):
    given = archives_of(script, tmp_path, monkeypatch)
    folder = tmp_path / "own"
    monkeypatch.setattr(sys, "argv", ["fetch_tabpfn.py", str(folder), *given])
    script.main()
    assert str(folder) in capsys.readouterr().out
    monkeypatch.setenv(tabpfn.FOLDER_VARIABLE, str(folder))
    assert tabpfn.has_tabpfn()
    package = folder / "tabpfn_v1"
    assert (package / script.WEIGHTS).read_bytes() == b"weights"
    text = (package / script.INTERFACE).read_text()
    assert "ensure_all_finite" in text
    assert "from tabpfn_v1.utils import NOP" in text
    assert "weights_only=True" in (package / "scripts" / "model_builder.py").read_text()


def test_the_script_refuses_another_archive(script, tmp_path, monkeypatch):
    given = archives_of(script, tmp_path, monkeypatch)
    with (tmp_path / script.ARCHIVES["pfns"][0]).open("ab") as file:
        file.write(b"more")
    monkeypatch.setattr(sys, "argv", ["fetch_tabpfn.py", str(tmp_path / "own"), *given])
    with pytest.raises(SystemExit, match=r"is not pfns-0.3.0.tar.gz: its sha256"):
        script.main()
    assert not (tmp_path / "own").exists()
