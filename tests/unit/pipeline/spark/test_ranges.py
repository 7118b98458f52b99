"""From bounds to offsets, and from offsets to what is read or lost."""

import pytest

from kafka_protocol.types import TopicPartition
from pipeline.cluster.cluster import UnknownTopicError
from pipeline.errors import OptionError
from pipeline.spark.options import Topics
from pipeline.spark.options_bounds import AtOffsets, AtTimes, Bound, Everywhere
from pipeline.spark.options_pattern import compile_java_pattern
from pipeline.spark.ranges import Resolved, batch_ranges, resolve, stream_ranges
from pipeline.spark.topics import Found, find, find_all
from pipeline.values import OffsetRange
from tests.support.source.said_log import SaidLog

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
INTERNAL = TopicPartition("__consumer_offsets", 0)


def log() -> SaidLog:
    return SaidLog(
        {A0: (10, 20), A1: (0, 5), B0: (0, 0), INTERNAL: (0, 9)}, times_ms={A0: 1000, A1: 2000}
    )


@pytest.mark.parametrize(
    ("bound", "resolved"),
    [
        (Everywhere.EARLIEST, Resolved({A0: 10, A1: 0})),
        (Everywhere.LATEST, Resolved({A0: 20, A1: 5}, frozenset({A0, A1}))),
        (AtOffsets({A0: 15, A1: 3}), Resolved({A0: 15, A1: 3})),
        (AtOffsets({A0: -2, A1: -1}), Resolved({A0: 10, A1: 5}, frozenset({A1}))),
        (AtTimes(None, 1004, or_latest=False), Resolved({A0: 14, A1: 0})),
        (AtTimes({A0: 1004, A1: 2002}), Resolved({A0: 14, A1: 2})),
        (AtTimes(None, 2003, or_latest=True), Resolved({A0: 20, A1: 3}, frozenset({A0}))),
    ],
)
def test_a_bound_becomes_offsets(bound: Bound, resolved: Resolved) -> None:
    assert resolve(log(), bound, [A0, A1], "starting") == resolved


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (AtOffsets({A0: 1}), r"startingOffsets must name all .* missing a-1$"),
        (AtOffsets({A0: 1, A1: 1, B0: 1}), r"not there: b-0$"),
        (AtTimes({A0: 1}), r"ByTimestamp must name all partitions and no other: missing a-1$"),
        (AtTimes(None, 1010), r"no record of a-0 is at 1010 ms or later; .*Strategy=latest"),
    ],
)
def test_a_bound_must_name_the_partitions_there_are(bound: Bound, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        resolve(log(), bound, [A0, A1], "starting")


def test_a_batch_reads_what_lies_between() -> None:
    start, end = Resolved({A0: 10, A1: 5, B0: 7}), Resolved({A0: 20, A1: 5, B0: 3})
    assert batch_ranges(start, end, start_is_named=False) == ({A0: OffsetRange(10, 20)}, [])
    ranges, losses = batch_ranges(start, end, start_is_named=True)
    assert ranges == {A0: OffsetRange(10, 20)}
    assert losses == ["b-0 ends at offset 3, before 7 where it is to start"]


@pytest.mark.parametrize(
    ("start", "end", "earliest", "ranges", "losses"),
    [
        ({A0: 10}, {A0: 20}, {}, {A0: OffsetRange(10, 20)}, []),
        ({A0: 10}, {A0: 10}, {}, {}, []),
        ({}, {A0: 4}, {A0: 0}, {A0: OffsetRange(0, 4)}, []),
        (
            {},
            {A0: 20},
            {A0: 10},
            {A0: OffsetRange(10, 20)},
            ["new partition a-0 starts at offset 10 instead of 0"],
        ),
        (
            {},
            {A0: 2},
            {A0: 1},
            {A0: OffsetRange(1, 2)},
            ["new partition a-0 starts at offset 1 instead of 0"],
        ),
        ({A0: 10, A1: 2}, {A0: 20}, {}, {A0: OffsetRange(10, 20)}, ["a-1 is gone"]),
        ({A0: 10}, {A0: 4}, {}, {}, ["a-0 went back from offset 10 to 4; was it made again?"]),
    ],
)
def test_a_micro_batch_tells_what_it_reads_and_what_is_lost(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    earliest: dict[TopicPartition, int],
    ranges: dict[TopicPartition, OffsetRange],
    losses: list[str],
) -> None:
    assert stream_ranges(start, end, earliest) == (ranges, losses)


def test_topics_are_found_by_name_by_pattern_and_by_partition() -> None:
    assert find(log(), Topics(subscribed=("a", "b"))) == Found([A0, A1, B0])
    assert find(log(), Topics(pattern=compile_java_pattern(".*"))) == Found([A0, A1, B0])
    assert find(log(), Topics(pattern=compile_java_pattern("x"))) == Found([])
    assert find(log(), Topics(assigned=(A1,))) == Found([A1])


def test_what_is_missing_is_named() -> None:
    assert find(log(), Topics(subscribed=("a", "c"))) == Found([A0, A1], ("c",))
    assert find(log(), Topics(assigned=(A1, TopicPartition("a", 7)))) == Found([A1], ("a-7",))
    with pytest.raises(UnknownTopicError):
        find_all(log(), Topics(subscribed=("a", "c")))
    with pytest.raises(OptionError, match="partitions that are not there: a-7"):
        find_all(log(), Topics(assigned=(A1, TopicPartition("a", 7))))


def test_named_topics_cost_one_question() -> None:
    one = log()
    find(one, Topics(subscribed=("a",)))
    assert one.asked == {"partitions": 1}
