"""A clean stop: the plugins are closed when nobody reads the store any more."""

import pytest

from rlm.link.messages import Ack, AuxiliaryState, Read, Stop
from rlm.service import CLOSE_WAIT_MS, REPORT_MS
from rlm.workers import READER_POOL
from tests.support.tier.pair import NAMES, Pair


def read(pair: Pair, offset: int) -> Read:
    return Read(
        *NAMES,
        pair.log.leader_epoch,
        offset=offset,
        offset_epoch=1,
        epoch_end=pair.log.end,
        max_bytes=1_000,
        min_one_batch=True,
        read_committed=False,
        wait_ms=60_000,
        holder="one",
    )


@pytest.fixture
def begun(pair: Pair) -> int:
    """Calls of the storage plugin that had begun before the test."""
    return len(pair.storage.calls)


@pytest.mark.parametrize(
    "question",
    [
        lambda pair: read(pair, 0),
        lambda pair: AuxiliaryState(*NAMES, pair.log.leader_epoch, epoch=1, offset=30),
    ],
    ids=["a client's read", "a follower's question"],
)
def test_plugins_are_closed_after_the_last_reader(pair: Pair, begun: int, question: object) -> None:
    pair.workers.held.add(READER_POOL)  # a thread has the job, and the store is slow
    pair.broker.ask(question(pair))  # type: ignore[operator]
    pair.pump()
    stopped = pair.broker.ask(Stop())
    pair.pump()
    pair.scheduler.advance(CLOSE_WAIT_MS - 100)
    pair.pump()
    assert (pair.storage.closed_after, stopped.done()) == ([], False)
    assert len(pair.storage.calls) == begun
    pair.workers.held.clear()
    for _ in range(10):
        pair.pump()
        pair.scheduler.advance(20)
    pair.pump()
    assert stopped.result(0).message == Ack()
    assert len(pair.storage.calls) > begun
    assert pair.storage.closed_after == [len(pair.storage.calls)]
    assert pair.ended


def test_no_read_of_the_store_begins_after_a_stop(pair: Pair, begun: int) -> None:
    assert pair.ask(Stop()).message == Ack()
    answer = pair.broker.ask(read(pair, 0))
    other = pair.broker.ask(AuxiliaryState(*NAMES, pair.log.leader_epoch, epoch=1, offset=30))
    for _ in range(10):
        pair.pump()
        pair.scheduler.advance(100)
    assert not answer.done(), "it waits until its time is up"
    assert isinstance(other.exception(0), Exception)
    assert pair.storage.closed_after == [begun]
    assert len(pair.storage.calls) == begun


def test_a_read_that_hangs_does_not_hold_a_stop_for_ever(pair: Pair, begun: int) -> None:
    ran = pair.workers.run
    hung: list[object] = []

    def run(name: str, job: object, done: object) -> None:
        if name == READER_POOL and not hung:
            hung.append(job)  # a thread has taken it, and it never returns
        else:
            ran(name, job, done)  # type: ignore[arg-type]

    pair.workers.run = run  # type: ignore[method-assign,assignment]
    pair.broker.ask(read(pair, 0))
    pair.pump()
    assert hung
    stopped = pair.broker.ask(Stop())
    pair.pump()
    assert not stopped.done()
    pair.scheduler.advance(CLOSE_WAIT_MS + 100)
    pair.pump()
    assert stopped.result(0).message == Ack()
    assert pair.storage.closed_after == [begun]
    assert len(pair.storage.calls) == begun


def test_a_metadata_manager_that_has_failed_ends_the_tier(pair: Pair) -> None:
    pair.metadata.ended = "its thread has ended"
    pair.scheduler.advance(REPORT_MS)
    assert pair.aborted == ["the metadata manager has failed: its thread has ended"]


def test_a_metadata_manager_that_is_being_closed_has_not_failed(pair: Pair) -> None:
    """The tier would end before the manager's cache is written out."""
    pair.workers.held.add(READER_POOL)  # closing takes its time
    stopped = pair.broker.ask(Stop())
    pair.pump()
    pair.metadata.ended = "closed"
    pair.scheduler.advance(REPORT_MS)
    assert (pair.aborted, stopped.done()) == ([], False)
    pair.workers.held.clear()
    pair.pump()
    assert stopped.result(0).message == Ack()
