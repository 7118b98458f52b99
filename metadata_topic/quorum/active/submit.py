"""Decisions that coroutines ask for: a coroutine may be cancelled, a decision continues."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.quorum.active.decisions import Done, Outcome
from runtime.scheduler import Scheduler

DECISION_TIMEOUT_MS: Final = 30_000
"""How long a caller waits that does not say: Kafka's `request.timeout.ms`."""

R = TypeVar("R")

Ask = Callable[[Callable[[Outcome[R]], None]], None]
"""Asks for a decision; what it is given hears the outcome, once, perhaps at once."""


class DecisionTimedOut(KafkaError):
    """A decision was not durable in time. It may still be carried out if it had begun."""

    code = ErrorCode.REQUEST_TIMED_OUT


async def wait_for_all(
    tasks: Iterable["asyncio.Task[Any]"], timeout_ms: int, scheduler: Scheduler
) -> None:
    """Wait until all tasks are done or the time is over; cancels none of them, raises nothing.

    Args:
        tasks: what to wait for.
        timeout_ms: how long, by the scheduler's clock.
        scheduler: ends the waiting.
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


class SubmittedDecisions:
    """Knows which decisions were asked for and not answered yet, be their callers gone or not.

    Attributes:
        under_way: one task for each; a stop waits for them.
    """

    __slots__ = ("under_way",)

    def __init__(self) -> None:
        """Begin with none."""
        self.under_way: set[asyncio.Task[object]] = set()

    async def submit(self, ask: Ask[R]) -> R:
        """Ask for a decision, and wait for its outcome.

        If the caller is cancelled, the decision is `under_way` all the same until it is answered.

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
            task.exception()  # seen: a cancelled caller does not collect it
