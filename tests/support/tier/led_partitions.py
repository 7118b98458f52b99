"""One user partition in each partition of the topic."""

from kafka_protocol.types import TopicIdPartition
from rlmm.topic_based.topic_port import metadata_partition_for

PARTITIONS = 3


def one_in_each() -> list[TopicIdPartition]:
    """User partitions of one topic, one in each metadata partition."""
    found: dict[int, TopicIdPartition] = {}
    for number in range(50):
        partition = TopicIdPartition(b"T" * 16, number, "orders")
        found.setdefault(metadata_partition_for(partition, PARTITIONS), partition)
    assert len(found) == PARTITIONS
    return list(found.values())
