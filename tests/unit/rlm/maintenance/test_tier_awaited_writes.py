"""A pass waits until its write is read back; one of unknown outcome ends the ownership."""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import pytest

from rlmm.api import Fence, MetadataRefusedError
from rlmm.memory import Fault
from rsm_plugins.testing import Operation
from tests.support.tier.pair import Pair


class Landing(Future[None]):
    """A write that is read back when its writer waits for it, and not before."""

    def __init__(self, read_back: Callable[[], None]) -> None:
        super().__init__()
        self._read_back = read_back

    def result(self, timeout: float | None = None) -> None:
        del timeout
        self._read_back()


def refuse() -> None:
    raise MetadataRefusedError("a newer owner is there")


def never_say() -> None:
    raise FutureTimeoutError


class Writes:
    """Puts `Landing` in place of the futures of a metadata manager's call.

    Attributes:
        waited: for each write that was waited for, how many store calls had begun before.
        fail: raises in place of the write.
    """

    def __init__(self, pair: Pair, call: str, operation: Operation) -> None:
        self.fail: Callable[[], None] | None = None
        self.waited: list[int] = []
        self._begun = pair.calls(operation)
        write: Callable[..., Future[None]] = getattr(pair.metadata, call)

        def landing(*arguments: Any) -> Landing:
            def read_back() -> None:
                self.waited.append(pair.calls(operation) - self._begun)
                if self.fail is not None:
                    self.fail()
                write(*arguments).result(0)

            return Landing(read_back)

        setattr(pair.metadata, call, landing)


def next_pass(pair: Pair) -> None:
    pair.scheduler.advance(31_000)
    pair.pump()


def test_nothing_is_deleted_before_the_start_of_its_deletion_is_read_back(pair: Pair) -> None:
    writes = Writes(pair, "update", Operation.DELETE)
    pair.log.delete_records(40)
    next_pass(pair)
    assert writes.waited == [0, 1]
    assert pair.calls(Operation.DELETE) == 2


def test_nothing_is_put_before_the_start_of_its_copy_is_read_back(pair: Pair) -> None:
    before = pair.calls(Operation.COPY)
    writes = Writes(pair, "add", Operation.COPY)
    pair.log.fill(2)
    next_pass(pair)
    assert writes.waited == [0, 1]
    assert pair.calls(Operation.COPY) == before + 2


@pytest.mark.parametrize("fail", [refuse, never_say])
def test_nothing_is_deleted_before_its_deletion_start_is_read_back(
    pair: Pair, fail: Callable[[], None]
) -> None:
    """The owner after this one may continue serving the segment."""
    writes = Writes(pair, "update", Operation.DELETE)
    writes.fail = fail
    pair.log.delete_records(40)
    next_pass(pair)
    assert set(writes.waited) == {0}
    assert pair.calls(Operation.DELETE) == 0


@pytest.mark.parametrize("fail", [refuse, never_say])
def test_nothing_is_put_whose_start_is_refused_or_never_read_back(
    pair: Pair, fail: Callable[[], None]
) -> None:
    before = pair.calls(Operation.COPY)
    writes = Writes(pair, "add", Operation.COPY)
    writes.fail = fail
    pair.log.fill(2)
    next_pass(pair)
    assert set(writes.waited) == {0}
    assert pair.calls(Operation.COPY) == before


def owned_under(pair: Pair) -> list[Fence]:
    """Fences of all barriers from now on."""
    fences, own = list[Fence](), pair.metadata.own

    def noted(partition: Any, fence: Fence, *more: int) -> Future[None]:
        fences.append(fence)
        return own(partition, fence, *more)

    pair.metadata.own = noted  # type: ignore[method-assign, assignment]
    return fences


@pytest.mark.parametrize("lands", [False, True])
def test_after_a_write_of_unknown_outcome_the_next_incarnation_is_higher(
    pair: Pair, lands: bool
) -> None:
    """Else the write may land behind the barrier, and be taken."""
    before = pair.metadata.log[-1][0].stamp.fence
    fences = owned_under(pair)
    pair.metadata.faults.append(Fault(lands))
    pair.log.fill(1)
    next_pass(pair)
    next_pass(pair)
    assert len(fences) == 1
    assert before < fences[0]
    assert pair.log.copied == 62


@pytest.mark.parametrize("lands", [False, True])
def test_after_a_barrier_of_unknown_outcome_the_incarnation_is_higher(
    pair: Pair, lands: bool
) -> None:
    fences = owned_under(pair)
    pair.metadata.faults.append(Fault(lands))
    pair.log.new_epoch()
    pair.assign()
    next_pass(pair)
    assert len(fences) == 2
    assert fences[0] < fences[1]
    assert pair.log.copied == 59


def test_after_a_write_never_read_back_the_next_incarnation_is_higher(
    pair: Pair,
) -> None:
    before = pair.metadata.log[-1][0].stamp.fence
    fences = owned_under(pair)
    writes = Writes(pair, "add", Operation.COPY)
    writes.fail = never_say
    pair.log.fill(1)
    next_pass(pair)
    writes.fail = None
    next_pass(pair)
    assert [before, *fences] == sorted({before, *fences})
    assert fences
    assert pair.log.copied == 62
