"""The controller's way in for coroutines: what `MetadataNode.submit` is to handlers."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from metadata_topic.quorum.controller_loop import ControllerLoop
from metadata_topic.quorum.deadlines import DECISION_TIMEOUT_MS
from metadata_topic.quorum.decisions import Decide, Done, Outcome

R = TypeVar("R")


async def outcome_of(ask: Callable[[Callable[[Outcome[R]], None]], None]) -> R:
    """Ask something that answers with a callback, and wait for it.

    Raises:
        The error of a `Failed`.
    """
    answered: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def done(outcome: Outcome[R]) -> None:
        if answered.done():
            return  # the caller was cancelled
        if isinstance(outcome, Done):
            answered.set_result(outcome.response)
        else:
            answered.set_exception(outcome.error)

    ask(done)
    return await answered


class ControllerSubmit:
    """Callable; see `ControllerLoop.submit`."""

    __slots__ = ("_loop",)

    def __init__(self, loop: ControllerLoop) -> None:
        self._loop = loop

    async def __call__(self, decide: Decide[R], *, timeout_ms: int = DECISION_TIMEOUT_MS) -> R:
        """Take a decision and make it durable.

        Returns:
            The decision's response, after its records are committed and visible on this node. If
            the caller is cancelled, a decision that was begun is carried through all the same.

        Raises:
            KafkaError: whatever `decide` raises, or it cannot be written; nothing was.
            NotControllerError, ControllerOverloadedError, DecisionTimedOut: see there.
        """
        return await outcome_of(lambda done: self._loop.submit(decide, done, timeout_ms=timeout_ms))
