"""Asks the controller for leader epochs above those that were used before.

Two parts of a broker detect a leader epoch that is too low: the replica manager, by the log, and
the tier, by the remote metadata records. The partition is unhealthy until the controller has
answered and the image has the new epoch.

Invariants:
    * At most one request to the controller is in progress, for a bounded number of partitions.
    * With fewer waiting partitions than that, further ones collect in a pause before the next
      request.
    * The second and each further request for a partition waits, longer each time.
    * After `RAISES_MAX` raises without success there is no further request: another broker
      continues to use higher epochs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.wire.primitives import uuid_to_text
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.leader_epochs import UsedEpoch
from runtime.incidents import Incident
from runtime.scheduler import Scheduler, Timer

log = logging.getLogger(__name__)

AskController = Callable[[Mapping[ReplicaId, UsedEpoch]], Awaitable[Mapping[ReplicaId, KafkaError]]]
"""Has leader epochs raised; returns the reason for each partition that the controller refuses."""

PAUSE_MS: Final = 1_000
PAUSE_MAX_MS: Final = 60_000
RAISES_MAX: Final = 8

PARTITIONS_MAX: Final = 100
"""Of one request: the controller decides on all at once, some milliseconds on its event loop."""

COLLECT_MS: Final = 200
"""From an answer to the next request, so that findings share requests."""


@dataclass(slots=True)
class _Question:
    """The question for one partition.

    Attributes:
        tries: Questions sent to the controller, also those without an answer.
        raises: How many of them the controller carried out.
        is_open: It waits for its turn, or for the answer.
        refused: Why it is in vain; "" if it is not.
    """

    asked: UsedEpoch
    tries: int = 0
    raises: int = 0
    is_open: bool = False
    refused: str = ""
    timer: Timer | None = None


class LeaderEpochRequests:
    """The questions of one broker, on its event loop.

    Attributes:
        on_refused: Called with a partition that the controller refuses; `ask` returns the reason.
    """

    def __init__(self, controller: AskController, scheduler: Scheduler) -> None:
        """Ask nothing yet."""
        self._controller, self._scheduler = controller, scheduler
        self._questions: dict[ReplicaId, _Question] = {}
        self._due: dict[ReplicaId, None] = {}  # in the order in which they came
        self._sending: asyncio.Task[None] | None = None
        self.on_refused: Callable[[ReplicaId], None] = lambda _replica: None

    def ask(self, replica: ReplicaId, *, leader_epoch: int, used: int) -> str:
        """Have the leader epoch raised above `used`; does not wait, and may be repeated.

        Args:
            replica: Led here.
            leader_epoch: Of this leadership.
            used: The highest one that was used before.

        Returns:
            Why it is in vain, "" while it may still succeed.
        """
        question = self._questions.get(replica)
        asked = UsedEpoch(leader_epoch, used)
        if question is None:
            question = self._questions[replica] = _Question(asked)
        elif question.asked != asked:
            question.asked, question.refused = asked, ""
        if question.raises >= RAISES_MAX:
            return (
                f"the controller has raised it {RAISES_MAX} times since the start of this broker, "
                "and higher ones are used still: another broker writes as this one"
            )
        if not question.refused and not question.is_open:
            self._open(replica, question)
        return question.refused

    def stop(self) -> None:
        """Ask nothing more."""
        for question in self._questions.values():
            if question.timer is not None:
                question.timer.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _open(self, replica: ReplicaId, question: _Question) -> None:
        question.is_open = True
        if question.tries == 0:
            self._is_due(replica)
            return
        pause_ms = min(PAUSE_MS << min(question.tries - 1, 16), PAUSE_MAX_MS)
        question.timer = self._scheduler.call_later(pause_ms, lambda: self._is_due(replica))

    def _is_due(self, replica: ReplicaId) -> None:
        self._due[replica] = None
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        try:
            while self._due:
                these = list(islice(self._due, PARTITIONS_MAX))
                for one in these:
                    del self._due[one]
                await self._send_these({one: self._questions[one] for one in these})
                if len(self._due) < PARTITIONS_MAX:
                    await self._collect()
        finally:
            self._sending = None

    async def _collect(self) -> None:
        over = asyncio.Event()
        timer = self._scheduler.call_later(COLLECT_MS, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    async def _send_these(self, questions: Mapping[ReplicaId, _Question]) -> None:
        asked = {replica: question.asked for replica, question in questions.items()}
        for question in questions.values():
            question.tries += 1
        try:
            refused = await self._controller(asked)
        except KafkaError as error:
            log.warning("the controller did not raise leader epochs: %s", error)
            self._ask_again(questions)
            return
        except Exception:
            log.exception(
                Incident.DEFECT.line(what="leader epochs were not raised, they are asked for again")
            )
            self._ask_again(questions)
            return
        for replica, question in questions.items():
            self._answered(replica, question, asked[replica], refused.get(replica))

    def _ask_again(self, questions: Mapping[ReplicaId, _Question]) -> None:
        for replica, question in questions.items():
            self._open(replica, question)

    def _answered(
        self,
        replica: ReplicaId,
        question: _Question,
        asked: UsedEpoch,
        error: KafkaError | None,
    ) -> None:
        question.is_open = False
        name = f"{uuid_to_text(replica.topic_id)}-{replica.partition}"
        if error is None:
            question.raises += 1
            log.warning("leader epoch raised: partition=%s above=%d", name, asked.used)
        if question.asked != asked:  # it changed since the request: this is no answer to it
            if question.raises < RAISES_MAX:
                self._open(replica, question)
        elif error is not None and error.code != ErrorCode.FENCED_LEADER_EPOCH:
            # Fenced: the image will bring the state that explains it.
            question.refused = f"the controller refuses a higher one: {error}"
            log.error(Incident.LEADER_EPOCH_REFUSED.line(partition=name, error=str(error)))
            self._notify_refused(replica)

    def _notify_refused(self, replica: ReplicaId) -> None:
        try:
            self.on_refused(replica)
        except Exception:  # the other questions of this answer continue
            log.exception(
                Incident.DEFECT.line(
                    what=f"a refused leader epoch was not taken note of: replica={replica}"
                )
            )
