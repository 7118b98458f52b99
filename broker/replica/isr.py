"""The leader's state of its followers: which are in sync, and up to where records are committed.

Pure: times, offsets and metadata come in as arguments. One `InSyncReplicas` serves one leadership,
so one leader epoch.

Invariants:
    * The high watermark is the lowest log end of all that are, or may be by now, in the ISR of the
      metadata log. A proposal whose outcome is unknown counts there, and nowhere else.
    * It never goes back. It does not move while the ISR has, or may have by now, fewer than
      min.insync.replicas members (KAFKA-15583). Otherwise records that two members acknowledged
      could depend on one of them.
    * A follower joins at or above the high watermark **and** the first offset of this leader epoch.
      A new leader may have a lower high watermark than the leader before it. Without the second
      condition it would let in a follower that lacks committed records, and that one could lead
      next.
    * The state of a follower belongs to one incarnation of its broker (its broker epoch). The next
      one may have lost the end of its log.

Source: Kafka's Partition and Replica; KIP-497 (AlterPartition), KIP-841 and KIP-903
(eligibility), KIP-966 (the watermark below `min.insync.replicas`).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

UNKNOWN_OFFSET: Final = -1
NO_EPOCH: Final = -1

IsEligible = Callable[[int, int], bool]
"""True if the metadata let a broker (id, broker epoch) into an ISR. The broker is registered under
this epoch, unfenced, not in controlled shutdown, and has the log directory of its replica."""


@dataclass(slots=True)
class Follower:
    """The leader's state of one follower, since this incarnation of it began to fetch.

    Attributes:
        broker_epoch: Of the incarnation that fetched last; -1 where its version of Fetch has no
            such field.
        log_end_offset: The follower has everything below (exclusive); -1: unknown.
        log_start_offset: Start of the follower's log, checkpointed; -1: unknown.
        caught_up_ms: The last time at which it had all that the leader had then.
    """

    broker_epoch: int = NO_EPOCH
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = -(2**62)
    fetched_ms: int = -(2**62)
    leader_end_when_fetched: int = UNKNOWN_OFFSET

    def fetch(self, *, offset: int, log_start_offset: int, leader_end: int, now_ms: int) -> None:
        """Note a Fetch: the follower has everything below the offset that it asks for.

        It was caught up now if it asks at the leader's end. Else it was caught up at its last
        Fetch, if it has by now all records that the leader had then.
        """
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_when_fetched > UNKNOWN_OFFSET:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset, self.log_start_offset = offset, log_start_offset
        self.fetched_ms, self.leader_end_when_fetched = now_ms, leader_end

    def keeps_pace(self, *, leader_end: int, since_ms: int) -> bool:
        """True if it has everything, or had everything at `since_ms` or later."""
        return self.log_end_offset >= leader_end or self.caught_up_ms >= since_ms


class Proposal(NamedTuple):
    """An ISR that the leader asks the controller for.

    Attributes:
        isr: (broker id, broker epoch) of each member; epoch -1: unknown.
        is_recovered: The leader has recovered from an unclean election, or there was none.
        partition_epoch: The state that it replaces; the controller refuses it at a later one.
    """

    isr: tuple[tuple[int, int], ...]
    is_recovered: bool
    partition_epoch: int

    @property
    def members(self) -> tuple[int, ...]:
        """Broker ids."""
        return tuple(broker_id for broker_id, _ in self.isr)


class AskedIsr(NamedTuple):
    """A proposal and the leadership that makes it."""

    leader_epoch: int
    proposal: Proposal


class ReplicaChange(NamedTuple):
    """The replicas that a running reassignment changes; empty without one.

    Attributes:
        adding, removing: All of them are replicas now.
        joining: The replicas of `adding`; empty once one of them has been in the ISR, because that
            one may lead next.
    """

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    joining: tuple[int, ...] = ()


NO_CHANGE: Final = ReplicaChange()


class CommittedIsr(NamedTuple):
    """The committed state of a partition, from the metadata."""

    leader_epoch: int
    isr: tuple[int, ...]
    is_recovering: bool
    partition_epoch: int
    change: ReplicaChange = NO_CHANGE


class Lack(Enum):
    """A reason to count a partition in a metric or to show it in health."""

    REPLICAS = "fewer are in sync than it has replicas, without those that are being added"
    MIN_ISR = "fewer than min.insync.replicas are in sync"
    SPARE = "just min.insync.replicas are in sync"
    FINAL_REPLICAS = "its replicas are being reassigned"


LONE: Final = frozenset({Lack.SPARE})
"""Lacks of a partition of one replica, with any min.insync.replicas."""


@dataclass(slots=True, kw_only=True)
class InSyncReplicas:
    """The followers of one partition under one leader epoch.

    Attributes:
        node_id: The leader.
        partition_epoch: Of the state that is known to be committed.
        replicas: The assigned replicas, the preferred leader first.
        isr: The committed one; the leader is in it.
        change: Of a running reassignment.
        is_recovering: The election was unclean, and no follower may join before the leader has
            recovered.
        epoch_start_offset: The leader's log end when it began to lead (first of its leader epoch).
        led_since_ms: Begin of the leadership; lag counts from there at the earliest.
        min_insync_replicas: The topic's setting.
        own_broker_epoch: The leader's, for its proposals.
        followers: By broker id; with an unknown state before their first Fetch.
        proposal: The one that the controller has not answered yet.
    """

    node_id: int
    partition_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    epoch_start_offset: int
    led_since_ms: int
    min_insync_replicas: int = 1
    own_broker_epoch: int = NO_EPOCH
    is_recovering: bool = False
    change: ReplicaChange = NO_CHANGE
    followers: dict[int, Follower] = field(default_factory=dict)
    proposal: Proposal | None = None
    _doubtful: frozenset[tuple[int, ...]] = frozenset()

    def __post_init__(self) -> None:
        self._keep_followers()

    def _keep_followers(self) -> None:
        known = self.followers
        self.followers = {
            one: known.get(one) or Follower() for one in self.replicas if one != self.node_id
        }

    # -- the metadata

    def learn(
        self,
        *,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        is_recovering: bool,
        change: ReplicaChange = NO_CHANGE,
    ) -> bool:
        """Take a committed state from the image.

        Returns:
            False for one that is not newer than the present state: nothing has changed.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.partition_epoch, self.isr, self.is_recovering = partition_epoch, isr, is_recovering
        # A proposal is for one partition epoch: earlier ones cannot be committed any more.
        self.proposal, self._doubtful = None, frozenset()
        self.change = change
        if tuple(replicas) != tuple(self.replicas):
            self.replicas = replicas
            self._keep_followers()
        return True

    @property
    def maximal_isr(self) -> frozenset[int]:
        """All that are in the ISR, or may be by now (KIP-497)."""
        return frozenset(self.isr).union(*self._possible)

    @property
    def _possible(self) -> frozenset[tuple[int, ...]]:
        """The ISRs that may be committed besides the known one."""
        return self._doubtful if self.proposal is None else self._doubtful | {self.proposal.members}

    @property
    def min_isr(self) -> int:
        """Members that have to acknowledge: min.insync.replicas, or all where there are fewer.

        DIFFERS: in Kafka replicas that are being added count at once. A partition that had one
        replica then takes no acks=all before another one has all of its records. Here they count
        once one of them has been in the ISR: only then may one of them lead next.
        """
        return min(self.min_insync_replicas, len(self.replicas) - len(self.change.joining))

    @property
    def lacks(self) -> frozenset[Lack]:
        """The lacks by the committed ISR, and by numbers alone, as Kafka counts."""
        count, change = len(self.isr), self.change
        held = {
            Lack.REPLICAS: count < len(self.replicas) - len(change.adding),
            Lack.MIN_ISR: self.is_under_min_isr,
            Lack.SPARE: count == self.min_isr,
            Lack.FINAL_REPLICAS: bool(change.adding or change.removing),
        }
        return frozenset(lack for lack, holds in held.items() if holds)

    @property
    def is_under_min_isr(self) -> bool:
        """True if nothing can be committed now."""
        return len(self.isr) < self.min_isr

    @property
    def may_be_under_min_isr(self) -> bool:
        """True if the ISR is below `min_isr`, or may be by now: then nothing is committed.

        The leader flushes before it asks for so few members. Records that they commit after that
        are not on its disk. If they counted, one power cut could lose them, and the leader would
        lead again.
        """
        return self.is_under_min_isr or any(len(one) < self.min_isr for one in self._possible)

    # -- fetches of followers

    def fetch(
        self,
        replica: int,
        *,
        broker_epoch: int,
        offset: int,
        log_start_offset: int,
        leader_end: int,
        now_ms: int,
    ) -> bool:
        """Note a follower's Fetch.

        The caller excludes Fetches whose offset may be in a log of another lineage: it would count
        as caught up. They come from an incarnation that is over (`is_of_ended_incarnation`), have
        another leader epoch (earlier or later), or are answered with a diverging epoch.

        Args:
            replica: A member of `replicas`, not the leader.
            broker_epoch: Of the follower's incarnation.
            offset: The follower has everything below (exclusive).
            log_start_offset: The follower's own, checkpointed.
            leader_end: The leader's log end (exclusive).
            now_ms: Any clock that never goes back.

        Returns:
            True if the high watermark may move by it.
        """
        follower = self.followers[replica]
        if broker_epoch != follower.broker_epoch or offset < follower.log_end_offset:
            # Another incarnation, or a truncated log. The times of the former do not count for it:
            # it was not caught up by records that the former incarnation had.
            follower = self.followers[replica] = Follower(broker_epoch=broker_epoch)
        moved = offset > follower.log_end_offset
        follower.fetch(
            offset=offset, log_start_offset=log_start_offset, leader_end=leader_end, now_ms=now_ms
        )
        return moved

    def nearest(self, near: Collection[int], offset: int) -> int | None:
        """Choose the in-sync follower to which a consumer at `offset` is sent (KIP-392).

        It has the offset. The follower with the highest log end wins, then the one that was caught
        up last, then the one with the lowest id.

        Args:
            near: Brokers in the consumer's rack, without the leader.
            offset: Where the consumer reads next.
        """
        fit = [
            (follower.log_end_offset, follower.caught_up_ms, -replica)
            for replica, follower in self.followers.items()
            if replica in near
            and replica in self.isr
            and follower.log_start_offset <= offset <= follower.log_end_offset
        ]
        return -max(fit)[2] if fit else None

    def appended(self, first_offset: int, now_ms: int) -> None:
        """Note an append: each follower that had all records before it was caught up until now.

        DIFFERS: in Kafka each Fetch of a session confirms this for all its partitions. Here it says
        nothing of those without news, and a follower of a quiet partition would lag at once.
        """
        for follower in self.followers.values():
            if follower.log_end_offset >= first_offset:
                follower.caught_up_ms = now_ms

    def is_of_ended_incarnation(self, replica: int, broker_epoch: int) -> bool:
        """True if a later incarnation of this follower has fetched already."""
        return NO_EPOCH < broker_epoch < self.followers[replica].broker_epoch

    # -- the high watermark

    def high_watermark(
        self, now: int, *, own_end: int, leader_end: int, since_ms: int, is_eligible: IsEligible
    ) -> int:
        """Return the end of the committed records (exclusive).

        Followers outside the ISR that keep pace, and may join, count too. Else the watermark of a
        busy leader would always be ahead of them, and they could never join.

        Args:
            now: The present high watermark.
            own_end: End of the leader's log that counts (its flushed end, for a durable topic).
            leader_end: Its log end.
            since_ms: `replica.lag.time.max.ms` ago.
            is_eligible: See `IsEligible`.

        Returns:
            The new one, never below `now`.
        """
        if self.may_be_under_min_isr:
            return now
        counted = self.maximal_isr
        lowest = own_end
        for replica, follower in self.followers.items():
            if follower.log_end_offset >= lowest:
                continue
            if replica in counted or (
                follower.keeps_pace(leader_end=leader_end, since_ms=since_ms)
                and is_eligible(replica, follower.broker_epoch)
            ):
                lowest = follower.log_end_offset
        return max(now, lowest)

    # -- joining and leaving

    def to_join(
        self, replica: int, *, high_watermark: int, log_start_offset: int, is_eligible: IsEligible
    ) -> Proposal | None:
        """Ask for an ISR with a follower that has just fetched, if it may join.

        Args:
            replica: The follower.
            high_watermark: The leader's.
            log_start_offset: The leader's, checkpointed: deleted records stay deleted under each
                later leader.
            is_eligible: See `IsEligible`.
        """
        follower = self.followers[replica]
        if (
            self.proposal is not None
            or replica in self.isr
            or follower.log_end_offset < max(high_watermark, self.epoch_start_offset)
            or follower.log_start_offset < log_start_offset
            or not is_eligible(replica, follower.broker_epoch)
        ):
            return None
        # DIFFERS: the follower has what the members have in common, so its lag counts as theirs
        # does. In Kafka one that joins behind the log end may be the next to leave.
        follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        return self._propose((*self.isr, replica))

    def to_leave(
        self, *, leader_end: int, now_ms: int, lag_ms_max: int, clocks_begun_ms: int
    ) -> Proposal | None:
        """Ask for an ISR without the members that do not keep pace, if there are any.

        Args:
            leader_end: The log end.
            now_ms: The clock of `fetch`.
            lag_ms_max: `replica.lag.time.max.ms`.
            clocks_begun_ms: End of this broker's last pause. It received no Fetch during it, so the
                lag of each follower counts from there.
        """
        since_ms = now_ms - lag_ms_max
        if self.proposal is not None or max(self.led_since_ms, clocks_begun_ms) >= since_ms:
            return None
        stay = [
            one
            for one in self.isr
            if one == self.node_id
            or self._follower(one).keeps_pace(leader_end=leader_end, since_ms=since_ms)
        ]
        return self._propose(stay) if len(stay) < len(self.isr) else None

    def _follower(self, replica: int) -> Follower:
        return self.followers.get(replica) or Follower()

    def to_recover(self) -> Proposal | None:
        """Ask to be noted as recovered from an unclean election, with the same ISR."""
        if not self.is_recovering or self.proposal is not None:
            return None
        return self._propose(self.isr)

    def _propose(self, members: Iterable[int]) -> Proposal:
        """Note a proposal; it counts for the high watermark from now on."""
        epochs = {one: follower.broker_epoch for one, follower in self.followers.items()}
        epochs[self.node_id] = self.own_broker_epoch
        self.proposal = Proposal(
            tuple((one, epochs.get(one, NO_EPOCH)) for one in members),
            # A recovering leader recovers with its first proposal: before it no follower may join.
            is_recovered=True,
            partition_epoch=self.partition_epoch,
        )
        return self.proposal

    # -- answers of the controller

    def refused(self) -> None:
        """Drop the proposal, which the controller will not carry out.

        After an earlier attempt without an answer its members still count, until a later partition
        epoch is known.
        """
        self.proposal = None

    def still_undecided(self) -> None:
        """Note that the proposal may or may not be carried out, now or later.

        Its members count for the watermark until a later partition epoch is known, also across
        later proposals and answers. The caller sends it again: if it was refused and only the
        answer was lost, no image ever ends it.
        """
        if self.proposal is not None:
            self._doubtful |= {self.proposal.members}

    def must_flush(self, members: int) -> bool:
        """True if the leader flushes its log before it has, or asks for, so few members.

        After that its disk alone holds the acknowledged records. Without the flush a power cut
        could shorten its log while the others are cut off, and it would lead again. Acknowledged
        records would be lost although no disk was.
        """
        return members < self.min_isr
