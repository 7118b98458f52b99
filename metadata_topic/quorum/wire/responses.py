"""Answers of the quorum: from the core to the wire, and back.

An answer about another topic, or one that contradicts itself, raises `UnreadableAnswer`; then the
sender of the request gets none.
"""

from typing import Any, Final, assert_never

from kafka_protocol.errors import ErrorCode, TidemarkError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response as codec_of
from metadata_topic.quorum.log.fetched import NO_DATA, CheckedData
from metadata_topic.quorum.wire.rpc import (
    FETCH_ENDPOINTS,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    leader_of,
    node_endpoints,
    only_partition,
)
from metadata_topic.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogRequest,
    LogResponse,
    SnapshotId,
    Standing,
    VoteRequest,
    VoteResponse,
)

_UNKNOWN: Final = -1


class UnreadableAnswer(TidemarkError):
    """An answer of another topic or with contradictory fields."""


# -- to the wire


def write_answer(answer: LogResponse, version: int) -> Any:
    """Make the message struct of an answer, without fields that the version lacks."""
    match answer:
        case VoteResponse():
            return _write_vote(answer)
        case BeginQuorumEpochResponse():
            return _write_named(ApiKey.BEGIN_QUORUM_EPOCH, answer)
        case EndQuorumEpochResponse():
            return _write_named(ApiKey.END_QUORUM_EPOCH, answer)
        case FetchResponse():
            return _write_fetch(answer, version)
        case FetchSnapshotResponse():
            return _write_fetch_snapshot(answer)
        case _:
            assert_never(answer)


def refused_whole(api_key: ApiKey, error: ErrorCode) -> Any:
    """Make the message struct of an answer that has only an error."""
    return codec_of(api_key).cls(error_code=int(error))


def refused(api_key: ApiKey, error: ErrorCode, standing: Standing, asked: Any) -> LogResponse:
    """Make an answer about the log that grants nothing.

    Args:
        api_key: Of the request.
        error: Reason.
        standing: Of this replica.
        asked: The partition's struct in the request.
    """
    match api_key:
        case ApiKey.VOTE:
            return VoteResponse(error, standing)
        case ApiKey.BEGIN_QUORUM_EPOCH:
            return BeginQuorumEpochResponse(error, standing)
        case ApiKey.END_QUORUM_EPOCH:
            return EndQuorumEpochResponse(error, standing)
        case ApiKey.FETCH:
            return FetchResponse(error, standing)
        case _:
            wanted = asked.snapshot_id
            return FetchSnapshotResponse(
                error, standing, SnapshotId(wanted.end_offset, wanted.epoch)
            )


def _write_vote(answer: VoteResponse) -> Any:
    cls = codec_of(ApiKey.VOTE).cls
    partition = cls.Topics.Partitions(
        partition_index=PARTITION,
        error_code=int(answer.error),
        leader_id=answer.standing.leader_id,
        leader_epoch=answer.standing.epoch,
        vote_granted=answer.granted,
    )
    return cls(
        topics=[cls.Topics(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=node_endpoints(cls.NodeEndpoints, answer.standing),
    )


def _write_named(api_key: ApiKey, answer: BeginQuorumEpochResponse | EndQuorumEpochResponse) -> Any:
    cls = codec_of(api_key).cls
    partition = cls.Topics.Partitions(
        partition_index=PARTITION,
        error_code=int(answer.error),
        leader_id=answer.standing.leader_id,
        leader_epoch=answer.standing.epoch,
    )
    return cls(
        topics=[cls.Topics(topic_name=TOPIC, partitions=[partition])],
        node_endpoints=node_endpoints(cls.NodeEndpoints, answer.standing),
    )


def _write_fetch(answer: FetchResponse, version: int) -> Any:
    cls = codec_of(ApiKey.FETCH).cls
    partition = cls.Responses.Partitions
    standing = answer.standing
    made = partition(
        partition_index=PARTITION,
        error_code=int(answer.error),
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        current_leader=partition.CurrentLeader(
            leader_id=standing.leader_id, leader_epoch=standing.epoch
        ),
        aborted_transactions=[],
        records=answer.data,
    )
    if answer.diverging is not None:
        end = answer.diverging
        made.diverging_epoch = partition.DivergingEpoch(epoch=end.epoch, end_offset=end.end_offset)
    if answer.snapshot_id is not None:
        made.snapshot_id = partition.SnapshotId(
            end_offset=answer.snapshot_id.end_offset, epoch=answer.snapshot_id.epoch
        )
    # Version 16 has the field, but only for the leaders of clients' partitions.
    endpoints = node_endpoints(cls.NodeEndpoints, standing) if version >= FETCH_ENDPOINTS else []
    topic = cls.Responses(topic_id=TOPIC_ID, partitions=[made])
    return cls(responses=[topic], node_endpoints=endpoints)


def _write_fetch_snapshot(answer: FetchSnapshotResponse) -> Any:
    cls = codec_of(ApiKey.FETCH_SNAPSHOT).cls
    partition = cls.Topics.Partitions
    made = partition(
        index=PARTITION,
        error_code=int(answer.error),
        snapshot_id=partition.SnapshotId(
            end_offset=answer.snapshot_id.end_offset, epoch=answer.snapshot_id.epoch
        ),
        current_leader=partition.CurrentLeader(
            leader_id=answer.standing.leader_id, leader_epoch=answer.standing.epoch
        ),
        size=answer.size_bytes,
        position=answer.position,
        unaligned_records=answer.data,
    )
    return cls(
        topics=[cls.Topics(name=TOPIC, partitions=[made])],
        node_endpoints=node_endpoints(cls.NodeEndpoints, answer.standing),
    )


# -- from the wire


def read_answer(request: LogRequest, body: Any, checked: CheckedData = NO_DATA) -> LogResponse:
    """Turn a decoded answer into a message for the core.

    Args:
        request: The request.
        body: Decoded answer to it.
        checked: Of a Fetch answer: result of `checked_prefix` for its records.

    Raises:
        UnreadableAnswer: The answer is about another topic, or contradicts itself.
    """
    if body.error_code:
        return _failed(request, _code(body.error_code))
    match request:
        case VoteRequest():
            found = _found(only_partition(body.topics, "topic_name", "partition_index"))
            return VoteResponse(
                _code(found.error_code),
                _standing_of(found, body.node_endpoints),
                found.vote_granted,
            )
        case BeginQuorumEpochRequest():
            found = _found(only_partition(body.topics, "topic_name", "partition_index"))
            return BeginQuorumEpochResponse(
                _code(found.error_code), _standing_of(found, body.node_endpoints)
            )
        case EndQuorumEpochRequest():
            found = _found(only_partition(body.topics, "topic_name", "partition_index"))
            return EndQuorumEpochResponse(
                _code(found.error_code), _standing_of(found, body.node_endpoints)
            )
        case FetchRequest():
            found = _found(only_partition(body.responses, "topic_id", "partition_index"))
            return _read_fetch(found, body.node_endpoints, checked)
        case FetchSnapshotRequest():
            found = _found(only_partition(body.topics, "name", "index"))
            return _read_fetch_snapshot(found, body.node_endpoints)
        case _:
            assert_never(request)


def records_of(body: Any) -> memoryview:
    """Records of a decoded Fetch answer; empty if it is not about the metadata log."""
    found = only_partition(body.responses, "topic_id", "partition_index")
    if found is None or found.records is None:
        return memoryview(b"")
    return memoryview(found.records)


def _failed(request: LogRequest, error: ErrorCode) -> LogResponse:
    """Answer that refuses the request as a whole, without its sender's epoch and leader.

    It is treated as one of the request's epoch, and the error decides.
    """
    standing = Standing(request.epoch)
    match request:
        case VoteRequest():
            return VoteResponse(error, standing)
        case BeginQuorumEpochRequest():
            return BeginQuorumEpochResponse(error, standing)
        case EndQuorumEpochRequest():
            return EndQuorumEpochResponse(error, standing)
        case FetchRequest():
            return FetchResponse(error, standing)
        case FetchSnapshotRequest():
            return FetchSnapshotResponse(error, standing, request.snapshot_id)
        case _:
            assert_never(request)


def without_pre_vote(request: VoteRequest) -> VoteResponse:
    """Answer in place of a peer without pre-vote, which Kafka has no code for.

    Source: KIP-996: the candidate stands at once.
    """
    return VoteResponse(ErrorCode.UNSUPPORTED_VERSION, Standing(request.epoch))


def _read_fetch(found: Any, endpoints: Any, checked: CheckedData) -> FetchResponse:
    diverging, snapshot = found.diverging_epoch, found.snapshot_id
    if min(found.high_watermark, found.log_start_offset) < _UNKNOWN:
        raise UnreadableAnswer("a negative offset")
    return FetchResponse(
        error=_code(found.error_code),
        standing=_standing_of(found.current_leader, endpoints),
        high_watermark=found.high_watermark,
        log_start_offset=found.log_start_offset,
        diverging=(
            EpochEnd(diverging.epoch, diverging.end_offset)
            if _is_set(diverging.epoch, diverging.end_offset)
            else None
        ),
        snapshot_id=(
            SnapshotId(snapshot.end_offset, snapshot.epoch)
            if _is_set(snapshot.end_offset, snapshot.epoch)
            else None
        ),
        batches=checked.batches,
        data=checked.data,
        fault=checked.fault,
    )


def _read_fetch_snapshot(found: Any, endpoints: Any) -> FetchSnapshotResponse:
    data, wanted = bytes(found.unaligned_records), found.snapshot_id
    end = found.position + len(data)
    # An answer with an error has neither bytes nor size.
    if min(found.position, found.size) < 0 or (data and end > found.size):
        raise UnreadableAnswer(f"bytes {found.position} to {end} of {found.size}")
    return FetchSnapshotResponse(
        error=_code(found.error_code),
        standing=_standing_of(found.current_leader, endpoints),
        snapshot_id=SnapshotId(wanted.end_offset, wanted.epoch),
        size_bytes=found.size,
        position=found.position,
        data=data,
    )


def _found(partition: Any | None) -> Any:
    if partition is None:
        raise UnreadableAnswer("not about the one partition of the metadata log")
    return partition


def _standing_of(found: Any, endpoints: Any) -> Standing:
    leader_id, epoch = found.leader_id, found.leader_epoch
    if min(leader_id, epoch) < _UNKNOWN:
        raise UnreadableAnswer(f"leader {leader_id} of epoch {epoch}")
    return Standing(epoch, leader_id, leader_of(endpoints, leader_id))


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _is_set(first: int, second: int) -> bool:
    """True if an offset and an epoch are given; both are -1 if not."""
    if min(first, second) >= 0:
        return True
    if max(first, second) >= 0:
        raise UnreadableAnswer(f"half a pair of offset and epoch: {first}, {second}")
    return False
