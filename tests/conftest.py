import os

import pytest
import torch

torch.set_num_threads(1)  # tensors here are small: a second thread only waits

# Any seed on demand: ICSSL_TEST_SEEDS="5,6,7" make test
SEEDS = [int(seed) for seed in os.environ.get("ICSSL_TEST_SEEDS", "0,1").split(",")]


@pytest.fixture(params=SEEDS)
def generator(request):
    torch.manual_seed(request.param)  # torch initialises modules from the global state
    return torch.Generator().manual_seed(request.param)


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU on this machine")
    return request.param
