"""Calls of one partition that were given up: counted while they run, and few."""

from contextlib import ExitStack, suppress

import pytest

from rlm.upkeep.ownership import HANGING_MAX, CallHangsError, HangingCalls


@pytest.fixture
def told() -> list[int]:
    return []


def test_a_call_that_hangs_counts_until_it_returns(told: list[int]) -> None:
    hanging = HangingCalls()
    with ExitStack() as calls:
        for _ in range(HANGING_MAX):
            hanging.check()
            hangs = calls.enter_context(hanging.watched(lambda: told.append(1)))
            hangs()
        assert len(told) == HANGING_MAX
        with pytest.raises(CallHangsError, match="2 calls of the plugin hang"):
            hanging.check()
    hanging.check()


def test_a_call_that_is_told_twice_counts_once(told: list[int]) -> None:
    hanging = HangingCalls()
    with hanging.watched(lambda: told.append(1)) as hangs:
        hangs()
        hangs()
        hanging.check()
    assert told == [1]


def test_a_call_that_has_returned_hangs_no_more(told: list[int]) -> None:
    hanging = HangingCalls()
    for _ in range(HANGING_MAX + 1):
        with hanging.watched(lambda: told.append(1)) as hangs:
            pass
        hangs()
    hanging.check()
    assert told == []


def test_a_call_that_fails_has_returned(told: list[int]) -> None:
    hanging = HangingCalls()
    for _ in range(HANGING_MAX + 1):
        with suppress(ValueError), hanging.watched(lambda: told.append(1)) as hangs:
            hangs()
            raise ValueError("the store")
    hanging.check()
