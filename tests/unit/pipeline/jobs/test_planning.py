"""What an export has still to write, cut into runs and tasks."""

import pytest

from kafka_protocol.types import EpochEntry, TopicIdPartition, TopicPartition
from pipeline.errors import DataLossError
from pipeline.jobs.planning import (
    Bounds,
    after,
    check_lineage,
    first_run,
    only_brokers,
    ranges_left,
    steps,
    tasks,
    text_of_work,
)
from pipeline.jobs.values import Committed, Identity
from pipeline.values import OffsetRange, RemotePiece, Split, TailPiece
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata

SIZE = 100


def piece(partition: int, segment: int, byte_from: int = 0, byte_to: int = SIZE) -> RemotePiece:
    """Of a segment of ten offsets, the last five of a leader epoch with the segment's number."""
    home = TopicIdPartition(b"t" * 16, partition, "orders")
    about = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(home, bytes([segment]) * 16),
        segment * 10, segment * 10 + 9, 0, 1, 0, SIZE,
        (EpochEntry(segment - 1, segment * 10), EpochEntry(segment, segment * 10 + 5)),
    )  # fmt: skip
    return RemotePiece(about, segment * 10, segment * 10 + 9, byte_from, byte_to)


def split(partition: int, *pieces: RemotePiece | TailPiece, size: int = SIZE) -> Split:
    return Split(TopicPartition("orders", partition), pieces, size)


def left(committed: dict[int, int], bounds: dict[int, Bounds], *, fails: bool = True) -> object:
    found = ranges_left("orders", committed, bounds, fail_on_data_loss=fails)
    return dict(found.ranges), sum(one.end - one.start for one in found.gone.values())


def test_a_first_run_begins_at_the_log_start_and_later_ones_continue() -> None:
    bounds = {0: Bounds(5, 20, 30), 1: Bounds(0, 10, 10), 2: Bounds(0, 0, 0)}
    assert left({}, bounds) == ({0: (5, 20), 1: (0, 10)}, 0)
    assert left({0: 12, 1: 10}, bounds) == ({0: (12, 20)}, 0)


def test_what_a_tail_export_took_is_not_taken_again() -> None:
    assert left({0: 25}, {0: Bounds(0, 20, 30)}) == ({}, 0)


def test_deleted_offsets_are_an_error_or_counted() -> None:
    bounds = {0: Bounds(15, 20, 30)}
    with pytest.raises(DataLossError, match="offsets 10 to 14 were deleted before"):
        left({0: 10}, bounds)
    assert left({0: 10}, bounds, fails=False) == ({0: (15, 20)}, 5)


def test_a_log_that_ends_before_the_export_is_another_log() -> None:
    with pytest.raises(DataLossError, match="the log ends at 30"):
        left({0: 31}, {0: Bounds(0, 20, 30)}, fails=False)
    assert left({0: 31}, {0: Bounds(0, 20, None)}) == ({}, 0)


def test_a_run_ends_where_a_segment_ends() -> None:
    whole = [
        split(0, piece(0, 0, 0, 50)),
        split(0, piece(0, 0, 50), piece(0, 1, 0, 30)),
        split(0, piece(0, 1, 30)),
        split(0, piece(0, 2), piece(0, 3)),
        split(1, piece(1, 0)),
    ]
    ranges = {0: OffsetRange(0, 45), 1: OffsetRange(0, 10), 2: OffsetRange(3, 7)}
    found = steps(whole, ranges, {})
    assert [(one.partition, len(one.splits), one.end) for one in found] == [
        (0, 3, 20),
        (0, 1, 45),
        (1, 1, 10),
        (2, 0, 7),
    ]


def test_a_tail_may_be_cut_anywhere() -> None:
    home = TopicIdPartition(b"t" * 16, 0, "orders")
    whole = [split(0, TailPiece(home, 0, 4)), split(0, TailPiece(home, 5, 9))]
    assert [one.end for one in steps(whole, {0: OffsetRange(0, 10)}, {})] == [5, 10]


def test_a_run_takes_at_least_one_step_and_then_its_bytes() -> None:
    ranges = {0: OffsetRange(0, 40)}
    found = steps([split(0, piece(0, number)) for number in range(4)], ranges, {})
    assert [first_run(found, size) for size in (1, 99, 100, 250, 400, 10**9)] == [1, 1, 1, 2, 4, 4]
    assert first_run([], 1) == 0


def test_tasks_join_neighbours_of_one_partition() -> None:
    ranges = {0: OffsetRange(0, 40), 1: OffsetRange(0, 10)}
    plan = [split(0, piece(0, number)) for number in range(4)] + [split(1, piece(1, 0))]
    found = tasks(steps(plan, ranges, {}), 200)
    assert [(one[0].partition.partition, len(one)) for one in found] == [(0, 2), (0, 2), (1, 1)]
    assert [split for task in found for split in task] == plan


def test_each_step_knows_the_epoch_of_its_last_record() -> None:
    """Its segment says it; of what brokers serve or nobody has, what they said before the plan."""
    home = TopicIdPartition(b"t" * 16, 0, "orders")
    tail = [split(0, TailPiece(home, 20, 24)), split(0, TailPiece(home, 25, 29))]
    whole = [split(0, piece(0, 0)), split(0, piece(0, 1)), *tail, split(1, piece(1, 2))]
    ranges = {0: OffsetRange(0, 30), 1: OffsetRange(20, 30), 2: OffsetRange(0, 4)}
    ended = steps(whole, ranges, {0: 7, 1: 9, 2: 5})
    assert [one.epoch for one in ended] == [0, 1, None, 7, 2, 5]
    clipped = steps([split(0, piece(0, 1))], {0: OffsetRange(10, 25)}, {0: 4})
    assert [one.epoch for one in clipped] == [4]


def test_a_commit_forgets_the_epoch_of_an_offset_that_is_no_longer_last() -> None:
    identity = Identity("orders", "", "", "")
    held = Committed(identity, {0: 10, 1: 3}, {0: 1, 1: 2})
    home = TopicIdPartition(b"t" * 16, 0, "orders")
    whole = [split(0, TailPiece(home, 10, 11)), split(0, TailPiece(home, 12, 12))]
    first, last = steps(whole, {0: OffsetRange(10, 13)}, {0: 4})
    assert after(held, [first]) == Committed(identity, {0: 12, 1: 3}, {1: 2})
    assert after(held, [first, last]) == Committed(identity, {0: 13, 1: 3}, {0: 4, 1: 2})


def test_another_epoch_at_the_last_exported_record_means_another_log() -> None:
    check_lineage("orders", {0: 10, 1: 5}, {0: 3, 1: 2}, {0: 3, 1: None})
    with pytest.raises(DataLossError, match=r"orders-1: exported up to offset 5, .* epoch 4 now"):
        check_lineage("orders", {0: 10, 1: 5}, {0: 3, 1: 2}, {0: 3, 1: 4})


def test_offsets_without_tier_or_export_are_only_on_the_brokers() -> None:
    bounds = {0: Bounds(0, 10, 25), 1: Bounds(0, 10, 25), 2: Bounds(0, 9, 9), 3: Bounds(0, 5, None)}
    exported_with_its_tail = {1: 20}
    assert only_brokers(exported_with_its_tail, bounds) == {0: 15, 1: 5}


def test_what_brokers_will_give_is_said_in_offsets() -> None:
    """A plan guesses 1,024 bytes a record where nothing remote says more."""
    tail = TailPiece(TopicIdPartition(b"t" * 16, 0, "orders"), 10, 29)
    remote = split(0, piece(0, 1), size=SIZE)
    run = steps([remote, split(0, tail, size=20 << 10)], {0: OffsetRange(10, 30)}, {})
    assert text_of_work(run) == "0.0 MB of the remote tier and 20 offsets of the brokers to read"
    assert text_of_work(run[1:]) == "20 offsets of the brokers to read"
