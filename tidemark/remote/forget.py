"""Gives up the remote data of a topic id of which the cluster metadata know nothing.

Remote segments of an id that neither exists nor was removed are kept: the metadata log may be an
earlier copy. A person who knows better lets the id count as removed; the remover of the broker then
does what it does for every deleted topic. Nothing is deleted from here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_client.blocking import BlockingClient, ClusterError
from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.primitives import uuid_from_any_text, uuid_to_text
from metadata_topic.controller.topic_deletion import RemoteDataWish
from pipeline.cluster.cluster import Cluster
from rlmm.api import PartitionDeleteState
from rlmm.lifecycle import PartitionFacts
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tidemark.remote.metadata_reader import MetadataReader

_DELETE_TOPICS_VERSION = 6
_TIMEOUT_MS = 30_000
_FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED


class ForgetRefusedError(ClusterError):
    """Nothing was changed, and why."""


@dataclass(frozen=True, slots=True)
class RemoteData:
    """The remote metadata of one topic id.

    Attributes:
        topic: the name in its records.
        partitions: those whose deletion has not finished.
        segments: in every state but DELETE_SEGMENT_FINISHED.
    """

    topic_id: bytes
    topic: str
    partitions: Sequence[PartitionFacts]
    segments: Sequence[RemoteLogSegmentMetadata]

    @property
    def size_bytes(self) -> int:
        """Of the segments."""
        return sum(segment.segment_size_bytes for segment in self.segments)


def parse_topic_id(text: str) -> bytes:
    """Read a topic id as tools and health show it.

    Raises:
        ForgetRefusedError: it is none.
    """
    try:
        topic_id = uuid_from_any_text(text)
    except ValueError:
        topic_id = ZERO_UUID
    if topic_id == ZERO_UUID:
        raise ForgetRefusedError(
            f"{text[:60]!r} is no topic id: 22 characters, as health shows it, or 32 hexadecimal "
            "digits"
        )
    return topic_id


def check_absent(cluster: Cluster, topic_id: bytes) -> None:
    """Refuse the id of a topic that exists.

    Raises:
        ForgetRefusedError: it exists.
    """
    for topic in cluster.topics.values():
        if topic.topic_id == topic_id:
            raise ForgetRefusedError(
                f"topic {topic.name} has the id {uuid_to_text(topic_id)}: what exists is not "
                "forgotten; delete the topic"
            )


def find(metadata: MetadataReader, topic_id: bytes) -> RemoteData:
    """Look up what is left of an id; the reader has read to the end.

    Raises:
        ForgetRefusedError: nothing is known of it, or nothing is left.
    """
    text = uuid_to_text(topic_id)
    known = [
        facts for facts in metadata.partitions() if facts.topic_id_partition.topic_id == topic_id
    ]
    if not known:
        raise ForgetRefusedError(f"no record of the remote metadata names topic id {text}")
    left = [facts for facts in known if facts.delete_state is not _FINISHED]
    if not left:
        raise ForgetRefusedError(f"nothing is left of topic id {text} in the remote metadata")
    left.sort(key=lambda facts: facts.topic_id_partition.partition)
    segments = [
        entry.metadata for facts in left for entry in metadata.entries(facts.topic_id_partition)
    ]
    return RemoteData(topic_id, left[0].topic_id_partition.topic, left, segments)


def ask(
    client: BlockingClient, brokers: Mapping[int, Address], topic_id: bytes, wish: RemoteDataWish
) -> None:
    """Have the cluster note it: DeleteTopics by id, with a tagged field that Kafka skips.

    Every broker is asked: one takes it to the active controller, which notes it for all; under a
    controller of Apache Kafka each with a remote tier notes it for itself.

    Raises:
        ForgetRefusedError: a broker refuses, or none can take it.
        ClusterError: not all brokers have answered.
    """
    request = codec.request(ApiKey.DELETE_TOPICS).cls
    topic = request.Topics(name=None, topic_id=topic_id, remote_data=int(wish))
    body = request(topics=[topic], timeout_ms=_TIMEOUT_MS)
    taken, silent = list[int](), dict[int, ClusterError]()
    for node_id, address in brokers.items():
        try:
            answer = client.ask(address, ApiKey.DELETE_TOPICS, _DELETE_TOPICS_VERSION, body)
        except ClusterError as error:
            silent[node_id] = error
            continue
        (result,) = answer.responses
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
            continue  # Kafka's, or without a remote tier under a controller of Kafka's
        if result.error_code:
            name = ErrorCode(result.error_code).name
            raise ForgetRefusedError(
                f"broker {node_id} refuses: {name} {result.error_message or ''}".strip()
            )
        taken.append(node_id)
    if silent:
        reasons = "; ".join(f"broker {one}: {error}" for one, error in silent.items())
        raise ClusterError(
            f"noted by brokers {taken}, and not by all, so ask again when they answer: {reasons}"
        )
    if not taken:
        raise ForgetRefusedError(
            "no broker can forget topic ids: is one of Tidemark, with a remote tier?"
        )


def undo_text(found: RemoteData, *, cluster_id: str, now_ms: int) -> str:
    """The change, the way to undo it, and all metadata of the segments."""
    topic_id = uuid_to_text(found.topic_id)
    content = {
        "what": f"topic id {topic_id} counts as removed; the brokers delete its remote data",
        "takeBack": (
            f"tidemark remote forget {topic_id} --take-back; it works until "
            "tidemark.remote.delete.grace.ms (default 60000) have passed, later for what is left"
        ),
        "clusterId": cluster_id,
        "topicId": topic_id,
        "topic": found.topic,
        "forgottenAtMs": now_ms,
        "partitions": [_partition(facts) for facts in found.partitions],
        "segments": [_segment(segment) for segment in found.segments],
    }
    return json.dumps(content, indent=1) + "\n"


def _partition(facts: PartitionFacts) -> dict[str, Any]:
    state = facts.delete_state
    return {
        "partition": facts.topic_id_partition.partition,
        "deletion": None if state is None else state.name,
    }


def _segment(segment: RemoteLogSegmentMetadata) -> dict[str, Any]:
    custom = segment.custom_metadata
    return {
        "partition": segment.topic_id_partition.partition,
        "segmentId": uuid_to_text(segment.id.id),
        "state": segment.state.name,
        "startOffset": segment.start_offset,
        "endOffset": segment.end_offset,
        "maxTimestampMs": segment.max_timestamp_ms,
        "eventTimestampMs": segment.event_timestamp_ms,
        "brokerId": segment.broker_id,
        "segmentSizeInBytes": segment.segment_size_bytes,
        "segmentLeaderEpochs": [[one.epoch, one.start_offset] for one in segment.leader_epochs],
        "txnIndexEmpty": segment.txn_index_empty,
        "customMetadata": None if custom is None else custom.hex(),
    }
