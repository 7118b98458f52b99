"""A thread appends to a leased log while another reads it, as the loop does."""

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import NamedTuple, TypeVar

import pytest

from kafka_protocol.records.batch import BatchHeader, iter_batches
from kafka_protocol.records.control import ControlType, end_transaction_batch
from local_log.log.partition_log import PartitionLog
from local_log.log.results import Appended, Ended
from local_log.log.truncation import truncate_to
from local_log.manager.log_dirs import LogManager
from runtime.executors import make_pool
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.worlds.local_log import (
    NOW_MS,
    SMALL,
    TOPIC_ID,
    append,
    batch_of,
    filled,
    open_log,
    with_config,
)

T = TypeVar("T")


def at_lines(step: Callable[[], object], work: Callable[[], T]) -> T:
    """Do `work`, and `step` before each of its lines in a log's files, as a switch of threads may.

    Not where it holds a mutex that `step` needs.
    """

    def on_line(frame: FrameType, event: str, _: object) -> object:
        if event == "line":
            step()
        return on_line

    def on_call(frame: FrameType, event: str, _: object) -> object:
        is_ours = "/local_log/" in frame.f_code.co_filename and "/tests/" not in (
            frame.f_code.co_filename
        )
        return on_line if is_ours and "AbortedCache" not in frame.f_code.co_qualname else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        return work()
    finally:
        sys.settrace(before)


class Told(NamedTuple):
    """What a leader has written.

    Attributes:
        batches: bytes by base offset.
        headers: likewise.
        aborted: (producer id, first offset) by the offset of the marker.
    """

    batches: dict[int, bytes]
    headers: dict[int, BatchHeader]
    aborted: dict[int, tuple[int, int]]


def told(directory: Path, count: int, seed: int) -> Told:
    """Batches of a leader: four producers in transactions, half of which are aborted."""
    rng, log = Random(seed), open_log(directory)
    sequences, begun, aborted = dict.fromkeys(range(4), 0), dict[int, int](), {}
    for number in range(count):
        epoch, producer_id = number // 40, rng.randrange(4)
        if producer_id in begun and rng.random() < 0.5:
            is_aborted = rng.random() < 0.5
            marker = end_transaction_batch(
                ControlType.ABORT if is_aborted else ControlType.COMMIT,
                base_offset=0,
                leader_epoch=epoch,
                timestamp_ms=NOW_MS,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
            )
            info = log.append_as_leader(
                marker, leader_epoch=epoch, now_ms=NOW_MS, from_client=False
            )
            first = begun.pop(producer_id)
            if is_aborted:
                aborted[info.first_offset] = producer_id, first
            continue
        size = 1 + rng.randrange(3)
        info = append(
            log,
            size,
            epoch=epoch,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequences[producer_id],
            is_transactional=True,
        )
        sequences[producer_id] += size
        begun.setdefault(producer_id, info.first_offset)
    batches, headers = {}, {}
    for segment in log.segments.all:
        data = segment.read_bytes(0, segment.size_bytes)
        for at, header in iter_batches(data):
            batches[header.base_offset] = data[at : at + header.size_bytes]
            headers[header.base_offset] = header
    log.close()
    return Told(batches, headers, aborted)


def check_reads(log: PartitionLog, truth: Told, rng: Random, cursor: int) -> int:
    """Read once as the loop does; gives where to read next."""
    log_end, high_watermark = log.log_end_offset, log.high_watermark
    stable = log.last_stable_offset
    assert stable <= high_watermark <= log_end
    end = rng.choice([None, high_watermark, stable])
    bound = log_end if end is None else end
    offset = cursor if cursor < bound else max(bound - 1 - rng.randrange(12), 0)
    found = log.read(offset, rng.choice([200, 4000]), end_offset=end, min_one_batch=True)
    data = b"".join(
        log.disk.read_at(one.file, one.position, one.size_bytes) for one in found.regions
    )
    assert len(data) == found.size_bytes
    expected = found.first_batch_offset
    for at, header in iter_batches(data):
        assert header.base_offset == expected, "batches follow each other"
        assert data[at : at + header.size_bytes] == truth.batches[header.base_offset]
        assert log.epochs.epoch_for(header.base_offset) == header.partition_leader_epoch
        if end is not None:
            assert header.base_offset < bound, "nothing above the end that was asked for"
        expected = header.next_offset
    if end is None:  # it may have grown meanwhile, but what is given was there
        assert found.upper_bound_offset <= log.log_end_offset
    else:
        assert found.upper_bound_offset <= max(bound, offset)
    if end == stable and stable > 0:
        start = max(stable - 40, 0)
        named = set(log.aborted_transactions(start, stable))
        for marker, (producer_id, first) in truth.aborted.items():
            if marker >= start and first < stable:
                assert (producer_id, first) in named, "an aborted transaction below the stable end"
        for base, header in truth.headers.items():
            is_open = base < stable and not header.is_control and marker_of(truth, header) is None
            assert not is_open, "the stable end is above an open transaction"
    return expected if expected > offset else rng.randrange(log_end + 1)


def marker_of(truth: Told, header: BatchHeader) -> int | None:
    """Where the transaction of a data batch ends."""
    ends = (
        base
        for base, other in truth.headers.items()
        if other.is_control and other.producer_id == header.producer_id
        if base > header.base_offset
    )
    return next(ends, None)


class Follower:
    """A log that gets what a leader has written, batch by batch."""

    def __init__(self, directory: Path, seed: int, batches: int) -> None:
        self.truth = told(directory / "leader", batches, seed)
        self.rng = Random(seed)
        self.log = open_log(directory / "follower", config=with_config(SMALL, segment_bytes=700))
        self.waiting, self.cursor, self.reads = deque(sorted(self.truth.batches)), 0, 0

    def append(self, count: int = 1) -> Appended:
        piece = [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]
        return self.log.append_batches(
            b"".join(self.truth.batches[base] for base in piece),
            now_ms=NOW_MS,
            leader_epoch=99,
            asked_offset=self.log.log_end_offset,
        )

    def read(self) -> None:
        self.reads += 1
        self.cursor = check_reads(self.log, self.truth, self.rng, self.cursor)


@pytest.mark.parametrize("seed", range(4))
def test_reads_at_any_moment_of_an_append_see_whole_batches(tmp_path: Path, seed: int) -> None:
    follower = Follower(tmp_path, seed, 120)
    while follower.waiting:
        at_lines(follower.read, follower.append)
        follower.log.update_high_watermark(follower.log.log_end_offset)
    assert follower.reads > 1000
    assert len(follower.log.segments.all) > 5


@pytest.mark.parametrize("seed", range(8))
def test_reads_with_an_append_at_any_moment_see_whole_batches(tmp_path: Path, seed: int) -> None:
    follower = Follower(tmp_path, seed, 400)
    lines, rng = 0, follower.rng
    while follower.waiting:
        wait = rng.randrange(200)

        def step() -> None:
            nonlocal wait
            wait -= 1
            if wait == 0 and follower.waiting:
                follower.append(1 + rng.randrange(3))

        at_lines(step, follower.read)
        lines += 1
        if wait > 0:  # the read was over before
            follower.append()
        follower.log.update_high_watermark(follower.log.log_end_offset)
    assert lines > 100
    assert len(follower.log.segments.all) > 5


def test_reads_beside_a_real_thread_that_appends_see_whole_batches(tmp_path: Path) -> None:
    follower, pool = Follower(tmp_path, 7, 300), make_pool("log-io", 1)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        while follower.waiting:
            follower.log.lease.grant(truncates=False)
            done = pool.submit(follower.append, 20)
            while not done.done():
                follower.read()
            assert done.result().ended is Ended.ALL
            follower.log.lease.take_back()
            follower.log.update_high_watermark(follower.log.log_end_offset)
    finally:
        sys.setswitchinterval(before)
    pool.shutdown()
    assert follower.reads > 20


def test_producers_are_those_of_the_log_after_a_cut_on_a_pool_thread(tmp_path: Path) -> None:
    truth = told(tmp_path / "leader", 200, 1)
    log, pool = open_log(tmp_path / "follower"), make_pool("log-io", 1)
    whole = b"".join(truth.batches[base] for base in sorted(truth.batches))
    log.append_batches(whole, now_ms=NOW_MS)
    end = sorted(truth.batches)[120]
    log.lease.grant(truncates=True)
    pool.submit(truncate_to, log, end).result(timeout=30)
    log.lease.take_back()
    assert log.log_end_offset == end
    assert not log.lease.is_leased
    expected = open_log(tmp_path / "other")
    expected.append_batches(
        b"".join(truth.batches[base] for base in sorted(truth.batches) if base < end), now_ms=NOW_MS
    )
    assert log.producers.states.dump() == expected.producers.states.dump()
    pool.shutdown()


def test_retention_waits_for_a_log_that_is_lent(tmp_path: Path) -> None:
    manager = LogManager(
        [tmp_path],
        lambda _: with_config(SMALL, retention_ms=1000, file_delete_delay_ms=0),
        simulated(clock=ManualClock(NOW_MS)),
    )
    manager.load()
    logs = [manager.create("t", number, TOPIC_ID) for number in range(3)]
    for log in logs:
        for _ in range(60):
            append(log)
        log.update_high_watermark(log.log_end_offset)
    leased = logs[1]
    leased.lease.grant(truncates=False)
    ended: list[bool] = []
    manager.retention.run(logs, NOW_MS + 5000, ended=lambda: ended.append(True))
    assert leased.log_start_offset == 0
    leased.append_batches(batch_of(1, base_offset=60, leader_epoch=0), now_ms=NOW_MS)
    leased.lease.take_back()
    assert ended == [True]
    assert [log.log_start_offset for log in logs] == [60, 48, 60]  # one record is not committed
    assert leased.log_end_offset == 61


def test_log_closed_by_its_owner_is_passed_over_by_those_that_wait(tmp_path: Path) -> None:
    log, seen = filled(tmp_path), []
    log.lease.grant(truncates=False)
    log.lease.when_here(lambda: seen.append(log.health.is_closed))
    log.lease.take_back()
    log.close()
    assert seen == [False]


def state_of(log: PartitionLog) -> tuple[object, ...]:
    """All that a log says of what it holds.

    But for timestamps of earlier batches: a snapshot says when its producer was heard of last.
    """
    end = log.log_end_offset
    log.update_high_watermark(end)
    return (
        end,
        sorted(
            entry._replace(timestamp=log.producers.states.producers[entry.producer_id].timestamp)
            for entry in log.producers.states.dump()
        ),
        log.last_stable_offset,
        sorted(log.aborted_transactions(0, end)),
        log.epochs.entries(),
        b"".join(segment.read_bytes(0, segment.size_bytes) for segment in log.segments.all),
    )


@pytest.mark.parametrize("seed", range(6))
def test_state_is_the_leaders_at_the_same_offset_whatever_came_between(
    tmp_path: Path, seed: int
) -> None:
    follower = Follower(tmp_path, seed, 200)
    rng, bases = follower.rng, sorted(follower.truth.batches)
    compared = 0
    while follower.waiting:
        follower.append(1 + rng.randrange(25))
        draw, log = rng.random(), follower.log
        if draw < 0.3:
            log.flush(rng.choice([None, log.log_end_offset // 2]))
        elif draw < 0.6:
            truncate_to(log, max(log.log_end_offset - rng.randrange(60), 0))
        elif draw < 0.8:
            log.close(clean=draw < 0.65)
            follower.log = log = open_log(
                log.directory,
                config=log.config,
                clean=draw < 0.65,
                recovery_point=log.recovery_point,
            )
        end = log.log_end_offset
        follower.waiting = deque(base for base in bases if base >= end)
        if rng.random() < 0.3:
            compared += 1
            leader = open_log(tmp_path / f"to {compared}")
            leader.append_batches(
                b"".join(follower.truth.batches[base] for base in bases if base < end),
                now_ms=NOW_MS,
            )
            assert state_of(log) == state_of(leader)
    assert compared > 3
