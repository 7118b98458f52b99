"""The unanswered requests of a connection.

Answers leave in the order of their requests: an answer that is ready early is kept. A request whose
answer is an `OrderedFuture` blocks all later ones, or all but those of its own API.
"""

from asyncio import Future
from collections import deque
from typing import Any

from broker.network.dispatch import Answer, OrderedFuture
from broker.network.registry import CloseConnection
from broker.network.sender import Sender


class Slot:
    """A request whose answer is pending, or waits for an earlier one."""

    __slots__ = ("answer", "done", "future")

    def __init__(self, future: Future[Answer | None] | None, answer: Answer | None) -> None:
        self.future, self.answer = future, answer
        self.done = future is None


class Unanswered:
    """The unanswered requests of one connection, the oldest first.

    Attributes:
        slots: The requests, with their answers as far as these exist.
        kept_bytes: Size of the answers that wait for earlier ones.
        behind: The work of a request that no later one may overtake; None: there is none. Kept if
            an earlier request has failed, because it uses the request's bytes until it is done.
        is_held: The next request waits until all pending changes are answered.
        changes: Pending requests that only requests of the same API may overtake.
        passing: First bytes of a frame of that API.
    """

    __slots__ = ("behind", "changes", "is_held", "kept_bytes", "passing", "slots")

    def __init__(self) -> None:
        self.slots: deque[Slot] = deque()
        self.kept_bytes = self.changes = 0
        self.behind: Future[Any] | None = None
        self.is_held = False
        self.passing = b""

    def keep(self, answer: Answer) -> None:
        """Keep an answer that is ready until the earlier ones have left."""
        self.slots.append(Slot(None, answer))
        self.kept_bytes += answer[1]

    def wait_for(self, answer: Future[Answer | None]) -> Slot:
        """Reserve the place of a pending answer."""
        slot = Slot(answer, None)
        self.slots.append(slot)
        if type(answer) is OrderedFuture:
            if answer.passing is None:
                self.behind = answer.work
            else:
                self.changes += 1
                self.passing = answer.passing
        return slot

    def settle(self, slot: Slot, future: Future[Answer | None]) -> str | None:
        """Record the answer of a slot; returns the reason to close if there is none.

        Nothing behind a request without an answer can be answered in order. So its slot and those
        behind it are dropped, and the work for them is cancelled.
        """
        cause = future.exception()
        if slot.done:
            return None  # it was dropped before
        slot.done = True
        if type(future) is OrderedFuture:
            if future.passing is None:
                self.behind = None
            else:
                self.changes -= 1
                self.is_held = self.is_held and self.changes > 0
        if cause is not None:
            while self.slots[-1] is not slot:
                self._drop(self.slots.pop())
            self.slots.pop()
            return cause.reason if isinstance(cause, CloseConnection) else repr(cause)
        answer = slot.answer = future.result()
        self.kept_bytes += 0 if answer is None else answer[1]
        return None

    def move_ready(self, sender: Sender) -> None:
        """Move answers that wait for no earlier one to the sender."""
        slots = self.slots
        while slots and slots[0].done:
            answer = slots.popleft().answer
            if answer is not None:
                self.kept_bytes -= answer[1]
                sender.add(answer)

    def cancel(self) -> None:
        """Drop all requests and cancel their work: the connection has closed."""
        while self.slots:
            self._drop(self.slots.pop())

    def _drop(self, slot: Slot) -> None:
        slot.done = True
        if slot.answer is not None:
            self.kept_bytes -= slot.answer[1]
        if slot.future is not None:
            slot.future.cancel()
