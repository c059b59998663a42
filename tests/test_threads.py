"""Small work runs on one thread, and what the user has set is restored after it."""

import threading

import pytest
import torch
from threadpoolctl import ThreadpoolController

from icssl import ICSSLClassifier
from icssl._util import threads
from icssl._util.threads import allowed_threads, map_in_threads, one_thread
from icssl.classifier import model as model_file


def thread_counts():
    """Threads of torch, and of every BLAS that this process has loaded."""
    libraries = ThreadpoolController().select(user_api="blas").info()
    return torch.get_num_threads(), [library["num_threads"] for library in libraries]


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    threads._controller.cache_clear()  # other tests may have loaded another BLAS since
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        yield
    torch.set_num_threads(before)


def test_one_thread_within_the_block_and_two_after_it(two_threads):
    before = thread_counts()
    assert before[0] == 2
    with one_thread():
        count, of_blas = thread_counts()
        assert count == 1
        assert of_blas
        assert set(of_blas) == {1}
        assert allowed_threads() == 2
        with one_thread():
            assert thread_counts()[0] == 1
        assert thread_counts()[0] == 1  # the outer block has not ended
    assert thread_counts() == before
    with one_thread(when=False):
        assert thread_counts() == before


def test_an_error_restores_the_threads(two_threads):
    before = thread_counts()
    with pytest.raises(RuntimeError, match="within"), one_thread():
        raise RuntimeError("within")
    assert thread_counts() == before


def test_blocks_of_two_threads_that_overlap_restore_what_was_before(two_threads):
    """The first to enter leaves first, while the other is still inside."""
    before = thread_counts()
    second_is_in, first_is_out = threading.Event(), threading.Event()
    after = []

    def enter_second():
        with one_thread():
            second_is_in.set()
            first_is_out.wait(10)
        after.append(torch.get_num_threads())

    with one_thread():
        other = threading.Thread(target=enter_second)
        other.start()
        assert second_is_in.wait(10)
    first_is_out.set()
    other.join()
    assert after == [2]
    assert thread_counts() == before


def test_items_are_mapped_in_order_on_several_threads(two_threads):
    both = threading.Barrier(2, timeout=10)  # passed only if two run at once

    def square(item):
        both.wait()
        return item**2, torch.get_num_threads(), threading.get_ident()

    squares, counts, idents = zip(*map_in_threads(square, [1, 2, 3, 4]), strict=True)
    assert squares == (1, 4, 9, 16)
    assert set(counts) == {1}
    assert len(set(idents)) == 2
    here = threading.get_ident()
    assert map_in_threads(lambda _: threading.get_ident(), [0, 1], most=1) == [here] * 2


def test_a_small_table_is_fitted_and_predicted_on_one_thread(two_threads, monkeypatch):
    seen = []
    fit_features = model_file.ContextModel.fit_features

    def watch(*args, **options):
        seen.append(thread_counts())
        return fit_features(*args, **options)

    monkeypatch.setattr(model_file.ContextModel, "fit_features", watch)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).numpy()
    y = [0, 1] + 38 * [-1]
    before = thread_counts()
    ICSSLClassifier().fit(x, y).predict(x)
    assert {count for count, _ in seen} == {1}
    assert thread_counts() == before
    with pytest.raises(ValueError, match="inconsistent"):
        ICSSLClassifier().fit(x, y[:-1])
    assert thread_counts() == before
