import os

# Tensors here are small: a second thread only waits, and two processes of tests with two
# threads each stand in each other's way, most of all in SciPy's LAPACK, which reads this
# when it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

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
