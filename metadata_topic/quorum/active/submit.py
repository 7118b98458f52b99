"""Decisions that coroutines ask for: a coroutine may be cancelled, a decision goes on."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from metadata_topic.quorum.active.decisions import Done, Outcome

R = TypeVar("R")

Ask = Callable[[Callable[[Outcome[R]], None]], None]
"""Asks for a decision; what it is given hears the outcome, once, perhaps at once."""


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
