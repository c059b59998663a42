import os

# Tensors here are small: a second thread only waits, and two processes of tests with two
# threads each stand in each other's way, most of all in SciPy's LAPACK, which reads this
# when it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

torch.set_num_threads(1)
threadpool_limits(1)  # of what is loaded already

# Any seed on demand: ICSSL_TEST_SEEDS="5,6,7" make test
SEEDS = [int(seed) for seed in os.environ.get("ICSSL_TEST_SEEDS", "0,1").split(",")]


@pytest.fixture(params=SEEDS)
def generator(request):
    torch.manual_seed(request.param)  # torch initialises modules from the global state
    return torch.Generator().manual_seed(request.param)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return request.param


def pytest_collection_modifyitems(config, items):
    """Skip what has the marker ``gpu`` where it cannot run."""
    if not torch.cuda.is_available():
        reason = "no GPU on this machine"
    elif config.getoption("jaxtyping_packages", None):
        # Checking shapes wraps every function, and Triton cannot compile a wrapped kernel.
        reason = "shapes are checked in this run: use make test-gpu"
    else:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder without features of CIFAR-10, and a home for the images of all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        patch.setenv("ICSSL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def small_chunks(monkeypatch):
    """Finite sets of episodes are made 256 at a time, of which these runs need four."""
    monkeypatch.setattr("icssl.episodes.stream.EPISODES_AT_ONCE", 4)


@pytest.fixture(scope="module")
def full_store(tmp_path_factory, elsewhere):
    """Every row of the paper's toy profile, each with an accuracy of its own."""
    from bench_helpers import TOY_PROFILE, made_up
    from icssl.bench.paper.catalogue import ARTEFACTS, all_specs
    from icssl.bench.store import Store

    store = Store(tmp_path_factory.mktemp("made-up") / "rows.jsonl")
    for number, spec in enumerate(all_specs(ARTEFACTS, TOY_PROFILE)):
        store.append(made_up(spec, number / 1000))
    return store


@pytest.fixture
def labelling():
    """Four rows, two of them without a label, one of these out of reach."""
    from icssl.app.labelling import Labelling
    from icssl.tables.label_table import LabelTable

    pd = pytest.importorskip("pandas")
    table = LabelTable(
        "four <rows>",
        pd.DataFrame({"size": [1.0, 2.0, 3.0, 4.0], "name": ["a", "<b>", "c", None]}),
        ["x", None, "y", None],
        {},
    )
    return Labelling(
        table,
        np.array(["x", "y"], dtype=object),
        np.array([0, -1, 1, -1]),
        np.array([[0.9, 0.1], [0.25, 0.75], [0.6, 0.4], [0.5, 0.5]]),
        np.arange(12.0).reshape(4, 3),
        np.array([1.0, 0.5, 1.0, 0.0]),
        (3, 1),
        "small",
    )
