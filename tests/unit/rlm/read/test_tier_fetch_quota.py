"""The fetch quota: bytes per second of what is read, by readers in turn (KIP-956)."""

from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from rlm.config import NO_LIMIT
from rlm.link.endpoint import Received
from rlm.link.messages import ReadAnswer, Reconfigure, Released
from rlm.read.wait_queue import CALLS_MAX
from rlm.workers import READER_POOL
from tests.support.tier.pair import Pair, bytes_of

WAITING = "tidemark_remote_throttled_reads"
PAUSE = "kafka_server_RemoteLogManager_remote_fetch_throttle_time_max"
SECOND_BYTES = 1_000
PAGES = count(1)


@pytest.fixture
def slow(tmp_path: Path) -> Pair:
    """A tier that lets some five batches a second through."""
    pair = Pair(tmp_path, fetch_bytes_per_second=SECOND_BYTES, fetch_quota_window_count=2)
    pair.log.fill(10, records=20)
    pair.assign()
    return pair


def gauge(pair: Pair, name: str) -> float:
    (line,) = (
        line
        for line in pair.metrics_page(next(PAGES)).splitlines()
        if line.startswith((f"{name} ", f"{name}{{"))
    )
    return float(line.split()[-1])


class Consumer:
    """Asks again as soon as it is answered, from the beginning on."""

    def __init__(self, pair: Pair, reader: str, partitions: int = 1) -> None:
        self._pair, self.reader, self.bytes = pair, reader, 0
        self._asked: list[tuple[int, Future[Received]]] = []
        for _ in range(partitions):
            self._ask(0)

    def _ask(self, offset: int) -> None:
        asked = self._pair.ask_to_read(offset, max_bytes=300, holder=self.reader)
        self._asked.append((offset, asked))

    def proceed(self) -> None:
        asked, self._asked = self._asked, []
        for offset, future in asked:
            if not future.done():
                self._asked.append((offset, future))
                continue
            answer = future.result().message
            assert isinstance(answer, ReadAnswer)
            self.bytes += sum(region.size_bytes for region in answer.regions)
            self._pair.broker.tell(Released([region.token for region in answer.regions]))
            self._ask(answer.next_offset % 180 if answer.regions else offset)


def run(pair: Pair, consumers: list[Consumer], seconds: int) -> None:
    for _ in range(seconds * 50):
        pair.scheduler.advance(20)
        pair.pump()
        for each in consumers:
            each.proceed()


def test_bytes_of_readers_stay_within_the_quota(slow: Pair) -> None:
    consumers = [Consumer(slow, f"reader-{n}", partitions=5) for n in range(4)]
    run(slow, consumers, 60)
    total = sum(each.bytes for each in consumers)
    # A burst of the windows' length at the beginning, and one read that exceeds the rest.
    assert 57 * SECOND_BYTES <= total <= 66 * SECOND_BYTES


def test_each_reader_gets_its_share_however_many_partitions_it_reads(slow: Pair) -> None:
    consumers = [Consumer(slow, "wide", 40), *(Consumer(slow, f"narrow-{n}") for n in range(3))]
    run(slow, consumers, 120)
    got = Counter({each.reader: each.bytes for each in consumers})
    assert min(got.values()) > 0.6 * max(got.values()), got


def test_no_reader_starves_though_turns_are_rarer_than_reads_are_given_up(tmp_path: Path) -> None:
    pair = Pair(tmp_path, fetch_bytes_per_second=100, fetch_quota_window_count=2)
    pair.log.fill(10, records=20)
    pair.assign()
    consumers = [Consumer(pair, f"reader-{n}") for n in range(8)]
    run(pair, consumers, 240)
    got = [each.bytes for each in consumers]
    assert min(got) > 0.6 * max(got), got


def test_what_waits_is_counted_and_continues_when_the_limit_is_raised(slow: Pair) -> None:
    slow.reads.quota.record(100 * SECOND_BYTES, slow.clock.monotonic_ms())
    asked = [slow.ask_to_read(20, wait_ms=5_000) for _ in range(3)]
    slow.pump()
    assert [each.done() for each in asked] == [False] * 3
    assert gauge(slow, WAITING) == 3
    assert gauge(slow, PAUSE) > 0
    slow.ask(Reconfigure(replace(slow.config, fetch_bytes_per_second=NO_LIMIT)))
    assert all(bytes_of(each.result(0)) for each in asked)
    assert gauge(slow, WAITING) == 0


def test_very_many_that_may_continue_at_once_leave_turns_to_others(slow: Pair) -> None:
    """Each is over as it is let in, and gives back what it did not take."""
    assert bytes_of(slow.read(20))  # from here on it is in the cache
    slow.reads.quota.record(100 * SECOND_BYTES, slow.clock.monotonic_ms())
    asked = [slow.ask_to_read(20, wait_ms=5_000) for _ in range(10 * CALLS_MAX)]
    slow.pump()
    assert not any(each.done() for each in asked)
    slow.ask(Reconfigure(replace(slow.config, fetch_bytes_per_second=NO_LIMIT)))
    assert sum(each.done() for each in asked) == CALLS_MAX
    slow.scheduler.advance(0)
    slow.pump()
    assert all(bytes_of(each.result(0)) for each in asked)


def test_no_more_reads_are_let_in_to_the_store_than_there_is_room_for(slow: Pair) -> None:
    slow.workers.held.add(READER_POOL)
    asked = [slow.ask_to_read(n * 20, max_bytes=1_500) for n in range(6)]
    slow.pump()
    assert slow.workers.queued(READER_POOL) == 1
    assert gauge(slow, WAITING) == 5, "the first may take all the room"
    slow.workers.held.clear()
    slow.pump()
    assert asked[0].done()
    assert asked[1].done(), "it took less"


def test_a_read_that_nothing_came_for_gives_its_room_back(slow: Pair) -> None:
    slow.workers.held.add(READER_POOL)
    assert slow.read(0, max_bytes=100_000, wait_ms=100).files == ()
    slow.workers.held.clear()
    slow.pump()
    assert bytes_of(slow.read(0, max_bytes=300))
