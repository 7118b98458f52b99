"""Which offsets a group gets, by each way that Kafka's tool has."""

import pytest

from kafka_client.blocking import ClusterError
from kafka_protocol.types import TopicPartition
from tidemark.cluster.resetting import (
    Current,
    Earliest,
    Facts,
    Latest,
    Shift,
    Since,
    To,
    Way,
    parse_topic,
    planned,
)

READ, NEW = TopicPartition("orders", 0), TopicPartition("orders", 1)
FACTS = Facts(committed={READ: 50}, starts={READ: 10, NEW: 3}, ends={READ: 100, NEW: 8})


def new(way: Way, *partitions: TopicPartition) -> list[int]:
    return [one.new for one in planned(way, partitions or (NEW, READ), FACTS)]


@pytest.mark.parametrize(
    ("way", "read", "unread"),
    [
        (Earliest(), 10, 3),
        (Latest(), 100, 8),
        (Current(), 50, 8),
        (To(5), 10, 5),
        (To(9), 10, 8),
        (To(60), 60, 8),
        (To(101), 100, 8),
        (Since({READ: 77}), 77, 8),
    ],
)
def test_each_way_stays_within_the_log(way: Way, read: int, unread: int) -> None:
    assert new(way) == [read, unread]


@pytest.mark.parametrize(("by", "offset"), [(7, 57), (-7, 43), (-41, 10), (51, 100)])
def test_a_shift_begins_at_what_is_committed(by: int, offset: int) -> None:
    assert new(Shift(by), READ) == [offset]


def test_a_shift_of_nothing_is_refused() -> None:
    with pytest.raises(ClusterError, match="orders-1 cannot be shifted: nothing is committed"):
        new(Shift(1))


def test_the_plan_shows_what_is_committed_and_where_the_log_ends() -> None:
    assert [tuple(one) for one in planned(Latest(), [NEW, READ], FACTS)] == [
        (READ, 50, 100, 100),
        (NEW, None, 8, 8),
    ]


@pytest.mark.parametrize("lacking", ["starts", "ends"])
def test_a_partition_that_nobody_leads_changes_nothing(lacking: str) -> None:
    known = {"committed": {}, "starts": {READ: 1}, "ends": {READ: 2}, lacking: {}}
    with pytest.raises(ClusterError, match="orders-0 has no leader now; nothing was changed"):
        planned(Earliest(), [READ], Facts(**known))


def test_topics_may_name_partitions() -> None:
    assert parse_topic("orders") == ("orders", None)
    assert parse_topic("orders:0,12") == ("orders", (0, 12))
    for wrong in ("", ":1", "orders:", "orders:x", "orders:1,", "orders:-1"):
        with pytest.raises(ValueError, match="must be TOPIC"):
            parse_topic(wrong)
