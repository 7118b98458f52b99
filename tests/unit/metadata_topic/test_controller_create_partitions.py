from dataclasses import dataclass

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.brokers import fence_broker
from metadata_topic.controller.free_descriptors import DescriptorBudget
from metadata_topic.controller.partitions import GrownTopic, create_partitions
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_specs import TopicDefaults, TopicSpec
from metadata_topic.controller.topics import create_topics
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import DIRECTORY_UNASSIGNED
from tests.support.samples.metadata import apply, cluster_of


@dataclass(frozen=True)
class Replicas:
    broker_ids: tuple[int, ...]


@dataclass(frozen=True)
class More:
    name: str
    count: int
    assignments: tuple[Replicas, ...] | None = None


def assigned(name: str, count: int, *replicas: tuple[int, ...]) -> More:
    return More(name, count, tuple(map(Replicas, replicas)))


def cluster_with(*topics: TopicSpec, brokers: tuple[int, ...] = (1, 2, 3)) -> MetadataImage:
    image = cluster_of(*brokers)
    made = create_topics(
        image,
        topics,
        defaults=TopicDefaults(),
        topic_ids=[bytes([n]) * 16 for n in range(1, len(topics) + 1)],
        validate_config=lambda _name, _configs: None,
    )
    return apply(image, made.records)


@pytest.fixture
def image() -> MetadataImage:
    """Topics a, with two partitions of one replica, and b, with one of two."""
    return cluster_with(TopicSpec("a", 2, 1), TopicSpec("b", 1, 2))


def error_of(result: ControllerResult[list[GrownTopic]]) -> tuple[ErrorCode, str]:
    (topic,) = result.response
    assert result.records == ()
    assert topic.error is not None
    assert topic.added == 0
    return topic.error.code, str(topic.error)


def test_new_partitions_follow_those_that_are_there_and_leave_them_alone(
    image: MetadataImage,
) -> None:
    before = image.topics_by_name["a"]
    grown = create_partitions(image, [More("a", 5)])
    assert grown.response == [GrownTopic("a", None, before.id, 3)]
    after = apply(image, grown.records).topics_by_name["a"]
    assert list(after.partitions) == [0, 1, 2, 3, 4]
    assert {n: after.partitions[n] for n in before.partitions} == before.partitions
    for index in (2, 3, 4):
        partition = after.partitions[index]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.isr == partition.replicas == (partition.leader,)
        assert partition.directories == (DIRECTORY_UNASSIGNED,)
    assert {after.partitions[n].leader for n in (2, 3, 4)} == {1, 2, 3}


def test_new_partitions_have_as_many_replicas_as_the_first(image: MetadataImage) -> None:
    grown = create_partitions(image, [More("b", 3)])
    partitions = apply(image, grown.records).topics_by_name["b"].partitions
    assert [len(one.replicas) for one in partitions.values()] == [2, 2, 2]


def test_a_manual_assignment_is_taken_as_it_is(image: MetadataImage) -> None:
    grown = create_partitions(image, [assigned("a", 4, (3,), (1,))])
    partitions = apply(image, grown.records).topics_by_name["a"].partitions
    assert [partitions[index].replicas for index in (2, 3)] == [(3,), (1,)]


@pytest.mark.parametrize(
    ("replicas", "part_of_message"),
    [
        ((), "add 1 additional partition(s), but only 0 assignment(s)"),
        (((1,), (2,)), "add 1 additional partition(s), but only 2 assignment(s)"),
        (((9,),), "no such broker is registered"),
        (((),), "empty replica list"),
        (((1, 1),), "the broker 1 more than once"),
        (((1, 2),), "have 1 replica(s)"),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(
    image: MetadataImage, replicas: tuple[tuple[int, ...], ...], part_of_message: str
) -> None:
    code, text = error_of(create_partitions(image, [assigned("a", 3, *replicas)]))
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert part_of_message in text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (2, "Topic already has 2 partition(s)."),
        (1, "The topic a currently has 2 partition(s); 1 would not be an increase."),
        (-1, "The topic a currently has 2 partition(s); -1 would not be an increase."),
    ],
)
def test_a_count_that_is_no_increase_is_refused_in_kafkas_words(
    image: MetadataImage, count: int, text: str
) -> None:
    asked = create_partitions(image, [More("a", count)])
    assert error_of(asked) == (ErrorCode.INVALID_PARTITIONS, text)


def test_each_topic_grows_or_is_refused_on_its_own(image: MetadataImage) -> None:
    asked = [More("a", 3), More("b", 2), More("a", 4), More("nobody", 1)]
    grown = create_partitions(image, asked)
    said = {one.name: one.error and one.error.code for one in grown.response}
    assert said == {
        "a": ErrorCode.INVALID_REQUEST,
        "b": None,
        "nobody": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert len(grown.response) == 3, "a repeated name is answered once"
    after = apply(image, grown.records).topics_by_name
    assert [len(after[name].partitions) for name in "ab"] == [2, 2]


def test_validate_only_answers_as_if_and_writes_nothing(image: MetadataImage) -> None:
    asked = create_partitions(image, [More("a", 3)], validate_only=True)
    assert asked.records == ()
    assert [one.error for one in asked.response] == [None]


def test_a_request_for_too_many_partitions_adds_none(image: MetadataImage) -> None:
    refused = create_partitions(image, [More("a", 10_002), More("b", 2), More("nobody", 2**31 - 1)])
    assert refused.records == ()
    for topic in refused.response:
        assert topic.error is not None
        assert topic.error.code == ErrorCode.POLICY_VIOLATION
        assert "10001, allowed are 10000" in str(topic.error)
    within = create_partitions(image, [More("a", 10_001), More("b", 2)], validate_only=True)
    assert [topic.error for topic in within.response] == [None, None]


def test_each_new_partition_takes_a_descriptor_of_its_broker() -> None:
    image = cluster_with(TopicSpec("a", 2, 1), TopicSpec("b", 1, 1), brokers=(1,))
    budget = DescriptorBudget({1: 3})
    asked = [More("a", 5), More("b", 2)]
    grown = create_partitions(image, asked, descriptors=budget)
    taken, refused = grown.response
    assert taken.error is None
    assert refused.error is not None
    assert refused.error.code == ErrorCode.POLICY_VIOLATION
    assert budget.taken == {1: 3}
    assert len(apply(image, grown.records).topics_by_name["b"].partitions) == 1


def test_a_shrinking_topic_makes_no_room_for_another_one() -> None:
    image = cluster_with(TopicSpec("a", 20, 1), TopicSpec("b", 1, 1))
    refused = create_partitions(image, [More("a", 1), More("b", 10_002)])
    assert refused.records == ()
    assert {one.error and one.error.code for one in refused.response} == {
        ErrorCode.POLICY_VIOLATION
    }


def test_a_fenced_broker_neither_leads_nor_is_in_sync(image: MetadataImage) -> None:
    epoch = image.brokers[1].epoch
    image = apply(image, fence_broker(image, broker_id=1, broker_epoch=epoch).records)
    grown = create_partitions(image, [assigned("b", 2, (1, 2))])
    new = apply(image, grown.records).topics_by_name["b"].partitions[1]
    assert (new.replicas, new.isr, new.leader) == ((1, 2), (2,), 2)


def test_topics_that_grow_in_one_request_begin_at_different_brokers() -> None:
    names = "abc"
    image = cluster_with(*(TopicSpec(name, 1, 1) for name in names))
    grown = create_partitions(image, [More(name, 2) for name in names])
    after = apply(image, grown.records).topics_by_name
    assert {after[name].partitions[1].leader for name in names} == {1, 2, 3}
