"""Keys of committed rows: they are found by today's specs, whatever is renamed or moved.

A key is a hash of everything that decides a row. One that changes loses hours of work, so
what is committed is frozen here, together with the specs of the quick profile.
"""

import hashlib
from collections import Counter
from pathlib import Path

import pytest

from icssl.bench.paper.artefact import PROFILES
from icssl.bench.paper.catalogue import ARTEFACTS
from icssl.bench.real.datasets import DRAWS, FEWER_DRAWS, PER_CLASS
from icssl.bench.real.scores import RealSpec
from icssl.bench.scale.cost import ScaleSpec
from icssl.bench.store import Store
from icssl.methods.registry import names_in

ROOT = Path(__file__).parents[1]

# Artefacts that are added later have new keys; these had theirs when rows were committed.
FROZEN = {
    "quick": {
        "id-ood": (504, "2f6cc22a669efd0c"),
        "label-curves": (560, "509b4d167fd7fffa"),
        "ablation": (15, "196e331f5ccec6f0"),
        "depth": (24, "6a92edfeadcdd9a8"),
        "image-transfer": (92, "1a9888e7f18fc869"),
        "imagenet": (32, "691276535c778dba"),
        "alignment": (3, "0b2eaac5d867323f"),
        "mechanism": (2, "1ed73d5a26960d37"),
    },
    "full": {
        "id-ood": (504, "17b77a4da5b7107c"),
        "label-curves": (1266, "eb2e97d5965bff7c"),
        "ablation": (35, "40127067a5357486"),
        "depth": (56, "cf3211bd3337a8ec"),
        "image-transfer": (92, "fc7b37a3c1b1a7ee"),
        "imagenet": (96, "799181a76349b78d"),
        "alignment": (3, "30bbbfcabe6b6bf1"),
        "mechanism": (2, "2cfdb52d324716a2"),
    },
}


def protocol_of(row):
    """Rows of the first protocol are older than the second and do not name it."""
    return row["spec"].get("protocol", PER_CLASS)


def committed(name):
    return Store(ROOT / "results" / name / "rows.jsonl")


@pytest.mark.parametrize("profile", FROZEN)
def test_specs_of_the_paper_have_the_keys_that_they_had(profile):
    for name, (count, digest) in FROZEN[profile].items():
        keys = sorted({s.key for s in ARTEFACTS[name].specs(PROFILES[profile]).values()})
        assert len(keys) == count, name
        assert hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16] == digest, name


def test_every_spec_of_the_full_profile_has_its_committed_row():
    store = committed("full")
    wanted = {
        spec.key
        for name in FROZEN["full"]
        for spec in ARTEFACTS[name].specs(PROFILES["full"]).values()
    }
    assert len(wanted) == 1886
    assert all(key in store for key in wanted)
    assert len(store) >= 2027  # others are of training schedules that were given up


def test_committed_rows_of_real_tables_are_found_by_their_specs():
    store = committed("real")
    names = ("set", "labels", "draw", "method", "data")
    for row in store:
        values = {name: row["spec"][name] for name in names}
        spec = RealSpec(**values, protocol=protocol_of(row))
        assert spec.describe() == row["spec"]
        assert spec.key == row["key"]
    counts = Counter((row["spec"]["method"], protocol_of(row)) for row in store)
    # 19 sets and 4 label counts of so many draws.
    wanted = {
        (method, protocol): 76 * FEWER_DRAWS.get(method, draws)
        for protocol, draws in DRAWS.items()
        for method in names_in("real")
    }
    assert counts == wanted


def test_committed_rows_by_size_are_found_by_their_specs(monkeypatch):
    store = committed("scale")
    names = ("data", "rows", "labels", "draw", "method", "device", "threads")
    for row in store:
        values = {name: row["spec"][name] for name in names}
        digest = row["spec"].get("digest")
        if digest:  # the file itself is not committed
            monkeypatch.setattr("icssl.bench.scale.cost._digest", lambda _, d=digest: d)
        weights = row["spec"].get("weights")
        if weights:  # rows of older weights stay, under keys of their own
            monkeypatch.setattr("icssl.methods.peers.weights_id", lambda w=weights: w)
        spec = ScaleSpec(**values)
        assert spec.describe() == row["spec"]
        assert spec.key == row["key"]
    assert len(store) == 104
