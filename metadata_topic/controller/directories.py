"""Assignment of replicas to log directories, kept in the metadata so that a lost disk is noticed.

A replica goes through three steps: its PartitionRecord (directory UNASSIGNED), its files on the
broker's disk, its directory in the metadata. Only then is it served. So a replica without a
directory never had a record and may be created empty. A replica with a directory but without files
has lost them. It is offline until they come back or an operator forgets the directory.

Apache Kafka does not keep that order: it serves replicas before they have a directory. The first
registration of a broker that keeps the order settles them all. A replica found on disk is assigned.
Any other becomes LOST if a directory of the broker is missing or its partition has changed since
its creation.

Source: KIP-858 (directory ids); the order above is ours.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from msgspec import structs

from metadata_topic.controller.broker_sessions import check_broker_epoch
from metadata_topic.controller.election_rules import DEFAULT_RULES, ElectionRules, rules_of
from metadata_topic.controller.partition_change import (
    Electorate,
    change_records,
    decide,
    has_other_copies,
    in_directory,
    without,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    BrokerImage,
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
    """A partition, named by topic id and index."""

    topic_id: bytes
    partition: int


class FoundReplicas(NamedTuple):
    """Replicas that a registering broker found on its disks, outside their assigned directory.

    Attributes:
        usable: Directory id of each replica whose files are there and will be served.
        refused: Directory id of each replica whose files are there and cannot be used now. Without
            this note a later start could take the replica for one that was never served.
        is_missing_some: A directory of the broker is missing or does not work.
    """

    usable: Mapping[ReplicaId, bytes] = {}
    refused: Mapping[ReplicaId, bytes] = {}
    is_missing_some: bool = False


NOTHING_FOUND: Final = FoundReplicas()


class HostedReplica(NamedTuple):
    """A replica of one broker, as in the metadata."""

    topic: TopicImage
    partition: int
    image: PartitionImage
    directory_id: bytes


def can_assign(image: MetadataImage) -> bool:
    """True if records of the finalised metadata.version hold directories."""
    return partition_record_version(image.metadata_version) >= 1


def replicas_of_broker(image: MetadataImage, broker_id: int) -> Iterator[HostedReplica]:
    """Iterate over all replicas of a broker, with their directories."""
    for topic in image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.replicas:
                yield HostedReplica(topic, index, partition, partition.directory_of(broker_id))


def known_directories(image: MetadataImage, broker_id: int) -> set[bytes]:
    """Ids of a broker's directories in the metadata: registered last, or assigned to a replica.

    The set has DIRECTORY_LOST if a replica has it: a directory is missing whose id is unknown.
    """
    broker = image.brokers.get(broker_id)
    registered = () if broker is None else broker.log_dirs
    known = {one for one in registered if not is_spare_directory(one)}
    known.update(replica.directory_id for replica in replicas_of_broker(image, broker_id))
    return known - NEVER_ASSIGNED


@stepwise
def moved_at_registration(
    image: MetadataImage, broker_id: int, found: FoundReplicas, *, keeps_order: bool
) -> Steps[dict[ReplicaId, bytes]]:
    """Find, in steps, replicas to assign to another directory because a broker registers.

    Without the order above an unassigned replica that was not found may still have had records:
    Apache Kafka serves a replica first. A partition epoch above 0 says so.

    Args:
        image: The cluster before this registration.
        broker_id: The broker that registers.
        found: By that broker on its disks.
        keeps_order: The broker keeps the order from now on; a broker of Apache Kafka reports
            nothing of what it found.

    Returns:
        The new log directory of each replica whose assignment changes.
    """
    moved: dict[ReplicaId, bytes] = {}
    if not can_assign(image):
        return moved
    broker = image.brokers.get(broker_id)
    kept_order = broker is not None and broker.directories_assigned_from >= 0
    pace = Pace()
    for replica in replicas_of_broker(image, broker_id):
        if pace.is_step_over(2):
            yield
        replica_id = ReplicaId(replica.topic.id, replica.partition)
        wanted = found.usable.get(replica_id)
        if wanted is None and replica.directory_id in NEVER_ASSIGNED and not kept_order:
            may_be_begun = not keeps_order or replica.image.partition_epoch == 0
            lost = None if may_be_begun and not found.is_missing_some else DIRECTORY_LOST
            wanted = found.refused.get(replica_id, lost)
        if wanted is not None and wanted != replica.directory_id:
            moved[replica_id] = wanted
    return moved


@stepwise
def assign_directories(
    image: MetadataImage,
    *,
    broker_id: int,
    broker_epoch: int,
    assignments: Mapping[ReplicaId, bytes],
    defaults: ElectionRules = DEFAULT_RULES,
) -> Steps[ControllerResult[None]]:
    """Assign replicas to the directories in which a broker created them, in steps.

    Deleted partitions are skipped. A replica in an unregistered directory leaves ISR and ELR. So
    does a replica of Apache Kafka whose directory was missing: its new files are empty.

    Raises:
        StaleBrokerEpochError: The broker is not registered under this epoch.
    """
    broker = check_broker_epoch(image, broker_id, broker_epoch)
    electorate = Electorate(image)
    records: list[MetadataRecord] = []
    pace = Pace()
    for (topic_id, index), directory_id in assignments.items():
        if pace.is_step_over(RECORD_WORK):
            yield
        topic = image.topics_by_id.get(topic_id)
        old = None if topic is None else topic.partitions.get(index)
        if topic is None or old is None or broker_id not in old.replicas:
            continue
        wanted = in_directory(old, broker_id, directory_id)
        if wanted is old:
            continue
        rules = rules_of(image, topic, defaults)
        begins_again = broker.directories_assigned_from < 0 and not broker.works_with(
            old.directory_of(broker_id)
        )
        if begins_again or (
            not broker.works_with(directory_id) and has_other_copies(old, broker_id)
        ):
            new = decide(
                old,
                without(wanted, broker_id),
                electorate,
                rules,
                ineligible=(broker_id,),
                blank=(broker_id,) if begins_again else (),
                may_empty_isr=begins_again,
            )
        else:
            new = decide(old, wanted, electorate, rules)
        records += change_records(image, topic_id, index, old, new)
    return ControllerResult(tuple(records), None)


class Forgotten(NamedTuple):
    """Outcome for the replicas in a forgotten log directory.

    Attributes:
        replicas: (topic, partition) of each.
        leaderless: The part of them that held the last copy of committed records and were not
            created again; these partitions have no leader.
    """

    replicas: list[tuple[str, int]]
    leaderless: list[tuple[str, int]]


@stepwise
def forget_directory(
    image: MetadataImage,
    broker_id: int,
    directory_id: bytes,
    *,
    working: Collection[bytes],
    begins_last_copies: bool = False,
    defaults: ElectionRules = DEFAULT_RULES,
) -> Steps[ControllerResult[Forgotten]]:
    """Give up a lost directory, in steps: its replicas leave ISR and ELR.

    If another replica has all committed records, the lost one is created again, empty, and
    follows. Otherwise it held the last copy: it gets the directory id DIRECTORY_LOST, which cannot
    lead, and the partition has no leader.

    Args:
        image: The cluster now.
        broker_id: Owner of the directory; the broker is not running.
        directory_id: To forget; DIRECTORY_LOST for replicas whose directory was never known or
            was forgotten before.
        working: Ids of the directories that are present; these are not forgotten.
        begins_last_copies: Give up committed records: last copies are created again too, empty,
            and lead.
        defaults: Election settings in the properties of this controller.
    """
    if directory_id in working:
        return ControllerResult((), Forgotten([], []))
    broker = image.brokers.get(broker_id)
    electorate = Electorate(image, None if broker is None else replace(broker, fenced=True))
    records: list[MetadataRecord] = []
    replicas: list[tuple[str, int]] = []
    leaderless: list[tuple[str, int]] = []
    pace = Pace()
    for topic, index, old, directory in replicas_of_broker(image, broker_id):
        if pace.is_step_over(RECORD_WORK):
            yield
        if directory != directory_id:
            continue
        is_last = not has_other_copies(old, broker_id)
        stays_lost = is_last and not begins_last_copies
        wanted = without(old, broker_id)
        if is_last and begins_last_copies:
            # It leads, even if its broker ended uncleanly.
            last_known = (broker_id,) if image.elr_enabled else ()
            wanted = structs.replace(old, isr=(broker_id,), last_known_elr=last_known)
        new = decide(
            old,
            in_directory(wanted, broker_id, DIRECTORY_LOST if stays_lost else DIRECTORY_UNASSIGNED),
            electorate,
            rules_of(image, topic, defaults),
            ineligible=(broker_id,),
            blank=() if is_last else (broker_id,),
            may_empty_isr=True,
        )
        records += change_records(image, topic.id, index, old, new)
        replicas.append((topic.name, index))
        if stays_lost and new.leader == NO_LEADER:
            leaderless.append((topic.name, index))
    if broker is not None and directory_id in broker.log_dirs:
        records.append(directories_record(broker, (directory_id,)))
    return ControllerResult(tuple(records), Forgotten(replicas, leaderless))


def remaining_directories(broker: BrokerImage, gone: Collection[bytes]) -> tuple[bytes, ...]:
    """Return the log directories of a broker without `gone`; never an empty tuple."""
    kept = tuple(one for one in broker.log_dirs if one not in gone)
    return kept or (DIRECTORY_UNASSIGNED,)  # an empty list in the record would mean "unchanged"


def directories_record(broker: BrokerImage, gone: Collection[bytes]) -> MetadataRecord:
    """Make a record that removes log directories from a broker's registration."""
    return make(
        "BrokerRegistrationChangeRecord",
        2,
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        log_dirs=list(remaining_directories(broker, gone)),
    )
