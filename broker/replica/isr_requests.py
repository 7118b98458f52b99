"""Asks the controller for the ISRs that leaders propose (AlterPartition).

Invariants: one request at a time, with what has been proposed meanwhile, a bounded number of
partitions. So the controller decides on the proposals of one broker in their order. A request
without an answer may be carried out later: its proposals are left open, see `InSyncReplicas`, and
asked for again, under the same partition epoch: it is carried out once at most.

Source: KIP-497; Kafka's AlterPartitionManager.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from broker.replica.followers import Leader
from broker.replica.isr import AskedIsr, CommittedIsr
from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.errors import NotControllerError
from runtime.executors import Pool
from runtime.log_context import Outage
from runtime.scheduler import Scheduler, pause

log = logging.getLogger(__name__)

PARTITIONS_MAX: Final = 1_000
"""Of one request: the controller decides on it in steps, and others wait behind it."""
RETRY_MS: Final = 50
RETRY_MAX_MS: Final = 2_000

_REFUSED: Final = frozenset({
    ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA,
})  # fmt: skip
"""Nothing of the proposal will come about; another may."""

_OUTDATED: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST,
})  # fmt: skip
"""The controller knows a later state than the leader: the image is about to say it."""


AskController = Callable[
    [Mapping[ReplicaId, AskedIsr]], Awaitable[Mapping[ReplicaId, CommittedIsr | ErrorCode]]
]
"""Asks for ISRs. Raises KafkaError where there is no answer, or none of it was carried out."""


class IsrRequests:
    """The proposals of one broker, on its event loop."""

    def __init__(self, controller: AskController, scheduler: Scheduler, flushes: Pool) -> None:
        """Ask nothing yet.

        Args:
            controller: the way to it.
            scheduler: for pauses.
            flushes: where logs are flushed before an ISR that is too small is asked for.
        """
        self._controller, self._scheduler, self._flushes = controller, scheduler, flushes
        self._due: dict[Leader, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._outage = Outage(log, "asking for in-sync replicas")

    def propose(self, partition: Leader) -> None:
        """Ask for the proposal of a partition; returns at once."""
        self._due[partition] = None
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())

    async def stop(self) -> None:
        """Ask nothing more."""
        self._due.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send(self) -> None:
        pause_ms = RETRY_MS
        try:
            while self._due:
                these = list(islice(self._due, PARTITIONS_MAX))
                for one in these:
                    del self._due[one]
                try:
                    again = await self._ask_for(these)
                except Exception:  # a defect must not end all later proposals
                    log.exception("proposals of in-sync replicas failed: count=%d", len(these))
                    again = ()
                self._due.update(dict.fromkeys(again))
                if again:
                    await pause(self._scheduler, pause_ms)
                pause_ms = min(pause_ms * 2, RETRY_MAX_MS) if again else RETRY_MS
        finally:
            self._sending = None

    async def _ask_for(self, partitions: Sequence[Leader]) -> Sequence[Leader]:
        """Ask once; returns those that must be asked for again."""
        await self._flush_last_copies(partitions)
        asked = _still_asked(partitions)
        if not asked:
            return ()
        try:
            answers = await self._controller({one: asked for one, (_, asked) in asked.items()})
        except KafkaError as error:
            self._outage.failed(error)
            if not isinstance(error, NotControllerError):  # it may be carried out
                for partition, _ in asked.values():
                    if partition.followers is not None:
                        partition.followers.left_open()
            return [partition for partition, _ in asked.values()]
        self._outage.succeeded()
        return [
            partition
            for replica, (partition, question) in asked.items()
            if not _take(partition, question, answers.get(replica))
        ]

    async def _flush_last_copies(self, partitions: Sequence[Leader]) -> None:
        """Have what was acknowledged on the disk before nobody else keeps it."""
        due = [
            one
            for one in partitions
            if one.followers is not None and one.followers.must_flush_before_asking
        ]
        done = await asyncio.gather(
            *(self._flushes.run(one.log.flush) for one in due), return_exceptions=True
        )
        for partition, error in zip(due, done, strict=True):
            if error is not None:
                log.error(
                    "no smaller ISR is asked for: partition=%s error=%s",
                    partition.topic_partition,
                    error,
                )
                if partition.followers is not None:
                    partition.followers.refused()


def _still_asked(
    partitions: Sequence[Leader],
) -> dict[ReplicaId, tuple[Leader, AskedIsr]]:
    """Those whose proposal still stands: the image may have overtaken it."""
    asked = {}
    for one in partitions:
        proposal = None if one.followers is None else one.followers.in_sync.proposal
        if proposal is not None:
            question = AskedIsr(one.leader_epoch, proposal)
            asked[ReplicaId(one.topic_id, one.partition)] = (one, question)
    return asked


def _take(partition: Leader, asked: AskedIsr, answer: CommittedIsr | ErrorCode | None) -> bool:
    """Hand an answer to its partition; False: it must be asked again."""
    followers = partition.followers
    if (
        followers is None
        or partition.leader_epoch != asked.leader_epoch
        or followers.in_sync.proposal is not asked.proposal
    ):
        return True  # the image has said something newer since
    name = partition.topic_partition
    match answer:
        case CommittedIsr():
            if answer.leader_epoch == partition.leader_epoch:
                partition.isr_committed(answer)
            return True
        case None:  # the answer names others alone
            followers.left_open()
            return False
        case _ if answer in _REFUSED:
            log.info("ISR refused: partition=%s isr=%s error=%s", name, asked, answer.name)
            followers.refused()
            return True
        case _ if answer in _OUTDATED:
            log.info("ISR is outdated: partition=%s isr=%s error=%s", name, asked, answer.name)
            return True
        case _:
            log.warning("ISR not changed: partition=%s error=%s", name, answer.name)
            followers.left_open()
            return False
