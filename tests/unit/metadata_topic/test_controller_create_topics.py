from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.errors import InvalidConfigError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_deletion import delete_topics
from metadata_topic.controller.topic_specs import Assignment, Config, TopicDefaults, TopicSpec
from metadata_topic.controller.topics import CreatedTopic, create_topics
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import DIRECTORY_UNASSIGNED, TopicImage
from metadata_topic.image.sorted_map import SortedMap
from tests.support.samples.metadata import apply, cluster_of

IDS = [bytes([n]) * 16 for n in range(1, 21)]


def accept(name: str, configs: dict[str, str]) -> None:
    """Every config is fine."""


def create(
    image: MetadataImage, *topics: TopicSpec, validate_only: bool = False, **defaults: int
) -> ControllerResult[list[CreatedTopic]]:
    return create_topics(
        image,
        topics,
        defaults=TopicDefaults(**defaults),
        topic_ids=IDS,
        validate_config=accept,
        validate_only=validate_only,
    )


def error_of(image: MetadataImage, topic: TopicSpec, **defaults: int) -> tuple[ErrorCode, str]:
    result = create(image, topic, **defaults)
    assert result.records == ()
    error = result.response[0].error
    assert error is not None
    assert result.response[0].topic_id == ZERO_UUID
    return error.code, str(error)


def test_a_request_that_would_make_too_many_partitions_makes_none() -> None:
    image = cluster_of(1)
    refused = create(image, TopicSpec("wide", 10_000, 1), TopicSpec("one", 1, 1))
    assert refused.records == ()
    for topic in refused.response:
        assert topic.error is not None
        assert topic.error.code == ErrorCode.POLICY_VIOLATION
        assert "10001, allowed are 10000" in str(topic.error)
    within = create(image, TopicSpec("wide", 9_999, 1), TopicSpec("one", 1, 1), validate_only=True)
    assert [topic.error for topic in within.response] == [None, None]


def test_a_topic_is_created_with_its_partitions_led_by_the_broker() -> None:
    image = cluster_of(1)
    result = create(image, TopicSpec("orders", 3, 1, configs=(Config("retention.ms", "1000"),)))
    assert [r.name for r in result.records] == ["TopicRecord", "ConfigRecord"] + [
        "PartitionRecord"
    ] * 3
    created = result.response[0]
    assert created.error is None
    assert (created.topic_id, created.num_partitions, created.replication_factor) == (IDS[0], 3, 1)
    assert created.configs == {"retention.ms": "1000"}
    image = apply(image, result.records)
    partition = image.partition("orders", 2)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1,))
    assert partition.directories == (DIRECTORY_UNASSIGNED,)  # until its files are there
    assert image.topic_config("orders") == {"retention.ms": "1000"}


def test_minus_one_takes_the_configured_defaults() -> None:
    result = create(cluster_of(1, 2), TopicSpec("a"), num_partitions=4, replication_factor=2)
    assert (result.response[0].num_partitions, result.response[0].replication_factor) == (4, 2)


def test_validate_only_answers_as_if_and_writes_nothing() -> None:
    result = create(cluster_of(1), TopicSpec("a", 2, 1), validate_only=True)
    assert result.records == ()
    assert result.response[0].error is None
    assert result.response[0].topic_id == ZERO_UUID
    assert result.response[0].num_partitions == 2


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../../etc/x", "a" * 250, "größe", "topic٣", "a/b", "a b", "a\n"]
)
def test_names_that_cannot_be_directories_are_refused(name: str) -> None:
    code, message = error_of(cluster_of(1), TopicSpec(name, 1, 1))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(message) < 250


def test_249_characters_are_fine() -> None:
    assert create(cluster_of(1), TopicSpec("a" * 249, 1, 1)).response[0].error is None


def test_a_name_equal_in_metrics_is_refused_and_the_other_topic_is_named() -> None:
    image = apply(cluster_of(1), create(cluster_of(1), TopicSpec("a_b", 1, 1)).records)
    code, message = error_of(image, TopicSpec("a.b", 1, 1))
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "a_b" in message


@pytest.mark.parametrize(("there", "asked"), [("a_b", "a.b"), ("a.b", "a_b"), ("a.b.c", "a_b.c")])
def test_each_spelling_of_a_name_is_taken_until_the_topic_is_gone(there: str, asked: str) -> None:
    image = apply(cluster_of(1), create(cluster_of(1), TopicSpec(there, 1, 1)).records)
    assert there in error_of(image, TopicSpec(asked, 1, 1))[1]
    assert create(image, TopicSpec(asked + "d", 1, 1)).response[0].error is None
    image = apply(image, delete_topics(image, [(there, ZERO_UUID)]).records)
    assert create(image, TopicSpec(asked, 1, 1)).response[0].error is None


class Unwalked(SortedMap[str, TopicImage]):
    """Look-ups only."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all names were looked at")


def test_a_name_is_checked_without_a_look_at_all_others() -> None:
    image = apply(cluster_of(1), create(cluster_of(1), TopicSpec("a_b", 1, 1)).records)
    names = image.topics_by_name
    image = replace(image, topics_by_name=Unwalked((), names.chunks, len(names)))
    created = create(image, TopicSpec("a.b", 1, 1), TopicSpec("c.d", 1, 1), TopicSpec("c_d", 1, 1))
    assert [topic.error is None for topic in created.response] == [False, True, False]


def test_two_colliding_names_in_one_request_give_one_topic() -> None:
    result = create(cluster_of(1), TopicSpec("x.y", 1, 1), TopicSpec("x_y", 1, 1))
    assert [t.error is None for t in result.response] == [True, False]


def test_an_existing_topic_is_refused() -> None:
    image = apply(cluster_of(1), create(cluster_of(1), TopicSpec("a", 1, 1)).records)
    assert error_of(image, TopicSpec("a", 1, 1))[0] == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_name_twice_in_a_request_is_created_not_once() -> None:
    result = create(cluster_of(1), TopicSpec("a", 1, 1), TopicSpec("b", 1, 1), TopicSpec("a", 2, 1))
    by_name = {t.name: t.error for t in result.response}
    assert len(result.response) == 2
    assert by_name["b"] is None
    assert by_name["a"] is not None
    assert by_name["a"].code == ErrorCode.INVALID_REQUEST
    assert sum(r.name == "TopicRecord" for r in result.records) == 1


@pytest.mark.parametrize("count", [0, -2, -(2**31)])
def test_a_count_of_partitions_that_is_none_is_refused(count: int) -> None:
    assert error_of(cluster_of(1), TopicSpec("a", count, 1))[0] == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [0, -2])
def test_a_replication_factor_that_is_none_is_refused(factor: int) -> None:
    code, _ = error_of(cluster_of(1), TopicSpec("a", 1, factor))
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_more_replicas_than_brokers_are_refused_with_both_numbers() -> None:
    code, message = error_of(cluster_of(1), TopicSpec("a", 1, 3))
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "factor of 3" in message
    assert "1 broker(s)" in message


def test_an_impossible_default_factor_names_its_key_value_and_brokers() -> None:
    code, message = error_of(cluster_of(1), TopicSpec("a", 1), replication_factor=3)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "default.replication.factor=3" in message
    assert "1 broker(s)" in message


def test_a_billion_partitions_are_refused_before_anything_is_built() -> None:
    code, _ = error_of(cluster_of(1), TopicSpec("a", 10**9, 1))
    assert code == ErrorCode.POLICY_VIOLATION


def test_the_limit_counts_the_whole_request() -> None:
    topics = [TopicSpec(f"t{n}", 5000, 1) for n in range(3)]
    result = create(cluster_of(1), *topics)
    assert result.records == ()
    assert all(
        t.error is not None and t.error.code == ErrorCode.POLICY_VIOLATION for t in result.response
    )
    assert create(cluster_of(1), *topics[:2]).response[1].error is None


def test_without_an_active_broker_nothing_can_be_placed() -> None:
    assert error_of(cluster_of(), TopicSpec("a", 1, 1))[0] == ErrorCode.INVALID_REPLICATION_FACTOR


def assigned(*replicas: tuple[int, ...], first: int = 0) -> TopicSpec:
    rows = tuple(Assignment(first + index, ids) for index, ids in enumerate(replicas))
    return TopicSpec("a", assignments=rows)


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    image = cluster_of(1, 2, 3)
    image = apply(image, create(image, assigned((3, 1), (2, 3))).records)
    first = image.partition("a", 0)
    assert first is not None
    assert (first.replicas, first.leader) == ((3, 1), 3)


@pytest.mark.parametrize(
    ("topic", "part_of_message"),
    [
        (assigned((1, 1)), "more than once"),
        (assigned((9,)), "broker 9"),
        (assigned(()), "empty replica list"),
        (assigned((1,), (1, 2)), "not consistent"),
        (assigned((1,), first=1), "consecutive"),
        (
            TopicSpec("a", assignments=(Assignment(0, (1,)), Assignment(0, (2,)))),
            "multiple manual partition assignments",
        ),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(topic: TopicSpec, part_of_message: str) -> None:
    code, message = error_of(cluster_of(1, 2), topic)
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert part_of_message in message


@pytest.mark.parametrize(
    "topic",
    [
        TopicSpec("a", 2, -1, (Assignment(0, (1,)),)),
        TopicSpec("a", -1, 1, (Assignment(0, (1,)),)),
    ],
)
def test_an_assignment_and_numbers_at_once_are_refused(topic: TopicSpec) -> None:
    assert error_of(cluster_of(1), topic)[0] == ErrorCode.INVALID_REQUEST


def test_a_config_without_value_is_refused() -> None:
    topic = TopicSpec("a", 1, 1, configs=(Config("retention.ms", None),))
    code, message = error_of(cluster_of(1), topic)
    assert code == ErrorCode.INVALID_CONFIG
    assert "retention.ms" in message


def test_what_the_validator_refuses_is_the_answer_for_that_topic_alone() -> None:
    def refuse_b(name: str, configs: dict[str, str]) -> None:
        if name == "b":
            raise InvalidConfigError("no")

    result = create_topics(
        cluster_of(1),
        [TopicSpec("a", 1, 1), TopicSpec("b", 1, 1)],
        defaults=TopicDefaults(),
        topic_ids=IDS,
        validate_config=refuse_b,
    )
    assert [t.error is None for t in result.response] == [True, False]


@pytest.mark.parametrize(("level", "written"), [(0, False), (1, True)])
def test_min_isr_clears_eligible_replicas_only_where_they_are_a_feature(
    level: int, written: bool
) -> None:
    image = cluster_of(1, features={"eligible.leader.replicas.version": level} if level else None)
    topic = TopicSpec("a", 1, 1, configs=(Config("min.insync.replicas", "1"),))
    names = [r.name for r in create(image, topic).records]
    assert ("ClearElrRecord" in names) == written


def test_replicas_spread_over_brokers_and_leaders_over_partitions() -> None:
    image = cluster_of(1, 2, 3)
    image = apply(image, create(image, TopicSpec("a", 6, 2)).records)
    partitions = image.topics_by_name["a"].partitions.values()
    assert sorted(p.leader for p in partitions) == [1, 1, 2, 2, 3, 3]
    assert all(len(set(p.replicas)) == 2 for p in partitions)
    pairs = {p.replicas for p in partitions}
    assert len(pairs) == 6


def test_with_several_log_directories_the_broker_decides_later() -> None:
    image = cluster_of(1)
    from dataclasses import replace

    broker = replace(image.brokers[1], log_dirs=(b"d" * 16, b"e" * 16))
    image = replace(image, brokers={1: broker})
    image = apply(image, create(image, TopicSpec("a", 1, 1)).records)
    partition = image.partition("a", 0)
    assert partition is not None
    assert partition.directory_of(1) == DIRECTORY_UNASSIGNED
