import gc
from collections.abc import Iterator

import pytest

from runtime.collector import resting_collector


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_the_collector_rests_until_the_last_of_overlapping_blocks_ends() -> None:
    first, second = resting_collector(), resting_collector()
    with first:
        second.__enter__()
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_an_error_wakes_it() -> None:
    with pytest.raises(ValueError, match="x"), resting_collector():
        raise ValueError("x")
    assert gc.isenabled()


def test_a_collector_that_others_keep_from_running_is_left_so() -> None:
    gc.disable()
    with resting_collector():
        assert not gc.isenabled()
    assert not gc.isenabled()
