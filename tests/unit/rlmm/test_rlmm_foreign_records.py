"""What a later Kafka may leave in `__remote_log_metadata`: tombstones, holes, unknown records."""

import logging

import pytest

from rlmm import records
from rlmm.events import SegmentAdded, SegmentUpdated
from rlmm.lifecycle import Verdict
from rlmm.store import MemoryStore, Position, partition_key
from rlmm.testing import PARTITION, segment, update
from rlmm.topic_based.reader import TopicReader
from rlmm.topic_based.roles import Tracked
from rlmm.topic_based.topic_port import ReachedEnd, TopicRecord
from rsm_plugins.segment import SegmentState
from tests.support.sim.clock import ManualClock

STARTED = SegmentState.COPY_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
GOING = SegmentState.DELETE_SEGMENT_STARTED
S0, S1 = segment(1, 0, 99), segment(2, 100, 199)
LATER_KIND = b"\x01\x03\x00later"
LATER_VERSION = b"\x01\x00\x01" + records.encode(SegmentAdded(S0))[3:]
LATER_FRAME = b"\x02\x00\x00" + records.encode(SegmentAdded(S0))[3:]
TAGGED = 10_100
"""A tagged field that nobody knows, as KIP-1266 adds to the update."""


class Reading:
    """A metadata partition that Kafka wrote, read by us."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.reader = TopicReader(self.store, ManualClock())
        self.tracked = Tracked(Position(0, 0))

    def take(self, *placed: tuple[int, bytes | None]) -> None:
        """Read values at offsets of their own."""
        self.reader.consume(
            0, self.tracked, [TopicRecord(0, offset, 0, value) for offset, value in placed]
        )

    def end(self, offset: int) -> None:
        self.reader.consume(0, self.tracked, [ReachedEnd(0, offset)])

    @property
    def states(self) -> dict[int, SegmentState]:
        entries = self.store.entries(0, partition_key(PARTITION))
        return {one.metadata.start_offset: one.metadata.state for one in entries}


def added(of: object) -> bytes:
    return records.encode(SegmentAdded(of))  # type: ignore[arg-type]


def moved(state: SegmentState) -> bytes:
    return records.encode(SegmentUpdated(update(S0, state)))


def with_unknown_field(value: bytes) -> bytes:
    """The record with one tagged field more; it had none."""
    assert value[-1:] == b"\0"
    tag = bytes(((TAGGED & 0x7F) | 0x80, TAGGED >> 7))
    return value[:-1] + b"\x01" + tag + b"\x04" + b"more"


@pytest.fixture
def reading() -> Reading:
    return Reading()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (LATER_KIND, "unknown"),
        (LATER_VERSION, "unknown"),
        (LATER_FRAME, "unknown"),
        (b"", "damaged"),
    ],
)
def test_a_foreign_record_is_counted_and_told_and_the_next_is_taken(
    reading: Reading, value: bytes | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    reading.take((0, added(S0)), (1, value), (2, value), (3, moved(FINISHED)))
    assert reading.states == {0: FINISHED}
    assert reading.tracked.position == Position(4, 0)
    assert {k: n for k, n in reading.reader.counts.skipped.items() if n} == {reason: 2}
    assert reading.reader.counts.read == 4
    (said,) = [line for line in caplog.messages if "skipped a record" in line]
    assert "partition=0 offset=1" in said


def test_a_tombstone_at_the_end_moves_the_stored_position(reading: Reading) -> None:
    reading.take((0, added(S0)))
    reading.take((1, None))
    assert reading.store.position(0) == Position(2, 0)


def test_a_tombstone_ends_no_segment(reading: Reading) -> None:
    reading.take((0, added(S0)), (1, moved(FINISHED)), (2, None))
    assert reading.states == {0: FINISHED}


def test_holes_that_a_compaction_left_are_gone_over(reading: Reading) -> None:
    reading.take((5, added(S0)), (9, moved(FINISHED)), (1_000, added(S1)))
    reading.end(2_000)
    assert reading.states == {0: FINISHED, 100: STARTED}
    assert reading.tracked.position.offset == 2_000
    assert reading.tracked.caught_up


@pytest.mark.parametrize("state", [FINISHED, GOING])
def test_an_update_without_its_start_is_refused_and_invents_no_segment(
    reading: Reading, state: SegmentState
) -> None:
    reading.take((3, moved(state)), (4, added(S1)))
    assert reading.states == {100: STARTED}
    assert reading.reader.counts.refused[Verdict.UNKNOWN_SEGMENT] == 1
    assert reading.tracked.position == Position(5, 0)


def test_a_tagged_field_that_nobody_knows_is_skipped(reading: Reading) -> None:
    reading.take((0, with_unknown_field(added(S0))), (1, with_unknown_field(moved(FINISHED))))
    assert reading.states == {0: FINISHED}
    assert not any(reading.reader.counts.skipped.values())
