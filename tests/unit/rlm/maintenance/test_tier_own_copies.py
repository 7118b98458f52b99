"""Which copies a tier runs: right at every moment, although two threads ask and say it."""

from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from rlm.maintenance.ownership import HANGING_MAX, CallHangsError, HangingCalls, OwnCopies

COPY = b"c" * 16


class Interrupted(set[bytes]):
    """Gives another thread its turn after each of the steps that are named."""

    def __init__(self, steps: set[str], turn: Callable[[], None]) -> None:
        super().__init__()
        self._steps, self._turn = steps, turn

    def _after(self, step: str) -> None:
        if step in self._steps:
            self._turn()

    def add(self, element: bytes) -> None:
        super().add(element)
        self._after("add")

    def discard(self, element: bytes) -> None:
        super().discard(element)
        self._after("discard")

    def remove(self, element: bytes) -> None:
        super().remove(element)
        self._after("discard")

    def copy(self) -> set[bytes]:
        copied = set(self)
        self._after("copy")
        return copied


def running(steps: set[str], turn: Callable[[], None]) -> OwnCopies:
    """One copy runs, and a look has begun."""
    copies = OwnCopies()
    copies._running, copies._ended = Interrupted(steps, turn), Interrupted(steps, turn)
    set.add(copies._running, COPY)
    copies.look()
    return copies


def test_a_copy_that_ends_is_seen_at_each_step_of_its_end() -> None:
    seen: list[frozenset[bytes]] = []
    copies = running({"add", "discard"}, lambda: seen.append(copies.seen()))
    copies.end(COPY)
    assert seen == [{COPY}, {COPY}]


@pytest.mark.parametrize("step", [1, 2])
def test_a_copy_that_ends_in_the_middle_of_a_look_is_seen(step: int) -> None:
    steps: list[int] = []

    def turn() -> None:
        steps.append(len(steps) + 1)
        if len(steps) == step:
            copies.end(COPY)

    copies = running({"copy"}, turn)
    assert copies.seen() == {COPY}


def test_a_copy_that_ended_before_a_look_is_not_seen() -> None:
    copies = OwnCopies()
    copies.begin(COPY)
    copies.end(COPY)
    assert copies.seen() == {COPY}
    copies.look()
    assert copies.seen() == frozenset()


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
