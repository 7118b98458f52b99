"""Requests to a leader: one request and its answer, and the starts and ends of the leader's logs.

A leader of tiered partitions is also asked for the starts of its *local* logs, and for the epoch of
the record before each. The remote segment that holds that record has the state with which a
follower begins there.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from broker.replication.following import LeaderRange, LocalStart, Wait
from kafka_client.connection import Connection
from kafka_client.requests import Answer, Call, ClientError, encoder
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import EpochEntry, TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from kafka_protocol.wire.schema import Versions
from runtime.work import Until, Work

RANGES_AT_ONCE: Final = 500
"""Partitions of one ListOffsets."""
EARLIEST: Final = -2
LATEST: Final = -1
EARLIEST_LOCAL: Final = -4
EARLIEST_PENDING_UPLOAD: Final = -6
_LIST_OFFSETS: Final = Versions(4, 9)
"""From the version with leader epochs on."""
_LIST_LOCAL_OFFSETS: Final = {
    EARLIEST_LOCAL: Versions(8, 11),
    EARLIEST_PENDING_UPLOAD: Versions(11, 11),
}
_OFFSET_FOR_LEADER_EPOCH: Final = Versions(3, 4)
"""From the version with the replica id on."""
_ListOffsets: Final = request(ApiKey.LIST_OFFSETS).cls
_OffsetForLeaderEpoch: Final = request(ApiKey.OFFSET_FOR_LEADER_EPOCH).cls


def sent(
    connection: Connection,
    api_key: ApiKey,
    body: Callable[[int], bytes],
    *,
    versions: Versions,
    read: Callable[[Answer], Any] | None,
    timeout_ms: int,
) -> Work[Any]:
    """Send a request; returns its answer, or a `ClientError`."""
    ended: list[Any] = []

    def send(proceed: Callable[[], None]) -> None:
        def done(result: Any) -> None:
            ended.append(result)
            proceed()

        connection.send(
            Call(api_key, body, done, versions=versions, read=read, timeout_ms=timeout_ms)
        )

    yield Until(send)
    return ended.pop()


def leader_ranges(
    connection: Connection | None,
    leader_epochs: Mapping[TopicPartition, int],
    *,
    node_id: int,
    timeout_ms: int,
) -> Work[dict[TopicPartition, LeaderRange | Wait]]:
    """Ask for the starts and ends of the leader's logs, by two ListOffsets.

    Args:
        connection: To the leader; None: there is none, and no answer.
        leader_epochs: Of the partitions, at most `RANGES_AT_ONCE`.
        node_id: Of this follower.
        timeout_ms: For each answer.

    Returns:
        The range of each partition, or why there is none.
    """
    listed = partial(_listed, connection, leader_epochs, node_id=node_id, timeout_ms=timeout_ms)
    starts = yield from listed(EARLIEST)
    ends = yield from listed(LATEST)
    return {name: _range_of(starts.get(name), ends.get(name)) for name in leader_epochs}


def leader_local_starts(
    connection: Connection | None,
    leader_epochs: Mapping[TopicPartition, int],
    timestamp: int,
    *,
    node_id: int,
    timeout_ms: int,
) -> Work[dict[TopicPartition, LocalStart | Wait]]:
    """Ask for the offsets at which followers may begin that are below the leader's local start.

    Args:
        connection: To the leader; None: there is none, and no answer.
        leader_epochs: Of the partitions, at most `RANGES_AT_ONCE`.
        timestamp: `EARLIEST_LOCAL`, or `EARLIEST_PENDING_UPLOAD`, which leaves out local records
            that are copied (KIP-1023).
        node_id: Of this follower.
        timeout_ms: For each answer.

    Returns:
        The start for each partition, or why there is none.

    Source: KIP-405, "Follower fetch protocol in detail".
    """
    listed = partial(_listed, connection, leader_epochs, node_id=node_id, timeout_ms=timeout_ms)
    log_starts = yield from listed(EARLIEST)
    offsets = yield from listed(timestamp)
    found: dict[TopicPartition, LocalStart | Wait] = {}
    asked: dict[TopicPartition, int] = {}
    for name, leader_epoch in leader_epochs.items():
        log_start: Any = log_starts.get(name)
        offset: Any = offsets.get(name)
        wait = _why_none(log_start, offset)
        if wait is None and offset.leader_epoch < 0:
            wait = Wait(f"the leader does not know the epoch of offset {offset.offset}")
        if wait is None:
            found[name] = LocalStart(offset.offset, offset.leader_epoch, log_start.offset)
            asked[name] = _NEWEST if offset.leader_epoch < leader_epoch else offset.leader_epoch
        else:
            found[name] = wait
    while asked:
        questions = {name: min(epoch - 1, leader_epochs[name]) for name, epoch in asked.items()}
        ends = yield from _ends_of(connection, questions, leader_epochs, node_id, timeout_ms)
        for name, epoch in list(asked.items()):
            start = found[name]
            assert isinstance(start, LocalStart), "only these are asked about"
            found[name] = after = _with_epoch_before(start, epoch, ends.get(name))
            if isinstance(after, Wait) or epoch == start.epoch_below:
                del asked[name]
            else:
                asked[name] = ends[name].leader_epoch
    return found


_NEWEST: Final = 2**31
"""Above all epochs: asks for the predecessor of no epoch, so for the newest one."""


def _ends_of(
    connection: Connection | None,
    questions: Mapping[TopicPartition, int],
    leader_epochs: Mapping[TopicPartition, int],
    node_id: int,
    timeout_ms: int,
) -> Work[dict[TopicPartition, Any]]:
    """The answer to one OffsetForLeaderEpoch by partition; nothing for those without one."""
    if connection is None:
        return {}
    answer = yield from sent(
        connection,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        encoder(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, _epochs_question(questions, leader_epochs, node_id)
        ),
        versions=_OFFSET_FOR_LEADER_EPOCH,
        read=Answer.decode,
        timeout_ms=timeout_ms,
    )
    if isinstance(answer, ClientError):
        return {}
    return {
        TopicPartition(topic.topic, one.partition): one
        for topic in answer.topics
        for one in topic.partitions
    }


def _with_epoch_before(start: LocalStart, epoch: int, end: Any) -> LocalStart | Wait:
    """Add the epoch before `epoch` in the leader's epoch chain, and with it the start of `epoch`.

    Args:
        start: Its `epoch_below` is the epoch of the record at the start, as long as epochs above
            that one are asked for.
        epoch: Its predecessor was asked for.
        end: The answer; None: there is none.
    """
    if end is None:
        return Wait("the leader does not answer OffsetForLeaderEpoch")
    if end.error_code:
        error = ErrorCode.of(end.error_code)
        return Wait(f"the leader answers {error.name} to OffsetForLeaderEpoch")
    own = start.epoch_below
    if epoch != own and not own <= end.leader_epoch < epoch:
        return Wait(f"the leader does not know where epoch {own} ends")
    above = start.above
    if own < epoch < _NEWEST:
        above = (EpochEntry(epoch, end.end_offset), *above)
    elif epoch == own and end.leader_epoch >= 0 and end.end_offset >= start.offset:
        # The record before the start is of an earlier epoch: this one begins here.
        above = (EpochEntry(own, end.end_offset), *above)
        own = end.leader_epoch
    return start._replace(epoch_below=own, above=above)


def _listed(
    connection: Connection | None,
    leader_epochs: Mapping[TopicPartition, int],
    timestamp: int,
    *,
    node_id: int,
    timeout_ms: int,
) -> Work[dict[TopicPartition, Any]]:
    """The answer to one ListOffsets by partition; nothing for those without one."""
    if connection is None or not leader_epochs:
        return {}
    answer = yield from sent(
        connection,
        ApiKey.LIST_OFFSETS,
        encoder(ApiKey.LIST_OFFSETS, _question(leader_epochs, timestamp, node_id)),
        versions=_LIST_LOCAL_OFFSETS.get(timestamp, _LIST_OFFSETS),
        read=Answer.decode,
        timeout_ms=timeout_ms,
    )
    if isinstance(answer, ClientError):
        return {}
    return {
        TopicPartition(topic.name, one.partition_index): one
        for topic in answer.topics
        for one in topic.partitions
    }


def _question(leader_epochs: Mapping[TopicPartition, int], timestamp: int, node_id: int) -> Any:
    topics: dict[str, list[Any]] = {}
    for name, leader_epoch in leader_epochs.items():
        asked = _ListOffsets.Topics.Partitions(
            partition_index=name.partition,
            current_leader_epoch=leader_epoch,
            timestamp=timestamp,
        )
        topics.setdefault(name.topic, []).append(asked)
    return _ListOffsets(
        replica_id=node_id,
        topics=[
            _ListOffsets.Topics(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _epochs_question(
    asked_epochs: Mapping[TopicPartition, int],
    leader_epochs: Mapping[TopicPartition, int],
    node_id: int,
) -> Any:
    topics: dict[str, list[Any]] = {}
    for name, epoch in asked_epochs.items():
        asked = _OffsetForLeaderEpoch.Topics.Partitions(
            partition=name.partition,
            current_leader_epoch=leader_epochs[name],
            leader_epoch=epoch,
        )
        topics.setdefault(name.topic, []).append(asked)
    return _OffsetForLeaderEpoch(
        replica_id=node_id,
        topics=[
            _OffsetForLeaderEpoch.Topics(topic=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _range_of(start: Any, end: Any) -> LeaderRange | Wait:
    """The range from two answers of ListOffsets, or why there is none."""
    return _why_none(start, end) or LeaderRange(start.offset, end.offset, end.leader_epoch)


def _why_none(*answers: Any) -> Wait | None:
    """Why answers of ListOffsets name no offset; None where all do."""
    for one in answers:
        if one is None:
            return Wait("the leader does not answer ListOffsets")
        if one.error_code or one.offset < 0:
            error = ErrorCode.of(one.error_code)
            return Wait(f"the leader answers {error.name}, offset {one.offset} to ListOffsets")
    return None
