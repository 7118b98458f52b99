"""A leader epoch above one that was used before: what a controller of an earlier time must give.

Where the metadata log is an older copy, leader epochs are given twice. The leader notices it: its
log, or what remote metadata records of it carry, is of a later epoch. It asks for one above that,
and does nothing under its own.

DIFFERS: Kafka has no such request, so its key is private. A PartitionChangeRecord raises a leader
epoch by one, so the answer is a PartitionRecord, which every reader takes as the partition's new
state.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from kafka_protocol.errors import KafkaError, UnknownTopicId
from metadata_topic.controller.broker_sessions import check_broker_epoch
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.errors import FencedLeaderEpochError, InvalidRequestError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import RECORD_WORK, MetadataRecord, partition_record_version
from metadata_topic.image.snapshot_records import partition_record
from runtime.work import Pace, Steps, stepwise

HIGHEST_USED: Final = 2**30
"""No cluster comes as far: a higher one is damage, and to go above it would use up the int32."""


class UsedEpoch(NamedTuple):
    """What a leader found.

    Attributes:
        leader_epoch: under which it leads; another one by now ends the question.
        used: the highest leader epoch that was used before.
    """

    leader_epoch: int
    used: int


@stepwise
def raise_leader_epochs(
    image: MetadataImage,
    *,
    broker_id: int,
    broker_epoch: int,
    found: Mapping[ReplicaId, UsedEpoch],
) -> Steps[ControllerResult[dict[ReplicaId, KafkaError]]]:
    """In steps, let a broker lead partitions under leader epochs above those that were used before.

    Nothing is written where the leader epoch is above it already, so the question may be repeated.

    Returns:
        Why, of each partition that is refused.

    Raises:
        StaleBrokerEpochError: not this incarnation of this broker.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    records: list[MetadataRecord] = []
    refused: dict[ReplicaId, KafkaError] = {}
    pace = Pace()
    for replica, asked in found.items():
        if pace.is_step_over(RECORD_WORK):
            yield
        try:
            records += _raised(image, broker_id, replica, asked)
        except KafkaError as error:
            refused[replica] = error
    return ControllerResult(tuple(records), refused)


def _raised(
    image: MetadataImage, broker_id: int, replica: ReplicaId, asked: UsedEpoch
) -> list[MetadataRecord]:
    topic = image.topics_by_id.get(replica.topic_id)
    partition = None if topic is None else topic.partitions.get(replica.partition)
    if topic is None or partition is None:
        raise UnknownTopicId("no such partition")
    if partition.leader_epoch > asked.used:
        return []
    if partition.leader != broker_id or partition.leader_epoch != asked.leader_epoch:
        raise FencedLeaderEpochError(
            f"broker {broker_id} asks under leader epoch {asked.leader_epoch}, and broker "
            f"{partition.leader} leads under {partition.leader_epoch}"
        )
    if asked.used > HIGHEST_USED:
        raise InvalidRequestError(
            f"leader epoch {asked.used} was used before, it is said: above {HIGHEST_USED} that is "
            "no leader epoch but damage"
        )
    raised = replace(
        partition, leader_epoch=asked.used + 1, partition_epoch=partition.partition_epoch + 1
    )
    version = partition_record_version(image.metadata_version)
    return [partition_record(topic, replica.partition, raised, version)]
