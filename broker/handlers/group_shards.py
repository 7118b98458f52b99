"""From a group's request to the shard that coordinates the group."""

from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any, TypeVar

from broker.coordinator.group import refusals
from broker.coordinator.service import GroupCoordinator
from broker.coordinator.shard import Decide
from broker.handlers.errors_out import code_of
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import ApiKey

R = TypeVar("R")


def decided(coordinator: GroupCoordinator, api_key: ApiKey, request: Any, decide: Decide) -> Any:
    """Have the group's shard decide on a request; an empty group id is refused.

    Returns:
        The response, or a future of it.
    """
    if not request.group_id:
        return refusals.for_request(api_key, request, ErrorCode.INVALID_GROUP_ID)
    return decided_of_any(coordinator, api_key, request, decide)


def decided_of_any(
    coordinator: GroupCoordinator, api_key: ApiKey, request: Any, decide: Decide
) -> Any:
    """Like `decided`, but allows the empty group id, which old offsets may have."""
    try:
        shard = coordinator.shard(request.group_id)
    except KafkaError as error:
        return refusals.for_request(api_key, request, code_of(error, "find a group's shard"))
    return shard.run(decide)


def changed(answer: Any, change: Callable[[Any], R]) -> R | Coroutine[Any, Any, R]:
    """Apply `change` to an answer, or to the result of an awaitable one."""
    return _changed_later(answer, change) if isawaitable(answer) else change(answer)


async def _changed_later(answer: Awaitable[Any], change: Callable[[Any], R]) -> R:
    return change(await answer)


async def awaited(answer: Any) -> Any:
    """The answer, awaited if it is awaitable."""
    return await answer if isawaitable(answer) else answer
