"""Requests of the quorum: from the wire to the core, and back.

Requests refused here never reach the core: another cluster, another topic or partition, several or
none of them, negative or absurd numbers. The core decides about all others.

Codes are Kafka's. DIFFERS: FetchSnapshot about another topic gets 42. Kafka 4.3 answers -1, and its
process ends if the request has no topic. A negative size gets 42 as well; Kafka has no limit in
Fetch, and answers FetchSnapshot with -1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, assert_never

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request as codec_of
from metadata_topic.quorum.wire.responses import refused, refused_whole, write_answer
from metadata_topic.quorum.wire.rpc import (
    PARTITION,
    PRE_VOTE,
    TOPIC,
    TOPIC_ID,
    VERSIONS,
    VOTER_KEYS,
    WireIdentity,
    api_of,
    only_partition,
    usable_node,
)
from metadata_topic.raft.messages import (
    NOBODY,
    UNKNOWN_HIGH_WATERMARK,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    LogRequest,
    Node,
    SnapshotId,
    Standing,
    VoteRequest,
)
from metadata_topic.raft.voters import ReplicaKey

FETCH_BYTES_MAX: Final = 8 << 20
"""Limit of records in an answer, for any request; Kafka's replicas request no more."""
WAIT_MS_MAX: Final = 30_000
"""Longest wait for new records; a follower with a longer wait fetches again."""
SUCCESSORS_MAX: Final = 1_000
_REPLICA_STATE: Final = 15
_INVALID: Final = ErrorCode.INVALID_REQUEST


@dataclass(frozen=True, slots=True)
class Refused:
    """Answer to a request that is kept from the core.

    Attributes:
        answer: Struct of the message. Any: the codec makes its class at run time.
    """

    answer: Any


# -- from the wire


def admit(
    api_key: ApiKey,
    version: int,
    body: Any,
    identity: WireIdentity,
    standing: Callable[[], Standing],
) -> LogRequest | Refused:
    """Turn a decoded request into a message for the core, or into an answer that refuses it.

    Args:
        api_key: A key of `VERSIONS`.
        version: Of the request, any that the codec has.
        body: Decoded request.
        identity: Of this replica.
        standing: Called only if the refusal needs it.
    """
    if body.cluster_id is not None and body.cluster_id != identity.cluster_id:
        return Refused(refused_whole(api_key, ErrorCode.INCONSISTENT_CLUSTER_ID))
    if api_key == ApiKey.FETCH and version < VERSIONS[api_key].first:
        return Refused(refused_whole(api_key, _INVALID))
    asked = _asked(api_key, body)
    if asked is None:
        return Refused(refused_whole(api_key, _INVALID))
    made = _read(api_key, version, body, asked, identity)
    if isinstance(made, ErrorCode):
        return Refused(write_answer(refused(api_key, made, standing(), asked), version))
    return made


def _asked(api_key: ApiKey, body: Any) -> Any | None:
    if api_key == ApiKey.FETCH:
        return only_partition(body.topics, "topic_id", "partition")
    if api_key == ApiKey.FETCH_SNAPSHOT:
        return only_partition(body.topics, "name", "partition")
    return only_partition(body.topics, "topic_name", "partition_index")


def _read(
    api_key: ApiKey, version: int, body: Any, asked: Any, identity: WireIdentity
) -> LogRequest | ErrorCode:
    match api_key:
        case ApiKey.VOTE:
            return _vote(body, asked)
        case ApiKey.BEGIN_QUORUM_EPOCH:
            return _begin(body, asked, identity)
        case ApiKey.END_QUORUM_EPOCH:
            return _end(version, body, asked, identity)
        case ApiKey.FETCH:
            return _fetch(version, body, asked)
        case ApiKey.FETCH_SNAPSHOT:
            return _fetch_snapshot(body, asked)
        case _:
            raise AssertionError(f"{api_key.name} is no request of the quorum")


def _vote(body: Any, asked: Any) -> VoteRequest | ErrorCode:
    if min(asked.replica_id, asked.replica_epoch, asked.last_offset_epoch, asked.last_offset) < 0:
        return _INVALID
    return VoteRequest(
        epoch=asked.replica_epoch,
        candidate=ReplicaKey(asked.replica_id, asked.replica_directory_id),
        voter=_anybody_or(body.voter_id, asked.voter_directory_id),
        last_epoch=asked.last_offset_epoch,
        end_offset=asked.last_offset,
        pre_vote=asked.pre_vote,
    )


def _begin(body: Any, asked: Any, identity: WireIdentity) -> BeginQuorumEpochRequest | ErrorCode:
    if asked.leader_id < 0:
        return _INVALID
    return BeginQuorumEpochRequest(
        epoch=asked.leader_epoch,
        leader_id=asked.leader_id,
        voter=_anybody_or(body.voter_id, asked.voter_directory_id),
        leader=_listening(body.leader_endpoints, asked.leader_id, identity),
    )


def _end(
    version: int, body: Any, asked: Any, identity: WireIdentity
) -> EndQuorumEpochRequest | ErrorCode:
    by_key = version >= VOTER_KEYS
    named = asked.preferred_candidates if by_key else asked.preferred_successors
    if asked.leader_id < 0 or len(named) > SUCCESSORS_MAX:
        return _INVALID
    return EndQuorumEpochRequest(
        epoch=asked.leader_epoch,
        leader_id=asked.leader_id,
        successors=tuple(
            ReplicaKey(one.candidate_id, one.candidate_directory_id) if by_key else ReplicaKey(one)
            for one in named
        ),
        leader=_listening(body.leader_endpoints, asked.leader_id, identity),
    )


def _fetch(version: int, body: Any, asked: Any) -> FetchRequest | ErrorCode:
    if min(body.max_wait_ms, body.max_bytes, asked.fetch_offset, asked.last_fetched_epoch) < 0:
        return _INVALID
    # As in Kafka this check precedes those about leadership.
    if asked.last_fetched_epoch > asked.current_leader_epoch:
        return _INVALID
    if asked.high_watermark < UNKNOWN_HIGH_WATERMARK:
        return _INVALID
    replica_id = body.replica_state.replica_id if version >= _REPLICA_STATE else body.replica_id
    return FetchRequest(
        replica=ReplicaKey(max(replica_id, NOBODY), asked.replica_directory_id),
        epoch=asked.current_leader_epoch,
        offset=asked.fetch_offset,
        last_fetched_epoch=asked.last_fetched_epoch,
        high_watermark=asked.high_watermark,
        max_wait_ms=min(body.max_wait_ms, WAIT_MS_MAX),
        max_bytes=min(body.max_bytes, FETCH_BYTES_MAX),
    )


def _fetch_snapshot(body: Any, asked: Any) -> FetchSnapshotRequest | ErrorCode:
    if body.max_bytes < 0:
        return _INVALID
    if asked.position < 0:
        return ErrorCode.POSITION_OUT_OF_RANGE
    return FetchSnapshotRequest(
        replica=ReplicaKey(max(body.replica_id, NOBODY), asked.replica_directory_id),
        epoch=asked.current_leader_epoch,
        snapshot_id=SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch),
        position=asked.position,
        max_bytes=body.max_bytes,
    )


def _anybody_or(replica_id: int, directory_id: bytes) -> ReplicaKey:
    return ReplicaKey(max(replica_id, NOBODY), directory_id)


def _listening(endpoints: Any, leader_id: int, identity: WireIdentity) -> Node | None:
    for one in endpoints:
        if one.name == identity.listener_name:
            return usable_node(leader_id, one.host, one.port)
    return None


# -- to the wire


def is_sayable(request: LogRequest, version: int) -> bool:
    """True if this version can express the request: without its flag a pre-vote would be a vote."""
    return not isinstance(request, VoteRequest) or version >= PRE_VOTE or not request.pre_vote


def write_request(request: LogRequest, version: int, identity: WireIdentity) -> Any:
    """Make the message struct of a request; fields that the version lacks keep their default."""
    cls = codec_of(api_of(request)).cls
    match request:
        case VoteRequest():
            topics, fields = _write_vote(cls, request)
        case BeginQuorumEpochRequest():
            topics, fields = _write_begin(cls, request, identity)
        case EndQuorumEpochRequest():
            topics, fields = _write_end(cls, request, identity)
        case FetchRequest():
            topics, fields = _write_fetch(cls, request)
        case FetchSnapshotRequest():
            topics, fields = _write_fetch_snapshot(cls, request)
        case _:
            assert_never(request)
    return cls(cluster_id=identity.cluster_id, topics=[topics], **fields)


_Written = tuple[Any, dict[str, Any]]
"""Struct of the only topic, and the fields beside the topics."""


def _write_vote(cls: Any, request: VoteRequest) -> _Written:
    partition = cls.Topics.Partitions(
        partition_index=PARTITION,
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.voter.directory_id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.end_offset,
        pre_vote=request.pre_vote,
    )
    topic = cls.Topics(topic_name=TOPIC, partitions=[partition])
    return topic, {"voter_id": request.voter.id}


def _write_begin(cls: Any, request: BeginQuorumEpochRequest, identity: WireIdentity) -> _Written:
    partition = cls.Topics.Partitions(
        partition_index=PARTITION,
        voter_directory_id=request.voter.directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    return cls.Topics(topic_name=TOPIC, partitions=[partition]), {
        "voter_id": request.voter.id,
        "leader_endpoints": _endpoints(cls.LeaderEndpoints, request.leader, identity),
    }


def _write_end(cls: Any, request: EndQuorumEpochRequest, identity: WireIdentity) -> _Written:
    candidate = cls.Topics.Partitions.PreferredCandidates
    partition = cls.Topics.Partitions(
        partition_index=PARTITION,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.id for key in request.successors],
        preferred_candidates=[
            candidate(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in request.successors
        ],
    )
    endpoints = _endpoints(cls.LeaderEndpoints, request.leader, identity)
    topic = cls.Topics(topic_name=TOPIC, partitions=[partition])
    return topic, {"leader_endpoints": endpoints}


def _write_fetch(cls: Any, request: FetchRequest) -> _Written:
    partition = cls.Topics.Partitions(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_fetched_epoch,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    return cls.Topics(topic_id=TOPIC_ID, partitions=[partition]), {
        "replica_id": request.replica.id,
        "replica_state": cls.ReplicaState(replica_id=request.replica.id),
        "max_wait_ms": request.max_wait_ms,
        "max_bytes": request.max_bytes,
    }


def _write_fetch_snapshot(cls: Any, request: FetchSnapshotRequest) -> _Written:
    made = cls.Topics.Partitions
    partition = made(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        snapshot_id=made.SnapshotId(
            end_offset=request.snapshot_id.end_offset, epoch=request.snapshot_id.epoch
        ),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return cls.Topics(name=TOPIC, partitions=[partition]), {
        "replica_id": request.replica.id,
        "max_bytes": request.max_bytes,
    }


def _endpoints(cls: Any, leader: Node | None, identity: WireIdentity) -> list[Any]:
    if leader is None:
        return []
    return [cls(name=identity.listener_name, host=leader.host, port=leader.port)]
