"""Converts the partitions of a Fetch request."""

from collections.abc import Iterator
from typing import Any

from broker.handlers import fetch_versions as since
from broker.handlers.fetch_read import SLICE_PARTITIONS
from broker.replica.fetch_types import FetchPartition
from broker.replica.manager import ReplicaManager


def ask_in_slices(
    replicas: ReplicaManager, version: int, asked: Any, partitions: list[FetchPartition]
) -> Iterator[None]:
    """Fill `partitions` with the partitions of a request; yields between slices.

    Args:
        replicas: Has the names of topic ids.
        version: Version of the request.
        asked: Decoded struct (Any: made by the codec at run time).
        partitions: List to fill.
    """
    with_ids = version >= since.TOPIC_IDS
    for topic in asked.topics:
        topic_id: bytes | None = None
        if with_ids:
            key: str | bytes = topic.topic_id
            topic_id, name = topic.topic_id, replicas.topic_names.get(topic.topic_id, "")
        else:
            key = name = topic.topic
        for p in topic.partitions:
            partitions.append(
                FetchPartition(
                    (key, p.partition),
                    name,
                    topic_id,
                    p.partition,
                    p.fetch_offset,
                    p.partition_max_bytes,
                    p.current_leader_epoch,
                    p.last_fetched_epoch,
                    p.log_start_offset,
                )
            )
            if len(partitions) % SLICE_PARTITIONS == 0:
                yield
