"""Requests to a leader: one and its answer, and where the leader's logs begin and end."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.replication.following import LeaderRange, Wait
from kafka_client.connection import Connection
from kafka_client.requests import Answer, Call, ClientError, encoder
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from kafka_protocol.wire.schema import Versions
from runtime.work import Until, Work

RANGES_AT_ONCE: Final = 500
"""Partitions of one ListOffsets."""
EARLIEST: Final = -2
LATEST: Final = -1
_LIST_OFFSETS: Final = Versions(4, 9)
"""From leader epochs on."""
_ListOffsets: Final = request(ApiKey.LIST_OFFSETS).cls


def sent(
    connection: Connection,
    api_key: ApiKey,
    body: Callable[[int], bytes],
    *,
    versions: Versions,
    read: Callable[[Answer], Any] | None,
    timeout_ms: int,
) -> Work[Any]:
    """Send a request and wait for its answer, or a `ClientError`."""
    ended: list[Any] = []

    def send(go_on: Callable[[], None]) -> None:
        def done(result: Any) -> None:
            ended.append(result)
            go_on()

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
    """Ask where the leader's logs begin and end, by two ListOffsets.

    Args:
        connection: to the leader; None: there is none, and no answer.
        leader_epochs: of the partitions, at most `RANGES_AT_ONCE`.
        node_id: of this follower.
        timeout_ms: for each answer.

    Returns:
        The range of each partition, or why there is none.
    """
    listed: list[dict[TopicPartition, Any]] = []
    for timestamp in (EARLIEST, LATEST):
        answer = None
        if connection is not None:
            answer = yield from sent(
                connection,
                ApiKey.LIST_OFFSETS,
                encoder(ApiKey.LIST_OFFSETS, _question(leader_epochs, timestamp, node_id)),
                versions=_LIST_OFFSETS,
                read=Answer.decode,
                timeout_ms=timeout_ms,
            )
        listed.append({} if answer is None or isinstance(answer, ClientError) else _by_name(answer))
    starts, ends = listed
    return {name: _range_of(starts.get(name), ends.get(name)) for name in leader_epochs}


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


def _by_name(answer: Any) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic.name, one.partition_index): one
        for topic in answer.topics
        for one in topic.partitions
    }


def _range_of(start: Any, end: Any) -> LeaderRange | Wait:
    """What two answers of ListOffsets say; None: there is none."""
    for one in (start, end):
        if one is None:
            return Wait("the leader does not answer ListOffsets")
        if one.error_code or one.offset < 0:
            error = ErrorCode.of(one.error_code)
            return Wait(f"the leader answers {error.name}, offset {one.offset} to ListOffsets")
    return LeaderRange(start.offset, end.offset, end.leader_epoch)
