"""In which log directory each replica lives: the metadata hold it, so a lost disk is noticed.

A replica goes through three steps: its PartitionRecord (directory UNASSIGNED), its files on the
broker's disk, its directory in the metadata. Only then is it served. So a replica without a
directory never had a record and may be begun; one with a directory whose files are not there has
lost them, and is offline until they come back or somebody forgets the directory by name.

Records of another making (Apache Kafka) do not keep that order: their
replicas were served without a directory. The first registration of a broker that keeps it settles
them all: what is on disk is assigned; the rest, if a directory of the broker is missing, is LOST.

Source: KIP-858 (directory ids), with the order above.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from metadata_topic.controller.brokers import check_broker_epoch
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    PartitionImage,
    TopicImage,
    is_spare_directory,
)
from metadata_topic.image.records import (
    RECORD_WORK,
    MetadataRecord,
    make,
    partition_record_version,
)
from runtime.work import Pace, Steps, stepwise

NEVER_ASSIGNED: Final = frozenset({DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING})


class ReplicaId(NamedTuple):
    """A partition by its topic's id."""

    topic_id: bytes
    partition: int


class FoundReplicas(NamedTuple):
    """What a broker that registers found on its disks, of replicas noted elsewhere.

    Attributes:
        usable: directory id of each replica whose files are there and will be served.
        refused: the same of each whose files are there and cannot be used now. Where it was served
            before the rule, a later start must not take it for one that never was.
        is_missing_some: a directory of the broker is not there or does not work.
    """

    usable: Mapping[ReplicaId, bytes] = {}
    refused: Mapping[ReplicaId, bytes] = {}
    is_missing_some: bool = False


class HostedReplica(NamedTuple):
    """A replica of one broker, as the metadata have it."""

    topic: TopicImage
    partition: int
    image: PartitionImage
    directory_id: bytes


def can_assign(image: MetadataImage) -> bool:
    """Whether the finalised metadata.version has directories in its records."""
    return partition_record_version(image.metadata_version) >= 1


def replicas_of_broker(image: MetadataImage, broker_id: int) -> Iterator[HostedReplica]:
    """All replicas of a broker and their directories."""
    for topic in image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.replicas:
                yield HostedReplica(topic, index, partition, partition.directory_of(broker_id))


def known_directories(image: MetadataImage, broker_id: int) -> set[bytes]:
    """Ids that the metadata know of a broker: registered last, or assigned to a replica.

    DIRECTORY_LOST is one of them where a replica has it: some directory is missing, its id was
    never known.
    """
    broker = image.brokers.get(broker_id)
    registered = () if broker is None else broker.log_dirs
    known = {one for one in registered if not is_spare_directory(one)}
    known.update(replica.directory_id for replica in replicas_of_broker(image, broker_id))
    return known - NEVER_ASSIGNED


@stepwise
def records_at_registration(
    image: MetadataImage, broker_id: int, found: FoundReplicas
) -> Steps[list[MetadataRecord]]:
    """Assign what a broker found on its disks, in steps; settle replicas of before the rule.

    Args:
        image: the cluster before this registration.
        broker_id: who registers.
        found: by that broker.

    Returns:
        PartitionChangeRecords.
    """
    if not can_assign(image):
        return []
    broker = image.brokers.get(broker_id)
    keeps_order = broker is not None and broker.directories_assigned_from >= 0
    records: list[MetadataRecord] = []
    pace = Pace()
    for replica in replicas_of_broker(image, broker_id):
        if pace.is_step_over(2):
            yield
        replica_id = ReplicaId(replica.topic.id, replica.partition)
        wanted = found.usable.get(replica_id)
        if wanted is None and replica.directory_id in NEVER_ASSIGNED and not keeps_order:
            lost = DIRECTORY_LOST if found.is_missing_some else None
            wanted = found.refused.get(replica_id, lost)
        if wanted is not None and wanted != replica.directory_id:
            records.append(_change(image, broker_id, replica, wanted))
            if pace.is_step_over(RECORD_WORK):
                yield
    return records


@stepwise
def assign_directories(
    image: MetadataImage,
    *,
    broker_id: int,
    broker_epoch: int,
    assignments: Mapping[ReplicaId, bytes],
) -> Steps[ControllerResult[None]]:
    """Note in which directories a broker has made replicas, in steps; what is gone is passed over.

    Raises:
        BrokerIdNotRegisteredError, StaleBrokerEpochError: not this life of this broker.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    records: list[MetadataRecord] = []
    pace = Pace()
    for (topic_id, index), directory_id in assignments.items():
        if pace.is_step_over(RECORD_WORK):
            yield
        topic = image.topics_by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        if topic is None or partition is None or broker_id not in partition.replicas:
            continue
        replica = HostedReplica(topic, index, partition, partition.directory_of(broker_id))
        if replica.directory_id != directory_id:
            records.append(_change(image, broker_id, replica, directory_id))
    return ControllerResult(tuple(records), None)


def forget_directory(
    image: MetadataImage, broker_id: int, directory_id: bytes, *, working: Collection[bytes]
) -> ControllerResult[list[tuple[str, int]]]:
    """Give a lost directory up: its replicas may be begun anew, empty.

    Args:
        image: the cluster now.
        broker_id: whose directory.
        directory_id: to forget; DIRECTORY_LOST for replicas whose directory was never known.
        working: ids of the directories that are there: they are not forgotten.

    Returns:
        (topic, partition) of each replica whose records are lost by it.
    """
    if directory_id in working:
        return ControllerResult((), [])
    lost = [r for r in replicas_of_broker(image, broker_id) if r.directory_id == directory_id]
    records = [_change(image, broker_id, replica, DIRECTORY_UNASSIGNED) for replica in lost]
    broker = image.brokers.get(broker_id)
    if broker is not None and directory_id in broker.log_dirs:
        kept = [known for known in broker.log_dirs if known != directory_id]
        records.append(
            make(
                "BrokerRegistrationChangeRecord",
                2,
                broker_id=broker_id,
                broker_epoch=broker.epoch,
                log_dirs=kept or [DIRECTORY_UNASSIGNED],
            )
        )
    return ControllerResult(tuple(records), [(r.topic.name, r.partition) for r in lost])


def _change(
    image: MetadataImage, broker_id: int, replica: HostedReplica, directory_id: bytes
) -> MetadataRecord:
    partition = replica.image
    directories = [partition.directory_of(member) for member in partition.replicas]
    directories[partition.replicas.index(broker_id)] = directory_id
    return make(
        "PartitionChangeRecord",
        partition_record_version(image.metadata_version),
        partition_id=replica.partition,
        topic_id=replica.topic.id,
        directories=directories,
    )
