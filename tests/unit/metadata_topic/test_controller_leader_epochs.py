"""The controller gives leader epochs above those that were used before, and no nonsense."""

import pytest
from msgspec import structs

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.errors import StaleBrokerEpochError
from metadata_topic.controller.leader_epochs import HIGHEST_USED, UsedEpoch, raise_leader_epochs
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import PartitionImage
from metadata_topic.image.records import decode_record, encode_record, make
from tests.support.samples.metadata import apply, cluster_of

TOPIC_ID = b"t" * 16
REPLICA = ReplicaId(TOPIC_ID, 0)


@pytest.fixture
def image() -> MetadataImage:
    """Broker 1 leads both partitions of a topic under leader epoch 4."""
    fields = {
        "topic_id": TOPIC_ID,
        "replicas": [1, 2],
        "isr": [1],
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 6,
        "directories": [b"d" * 16, b"e" * 16],
    }
    partitions = [make("PartitionRecord", 2, partition_id=index, **fields) for index in (0, 1)]
    topic = make("TopicRecord", name="t", topic_id=TOPIC_ID)
    return apply(cluster_of(1, 2), [topic, *partitions])


def of(image: MetadataImage, index: int = 0) -> PartitionImage:
    found = image.partition("t", index)
    assert found is not None
    return found


def raised(
    image: MetadataImage, found: dict[ReplicaId, UsedEpoch], broker_id: int = 1
) -> tuple[MetadataImage, dict[ReplicaId, KafkaError]]:
    epoch = image.brokers[broker_id].epoch
    result = raise_leader_epochs(image, broker_id=broker_id, broker_epoch=epoch, found=found)
    records = [decode_record(encode_record(record)) for record in result.records]
    return apply(image, records), result.response


def test_a_leader_gets_an_epoch_above_the_used_one_and_all_else_stays(image: MetadataImage) -> None:
    after, refused = raised(image, {REPLICA: UsedEpoch(4, 9)})
    assert refused == {}
    assert of(after) == structs.replace(of(image), leader_epoch=10, partition_epoch=7)
    assert of(after, 1) == of(image, 1)
    assert after.topics_by_id[TOPIC_ID].id == TOPIC_ID


def test_asked_again_nothing_is_written(image: MetadataImage) -> None:
    after, _ = raised(image, {REPLICA: UsedEpoch(4, 9)})
    for asked in (UsedEpoch(4, 9), UsedEpoch(10, 9), UsedEpoch(4, 3)):
        again, refused = raised(after, {REPLICA: asked})
        assert again.partition("t", 0) == after.partition("t", 0)
        assert refused == {}


def test_an_epoch_that_is_in_use_is_used(image: MetadataImage) -> None:
    after, _ = raised(image, {REPLICA: UsedEpoch(4, 4)})
    assert of(after).leader_epoch == 5


@pytest.mark.parametrize(
    ("broker_id", "asked", "code"),
    [
        (2, UsedEpoch(4, 9), ErrorCode.FENCED_LEADER_EPOCH),
        (1, UsedEpoch(3, 9), ErrorCode.FENCED_LEADER_EPOCH),
        (1, UsedEpoch(4, HIGHEST_USED + 1), ErrorCode.INVALID_REQUEST),
        (1, UsedEpoch(4, 2**31 - 1), ErrorCode.INVALID_REQUEST),
    ],
)
def test_who_does_not_lead_under_that_epoch_and_nonsense_are_refused(
    image: MetadataImage, broker_id: int, asked: UsedEpoch, code: ErrorCode
) -> None:
    sound = {ReplicaId(TOPIC_ID, 1): UsedEpoch(4, 9)} if broker_id == 1 else {}
    after, refused = raised(image, {REPLICA: asked, **sound}, broker_id)
    assert [error.code for error in refused.values()] == [code]
    assert of(after) == of(image)
    assert of(after, 1).leader_epoch == (10 if sound else 4), "one refusal is no other's"


def test_the_highest_that_is_believed_can_be_written(image: MetadataImage) -> None:
    after, _ = raised(image, {REPLICA: UsedEpoch(4, HIGHEST_USED)})
    assert of(after).leader_epoch == HIGHEST_USED + 1


def test_what_is_gone_and_an_older_life_are_refused(image: MetadataImage) -> None:
    gone = {ReplicaId(b"g" * 16, 0): UsedEpoch(4, 9), ReplicaId(TOPIC_ID, 7): UsedEpoch(4, 9)}
    _, refused = raised(image, gone)
    assert [error.code for error in refused.values()] == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
    with pytest.raises(StaleBrokerEpochError):
        raise_leader_epochs(image, broker_id=1, broker_epoch=image.brokers[1].epoch - 1, found={})
