"""Decisions requested by coroutines: a coroutine may be cancelled, its decision continues."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.quorum.active.decisions import Done, Outcome
from runtime.scheduler import Scheduler

DECISION_TIMEOUT_MS: Final = 30_000
"""Default timeout of a caller: Kafka's `request.timeout.ms`."""

R = TypeVar("R")

Ask = Callable[[Callable[[Outcome[R]], None]], None]
"""Requests a decision; its argument is called once with the outcome, perhaps at once."""


class DecisionTimedOut(KafkaError):
    """A decision was not durable in time. If it had begun, its outcome is unknown."""

    code = ErrorCode.REQUEST_TIMED_OUT


async def wait_for_all(
    tasks: Iterable["asyncio.Task[Any]"], timeout_ms: int, scheduler: Scheduler
) -> None:
    """Wait until all tasks are done or the time is over; cancels no task, raises nothing.

    Args:
        tasks: To wait for.
        timeout_ms: Longest wait, by the scheduler's clock.
        scheduler: Runs the timeout.
    """
    everything = asyncio.ensure_future(asyncio.wait(set(tasks)))
    late = asyncio.get_running_loop().create_future()
    timer = scheduler.call_later(timeout_ms, late.cancel)
    try:
        await asyncio.wait({everything, late}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        everything.cancel()
        late.cancel()
        timer.cancel()


async def outcome_of(ask: Ask[R]) -> R:
    """Call a function that answers by callback, and wait for its outcome.

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


class SubmittedDecisions:
    """Keeps the decisions that are not answered yet, also after their callers are cancelled.

    Attributes:
        under_way: One task per decision; a shutdown waits for them.
    """

    __slots__ = ("under_way",)

    def __init__(self) -> None:
        """Begin with none."""
        self.under_way: set[asyncio.Task[object]] = set()

    async def submit(self, ask: Ask[R]) -> R:
        """Request a decision, and wait for its outcome.

        If the caller is cancelled, the decision stays in `under_way` until it is answered.

        Raises:
            The error of a `Failed`.
        """
        asked: asyncio.Task[R] = asyncio.ensure_future(outcome_of(ask))
        self._keep(asked)
        return await asyncio.shield(asked)

    def _keep(self, task: "asyncio.Task[R]") -> None:
        self.under_way.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: "asyncio.Task[R]") -> None:
        self.under_way.discard(task)
        if not task.cancelled():
            task.exception()  # mark as retrieved: a cancelled caller does not collect it
