"""How far a group has read, and who reads."""

from kafka_protocol.types import TopicPartition
from tidemark.cluster.groups import Coordinator, Described, Member
from tidemark.cluster.groups_text import group_json, group_text, rows_of

READ, UNREAD, GONE = (TopicPartition(*one) for one in (("a", 0), ("a", 1), ("gone", 0)))
MEMBER = Member("rdkafka-1", None, "app", "/10.0.0.1", frozenset((READ, UNREAD)))
STRANGER = Member("connect-1", "one", "worker", "/10.0.0.2", None)
COORDINATOR = Coordinator("h1", 9092, 1)
GROUP = Described("readers", COORDINATOR, "Stable", "range", (MEMBER, STRANGER))
ROWS = rows_of(GROUP, {READ: 7, GONE: 3}, {READ: 10, UNREAD: 5})


def test_a_row_stands_for_what_is_committed_or_assigned() -> None:
    assert [(one.partition, one.current, one.end, one.lag, one.member) for one in ROWS] == [
        (READ, 7, 10, 3, MEMBER),
        (UNREAD, None, 5, None, MEMBER),
        (GONE, 3, None, None, None),
    ]


def test_a_log_that_lost_its_end_has_a_lag_below_0() -> None:
    (row,) = rows_of(Described("g", COORDINATOR, "Empty", "", ()), {READ: 7}, {READ: 5})
    assert row.lag == -2


def test_the_columns_have_the_names_of_kafkas_tool() -> None:
    assert group_text(GROUP, ROWS, 80) == (
        "GROUP: readers  STATE: Stable  COORDINATOR (ID): h1:9092 (1)\n"
        "  ASSIGNMENT-STRATEGY: range  #MEMBERS: 2\n"
        "TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CLIENT-ID\n"
        "a              0               7              10    3  app\n"
        "a              1               -               5    -  app\n"
        "gone           0               3               -    -  -\n"
        "\n"
        "CONSUMER-ID  HOST       CLIENT-ID  #PARTITIONS  ASSIGNMENT\n"
        "rdkafka-1    /10.0.0.1  app                  2  a:0,1\n"
        "connect-1    /10.0.0.2  worker               -  -\n"
    )


def test_json_has_the_same() -> None:
    found = group_json(GROUP, ROWS)
    assert found["coordinator"] == {"host": "h1", "port": 9092, "id": 1}
    assert found["offsets"] == [
        {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "current_offset": one.current,
            "log_end_offset": one.end,
            "lag": one.lag,
            "consumer_id": one.member and one.member.id,
        }
        for one in ROWS
    ]
    assert [one["assignment"] for one in found["members"]] == [  # type: ignore[attr-defined]
        [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 1}],
        None,
    ]
