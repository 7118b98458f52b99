"""The followers of a partition that is led here: their fetches, and the ISR that follows from them.

`isr` decides. This module connects its decisions with the log, the clock of `Leading` and the
controller.
"""

import asyncio
import concurrent.futures
import logging
from asyncio import Future
from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from broker.replica.isr import CommittedIsr, InSyncReplicas
from broker.replica.leading import Leading
from broker.replica.nearest import Peer
from kafka_protocol.types import TopicPartition
from local_log.config import LONG_MAX
from local_log.log.partition_log import PartitionLog
from metadata_topic.controller.directories import ReplicaId
from runtime.executors import Pool
from runtime.incidents import Incident

log = logging.getLogger(__name__)


class CommitFutures:
    """Futures that wait until the high watermark reaches an end offset.

    Attributes:
        waiting: A heap of (end offset (exclusive), arrival, future).
    """

    __slots__ = ("_arrivals", "waiting")

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, Future[None]]] = []
        self._arrivals = count()

    def add(self, end_offset: int) -> Future[None]:
        """Return a future that is done once all below `end_offset` (exclusive) is committed."""
        future: Future[None] = asyncio.get_running_loop().create_future()
        heappush(self.waiting, (end_offset, next(self._arrivals), future))
        return future

    def reached(self, high_watermark: int) -> None:
        """Complete the futures up to this high watermark."""
        while self.waiting and self.waiting[0][0] <= high_watermark:
            _, _, future = heappop(self.waiting)
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fail all that wait."""
        waiting, self.waiting = self.waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # its client may be gone: then no task retrieves it


class Leader(Protocol):
    """The part of a led partition that its followers need."""

    log: PartitionLog
    topic_id: bytes
    partition: int
    followers: "Followers | None"
    node_id: int
    leader_epoch: int
    has_barrier: bool
    isr: Sequence[int]
    replicas: Sequence[int]

    @property
    def topic_partition(self) -> TopicPartition:
        """Name and number."""

    def review(self, now_ms: int) -> None:
        """Let lagging members leave the ISR, and propose followers that may join."""

    def advance_replicated(self) -> None:
        """Move the high watermark as far as the replicas allow."""


class Followers:
    """The followers of one partition during one leadership.

    Attributes:
        in_sync: Their state.
        cuts: Requests that wait until all in-sync followers have checkpointed a log start.
    """

    __slots__ = ("_leader", "_leading", "_pool", "cuts", "in_sync")

    def __init__(
        self,
        leader: Leader,
        leading: Leading[Leader],
        pool: Pool,
        committed: CommittedIsr,
        replicas: Sequence[int],
    ) -> None:
        """Begin without any state of them; flushes run on `pool`."""
        self._leader, self._leading, self._pool = leader, leading, pool
        self.cuts = CommitFutures()
        self.in_sync = InSyncReplicas(
            node_id=leader.node_id,
            partition_epoch=committed.partition_epoch,
            replicas=replicas,
            isr=committed.isr,
            epoch_start_offset=self._epoch_start(),
            led_since_ms=leading.now_ms(),
            min_insync_replicas=leader.log.config.min_insync_replicas,
            own_broker_epoch=leading.broker_epoch(),
            is_recovering=committed.is_recovering,
            change=committed.change,
        )
        leading.led[leader] = None

    def _epoch_start(self) -> int:
        """The first offset of this leader epoch, by the epoch chain."""
        newest = self._leader.log.epochs.newest
        if newest is not None and newest.epoch == self._leader.leader_epoch:
            return newest.start_offset
        return self._leader.log.log_end_offset

    def end(self) -> None:
        """The leadership is over."""
        self._leading.led.pop(self._leader, None)

    # -- what they fetch

    def is_of_ended_incarnation(self, replica_id: int, broker_epoch: int) -> bool:
        """True if a later incarnation of this broker has fetched, or is registered.

        It may have lost records that this one had.
        """
        return (
            broker_epoch >= 0
            and replica_id in self.in_sync.followers
            and (
                self.in_sync.is_of_ended_incarnation(replica_id, broker_epoch)
                or broker_epoch < self._leading.registered_epoch(replica_id)
            )
        )

    def fetched(
        self, replica_id: int, *, broker_epoch: int, offset: int, log_start_offset: int
    ) -> None:
        """Note a Fetch of a follower; its incarnation is not over."""
        if replica_id not in self.in_sync.followers:
            return
        may_move = self.in_sync.fetch(
            replica_id,
            broker_epoch=broker_epoch,
            offset=offset,
            log_start_offset=log_start_offset,
            leader_end=self._leader.log.log_end_offset,
            now_ms=self._leading.now_ms(),
        )
        if may_move:
            self._leader.advance_replicated()
        self._offer_joining(replica_id)
        self._notify_cuts()

    def nearest(self, near: Collection[int], offset: int, peer: Peer) -> int | None:
        """Choose the follower to which a consumer is sent; None: it stays here.

        Args:
            near: Brokers in its rack, without this one.
            offset: Next offset that it reads.
            peer: Its connection.
        """
        leader, leading = self._leader, self._leading
        if offset < leader.log.log_start_offset:
            return None
        reader = peer, leader.topic_id, leader.partition
        if not leading.sent_elsewhere.may_send(reader, offset, leading.now_ms()):
            return None
        return self.in_sync.nearest(near, offset)

    def sent_away(self, offset: int, peer: Peer) -> None:
        """Note that a consumer is sent to the nearest follower."""
        leader, leading = self._leader, self._leading
        reader = peer, leader.topic_id, leader.partition
        leading.sent_elsewhere.sent(reader, offset, leading.now_ms())

    def appended(self, first_offset: int) -> None:
        """Note an append at the present time, by `InSyncReplicas.appended`."""
        self.in_sync.appended(first_offset, self._leading.now_ms())

    def high_watermark(self, own_end: int) -> int:
        """Return the end of the committed records, by `InSyncReplicas.high_watermark`."""
        log = self._leader.log
        return self.in_sync.high_watermark(
            log.high_watermark,
            own_end=own_end,
            leader_end=log.log_end_offset,
            since_ms=self._leading.since_ms(),
            is_eligible=self._is_eligible,
        )

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        replica = ReplicaId(self._leader.topic_id, self._leader.partition)
        return self._leading.is_eligible(replica, broker_id, broker_epoch)

    @property
    def is_watermark_settled(self) -> bool:
        """True if the high watermark covers all that earlier leaders may have acknowledged."""
        return self._leader.log.high_watermark >= self.in_sync.epoch_start_offset

    # -- log starts

    def reported_start(self, replica_id: int, start_offset: int) -> None:
        """Keep the local segments from an offset on, at which a follower begins its log."""
        if replica_id in self.in_sync.followers.keys() - self.in_sync.isr:
            self._leading.hold(self._leader.log, start_offset)

    @property
    def checkpointed_log_start(self) -> int:
        """The lowest log start of the replicas that may lead, durable; LONG_MAX without any.

        Below min.insync.replicas eligible replicas outside the ISR may lead next, whose log start
        is unknown: -1. DIFFERS: Kafka waits for all brokers that are alive, and not for these.
        """
        in_sync = self.in_sync
        if in_sync.may_be_under_min_isr:
            return -1
        members = (in_sync.followers.get(one) for one in in_sync.maximal_isr)
        return min((one.log_start_offset for one in members if one is not None), default=LONG_MAX)

    @property
    def highest_log_start(self) -> int:
        """The highest log start of the replicas that may lead, durable; -1 without any.

        The replica with it may have dropped records from its disk that others have, see
        `Partition.set_config`.
        """
        in_sync = self.in_sync
        members = (in_sync.followers.get(one) for one in in_sync.maximal_isr)
        return max((one.log_start_offset for one in members if one is not None), default=-1)

    def cut_everywhere(self, log_start_offset: int) -> Future[None] | None:
        """Wait until every in-sync follower has checkpointed a log start.

        Returns:
            None when it is so already, else a future that fails if the role changes.
        """
        if self.checkpointed_log_start >= log_start_offset:
            return None
        return self.cuts.add(log_start_offset)

    def _notify_cuts(self) -> None:
        if self.cuts.waiting:
            self.cuts.reached(self.checkpointed_log_start)

    # -- the ISR

    def learn(self, committed: CommittedIsr, replicas: Sequence[int]) -> bool:
        """Take a committed state; False: it is not newer than the present one."""
        in_sync = self.in_sync
        asked, members = in_sync.proposal, len(in_sync.isr)
        is_newer = in_sync.learn(
            partition_epoch=committed.partition_epoch,
            replicas=replicas,
            isr=committed.isr,
            is_recovering=committed.is_recovering,
            change=committed.change,
        )
        if is_newer and asked is not None and asked.members == committed.isr:
            self._leading.count(members, len(committed.isr))
        return is_newer

    def set_min_insync_replicas(self, count: int) -> None:
        """Take the topic's changed setting."""
        self.in_sync.min_insync_replicas = count
        self._leading.note(self._leader, self.in_sync.lacks)

    def isr_changed(self) -> None:
        """Act on a new committed ISR: recover, and flush where few copies are left."""
        self._leading.note(self._leader, self.in_sync.lacks)
        self._notify_cuts()
        if len(self.in_sync.isr) > len(self.in_sync.followers):
            self._leader.log.hold.end()  # no follower needs it: all are in sync
        if self.in_sync.must_flush(len(self.in_sync.isr)):
            flushed = self._pool.submit(self._leader.log.flush)  # no request waits for it
            flushed.add_done_callback(self._last_copies_flushed)
        self.offer_to_recover()

    @property
    def _may_recover(self) -> bool:
        """True if this leader has recovered from an unclean election.

        DIFFERS: a Kafka leader has recovered with its next proposal. Here the barrier of a tiered
        log must be written first: it names the election to later owners. The metadata do not name
        it after the recovery.
        """
        return self._leader.has_barrier or not self._leader.log.config.is_tiered

    def offer_to_recover(self) -> None:
        """Propose the end of the recovery from an unclean election, if it may end."""
        if self._may_recover and self.in_sync.to_recover() is not None:
            self._offer()

    def _last_copies_flushed(self, done: "concurrent.futures.Future[None]") -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            name = self._leader.topic_partition
            log.error(Incident.FSYNC_FAILED.line(partition=name, error=error))

    def review(self, now_ms: int) -> None:
        """Let lagging members leave the ISR, and propose followers that may join."""
        leader, leading = self._leader, self._leading
        left = self.in_sync.to_leave(
            leader_end=leader.log.log_end_offset,
            now_ms=now_ms,
            lag_ms_max=leading.lag_ms_max(),
            clocks_begun_ms=leading.clocks_begun_ms,
        )
        if left is not None:
            log.info(
                "ISR shrinks: partition=%s from=%s to=%s high_watermark=%d log_end=%d",
                leader.topic_partition,
                leader.isr,
                left.members,
                leader.log.high_watermark,
                leader.log.log_end_offset,
            )
            self._offer()
        for replica_id in self.in_sync.followers:
            self._offer_joining(replica_id)
        leader.advance_replicated()  # it no longer waits for those that do not keep pace

    def _offer_joining(self, replica_id: int) -> None:
        leader = self._leader
        if self.in_sync.is_recovering and not self._may_recover:
            return  # the first that joins ends the recovery
        joined = self.in_sync.to_join(
            replica_id,
            high_watermark=leader.log.high_watermark,
            log_start_offset=leader.log.log_start_offset,
            is_eligible=self._is_eligible,
        )
        if joined is not None:
            log.info(
                "ISR grows: partition=%s from=%s to=%s",
                leader.topic_partition,
                leader.isr,
                joined.members,
            )
            self._offer()

    def _offer(self) -> None:
        self._leading.propose(self._leader)

    # -- answers of the controller, from `IsrRequests`

    def update_failed(self) -> None:
        """Count an error in the controller's answer to a proposal."""
        self._leading.count_failed()

    def refused(self) -> None:
        """Drop the proposal: the controller refused it, or the flush before it failed."""
        self.in_sync.refused()
        self._leader.advance_replicated()

    def still_undecided(self) -> None:
        """Keep the proposal open: it may be carried out, now or later."""
        self.in_sync.still_undecided()
