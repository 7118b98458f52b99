from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.configs import Operation, incremental_alter_configs
from metadata_topic.controller.errors import InvalidConfigError
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from tests.support.samples.metadata import apply, cluster_of

TOPIC, BROKER = 2, 4


@dataclass(frozen=True)
class Change:
    name: str
    value: str | None
    config_operation: int = Operation.SET


@dataclass(frozen=True)
class Resource:
    resource_type: int
    resource_name: str
    configs: tuple[Change, ...]


class Rules:
    """cleanup.policy is a list with a default; `bad` is never allowed."""

    def is_list(self, resource_type: int, key: str) -> bool:
        return key == "cleanup.policy"

    def default_of(self, resource_type: int, key: str) -> str | None:
        return "delete" if key == "cleanup.policy" else None

    def validate(
        self, resource_type: int, name: str, new: dict[str, str], existing: Mapping[str, str]
    ) -> None:
        if "bad" in new:
            raise InvalidConfigError(f"bad={new['bad']}")


@pytest.fixture
def image() -> MetadataImage:
    return apply(
        cluster_of(1),
        [
            make("TopicRecord", name="a", topic_id=b"a" * 16),
            make("ConfigRecord", resource_type=2, resource_name="a", name="k", value="v"),
        ],
    )


def alter(image: MetadataImage, *resources: Resource, **how: bool):  # type: ignore[no-untyped-def]
    return incremental_alter_configs(image, resources, rules=Rules(), **how)


def after(image: MetadataImage, *changes: Change) -> Mapping[str, str]:
    result = alter(image, Resource(TOPIC, "a", changes))
    assert result.response[0].error is None
    return apply(image, result.records).topic_config("a")


def code_of(image: MetadataImage, resource: Resource) -> ErrorCode:
    result = alter(image, resource)
    assert result.records == ()
    error = result.response[0].error
    assert error is not None
    code: ErrorCode = error.code
    return code


def test_set_and_delete(image: MetadataImage) -> None:
    assert after(image, Change("n", "1")) == {"k": "v", "n": "1"}
    assert after(image, Change("k", None, Operation.DELETE)) == {}
    assert after(image, Change("absent", None, Operation.DELETE)) == {"k": "v"}


def test_append_and_subtract_start_from_the_default(image: MetadataImage) -> None:
    appended = after(image, Change("cleanup.policy", "compact", Operation.APPEND))
    assert appended["cleanup.policy"] == "delete,compact"
    assert after(image, Change("cleanup.policy", "delete", Operation.SUBTRACT)) == {
        "k": "v",
        "cleanup.policy": "",
    }


def test_appending_what_is_there_changes_nothing(image: MetadataImage) -> None:
    assert after(image, Change("cleanup.policy", "delete,delete", Operation.APPEND)) == {
        "k": "v",
        "cleanup.policy": "delete",
    }


def test_append_to_what_is_no_list_is_refused(image: MetadataImage) -> None:
    resource = Resource(TOPIC, "a", (Change("k", "w", Operation.APPEND),))
    assert code_of(image, resource) == ErrorCode.INVALID_CONFIG


def test_setting_an_equal_value_writes_a_record_for_brokers_only(
    image: MetadataImage,
) -> None:
    assert alter(image, Resource(TOPIC, "a", (Change("k", "v"),))).records == ()
    broker = Resource(BROKER, "1", (Change("x", "1"),))
    image = apply(image, alter(image, broker).records)
    assert len(alter(image, broker).records) == 1


def test_brokers_and_the_cluster_default_are_separate(image: MetadataImage) -> None:
    result = alter(
        image,
        Resource(BROKER, "1", (Change("x", "1"),)),
        Resource(BROKER, "", (Change("x", "2"),)),
    )
    changed = apply(image, result.records)
    assert changed.broker_config(1) == {"x": "1"}
    assert changed.broker_config(None) == {"x": "2"}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (Resource(TOPIC, "zzz", ()), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Resource(TOPIC, "", ()), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (Resource(BROKER, "7", ()), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (Resource(BROKER, "one", ()), ErrorCode.INVALID_REQUEST),
        (Resource(BROKER, "9" * 5000, ()), ErrorCode.INVALID_REQUEST),
        (Resource(99, "a", ()), ErrorCode.INVALID_REQUEST),
        (Resource(TOPIC, "a", (Change("n", "1"), Change("n", "2"))), ErrorCode.INVALID_REQUEST),
        (Resource(TOPIC, "a", (Change("n", None),)), ErrorCode.INVALID_REQUEST),
        (Resource(TOPIC, "a", (Change("n", "1", 4),)), ErrorCode.INVALID_REQUEST),
        (Resource(TOPIC, "a", (Change("n", "1", 9),)), ErrorCode.INVALID_REQUEST),
        (Resource(TOPIC, "a", (Change("bad", "1"),)), ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_altered_is_refused(
    image: MetadataImage, resource: Resource, code: ErrorCode
) -> None:
    assert code_of(image, resource) == code


def test_a_resource_named_twice_is_refused_and_the_others_are_changed(
    image: MetadataImage,
) -> None:
    topic = Resource(TOPIC, "a", (Change("n", "1"),))
    result = alter(image, topic, Resource(BROKER, "1", (Change("x", "1"),)), topic)
    assert [r.error is None for r in result.response] == [False, True]
    assert len(result.records) == 1


def test_validate_only_writes_nothing(image: MetadataImage) -> None:
    result = alter(image, Resource(TOPIC, "a", (Change("n", "1"),)), validate_only=True)
    assert result.records == ()
    assert result.response[0].error is None


def test_min_isr_clears_eligible_replicas_where_they_are_a_feature() -> None:
    image = apply(
        cluster_of(1, features={"eligible.leader.replicas.version": 1}),
        [make("TopicRecord", name="a", topic_id=b"a" * 16)],
    )
    change = Change("min.insync.replicas", "2")
    topic = alter(image, Resource(TOPIC, "a", (change,)))
    assert topic.records[-1].value.topic_name == "a"
    cluster = alter(image, Resource(BROKER, "", (change,)))
    assert cluster.records[-1].name == "ClearElrRecord"
    assert cluster.records[-1].value.topic_name == ""


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
def test_min_isr_leaves_eligible_replicas_where_nobody_is_in_sync(kind: int) -> None:
    """To lower it is what people do then: without them nobody could lead any more."""
    state = {
        "topic_id": b"a" * 16,
        "replicas": [1, 2],
        "leader": -1,
        "directories": [b"d" * 16] * 2,
    }
    image = apply(
        cluster_of(1, features={"eligible.leader.replicas.version": 1}),
        [
            make("TopicRecord", name="a", topic_id=b"a" * 16),
            make(
                "PartitionRecord",
                2,
                partition_id=0,
                isr=[],
                eligible_leader_replicas=[1, 2],
                last_known_elr=[2],
                **state,
            ),
            make(
                "PartitionRecord",
                2,
                partition_id=1,
                isr=[1],
                eligible_leader_replicas=[2],
                **state,
            ),
            make("PartitionRecord", 2, partition_id=2, isr=[], last_known_elr=[2], **state),
        ],
    )
    name = "a" if kind == TOPIC else ""
    change = Change("min.insync.replicas", "1")
    after = apply(image, alter(image, Resource(kind, name, (change,))).records)
    partitions = after.topics_by_name["a"].partitions
    assert (partitions[0].elr, partitions[0].last_known_elr) == ((1, 2), (2,))
    assert partitions[1].elr == ()
    assert partitions[2].last_known_elr == (2,)


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
@pytest.mark.parametrize(
    ("in_sync", "minimum", "stays"),
    [([1], "3", True), ([1], "2", True), ([1, 3], "3", True), ([1], "1", False),
     ([1, 3], "2", False), ([1, 2, 3], "9", False)],
)  # fmt: skip
def test_min_isr_leaves_eligible_replicas_where_nothing_can_be_committed(
    kind: int, in_sync: list[int], minimum: str, *, stays: bool
) -> None:
    """Their leader is below the new minimum, too, and may be lost next."""
    partition = make(
        "PartitionRecord",
        2,
        partition_id=0,
        topic_id=b"a" * 16,
        replicas=[1, 2, 3],
        isr=in_sync,
        leader=1,
        eligible_leader_replicas=[2],
        directories=[b"d" * 16] * 3,
    )
    topic = make("TopicRecord", name="a", topic_id=b"a" * 16)
    image = apply(
        cluster_of(1, features={"eligible.leader.replicas.version": 1}), [topic, partition]
    )
    change = Change("min.insync.replicas", minimum)
    resource = Resource(kind, "a" if kind == TOPIC else "", (change,))
    after = apply(image, alter(image, resource).records)
    assert after.topics_by_name["a"].partitions[0].elr == ((2,) if stays else ())


@pytest.mark.parametrize(
    ("topic_value", "operation", "cluster_value", "stays"),
    [
        (None, None, "1", True),
        ("1", Operation.SET, "2", False),
        ("1", Operation.SET, "1", False),
        (None, Operation.DELETE, "1", False),
        ("3", Operation.SET, "1", True),
    ],
    ids=["its own", "lowered", "both lowered", "given up", "raised"],
)
@pytest.mark.parametrize("topic_first", [True, False])
def test_a_minimum_of_the_cluster_is_none_of_a_topic_with_its_own(
    topic_value: str | None,
    operation: Operation | None,
    cluster_value: str,
    *,
    stays: bool,
    topic_first: bool,
) -> None:
    """Also where one request changes both: what holds after all of it counts."""
    partition = make(
        "PartitionRecord",
        2,
        partition_id=0,
        topic_id=b"a" * 16,
        replicas=[1, 2],
        isr=[1],
        leader=1,
        eligible_leader_replicas=[2],
        directories=[b"d" * 16] * 2,
    )
    own = make(
        "ConfigRecord",
        resource_type=TOPIC,
        resource_name="a",
        name="min.insync.replicas",
        value="2",
    )
    topic = make("TopicRecord", name="a", topic_id=b"a" * 16)
    image = apply(
        cluster_of(1, features={"eligible.leader.replicas.version": 1}), [topic, partition, own]
    )
    asked = [Resource(BROKER, "", (Change("min.insync.replicas", cluster_value),))]
    if operation is not None:
        change = Change("min.insync.replicas", topic_value, operation)
        asked.insert(0 if topic_first else 1, Resource(TOPIC, "a", (change,)))
    after = apply(image, alter(image, *asked).records)
    assert after.topics_by_name["a"].partitions[0].elr == ((2,) if stays else ())


@pytest.mark.parametrize("has_elr", [False, True])
@pytest.mark.parametrize(
    ("broker", "value", "why"),
    [
        ("1", "2", "Broker-level min.insync.replicas cannot be altered"),
        ("1", None, "Broker-level min.insync.replicas cannot be altered"),
        ("", None, "Cluster-level min.insync.replicas cannot be removed"),
        ("", "2", ""),
    ],
)
def test_eligible_replicas_need_one_minimum_of_the_cluster(
    broker: str, value: str | None, why: str, *, has_elr: bool
) -> None:
    image = cluster_of(1, features={"eligible.leader.replicas.version": int(has_elr)})
    operation = Operation.DELETE if value is None else Operation.SET
    change = Change("min.insync.replicas", value, operation)
    (answer,) = alter(image, Resource(BROKER, broker, (change,))).response
    if not has_elr or not why:
        assert answer.error is None
    else:
        assert answer.error is not None
        assert (answer.error.code, str(answer.error)) == (
            ErrorCode.INVALID_CONFIG,
            f"{why} while ELR is enabled.",
        )


def test_settings_of_a_registered_controller_can_be_changed(image: MetadataImage) -> None:
    """Controllers take settings of nodes, too (KIP-919)."""
    with_controller = apply(
        image, [make("RegisterControllerRecord", controller_id=9, incarnation_id=b"i" * 16)]
    )
    wanted = [Resource(BROKER, name, (Change("k", "v"),)) for name in ("9", "10")]
    decided = alter(with_controller, *wanted)
    known, unknown = decided.response
    assert known.error is None
    assert unknown.error is not None
    assert unknown.error.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert str(unknown.error) == "No node with id 10 found."


def test_a_replacement_deletes_unnamed_keys_and_writes_only_differences(
    image: MetadataImage,
) -> None:
    more = [make("ConfigRecord", resource_type=2, resource_name="a", name="x", value="1")]
    image = apply(image, more)
    changes = (Change("k", "v"), Change("n", "1"))
    result = alter(image, Resource(TOPIC, "a", changes), replaces=True)
    assert {(one.value.name, one.value.value) for one in result.records} == {
        ("n", "1"),
        ("x", None),
    }
    assert apply(image, result.records).topic_config("a") == {"k": "v", "n": "1"}
    nothing = alter(image, Resource(TOPIC, "a", ()), replaces=True)
    assert apply(image, nothing.records).topic_config("a") == {}


def test_a_replacement_that_is_refused_changes_nothing(image: MetadataImage) -> None:
    wrong = Resource(TOPIC, "a", (Change("n", "1"), Change("bad", "1")))
    result = alter(image, wrong, replaces=True)
    assert result.records == ()
    assert result.response[0].error.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("kind", "named"), [(16, " (CLIENT_METRICS): this version has"), (32, " (GROUP): "), (7, "7")]
)
def test_a_kind_without_settings_here_is_refused_by_name(
    image: MetadataImage, kind: int, named: str
) -> None:
    result = alter(image, Resource(kind, "a", (Change("k", "v"),)))
    assert result.records == ()
    error = result.response[0].error
    assert error is not None
    assert error.code == ErrorCode.INVALID_REQUEST
    assert f"Unexpected resource type {kind}" in str(error)
    assert named in str(error)
