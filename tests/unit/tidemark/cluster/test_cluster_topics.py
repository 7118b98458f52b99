"""Topics and their settings as they are asked for and shown."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_client.blocking import BlockingClient, ClusterError
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from metadata_topic.image.image import ResourceType
from pipeline.cluster.cluster import UnknownTopicError
from tidemark.cluster.asking import Cluster, PartitionState, RefusedError, Setting, TopicState
from tidemark.cluster.topics import (
    own_settings,
    settings_text,
    topic_json,
    topic_text,
    topics_named,
)

ID = bytes(range(16))
Page = response(ApiKey.DESCRIBE_TOPIC_PARTITIONS).cls


def page(name: str, *numbers: int, then: tuple[str, int] | None = None, code: int = 0) -> Any:
    partitions = [
        Page.Topics.Partitions(partition_index=one, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        for one in numbers
    ]
    topic = Page.Topics(name=name, topic_id=ID, partitions=partitions, error_code=code)
    cursor = then and Page.NextCursor(topic_name=then[0], partition_index=then[1])
    return Page(topics=[topic], next_cursor=cursor)


def cluster(*pages: Any) -> Cluster:
    left = list(pages)
    client = SimpleNamespace(ask_any=lambda *_: left.pop(0))
    return Cluster(cast("BlockingClient", client))


def test_a_topic_that_lies_on_two_pages_is_one() -> None:
    found = cluster(page("a", 0, 1, then=("a", 2)), page("a", 2), page("b")).topics()
    assert [one.index for one in found["a"].partitions] == [0, 1, 2]


def test_the_tiers_own_topic_is_internal_though_kafka_does_not_mark_it() -> None:
    for name, is_internal in (("__remote_log_metadata", True), ("orders", False)):
        assert cluster(page(name, 0)).topics()[name].is_internal is is_internal


def test_partitions_are_added_up_to_the_count_or_refused() -> None:
    asked: list[Any] = []
    answers = response(ApiKey.CREATE_PARTITIONS).cls
    code = ErrorCode.INVALID_PARTITIONS
    left = [0, code]

    def ask_any(_: ApiKey, __: int, body: Any) -> Any:
        asked.append(body.topics[0])
        return answers(results=[answers.Results(name="a", error_code=left.pop(0))])

    one = Cluster(cast("BlockingClient", SimpleNamespace(ask_any=ask_any)))
    one.create_partitions("a", 4)
    assert (asked[0].name, asked[0].count, asked[0].assignments) == ("a", 4, None)
    with pytest.raises(RefusedError, match="topic a: INVALID_PARTITIONS"):
        one.create_partitions("a", 4)


def test_a_wrong_name_gets_the_nearest() -> None:
    unknown = page("oders", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(UnknownTopicError, match="'oders'; did you mean orders"):
        topics_named(cluster(unknown, page("orders", 0)), ["oders"])
    with pytest.raises(UnknownTopicError, match=r"'oders'$"):
        topics_named(cluster(unknown, page("orders", 0)), ["oders", "orders"])
    unknown = page("orders", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(UnknownTopicError, match=r"'orders'$"):
        topics_named(cluster(unknown, page("tides", 0)), ["orders"])
    refused = page("orders", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ClusterError, match="TOPIC_AUTHORIZATION_FAILED"):
        topics_named(cluster(refused), ["orders"])


TOPIC = TopicState(
    "orders",
    ID,
    is_internal=False,
    partitions=[
        PartitionState("orders", 0, 1, (1, 2), (1,), (2,), ()),
        PartitionState("orders", 1, -1, (2, 1), (), (), (2,)),
    ],
)


def test_the_columns_have_the_names_of_kafkas_tool() -> None:
    assert topic_text(TOPIC, {"retention.ms": "1"}, 80) == (
        "Topic: orders  TopicId: AAECAwQFBgcICQoLDA0ODw  PartitionCount: 2\n"
        "  ReplicationFactor: 2  Configs: retention.ms=1\n"
        "Partition  Leader  Replicas  Isr  Elr  LastKnownElr\n"
        "        0       1  1,2       1    2\n"
        "        1       -  2,1                 2\n"
    )


def test_json_has_the_same() -> None:
    found: Any = topic_json(TOPIC, {"retention.ms": "1"})
    assert found["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert found["configs"] == {"retention.ms": "1"}
    assert found["partitions"][1] == {
        "partition": 1,
        "leader": None,
        "replicas": [2, 1],
        "isr": [],
        "elr": [],
        "last_known_elr": [2],
    }


@pytest.mark.parametrize(
    ("kind", "name", "own"),
    [
        (ResourceType.TOPIC, "orders", "a"),
        (ResourceType.BROKER, "1", "b"),
        (ResourceType.BROKER, "", "c"),
    ],
)
def test_own_settings_are_those_of_the_resource_itself(
    kind: ResourceType, name: str, own: str
) -> None:
    settings = [Setting(one, "v", source) for source, one in enumerate("zabcde")]
    assert [one.name for one in own_settings(kind, name, settings)] == [own]


def test_the_name_of_a_setting_is_never_folded() -> None:
    text = settings_text([Setting("unclean.leader.election.enable", "x" * 20, 1)], 60)
    assert text.splitlines()[1].startswith("unclean.leader.election.enable  x")
    assert all(len(line) <= 60 for line in text.splitlines())


def test_a_setting_says_where_its_value_comes_from() -> None:
    assert settings_text([Setting("a", None, 1), Setting("b", "x", 77)], None) == (
        "Name  Value  Source\na     -      DYNAMIC_TOPIC_CONFIG\nb     x      source 77\n"
    )
