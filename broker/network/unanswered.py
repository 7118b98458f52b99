"""What a connection was asked and has not answered yet.

Answers leave in the order of their requests: what is ready early is kept. Some requests hold up
those behind them: one whose answer is an `OrderedFuture` all of them, or all but those of its own
API.
"""

from asyncio import Future
from collections import deque
from typing import Any

from broker.network.dispatch import Answer, OrderedFuture
from broker.network.registry import CloseConnection
from broker.network.sender import Sender


class Slot:
    """A request whose answer is not there yet, or waits for an earlier one."""

    __slots__ = ("answer", "done", "future")

    def __init__(self, future: Future[Answer | None] | None, answer: Answer | None) -> None:
        self.future, self.answer = future, answer
        self.done = future is None


class Unanswered:
    """The requests of one connection that wait, the oldest first.

    Attributes:
        slots: one for each request.
        kept_bytes: of answers that wait for earlier ones.
        behind: makes the answer of a request that nothing may overtake; also where an earlier one
            has failed, so that none is waited for. When it is done nothing uses its bytes any more.
        is_held: the next request waits until no change is without an answer.
        changes: requests without an answer that only others of their API may pass.
        passing: that API, as a frame begins with it.
    """

    __slots__ = ("behind", "changes", "is_held", "kept_bytes", "passing", "slots")

    def __init__(self) -> None:
        self.slots: deque[Slot] = deque()
        self.kept_bytes = self.changes = 0
        self.behind: Future[Any] | None = None
        self.is_held = False
        self.passing = b""

    def keep(self, answer: Answer) -> None:
        """Keep an answer that was there at once until those before it are."""
        self.slots.append(Slot(None, answer))
        self.kept_bytes += answer[1]

    def wait_for(self, answer: Future[Answer | None]) -> Slot:
        """Keep the place of an answer that is not there yet."""
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
        """Note the answer that a slot waited for; where there will be none, say why.

        Nothing behind a request without an answer can be answered in order: its slot and those
        behind it are gone then, and nobody waits for what comes of them.
        """
        cause = future.exception()
        if slot.done:
            return None  # it was gone before
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
        """Queue the answers that wait for no earlier one any more."""
        slots = self.slots
        while slots and slots[0].done:
            answer = slots.popleft().answer
            if answer is not None:
                self.kept_bytes -= answer[1]
                sender.add(answer)

    def cancel(self) -> None:
        """Nobody waits for the answers any more."""
        while self.slots:
            self._drop(self.slots.pop())

    def _drop(self, slot: Slot) -> None:
        slot.done = True
        if slot.answer is not None:
            self.kept_bytes -= slot.answer[1]
        if slot.future is not None:
            slot.future.cancel()
