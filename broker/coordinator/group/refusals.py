"""Answers with errors, in the fields that Kafka uses for each API. Pure."""

from collections.abc import Callable
from typing import Any

from broker.coordinator.group.decision import Answer
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response


def join(error: ErrorCode, member_id: str = "") -> Any:
    """A JoinGroup response without a generation.

    Args:
        error: The code.
        member_id: Id in the answer, empty where Kafka sends none.
    """
    return response(ApiKey.JOIN_GROUP).cls(
        error_code=error, protocol_name=None, member_id=member_id
    )


def sync(error: ErrorCode) -> Any:
    """A SyncGroup response without assignment and protocol."""
    return response(ApiKey.SYNC_GROUP).cls(error_code=error)


def heartbeat(error: ErrorCode) -> Any:
    """A Heartbeat response."""
    return response(ApiKey.HEARTBEAT).cls(error_code=error)


def leave(error: ErrorCode) -> Any:
    """A LeaveGroup response without members."""
    return response(ApiKey.LEAVE_GROUP).cls(error_code=error)


def commit(request: Any, error: ErrorCode) -> Any:
    """An OffsetCommit response: the error at each partition of the request."""
    return _by_partition(response(ApiKey.OFFSET_COMMIT).cls, request, error, with_id=True)


def commit_in_transaction(request: Any, error: ErrorCode) -> Any:
    """A TxnOffsetCommit response: the error at each partition of the request."""
    return _by_partition(response(ApiKey.TXN_OFFSET_COMMIT).cls, request, error, with_id=False)


def delete_offsets(error: ErrorCode) -> Any:
    """An OffsetDelete response without partitions."""
    return response(ApiKey.OFFSET_DELETE).cls(error_code=error)


def fetch(group_id: str, error: ErrorCode) -> Any:
    """A group's slot of an OffsetFetch response."""
    slot = response(ApiKey.OFFSET_FETCH).cls.Groups
    return slot(group_id=group_id, error_code=error)


def describe(group_id: str, error: ErrorCode, message: str | None = None) -> Any:
    """A group's slot of a DescribeGroups response."""
    slot = response(ApiKey.DESCRIBE_GROUPS).cls.Groups
    return slot(error_code=error, error_message=message, group_id=group_id)


def delete_group(group_id: str, error: ErrorCode) -> Any:
    """A group's slot of a DeleteGroups response."""
    return response(ApiKey.DELETE_GROUPS).cls.Results(group_id=group_id, error_code=error)


def for_request(api_key: ApiKey, request: Any, error: ErrorCode) -> Any:
    """The response to a request that is refused as a whole.

    Raises:
        KeyError: The API is not about a single group.
    """
    return _OF_REQUESTS[api_key](request, error)


_OF_REQUESTS: dict[ApiKey, Callable[[Any, ErrorCode], Any]] = {
    ApiKey.JOIN_GROUP: lambda request, error: join(error, request.member_id),
    ApiKey.SYNC_GROUP: lambda _, error: sync(error),
    ApiKey.HEARTBEAT: lambda _, error: heartbeat(error),
    ApiKey.LEAVE_GROUP: lambda _, error: leave(error),
    ApiKey.OFFSET_COMMIT: commit,
    ApiKey.TXN_OFFSET_COMMIT: commit_in_transaction,
    ApiKey.OFFSET_DELETE: lambda _, error: delete_offsets(error),
}


def refused(answer: Answer, error: ErrorCode) -> Answer:
    """The answer with an error, for a decision whose records were not committed."""
    return Answer(answer.ticket, _refused(answer.response, error))


def _refused(said: Any, error: ErrorCode) -> Any:
    kind = type(said)
    if kind is response(ApiKey.JOIN_GROUP).cls:
        return join(error, said.member_id)
    if kind in {response(ApiKey.OFFSET_COMMIT).cls, response(ApiKey.TXN_OFFSET_COMMIT).cls}:
        for topic in said.topics:
            for partition in topic.partitions:
                partition.error_code = partition.error_code or error
        return said
    if kind is response(ApiKey.DELETE_GROUPS).cls.Results:
        return delete_group(said.group_id, error)
    return kind(error_code=error)


def _by_partition(cls: Any, request: Any, error: ErrorCode, *, with_id: bool) -> Any:
    topics = []
    for topic in request.topics:
        partitions = [
            cls.Topics.Partitions(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ]
        slot = cls.Topics(name=topic.name, partitions=partitions)
        if with_id:
            slot.topic_id = topic.topic_id
        topics.append(slot)
    return cls(topics=topics)
