"""The replicas that the metadata assign to this broker, in the types of the local log."""

from dataclasses import replace

from kafka_protocol.types import TopicPartition
from local_log.manager.log_dirs import LogManager
from local_log.manager.placement import TargetReplica
from metadata_topic.controller.directories import (
    NEVER_ASSIGNED,
    ReplicaId,
    can_assign,
    replicas_of_broker,
)
from metadata_topic.image.image import MetadataImage, is_tiered
from metadata_topic.image.model import DIRECTORY_LOST, PartitionImage, TopicImage
from runtime.work import Pace, Steps, stepwise


def why_barred(image: MetadataImage, topic: str, *, has_tier: bool) -> str:
    """Why replicas of a topic are not served here in any state of the disk; "": they are.

    A tiered log without its tier looks like a plain one that begins at its local start. Clients
    would get OFFSET_OUT_OF_RANGE for older offsets, although the store has them.
    """
    if has_tier or not is_tiered(image.topic_config(topic)):
        return ""
    return (
        "its topic is tiered, and this broker has no remote tier: start it again with "
        "remote.log.storage.system.enable=true, or delete the topic; its files stay as they are"
    )


def target_replica(
    image: MetadataImage,
    node_id: int,
    tp: TopicPartition,
    *,
    is_missing_some: bool,
    has_tier: bool,
) -> TargetReplica | None:
    """The replica that the metadata want under a name here; None without one.

    Args:
        image: The cluster.
        node_id: This broker.
        tp: The name of the partition directory.
        is_missing_some: A log directory of this broker is missing or does not work.
        has_tier: This broker has a remote tier.
    """
    topic = image.topics_by_name.get(tp.topic)
    partition = None if topic is None else topic.partitions.get(tp.partition)
    if topic is None or partition is None or node_id not in partition.replicas:
        return None
    wanted = describe(
        image, node_id, topic, tp.partition, partition, is_missing_some=is_missing_some
    )
    return replace(wanted, barred=why_barred(image, topic.name, has_tier=has_tier))


def describe(
    image: MetadataImage,
    node_id: int,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    *,
    is_missing_some: bool,
) -> TargetReplica:
    """`target_replica` of a replica of this broker, without the check by `why_barred`."""
    broker = image.brokers.get(node_id)
    keeps_order = broker is not None and broker.directories_assigned_from >= 0 and can_assign(image)
    directory_id = partition.directory_of(node_id)
    is_lost = directory_id == DIRECTORY_LOST
    return TargetReplica(
        topic.id,
        index,
        None if is_lost or directory_id in NEVER_ASSIGNED else directory_id,
        was_never_served=keeps_order,
        may_be_begun=keeps_order or not is_missing_some,
        is_lost=is_lost,
        has_others=len(partition.replicas) > 1,
    )


@stepwise
def found_replicas(logs: LogManager) -> Steps[dict[ReplicaId, bytes]]:
    """The directory id of each replica whose log was opened, in steps.

    Includes directories that failed since: a replica that is not noted may be begun elsewhere.
    """
    found: dict[ReplicaId, bytes] = {}
    pace = Pace()
    for log in logs.all():
        directory = logs.directory_of(log.topic_partition)
        if directory is not None:  # gone meanwhile
            found[ReplicaId(log.topic_id, log.partition)] = directory.directory_id
        if pace.is_step_over():
            yield
    return found


def refused_replicas(logs: LogManager, image: MetadataImage) -> dict[ReplicaId, bytes]:
    """The directory id of each replica whose files are here and are not used.

    DIRECTORY_LOST where several directories have files of it.
    """
    refused = {}
    for tp, reason in logs.refused.items():
        topic = image.topics_by_name.get(tp.topic)
        if topic is not None:
            ids = {directory.directory_id for directory in reason.directories}
            replica = ReplicaId(topic.id, tp.partition)
            refused[replica] = ids.pop() if len(ids) == 1 else DIRECTORY_LOST
    return refused


def assigned_partitions(image: MetadataImage, node_id: int) -> dict[bytes, list[TopicPartition]]:
    """The partitions that the metadata assign to each log directory of this broker, by its id."""
    assigned: dict[bytes, list[TopicPartition]] = {}
    for replica in replicas_of_broker(image, node_id):
        tp = TopicPartition(replica.topic.name, replica.partition)
        assigned.setdefault(replica.directory_id, []).append(tp)
    return assigned
