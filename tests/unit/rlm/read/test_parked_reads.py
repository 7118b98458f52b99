"""Parked reads look again when they can continue, and not before, however many they are."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from rlm.link.endpoint import Received
from rlm.link.messages import OffsetForTimestamp, ReadAnswer, Released, TimestampAnswer
from rlm.maintenance.claim import ClaimState
from rlm.read.wait_queue import CALLS_MAX
from rlm.workers import READER_POOL
from tests.support.tier.claiming import start
from tests.support.tier.log_in_memory import PARTITION
from tests.support.tier.pair import NAMES, Pair, bytes_of, error_of, tokens_of

PARKED = 1_000
LATE_MS = 30_000
SEGMENTS = 8
RECORDS_EACH = 20


class Looks:
    """Counts how often somebody looks whether a partition can be read."""

    def __init__(self, pair: Pair) -> None:
        self.count, self._is_readable = 0, pair.metadata.is_ready
        pair.metadata.is_ready = self  # type: ignore[method-assign,assignment]

    def __call__(self, partition: object) -> bool:
        self.count += 1
        return self._is_readable(partition)  # type: ignore[arg-type]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    pair = Pair(tmp_path, reader_threads=2, reader_pending_max=0)
    pair.log.fill(SEGMENTS, records=RECORDS_EACH)
    return pair


def park(pair: Pair, offset: Callable[[int], int]) -> "list[Future[Received]]":
    parked = [pair.ask_to_read(offset(n), 100, LATE_MS) for n in range(PARKED)]
    pair.pump()
    assert not any(each.done() for each in parked)
    return parked


def pass_time(pair: Pair, milliseconds: int) -> None:
    for _ in range(0, milliseconds, 10):
        pair.scheduler.advance(10)
        pair.pump()


def unvalidated(pair: Pair) -> None:
    """Copied, then led under a new epoch, whose validation waits for a thread."""
    pair.assign()
    pair.log.new_epoch()
    pair.workers.held.add("rlm-validation")
    pair.assign()


def test_a_thousand_reads_of_unknown_segments_cost_nothing_while_parked(
    pair: Pair,
) -> None:
    unvalidated(pair)
    parked = park(pair, lambda number: number % RECORDS_EACH)
    looks = Looks(pair)
    pass_time(pair, 500)
    assert looks.count <= 2, "the tier's own look for its health"
    pair.workers.held.clear()
    pair.pump()
    pass_time(pair, 20)
    assert all(bytes_of(each.result(0)) for each in parked)
    assert looks.count < 3 * PARKED


@pytest.mark.parametrize("hold_back", ["index", "chunk"])
def test_a_thousand_reads_of_one_chunk_leave_turns_to_others(pair: Pair, hold_back: str) -> None:
    pair.assign()
    if hold_back == "chunk":
        assert bytes_of(pair.read(RECORDS_EACH - 1))  # the index is here from now on
    pair.workers.held.add(READER_POOL)
    park(pair, lambda number: 0)
    looks = Looks(pair)
    pair.workers.held.clear()
    pair.pump()
    assert looks.count <= 2 * CALLS_MAX
    pass_time(pair, 10)
    assert looks.count >= PARKED


def test_a_look_up_of_a_time_waits_in_the_same_way(pair: Pair) -> None:
    unvalidated(pair)
    question = OffsetForTimestamp(
        *NAMES,
        pair.log.leader_epoch,
        timestamp_ms=0,
        log_start_offset=0,
        chain=[tuple(entry) for entry in pair.log.chain],
        wait_ms=LATE_MS,
    )
    asked = pair.broker.ask(question)
    pair.pump()
    looks = Looks(pair)
    pass_time(pair, 500)
    assert looks.count <= 2
    pair.workers.held.clear()
    pair.pump()
    answer = asked.result(0).message
    assert isinstance(answer, TimestampAnswer)
    assert (answer.error, answer.offset) == (ErrorCode.NONE, 0)


def test_what_is_answered_has_no_timer_that_keeps_it(pair: Pair) -> None:
    """A look-up may wait for half a minute, and thousands come in a second."""
    pair.assign()
    before = pair.scheduler.waiting
    question = OffsetForTimestamp(
        *NAMES,
        pair.log.leader_epoch,
        timestamp_ms=0,
        log_start_offset=0,
        chain=[tuple(entry) for entry in pair.log.chain],
        wait_ms=LATE_MS,
    )
    assert isinstance(pair.ask(question).message, TimestampAnswer)
    assert pair.scheduler.waiting == before
    pair.workers.held.add(READER_POOL)
    parked = pair.ask_to_read(RECORDS_EACH, wait_ms=LATE_MS)
    pair.pump()
    assert pair.scheduler.waiting == before + 1
    pair.workers.held.clear()
    pair.pump()
    assert bytes_of(parked.result(0))
    assert pair.scheduler.waiting == before


def test_parked_reads_continue_when_the_claim_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    pair = start(tmp_path / "data")
    pair.metadata.release(PARTITION)
    parked = pair.ask_to_read(0, wait_ms=LATE_MS)
    pair.pump()
    assert not parked.done()
    pair.tier.claim.state = ClaimState.REFUSED
    pair.tier.manager.claim_changed()
    pair.pump()
    assert bytes_of(parked.result(0))


def test_a_thousand_reads_that_find_no_thread_take_their_turns(pair: Pair) -> None:
    pair.assign()
    pair.workers.held.add(READER_POOL)
    parked = park(pair, lambda number: number % SEGMENTS * RECORDS_EACH)
    looks = Looks(pair)
    assert pair.reads.loads.waiting_for_memory > PARKED / 2
    pass_time(pair, 1_000)
    assert looks.count <= 4
    pair.workers.held.clear()
    pair.pump()
    pass_time(pair, 200)
    assert all(bytes_of(each.result(0)) for each in parked)
    assert pair.reads.loads.waiting_for_memory == 0


def test_a_read_that_is_answered_waits_for_nothing_any_more(pair: Pair) -> None:
    """Else those of a store that hangs would pile up, some for each fetch of each client."""
    pair.assign()
    pair.workers.held.add(READER_POOL)
    for _ in range(3):
        for number in range(20):
            pair.ask_to_read(number % SEGMENTS * RECORDS_EACH, 100, 50)
        pair.pump()
        pass_time(pair, 60)
    loads = pair.reads.loads
    assert loads.waiting_for_memory == 0
    waiters = [flight.waiters[number] for flight, number in loads._flights.values()]
    assert not any(waiters)


def test_reads_that_find_no_memory_continue_when_some_is_given_back(tmp_path: Path) -> None:
    pair = Pair(tmp_path, chunk_bytes=400, chunk_cache_bytes=1_000)
    pair.log.fill(SEGMENTS, records=RECORDS_EACH)
    pair.assign()
    pair.workers.held.add(READER_POOL)  # what is being loaded takes all of the memory
    first = [pair.ask_to_read(n * RECORDS_EACH, 100, LATE_MS) for n in range(SEGMENTS)]
    pair.pump()
    pair.workers.held.clear()
    got = 0
    for _ in range(50):
        pair.pump()
        done = [each for each in first if each.done()]
        for each in done:
            first.remove(each)
            got += bool(bytes_of(each.result(0)))
            pair.broker.tell(Released(tokens_of(each.result(0))))
    assert (got, first) == (SEGMENTS, [])


@pytest.fixture
def small(tmp_path: Path) -> Pair:
    """A cache of one chunk."""
    pair = Pair(tmp_path, chunk_bytes=400, chunk_cache_bytes=500)
    pair.log.fill(SEGMENTS, records=RECORDS_EACH)
    pair.assign()
    return pair


def test_a_read_without_memory_continues_once_the_broker_returns_some(small: Pair) -> None:
    held = small.read(0, holder="one")
    waiting = small.ask_to_read(RECORDS_EACH, wait_ms=LATE_MS)
    small.pump()
    assert not waiting.done()
    small.broker.tell(Released(tokens_of(held)))
    small.pump()
    assert bytes_of(waiting.result(0)), "no time has passed"


def test_a_read_without_memory_that_is_over_waits_no_longer(small: Pair) -> None:
    held = small.read(0, holder="one")
    for number in range(20):
        small.ask_to_read(number % (SEGMENTS - 1) * RECORDS_EACH + RECORDS_EACH, wait_ms=50)
    small.pump()
    assert small.reads.loads.waiting_for_memory > 0
    pass_time(small, 60)
    assert small.reads.loads.waiting_for_memory == 0
    assert bytes_of(held)


def test_a_read_still_ends_at_its_deadline(pair: Pair) -> None:
    unvalidated(pair)
    received = pair.read(0, wait_ms=100)
    assert isinstance(received.message, ReadAnswer)
    assert error_of(received) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert pair.reads._store.readiness._queues == {}
