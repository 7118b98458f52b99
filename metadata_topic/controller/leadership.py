"""Who leads a partition when brokers come and go.

The leader epoch of a partition rises when its leader goes (to -1 or to another) and again when one
comes back: a single broker's restart costs two epochs, as in Kafka, so epoch chains are real.
"""

from collections.abc import Collection

from msgspec.structs import replace

from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import NO_LEADER, PartitionImage, TopicImage
from metadata_topic.image.records import (
    RECORD_WORK,
    MetadataRecord,
    make,
    partition_record_version,
)
from runtime.work import Pace, Steps


def records_for_leaving(
    image: MetadataImage, broker_id: int, directory_ids: Collection[bytes] | None = None
) -> Steps[list[MetadataRecord]]:
    """Take a broker out of the ISR and the leadership of all its partitions, in steps.

    The last member of an ISR stays in it: it alone has all committed records. Where eligible leader
    replicas are finalised (a log begun by Kafka) it moves to those instead, as Kafka has it: a
    later Kafka looks for it there.

    Args:
        image: the cluster now.
        broker_id: who leaves.
        directory_ids: only partitions that the broker has in one of these log directories; None:
            all.
    """
    records: list[MetadataRecord] = []
    pace = Pace()
    for topic in image.topics_by_id.values():
        for partition_id, old in topic.partitions.items():
            if pace.is_step_over():
                yield
            if broker_id not in old.isr and old.leader != broker_id:
                continue
            if directory_ids is not None and old.directory_of(broker_id) not in directory_ids:
                continue
            isr = tuple(member for member in old.isr if member != broker_id)
            elr, last_known = old.elr, old.last_known_elr
            if not isr and image.elr_enabled:
                elr, last_known = (*old.elr, broker_id), (broker_id,)
            elif not isr:
                isr = old.isr
            leader = old.leader
            if leader == broker_id:
                leader = _choose(image, old, isr, without=broker_id)
            new = replace(old, isr=isr, leader=leader, elr=elr, last_known_elr=last_known)
            records += _change(image, topic, partition_id, old, new)
            if pace.is_step_over(RECORD_WORK):
                yield
    return records


def records_for_returning(image: MetadataImage, broker_id: int) -> Steps[list[MetadataRecord]]:
    """Elect leaders where there was none and this broker, now active, may lead, in steps.

    Args:
        image: the cluster before its unfencing is written; `broker_id` counts as active.
        broker_id: the broker that comes back.
    """
    records: list[MetadataRecord] = []
    pace = Pace()
    for topic in image.topics_by_id.values():
        for partition_id, old in topic.partitions.items():
            if pace.is_step_over():
                yield
            if old.leader != NO_LEADER:
                continue
            if broker_id in old.isr:
                isr = old.isr
            elif not old.isr and broker_id in old.elr:
                isr = (broker_id,)  # all in `elr` have every committed record
            else:
                continue
            new = replace(old, isr=isr, leader=broker_id, elr=(), last_known_elr=())
            records += _change(image, topic, partition_id, old, new)
            if pace.is_step_over(RECORD_WORK):
                yield
    return records


def _choose(
    image: MetadataImage, partition: PartitionImage, isr: tuple[int, ...], *, without: int
) -> int:
    """The first replica, in preference order, that is in sync and active."""
    for replica in partition.replicas:
        broker = image.brokers.get(replica)
        if replica in isr and replica != without and broker is not None and broker.is_active:
            return replica
    return NO_LEADER


def _change(
    image: MetadataImage,
    topic: TopicImage,
    partition_id: int,
    old: PartitionImage,
    new: PartitionImage,
) -> list[MetadataRecord]:
    """A PartitionChangeRecord with the fields that differ; none if nothing does."""
    fields: dict[str, object] = {}
    if new.isr != old.isr:
        fields["isr"] = list(new.isr)
    if new.leader != old.leader:
        fields["leader"] = new.leader
    if new.elr != old.elr:
        fields["eligible_leader_replicas"] = list(new.elr)
    if new.last_known_elr != old.last_known_elr:
        fields["last_known_elr"] = list(new.last_known_elr)
    if not fields:
        return []
    version = partition_record_version(image.metadata_version)
    topic_id = topic.id
    return [
        make(
            "PartitionChangeRecord",
            version,
            partition_id=partition_id,
            topic_id=topic_id,
            **fields,
        )
    ]
