"""A generated bucket is what brokers would have left, and what it expects is what it holds."""

from pathlib import Path

import pytest

from kafka_protocol.files import producer_snapshot
from kafka_protocol.records.batch import read_header
from kafka_protocol.types import TopicPartition
from pipeline.values import Isolation
from rlmm import records
from rlmm.fold import Fold
from rlmm.lifecycle import Verdict
from rlmm.store import MemoryStore, Position
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from tests.support.lake.bucket import Bucket
from tests.support.lake.partition import DELETING, FINISHED, STARTED, LakePartition, Objects, Upto
from tests.support.lake.rows import Row, committed_rows, digests, rows_of_batch
from tests.support.lake.stories import (
    STORIES,
    Story,
    an_unclean_election,
    overlapping_copies,
    two_unclean_elections,
)

COMMITTED = Isolation.READ_COMMITTED


@pytest.fixture
def bucket(tmp_path: Path):
    with Bucket(tmp_path / "bucket") as made:
        yield made


def stored_batches(bucket: Bucket, segment: RemoteLogSegmentMetadata) -> list[bytes]:
    with bucket.store.fetch_log_segment(segment, 0) as stream:
        data, position, found = stream.read(), 0, []
    while position < len(data):
        size = read_header(data, position).size_bytes
        found.append(data[position : position + size])
        position += size
    return found


def stored_rows(bucket: Bucket, of: LakePartition) -> list[Row]:
    """Rows of all finished segments that are wholly on the chain."""
    return [
        row
        for segment in bucket.segments(of)
        if segment.state is FINISHED
        for batch in stored_batches(bucket, segment)
        for row in rows_of_batch(of.id.topic_partition, batch)
    ]


def verdicts(bucket: Bucket) -> set[Verdict]:
    store, found = MemoryStore(), set()
    for order, value in enumerate(bucket.metadata_records):
        fold = Fold(store, 0)
        found.add(fold.take(records.decode(value), order=order, seen_ms=0))
        store.write(0, fold.changes, Position(order + 1, 0))
    return found


def test_what_was_appended_and_copied_is_expected_and_stored(bucket: Bucket) -> None:
    orders = bucket.partition()
    for codec in range(5):
        orders.append("a", None, (5, None, b"v", [("h", b"1"), ("h", None)]), codec=codec)
        orders.append("b", append_time_ms=77).roll()
    orders.copy().append("local only")
    assert len(bucket.segments()) == 5
    rows = bucket.rows()
    assert rows == stored_rows(bucket, orders)
    assert [row.offset for row in rows] == list(range(20)) == list(orders.remote())
    assert rows[2] == Row("orders", 0, 2, None, b"v", 5, 0, (("h", b"1"), ("h", None)))
    assert (rows[3].timestamp_ms, rows[3].timestamp_type, rows[3].headers) == (77, 1, None)
    assert digests(rows)[TopicPartition("orders", 0)].count == 20
    assert verdicts(bucket) == {Verdict.ACCEPTED}


def test_abandoned_copies_hold_nothing_that_counts(bucket: Bucket) -> None:
    orders = bucket.partition().batches(4).roll()
    for upto in Upto:
        orders.copy(upto=upto)
    assert [one.state for one in bucket.segments()] == [STARTED] * 3
    assert bucket.rows() == []
    assert len(bucket.rows(alone=True)) == 12
    orders.copy().copy(again=True).copy(again=True)
    orders.delete(4, Objects.NO_MANIFEST).delete(5, Objects.NONE, finished=True)
    assert [one.state for one in bucket.segments()].count(DELETING) == 1
    assert len(bucket.rows()) == 12
    assert verdicts(bucket) == {Verdict.ACCEPTED}


def test_an_unclean_election_gives_up_what_the_old_leader_alone_had(bucket: Bucket) -> None:
    orders = bucket.partition().batches(4).roll().batches(2).roll().copy()
    orders.elect(3, at=15).append("another 15", "another 16").roll().copy()
    assert [entry.epoch for entry in orders.chain] == [0, 3]
    assert list(orders.remote()) == list(range(17))
    assert orders.missing() == []
    assert [row.value for row in orders.rows()][-2:] == [b"another 15", b"another 16"]
    held = {(one.start_offset, one.end_offset) for one in bucket.segments()}
    assert held == {(0, 11), (12, 17), (0, 16)}
    assert verdicts(bucket) == {Verdict.ACCEPTED}


def test_a_second_replica_copies_other_ranges(bucket: Bucket) -> None:
    orders = bucket.partition().batches(4).roll().copy()
    orders.elect(1, rolls=[6]).batches(1).roll().copy(again=True)
    assert sorted((each.start_offset, each.end_offset) for each in bucket.segments()) == [
        (0, 5),
        (0, 11),
        (6, 14),
    ]
    assert len(bucket.rows()) == 15


def test_transactions_count_by_their_markers(bucket: Bucket) -> None:
    orders = bucket.partition()
    orders.append("t0", "t1", producer_id=7, transactional=True).append("plain").roll()
    orders.append("u4", producer_id=8, transactional=True).abort(7).commit(8).roll()
    orders.append("w", producer_id=9, transactional=True).append("above").roll().abort(9)
    orders.copy()
    assert [row.offset for row in orders.rows()] == [0, 1, 2, 3, 6, 7]
    assert [row.offset for row in orders.rows(COMMITTED)] == [2, 3]
    assert orders.stable_end() == 6
    orders.roll().copy()
    assert [row.offset for row in orders.rows(COMMITTED)] == [2, 3, 7]
    segments = bucket.segments()
    assert [one.txn_index_empty for one in segments] == [True, False, True, False]
    with bucket.store.fetch_index(segments[2], IndexType.PRODUCER_SNAPSHOT) as stream:
        open_at = [
            entry.current_txn_first_offset for entry in producer_snapshot.parse(stream.read())
        ]
    assert max(open_at) == 6


def test_gaps_and_empty_batches_are_offsets_without_rows(bucket: Bucket) -> None:
    orders = bucket.partition().append("a").thinned(1, 4, size=6).thinned(size=3)
    orders.gap(10).thinned(0, size=1, codec=4).roll().copy()
    assert [row.offset for row in orders.rows()] == [0, 2, 5, 20, 21]
    assert orders.rows() == stored_rows(bucket, orders)
    assert list(orders.remote()) == list(range(22))


def test_a_raised_log_start_hides_rows_and_rides_on_the_records(bucket: Bucket) -> None:
    orders = bucket.partition().batches(3).lead(4).batches(3).roll().copy()
    orders.delete_records(10).batches(1).roll().copy()
    assert [row.offset for row in orders.rows()] == list(range(10, 21))
    assert orders.chain[0] == (4, 10)
    assert bucket.events[-1].stamp.log_start == 10


def test_several_partitions_and_lives_share_a_bucket(bucket: Bucket) -> None:
    for life in range(2):
        for number in range(2):
            bucket.partition("orders", number, life=life).batches(1 + life).roll().copy()
    assert [each.count for each in digests(bucket.rows()).values()] == [9, 9]
    assert len({each.id.topic_id for each in bucket.partitions}) == 2


def test_a_partition_may_begin_above_zero(bucket: Bucket) -> None:
    orders = bucket.partition(log_start=100).batches(2).roll().copy()
    assert [row.offset for row in orders.rows()] == list(range(100, 106))


def test_committed_rows_end_at_what_is_undecided() -> None:
    nothing = committed_rows(TopicPartition("t", 0), [], 9)
    assert (nothing.rows, nothing.end) == ([], 9)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_nothing_is_missing_in_a_story(bucket: Bucket, story: Story) -> None:
    orders = story(bucket.partition())
    assert orders.missing() == [] == orders.missing(alone=True)
    assert orders.remote() == orders.remote(alone=True)
    assert orders.rows() == orders.rows(alone=True) != []
    assert set(orders.rows(COMMITTED)) <= set(orders.rows())
    assert verdicts(bucket) == {Verdict.ACCEPTED}


def test_a_reader_of_every_finished_segment_gives_rows_twice_or_wrongly(bucket: Bucket) -> None:
    for story in (an_unclean_election, two_unclean_elections, overlapping_copies):
        orders = story(bucket.partition(story.__name__))
        assert len(stored_rows(bucket, orders)) > len(orders.rows())
