"""Outgoing requests and responses: each is sent once its vote or epoch is durable.

A message waits for nothing else: neither for the log nor for a newer state of `quorum-state` than
the one it names.

Thousands of Fetches may wait for the same commit. Then `FETCHES_PER_ITERATION` are answered at
once, and other work of the loop runs before the next ones.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

from metadata_topic.quorum.driver.answers import Answers
from metadata_topic.quorum.driver.ports import DriverWorld
from metadata_topic.raft.effects import Respond, RespondChunk, RespondRecords, Send
from metadata_topic.raft.events import Answered
from metadata_topic.raft.messages import FetchResponse

FETCHES_PER_ITERATION: Final = 50
"""Fetches answered without a pause: some 10 ms of the loop with all that follows."""

Message = Send | Respond | RespondRecords | RespondChunk


class OutgoingMessages:
    """Queue of messages; on the loop's thread."""

    def __init__(
        self, world: DriverWorld, answers: Answers, answered: Callable[[Answered], None]
    ) -> None:
        """Begin with an empty queue and no durable state.

        Args:
            world: Has the transport for requests.
            answers: Has the respondents of received requests.
            answered: Called once for each request sent, with its answer or without any.
        """
        self._transport, self._scheduler = world.transport, world.ports.scheduler
        self._rng = world.ports.rng
        self._answers, self._answered = answers, answered
        self._durable = 0
        self._held: list[tuple[int, Callable[[], None]]] = []
        self._fetches: deque[Callable[[], None]] = deque()
        self._fetches_now = 0

    def begin_iteration(self) -> None:
        """Begin a new iteration of the loop, with a full budget of Fetches."""
        self._fetches_now = 0

    def send(self, message: Message) -> None:
        """Send a message, now or once the state it names is durable."""
        leave = partial(self._leave, message)
        match message:
            case RespondRecords() | Respond(response=FetchResponse()):
                leave = partial(self._answer_fetch, leave)
        if self._durable >= message.after:
            leave()
        else:
            self._held.append((message.after, leave))

    def persisted(self, number: int) -> None:
        """Take all states up to `number` (inclusive) as durable; send messages that waited."""
        self._durable = number
        ready = [leave for after, leave in self._held if after <= number]
        self._held = [one for one in self._held if one[0] > number]
        self.begin_iteration()
        for leave in ready:
            leave()

    def forget(self) -> None:
        """Drop all waiting messages."""
        self._held.clear()
        self._fetches.clear()

    def _leave(self, message: Message) -> None:
        match message:
            case Send():
                self._send(message)
            case Respond(token, response):
                self._answers.respond(token, response)
            case RespondRecords():
                self._answers.respond_records(message)
            case RespondChunk():
                self._answers.respond_chunk(message)
            case _:
                assert_never(message)

    def _send(self, effect: Send) -> None:
        number, random = effect.number, self._rng.random
        self._transport.send(
            effect.to,
            effect.request,
            effect.timeout_ms,
            lambda response: self._answered(Answered(number, response, random())),
        )

    def _answer_fetch(self, leave: Callable[[], None]) -> None:
        if self._fetches or self._fetches_now >= FETCHES_PER_ITERATION:
            self._fetches.append(leave)
            if len(self._fetches) == 1:
                self._scheduler.call_later(0, self._answer_more)
        else:
            self._fetches_now += 1
            leave()

    def _answer_more(self) -> None:
        now = [
            self._fetches.popleft() for _ in range(min(FETCHES_PER_ITERATION, len(self._fetches)))
        ]
        if self._fetches:  # before an answer that fails ends this iteration
            self._scheduler.call_later(0, self._answer_more)
        for leave in now:
            leave()
