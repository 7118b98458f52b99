"""Who leads a partition when brokers come and go.

The leader epoch of a partition rises when its leader goes (to -1 or to another) and again when one
comes back: a single broker's restart costs two epochs, as in Kafka, so epoch chains are real.
"""

from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import NO_LEADER, PartitionImage, TopicImage
from metadata_topic.image.records import MetadataRecord, make, partition_record_version


def records_for_leaving(image: MetadataImage, broker_id: int) -> list[MetadataRecord]:
    """Take a broker out of the ISR and the leadership of all its partitions.

    The last member of an ISR stays in it: it alone has all committed records.
    """
    records = []
    for topic in image.topics_by_id.values():
        for partition_id, old in topic.partitions.items():
            if broker_id not in old.isr and old.leader != broker_id:
                continue
            isr = tuple(member for member in old.isr if member != broker_id) or old.isr
            leader = old.leader
            if leader == broker_id:
                leader = _choose(image, old, isr, without=broker_id)
            records += _change(image, topic, partition_id, old, isr, leader)
    return records


def records_for_returning(image: MetadataImage, broker_id: int) -> list[MetadataRecord]:
    """Elect leaders where there was none and this broker, now active, may lead.

    Args:
        image: the cluster before its unfencing is written; `broker_id` counts as active.
        broker_id: the broker that comes back.
    """
    records = []
    for topic in image.topics_by_id.values():
        for partition_id, old in topic.partitions.items():
            if old.leader != NO_LEADER:
                continue
            if broker_id in old.isr:
                records += _change(image, topic, partition_id, old, old.isr, broker_id)
            elif not old.isr and broker_id in old.elr:
                # Written by a cluster with eligible leader replicas: all in `elr` have every
                # committed record.
                records += _change(image, topic, partition_id, old, (broker_id,), broker_id)
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
    isr: tuple[int, ...],
    leader: int,
) -> list[MetadataRecord]:
    fields: dict[str, object] = {}
    if isr != old.isr:
        fields["isr"] = list(isr)
    if leader != old.leader:
        fields["leader"] = leader
    if not fields:
        return []
    version = partition_record_version(image.metadata_version)
    if version >= 2 and leader != NO_LEADER:
        if old.elr:
            fields["eligible_leader_replicas"] = []
        if old.last_known_elr:
            fields["last_known_elr"] = []
    return [
        make(
            "PartitionChangeRecord",
            version,
            partition_id=partition_id,
            topic_id=topic.id,
            **fields,
        )
    ]
