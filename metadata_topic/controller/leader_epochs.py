"""Raises leader epochs above epochs that an earlier, lost part of the metadata log gave out.

After a restore of an older metadata log, leader epochs are given out twice. A leader notices it:
its log, or the remote metadata of it, has a later epoch. It asks for an epoch above that one, and
does nothing under its own.

DIFFERS: Kafka has no such request; the API key is private. A PartitionChangeRecord raises a leader
epoch by one only. So the answer is a PartitionRecord, which every reader takes as the new state of
the partition.
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
"""No cluster gets so far: a higher epoch is damage, and an epoch above it may overflow int32."""


class UsedEpoch(NamedTuple):
    """A leader's finding about one partition.

    Attributes:
        leader_epoch: Under which it leads; the request is refused under any other.
        used: Highest leader epoch that was used before.
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
    """Raise leader epochs above those used before, in steps.

    A leader epoch that is above already stays, so the request may be repeated.

    Returns:
        Error of each partition that is refused.

    Raises:
        StaleBrokerEpochError: The broker is not registered under this epoch.
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
