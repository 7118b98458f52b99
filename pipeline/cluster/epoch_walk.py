"""The leader epochs of single records, asked from leaders.

A record is told from all others by its offset and its leader epoch: two logs that have the same
record at an offset have the same records below it.
"""

from collections.abc import Mapping

from kafka_protocol.types import TopicPartition
from pipeline.cluster.asker import Asker
from pipeline.cluster.questions import EpochAsked, epoch_ends


def epochs_before(
    asker: Asker, offsets: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The epoch of the record before each offset; those that are beyond the log's end are left out.

    A leader tells only where epochs end, so it is asked for one after the other, the newest first:
    one request a broker for each election since.

    Args:
        asker: asks.
        offsets: above the log starts.
        leader_epochs: must be the partitions' present ones.

    Raises:
        LeaderChangedError: they are not.
        UnknownTopicError, ClusterError: no answer.
    """
    found: dict[TopicPartition, int] = {}
    asked = {partition: leader_epochs[partition] for partition in offsets}
    while asked:
        ends = epoch_ends(
            asker,
            [EpochAsked(partition, epoch) for partition, epoch in asked.items()],
            leader_epochs,
        )
        asked = {}
        for (partition, _), end in ends.items():
            if end.end_offset >= offsets[partition]:
                found[partition] = end.epoch
                if end.epoch > 0:
                    asked[partition] = end.epoch - 1
    return found
