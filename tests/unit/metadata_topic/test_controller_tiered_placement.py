"""Where tiered topics may lie: only on brokers whose tier is on and alike."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from metadata_topic.controller.brokers import fence_broker
from metadata_topic.controller.configs import AlteredResource, Operation, incremental_alter_configs
from metadata_topic.controller.partitions import GrownTopic, create_partitions
from metadata_topic.controller.topic_specs import Assignment, Config, TopicDefaults, TopicSpec
from metadata_topic.controller.topics import CreatedTopic, create_topics
from metadata_topic.image.image import MetadataImage, ResourceType
from metadata_topic.image.model import RemoteStore
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply, cluster_of, started

HERE, THERE = RemoteStore("rsm:Here", b"h" * 32), RemoteStore("rsm:Here", b"t" * 32)
TIERED = (Config("remote.storage.enable", "true"),)


@dataclass(frozen=True)
class Replicas:
    broker_ids: tuple[int, ...]


@dataclass(frozen=True)
class More:
    name: str
    count: int
    assignments: tuple[Replicas, ...] | None = None


@dataclass(frozen=True)
class Change:
    name: str
    value: str | None
    config_operation: int = Operation.SET


@dataclass(frozen=True)
class Resource:
    resource_name: str
    configs: tuple[Change, ...]
    resource_type: int = ResourceType.TOPIC


class AnyRules:
    """No setting is refused."""

    def is_list(self, resource_type: int, key: str) -> bool:
        return False

    def default_of(self, resource_type: int, key: str) -> str | None:
        return None

    def validate(
        self, resource_type: int, name: str, new: dict[str, str], existing: Mapping[str, str]
    ) -> None:
        pass


def cluster(stores: Mapping[int, RemoteStore | None]) -> MetadataImage:
    image = cluster_of()
    for broker_id, store in stores.items():
        image = started(image, broker_id, store=store)
    return image


def fenced(image: MetadataImage, broker_id: int) -> MetadataImage:
    epoch = image.brokers[broker_id].epoch
    return apply(image, fence_broker(image, broker_id=broker_id, broker_epoch=epoch).records)


def created(image: MetadataImage, topic: TopicSpec) -> tuple[CreatedTopic, MetadataImage]:
    result = create_topics(
        image,
        [topic],
        defaults=TopicDefaults(),
        topic_ids=[topic.name.encode().ljust(16, b".")[:16]],
        validate_config=lambda _name, _configs: None,
    )
    return result.response[0], apply(image, result.records)


def by_hand(name: str, *replicas: int, configs: tuple[Config, ...] = TIERED) -> TopicSpec:
    assignments = tuple(Assignment(index, (one,)) for index, one in enumerate(replicas))
    return TopicSpec(name, assignments=assignments, configs=configs)


def hosts(image: MetadataImage, topic: str) -> set[int]:
    partitions = image.topics_by_name[topic].partitions.values()
    return {broker_id for partition in partitions for broker_id in partition.replicas}


def code_of(answer: CreatedTopic | GrownTopic | AlteredResource) -> tuple[ErrorCode, str]:
    error = answer.error
    assert error is not None
    return error.code, str(error)


def switched_on(image: MetadataImage, topic: str, value: str = "true") -> AlteredResource:
    resource = Resource(topic, (Change("remote.storage.enable", value),))
    return incremental_alter_configs(image, [resource], rules=AnyRules()).response[0]


def test_a_tiered_topic_is_placed_on_brokers_with_a_tier_alone() -> None:
    image = cluster({1: None, 2: HERE, 3: None, 4: HERE})
    made, image = created(image, TopicSpec("t", 8, 1, configs=TIERED))
    assert made.error is None
    assert hosts(image, "t") == {2, 4}
    assert hosts(created(image, TopicSpec("plain", 8, 1))[1], "plain") == {1, 2, 3, 4}


def test_a_tiered_topic_keeps_to_one_store() -> None:
    image = cluster({1: THERE, 2: HERE, 3: HERE, 4: THERE, 5: HERE})
    assert hosts(created(image, TopicSpec("t", 12, 1, configs=TIERED))[1], "t") == {2, 3, 5}
    image = fenced(fenced(image, 2), 3)
    _, image = created(image, TopicSpec("t", 8, 1, configs=TIERED))
    assert hosts(image, "t") == {1, 4}, "more of these are active"


def test_all_replicas_of_a_tiered_topic_lie_where_its_store_is() -> None:
    image = cluster({1: HERE, 2: THERE, 3: HERE, 4: None, 5: HERE})
    made, image = created(image, TopicSpec("t", 2, 3, configs=TIERED))
    assert made.error is None
    image = apply(image, create_partitions(image, [More("t", 4)]).records)
    partitions = image.topics_by_name["t"].partitions.values()
    assert [set(one.replicas) for one in partitions] == [{1, 3, 5}] * 4
    for other in (2, 4):
        code, text = code_of(
            created(
                image, TopicSpec("u", assignments=(Assignment(0, (1, other)),), configs=TIERED)
            )[0]
        )
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert f"broker {other}" in text


def test_tiering_of_a_replicated_topic_needs_brokers_with_one_store() -> None:
    image = cluster({1: HERE, 2: HERE, 3: THERE})
    for name, replicas in (("alike", (1, 2)), ("unlike", (1, 3))):
        _, image = created(image, TopicSpec(name, assignments=(Assignment(0, replicas),)))
    assert switched_on(image, "alike").error is None
    code, text = code_of(switched_on(image, "unlike"))
    assert (code, "broker(s) 3 have replicas of unlike" in text) == (ErrorCode.INVALID_CONFIG, True)


def test_the_metadata_topic_has_replicas_on_brokers_with_a_tier() -> None:
    image = cluster({1: HERE, 2: None, 3: THERE, 4: HERE})
    made, image = created(image, TopicSpec(REMOTE_LOG_METADATA_TOPIC, 2, 3))
    assert made.error is None
    assert hosts(image, REMOTE_LOG_METADATA_TOPIC) == {1, 3, 4}


def test_of_two_stores_with_as_many_brokers_that_of_the_lowest_id_is_taken() -> None:
    """The same one each time: topics that are read together lie together."""
    for stores in ({1: HERE, 2: THERE}, {1: THERE, 2: HERE}):
        assert hosts(created(cluster(stores), TopicSpec("t", 3, 1, configs=TIERED))[1], "t") == {1}


def test_a_tiered_topic_without_enough_brokers_is_refused_with_the_reason() -> None:
    image = cluster({1: None, 2: HERE})
    made, _ = created(image, TopicSpec("t", 1, 2, configs=TIERED))
    code, text = code_of(made)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 1 broker(s) have a remote tier with the store of this topic" in text
    made, _ = created(cluster({1: None}), TopicSpec("t", 1, 1, configs=TIERED))
    assert code_of(made)[0] == ErrorCode.INVALID_REPLICATION_FACTOR


ALL_IDLE = "all brokers that have a remote tier with the store of this topic are currently fenced"


@pytest.mark.parametrize(
    ("stores", "out", "why", "counted"),
    [
        ({}, (), "only 0 broker(s) have a remote tier.", (0, 0, 0, 0)),
        ({1: None, 2: None}, (), "only 0 broker(s) have a remote tier.", (2, 0, 2, 0)),
        ({1: HERE, 2: None, 3: None}, (1,), ALL_IDLE, (3, 1, 2, 0)),
        ({1: HERE, 2: HERE, 3: THERE}, (1, 2, 3), ALL_IDLE, (3, 2, 0, 1)),
    ],
    ids=["none is there", "no tier", "fenced", "fenced, and another store"],
)
def test_a_refusal_counts_the_brokers_and_says_the_remedy(
    stores: Mapping[int, RemoteStore | None],
    out: tuple[int, ...],
    why: str,
    counted: tuple[int, int, int, int],
) -> None:
    image = cluster(stores)
    for broker_id in out:
        image = fenced(image, broker_id)
    code, text = code_of(created(image, TopicSpec("t", 1, 1, configs=TIERED))[0])
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert why in text
    assert said(*counted) in text
    ways = ("Start a broker with ", "Start those that are fenced, or one with ")
    assert f"{ways[bool(out)]}remote.log.storage.system.enable=true" in text


def said(registered: int, idle: int, off: int, other: int) -> str:
    return (
        f"Of {registered} registered broker(s) {idle} with such a tier are fenced or stopping, "
        f"{off} are without a tier, {other} have another store."
    )


def test_more_replicas_than_brokers_with_the_store_are_told_how_many() -> None:
    code, text = code_of(created(cluster({1: HERE}), TopicSpec("t", 1, 3, configs=TIERED))[0])
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "Ask for 1 replica(s) at most, or start a broker with " in text


def test_a_refusal_by_the_default_replication_factor_counts_the_brokers() -> None:
    text = code_of(created(cluster({1: None}), TopicSpec("t", 1, -1, configs=TIERED))[0])[1]
    assert "default.replication.factor=" in text
    assert said(1, 0, 1, 0) in text


def test_a_refusal_of_more_partitions_counts_the_brokers() -> None:
    _, image = created(cluster({1: HERE}), by_hand("t", 1))
    (grown,) = create_partitions(started(image, 1, life=2), [More("t", 2)]).response
    assert said(1, 0, 1, 0) in code_of(grown)[1]


def test_a_refusal_of_the_metadata_topic_counts_the_brokers() -> None:
    image = fenced(cluster({1: None, 2: HERE}), 2)
    text = code_of(created(image, TopicSpec(REMOTE_LOG_METADATA_TOPIC, 1, 2))[0])[1]
    assert said(2, 1, 1, 0) in text


def test_a_manual_assignment_is_told_which_broker_lacks_what() -> None:
    text = code_of(created(cluster({1: None}), by_hand("t", 1))[0])[1]
    assert "does not have a remote tier: set remote.log.storage.system.enable=true on b" in text
    text = code_of(created(cluster({1: None, 2: HERE}), by_hand("t", 1))[0])[1]
    assert "the store of this topic: choose among 2, or set remote.log.storage.system" in text
    assert text.endswith("=true with that store on broker 1.")


def test_a_manual_assignment_to_a_fenced_broker_says_the_remedy() -> None:
    image = fenced(cluster({1: HERE}), 1)
    code, text = code_of(created(image, by_hand("t", 1))[0])
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert text.endswith("fenced or in controlled shutdown: start one of them, or choose another.")


@pytest.mark.parametrize(
    ("stores", "assigned", "named"),
    [
        ({1: HERE, 2: None}, (1, 2), "broker 2"),
        ({1: None}, (1,), "broker 1"),
        ({1: HERE, 2: HERE, 3: THERE}, (1, 2, 3), "broker 3"),
    ],
)
def test_a_manual_assignment_to_another_broker_is_39(
    stores: Mapping[int, RemoteStore | None], assigned: tuple[int, ...], named: str
) -> None:
    image = cluster(stores)
    made, _ = created(image, by_hand("t", *assigned))
    code, text = code_of(made)
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert named in text
    assert created(image, by_hand("plain", *assigned, configs=()))[0].error is None


def test_new_partitions_of_a_tiered_topic_go_where_its_store_is() -> None:
    image = cluster({1: THERE, 2: HERE, 3: THERE, 4: HERE, 5: None, 6: THERE})
    _, image = created(image, by_hand("t", 2))
    grown = create_partitions(image, [More("t", 9)])
    assert hosts(apply(image, grown.records), "t") == {2, 4}
    for broker_id in (1, 5):
        more = More("t", 2, (Replicas((broker_id,)),))
        (refused,) = create_partitions(image, [more]).response
        assert code_of(refused)[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    (fit,) = create_partitions(image, [More("t", 2, (Replicas((4,)),))]).response
    assert fit.error is None


def test_new_partitions_follow_a_host_that_came_back_with_another_store() -> None:
    """It is believed; each partition's segments lie in the store of its own replicas."""
    image = cluster({1: HERE, 2: HERE, 3: THERE})
    _, image = created(image, by_hand("t", 1))
    image = started(image, 1, life=2, store=THERE)
    grown = apply(image, create_partitions(image, [More("t", 5)]).records)
    assert hosts(grown, "t") == {1, 3}


def test_a_topic_is_switched_on_only_where_all_replicas_can_be_tiered() -> None:
    image = cluster({1: HERE, 2: None, 3: THERE, 4: HERE})
    for name, assigned in (("mixed", (1, 2)), ("off", (2,)), ("unlike", (1, 3, 4))):
        _, image = created(image, by_hand(name, *assigned, configs=()))
        code, text = code_of(switched_on(image, name))
        assert code == ErrorCode.INVALID_CONFIG
        assert f"have replicas of {name}" in text
    _, image = created(image, by_hand("alike", 1, 4, configs=()))
    assert switched_on(image, "alike").error is None
    assert switched_on(image, "off", "false").error is None


def test_a_tiered_topic_may_be_changed_while_its_broker_has_no_tier() -> None:
    image = cluster({1: HERE})
    _, image = created(image, by_hand("t", 1))
    image = started(image, 1, life=2)
    assert image.brokers[1].remote_store is None
    assert switched_on(image, "t").error is None
    (grown,) = create_partitions(image, [More("t", 2)]).response
    code, text = code_of(grown)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 0 broker(s) have a remote tier with the store of this topic" in text


def test_a_broker_that_is_unregistered_counts_as_off() -> None:
    image = cluster({1: HERE, 2: HERE})
    _, image = created(image, by_hand("t", 1, 2, configs=()))
    epoch = image.brokers[2].epoch
    image = apply(image, [make("UnregisterBrokerRecord", broker_id=2, broker_epoch=epoch)])
    code, text = code_of(switched_on(image, "t"))
    assert (code, "broker(s) 2" in text) == (ErrorCode.INVALID_CONFIG, True)


def test_the_tiers_metadata_topic_lies_on_brokers_with_any_tier() -> None:
    image = cluster({1: None, 2: HERE, 3: THERE})
    _, image = created(image, TopicSpec(REMOTE_LOG_METADATA_TOPIC, 6, 1))
    assert hosts(image, REMOTE_LOG_METADATA_TOPIC) == {2, 3}
    refused, _ = created(cluster({1: None, 2: HERE}), by_hand(REMOTE_LOG_METADATA_TOPIC, 1))
    assert code_of(refused)[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


stores = st.sampled_from([None, HERE, THERE])


@given(
    cluster_stores=st.lists(stores, min_size=1, max_size=6),
    out=st.sets(st.integers(1, 6)),
    partitions=st.integers(1, 6),
    factor=st.integers(1, 3),
    more=st.integers(1, 4),
)
def test_replicas_of_a_tiered_topic_lie_in_exactly_one_store(
    cluster_stores: list[RemoteStore | None],
    out: set[int],
    partitions: int,
    factor: int,
    more: int,
) -> None:
    image = cluster(dict(enumerate(cluster_stores, 1)))
    for broker_id in out & image.brokers.keys():
        image = fenced(image, broker_id)
    made, image = created(image, TopicSpec("t", partitions, factor, configs=TIERED))
    if made.error is not None:
        assert code_of(made)[0] == ErrorCode.INVALID_REPLICATION_FACTOR
        return
    image = apply(image, create_partitions(image, [More("t", partitions + more)]).records)
    found = {image.brokers[broker_id].remote_store for broker_id in hosts(image, "t")}
    assert len(found) == 1
    assert found <= {HERE, THERE}
