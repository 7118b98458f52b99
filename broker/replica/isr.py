"""What a leader knows of its followers: who is in sync, and up to where records are committed.

Pure: times, offsets and what the metadata say are handed in. One `InSyncReplicas` lives as long as
one leadership, so as one leader epoch.

Invariants:
    * the high watermark is the lowest log end of all that are, or may be by now, in the ISR of the
      metadata log: a proposal whose outcome is unknown counts there, and nowhere else;
    * it never goes back, and does not move while the ISR has, or may have by now, fewer than
      min.insync.replicas members (KAFKA-15583): what two members acknowledged must not become what
      one of them has;
    * a follower joins at or above the high watermark **and** the first offset of this leader epoch.
      Without the second a new leader that knows a lower high watermark than the one before it would
      let a follower in that lacks committed records, and that one could lead next;
    * what is known of a follower belongs to one incarnation of its broker (its broker epoch): the
      next one may have lost the end of its log.

Source: Kafka's Partition and Replica; KIP-497 (AlterPartition), KIP-841 and KIP-903 (who is
eligible), KIP-966 (the watermark below min.insync.replicas).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

UNKNOWN_OFFSET: Final = -1
NO_EPOCH: Final = -1

IsEligible = Callable[[int, int], bool]
"""Whether the metadata let a broker (id, broker epoch) into an ISR: it is registered under this
epoch, unfenced and not in controlled shutdown."""


@dataclass(slots=True)
class Follower:
    """What the leader knows of one follower, since this incarnation of it began to fetch.

    Attributes:
        broker_epoch: of the incarnation that fetched last; -1 where its version of Fetch does not
            say.
        log_end_offset: it has everything below (exclusive); -1: unknown.
        log_start_offset: where its log begins, checkpointed; -1: unknown.
        caught_up_ms: the last time at which it had all that the leader had then.
    """

    broker_epoch: int = NO_EPOCH
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = -(2**62)
    fetched_ms: int = -(2**62)
    leader_end_when_fetched: int = UNKNOWN_OFFSET

    def fetch(self, *, offset: int, log_start_offset: int, leader_end: int, now_ms: int) -> None:
        """Take note of a Fetch: what is asked for next is what it has.

        It was caught up now if it asks at the leader's end; else at the last Fetch, if it has by
        now what the leader had then.
        """
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_when_fetched > UNKNOWN_OFFSET:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset, self.log_start_offset = offset, log_start_offset
        self.fetched_ms, self.leader_end_when_fetched = now_ms, leader_end

    def keeps_pace(self, *, leader_end: int, since_ms: int) -> bool:
        """Whether it has everything, or had everything at `since_ms` or later."""
        return self.log_end_offset >= leader_end or self.caught_up_ms >= since_ms


class Proposal(NamedTuple):
    """An ISR that the leader asks the controller for.

    Attributes:
        isr: (broker id, broker epoch) of each member; epoch -1: unknown.
        is_recovered: the election was unclean, and the leader has settled what that means.
        partition_epoch: the state that it replaces; of a later one the controller refuses it.
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
    """The replicas that a running reassignment changes; none where there is no such.

    Attributes:
        adding, removing: all of them are replicas now.
        joining: those that are being added, until one of them may lead without loss.
    """

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    joining: tuple[int, ...] = ()


NO_CHANGE: Final = ReplicaChange()


class CommittedIsr(NamedTuple):
    """What the metadata say is committed for a partition."""

    leader_epoch: int
    isr: tuple[int, ...]
    is_recovering: bool
    partition_epoch: int
    change: ReplicaChange = NO_CHANGE


class Lack(Enum):
    """What a partition lacks."""

    REPLICAS = "fewer are in sync than it has replicas, without those that are being added"
    MIN_ISR = "fewer than min.insync.replicas are in sync"
    SPARE = "just min.insync.replicas are in sync"
    FINAL_REPLICAS = "its replicas are being reassigned"


LONE: Final = frozenset({Lack.SPARE})
"""What a partition of one replica lacks, whatever min.insync.replicas is."""


@dataclass(slots=True, kw_only=True)
class InSyncReplicas:
    """The followers of one partition under one leader epoch.

    Attributes:
        node_id: the leader.
        partition_epoch: of the state that is known to be committed.
        replicas: as assigned, the preferred leader first.
        isr: the committed one; the leader is in it.
        change: what a running reassignment makes of the replicas.
        is_recovering: the election was unclean, and nobody may join before that is settled.
        epoch_start_offset: the leader's log end when it began to lead (first of its leader epoch).
        led_since_ms: when it began to lead: nobody lags behind earlier times.
        min_insync_replicas: the topic's setting.
        own_broker_epoch: the leader's, for its proposals.
        followers: by broker id; those that have not fetched yet are in it, unknown.
        proposal: the one that the controller has not answered yet.
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

    # -- what the metadata say --------------------------------------------------------------------

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
            False for one that is not newer than what is known: nothing has changed.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.partition_epoch, self.isr, self.is_recovering = partition_epoch, isr, is_recovering
        # Proposals are for a partition epoch: what was asked for before will not come any more.
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
        """The ISRs that may be committed beside the one that is known to be."""
        return self._doubtful if self.proposal is None else self._doubtful | {self.proposal.members}

    @property
    def min_isr(self) -> int:
        """How many members acknowledge: min.insync.replicas, or all where there are fewer.

        DIFFERS: in Kafka replicas that are being added count at once, and a partition that had one
        replica takes no acks=all before another one has all of its records. Here they count from
        the first one on that has been in the ISR: only then may one of them lead next.
        """
        return min(self.min_insync_replicas, len(self.replicas) - len(self.change.joining))

    @property
    def lacks(self) -> frozenset[Lack]:
        """See `Lack`; by the committed ISR, and by numbers alone, as Kafka counts."""
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
        """Whether nothing can be committed now."""
        return len(self.isr) < self.min_isr

    @property
    def may_be_under_min_isr(self) -> bool:
        """Whether nothing can be committed now, or may be by now.

        The leader flushes before it asks for so few members. What they commit after that is not on
        its disk: were it counted, one power cut could take it, and the leader would lead again.
        """
        return self.is_under_min_isr or any(len(one) < self.min_isr for one in self._possible)

    # -- what followers say -----------------------------------------------------------------------

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
        """Take note of a follower's Fetch.

        The caller keeps out what says nothing of a log that this leader knows: Fetches of
        incarnations that are over (see `is_of_ended_incarnation`), of another leader epoch, be it a
        later one, and those that are answered with a diverging epoch. An offset in a log of another
        lineage would count as caught up.

        Args:
            replica: one of `replicas`, not the leader.
            broker_epoch: of its incarnation.
            offset: it has everything below.
            log_start_offset: its own, checkpointed.
            leader_end: the leader's log end.
            now_ms: any clock that never goes back.

        Returns:
            Whether the high watermark may move by it.
        """
        follower = self.followers[replica]
        if broker_epoch != follower.broker_epoch or offset < follower.log_end_offset:
            # Another incarnation, or a truncated log. Its time is its own: it is not caught up by
            # what the incarnation before it had.
            follower = self.followers[replica] = Follower(broker_epoch=broker_epoch)
        moved = offset > follower.log_end_offset
        follower.fetch(
            offset=offset, log_start_offset=log_start_offset, leader_end=leader_end, now_ms=now_ms
        )
        return moved

    def nearest(self, near: Collection[int], offset: int) -> int | None:
        """Choose the in-sync follower to which a consumer at `offset` is sent (KIP-392).

        It has the offset, and of those the most; of equal ones it was caught up last, and has the
        lowest id.

        Args:
            near: brokers in the consumer's rack, without the leader.
            offset: where the consumer reads next.
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
        """Take note of an append: whoever had all before it was caught up until now.

        DIFFERS: in Kafka each Fetch of a session says so of all its partitions. Here it says
        nothing of those without news, and a follower of a quiet partition would lag at once.
        """
        for follower in self.followers.values():
            if follower.log_end_offset >= first_offset:
                follower.caught_up_ms = now_ms

    def is_of_ended_incarnation(self, replica: int, broker_epoch: int) -> bool:
        """Whether a later incarnation of this follower has fetched already."""
        return NO_EPOCH < broker_epoch < self.followers[replica].broker_epoch

    # -- the high watermark -----------------------------------------------------------------------

    def high_watermark(
        self, now: int, *, own_end: int, leader_end: int, since_ms: int, is_eligible: IsEligible
    ) -> int:
        """Say up to where everything is committed.

        Followers outside the ISR that keep pace, and may join, are waited for: else the watermark
        of a busy leader would always be ahead of them, and they could never join.

        Args:
            now: the high watermark as it is.
            own_end: what the leader itself may count (its flushed end, for a durable topic).
            leader_end: its log end.
            since_ms: `replica.lag.time.max.ms` ago.
            is_eligible: see there.

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

    # -- who joins and leaves ---------------------------------------------------------------------

    def to_join(
        self, replica: int, *, high_watermark: int, log_start_offset: int, is_eligible: IsEligible
    ) -> Proposal | None:
        """Ask for an ISR with a follower that has just fetched, if it may join.

        Args:
            replica: the follower.
            high_watermark: the leader's.
            log_start_offset: the leader's, checkpointed: what was deleted stays deleted whoever
                leads next.
            is_eligible: see there.
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
        # DIFFERS: it has what the members have in common, so its clock begins as theirs would.
        # In Kafka one that joins behind the log end may be the next to leave.
        follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        return self._propose((*self.isr, replica))

    def to_leave(
        self, *, leader_end: int, now_ms: int, lag_ms_max: int, clocks_begun_ms: int
    ) -> Proposal | None:
        """Ask for an ISR without the members that do not keep pace, if there are any.

        Args:
            leader_end: the log end.
            now_ms: the clock of `fetch`.
            lag_ms_max: `replica.lag.time.max.ms`.
            clocks_begun_ms: when this broker last came back from a pause: what followers sent
                meanwhile was not heard, so all clocks begin again there.
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
        """Ask to be the leader of a partition that has recovered from an unclean election."""
        if not self.is_recovering or self.proposal is not None:
            return None
        return self._propose(self.isr)

    def _propose(self, members: Iterable[int]) -> Proposal:
        """Note a proposal; it counts for the high watermark from now on."""
        epochs = {one: follower.broker_epoch for one, follower in self.followers.items()}
        epochs[self.node_id] = self.own_broker_epoch
        self.proposal = Proposal(
            tuple((one, epochs.get(one, NO_EPOCH)) for one in members),
            # A leader that recovers says so with its first proposal, or nobody could join.
            is_recovered=True,
            partition_epoch=self.partition_epoch,
        )
        return self.proposal

    # -- what the controller says -----------------------------------------------------------------

    def refused(self) -> None:
        """The controller will not carry the proposal out: it counts no more.

        Unless an earlier attempt was left open: then its members count until a later partition
        epoch is known.
        """
        self.proposal = None

    def still_undecided(self) -> None:
        """Nobody knows whether the proposal was, or will be, carried out.

        Its members count for the watermark until a later partition epoch is known, whatever is
        proposed and answered next. The caller sends it again: if it was refused and only the
        answer is lost, no image will ever end it.
        """
        if self.proposal is not None:
            self._doubtful |= {self.proposal.members}

    def must_flush(self, members: int) -> bool:
        """Whether the leader flushes its log before it has, or asks for, so few members.

        Then its disk alone keeps what was acknowledged: without this, where the others are cut off
        and this one loses its power, it comes back shorter and leads, and no disk was lost.
        """
        return members < self.min_isr
