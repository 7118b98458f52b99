"""Asks the controller for the ISRs that leaders propose (AlterPartition).

Invariants: one request at a time, with the proposals that came meanwhile, for a bounded number of
partitions. So the controller decides on the proposals of one broker in their order. A request
without an answer may be carried out later. Its proposals stay open (`InSyncReplicas`) and are sent
again under the same partition epoch, so each is carried out once at most.

A proposal that leaves too few copies waits for the flush of its own log; the others do not. One
flush is enough for all its repetitions: the high watermark stands still while it is proposed.

Source: KIP-497; Kafka's AlterPartitionManager.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import islice
from typing import Final

from broker.replica.followers import Followers, Leader
from broker.replica.isr import AskedIsr, Proposal
from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.errors import NotControllerError
from runtime.executors import Pool
from runtime.incidents import Incident
from runtime.log_context import Outage
from runtime.scheduler import Scheduler, pause

log = logging.getLogger(__name__)

PARTITIONS_MAX: Final = 250
"""Of one request: its answer is taken in one iteration of the event loop."""
RETRY_MS: Final = 50
RETRY_MAX_MS: Final = 2_000

_REFUSED: Final = frozenset({
    ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA,
})  # fmt: skip
"""The controller will not carry out the proposal; another one may succeed."""

_OUTDATED: Final = frozenset({
    ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST,
})  # fmt: skip
"""The controller has a later state than the leader; the image will bring it."""


AskController = Callable[[Mapping[ReplicaId, AskedIsr]], Awaitable[Mapping[ReplicaId, ErrorCode]]]
"""Requests ISRs. Raises KafkaError where there is no answer, or none of it was carried out."""


class IsrRequests:
    """The proposals of one broker, on its event loop."""

    def __init__(self, controller: AskController, scheduler: Scheduler, flushes: Pool) -> None:
        """Ask nothing yet.

        Args:
            controller: Sends the request to the active controller.
            scheduler: For pauses.
            flushes: Pool for the flush of a log before an ISR that is too small is proposed.
        """
        self._controller, self._scheduler, self._flushes = controller, scheduler, flushes
        self._due: dict[Leader, Proposal] = {}
        self._flushing: set[asyncio.Future[None]] = set()
        self._sending: asyncio.Task[None] | None = None
        self._outage = Outage(log, "asking for in-sync replicas")

    def propose(self, partition: Leader) -> None:
        """Ask for the proposal of a partition; returns at once."""
        followers = partition.followers
        if followers is None or (proposal := followers.in_sync.proposal) is None:
            return
        if not followers.in_sync.must_flush(len(proposal.isr)):
            self._ask_soon(partition, proposal)
            return
        # Have acknowledged records on this disk before it is the only one that keeps them.
        flushed = asyncio.ensure_future(self._flushes.run(partition.log.flush))
        self._flushing.add(flushed)
        flushed.add_done_callback(partial(self._flushed, partition, proposal))

    def _flushed(self, partition: Leader, proposal: Proposal, done: asyncio.Future[None]) -> None:
        self._flushing.discard(done)
        if done.cancelled():
            return
        error, followers = done.exception(), _proposing(partition, proposal)
        if error is not None:
            name = partition.topic_partition
            log.warning("no smaller ISR is asked for: partition=%s error=%s", name, error)
            if followers is not None:
                followers.refused()
        elif followers is not None:
            self._ask_soon(partition, proposal)

    def _ask_soon(self, partition: Leader, proposal: Proposal) -> None:
        self._due[partition] = proposal
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())

    async def stop(self) -> None:
        """Ask nothing more."""
        self._due.clear()
        ending = [*self._flushing, *([] if self._sending is None else [self._sending])]
        for one in ending:
            one.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _send(self) -> None:
        pause_ms = RETRY_MS
        try:
            while self._due:
                these = dict(islice(self._due.items(), PARTITIONS_MAX))
                for one in these:
                    del self._due[one]
                try:
                    again = await self._ask_for(these)
                except Exception:  # a defect must not end all later proposals
                    log.exception(
                        Incident.DEFECT.line(
                            what=f"proposals of in-sync replicas failed: count={len(these)}"
                        )
                    )
                    again = {}
                self._due = again | self._due
                if again:
                    await pause(self._scheduler, pause_ms)
                pause_ms = min(pause_ms * 2, RETRY_MAX_MS) if again else RETRY_MS
        finally:
            self._sending = None

    async def _ask_for(self, proposals: Mapping[Leader, Proposal]) -> dict[Leader, Proposal]:
        """Send one request; returns the proposals that must be sent again."""
        leaders = {
            ReplicaId(one.topic_id, one.partition): one
            for one, proposal in proposals.items()
            if _proposing(one, proposal) is not None
        }
        if not leaders:
            return {}
        try:
            answers = await self._controller(
                {
                    replica: AskedIsr(one.leader_epoch, proposals[one])
                    for replica, one in leaders.items()
                }
            )
        except KafkaError as error:
            self._outage.failed(error)
            if not isinstance(error, NotControllerError):  # it may be carried out
                for partition, proposal in proposals.items():
                    if (followers := _proposing(partition, proposal)) is not None:
                        followers.still_undecided()
            return dict(proposals)
        self._outage.succeeded()
        return {
            partition: proposals[partition]
            for replica, partition in leaders.items()
            if not _take(partition, proposals[partition], answers.get(replica))
        }


def _proposing(partition: Leader, proposal: Proposal) -> Followers | None:
    """The followers, if the proposal is still theirs: the image may have replaced it."""
    followers = partition.followers
    is_current = followers is not None and followers.in_sync.proposal is proposal
    return followers if is_current else None


def _take(partition: Leader, proposal: Proposal, answer: ErrorCode | None) -> bool:
    """Hand an answer to its partition; False: the proposal must be sent again.

    DIFFERS: Kafka's leader takes an ISR from the answer. Here the image brings it, in the order of
    the metadata log: a leader whose minimum is older than the controller's would commit alone.
    """
    followers = _proposing(partition, proposal)
    if followers is None or answer == ErrorCode.NONE:
        return True  # the image has a newer state, or is about to bring it
    name = partition.topic_partition
    if answer is not None:
        followers.update_failed()
    if answer in _REFUSED:
        log.info("ISR refused: partition=%s isr=%s error=%s", name, proposal, answer.name)
        followers.refused()
    elif answer in _OUTDATED:
        log.info("ISR is outdated: partition=%s isr=%s error=%s", name, proposal, answer.name)
    else:
        error = "not in the answer" if answer is None else answer.name
        log.warning("ISR not changed: partition=%s error=%s", name, error)
        followers.still_undecided()
        return False
    return True
