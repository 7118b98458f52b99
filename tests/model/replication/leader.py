"""The leader's decisions on states that are tuples: the production code does them, once for each.

A leader's state is `Lead`; ids in an ISR are bits. What is asked for the first time runs through
`InSyncReplicas`, what was asked before is looked up: there are few of them, so the search pays for
the dataclasses only once.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from broker.replica.isr import Follower, InSyncReplicas, Proposal

LAG_MS = 10
NOW_MS = 1_000
LATE_MS = 0


class Lead(NamedTuple):
    """What a leader holds in memory.

    Attributes:
        partition_epoch: of the state that it knows to be committed.
        isr: bits.
        recovering: the election was unclean.
        start: first offset of its leader epoch.
        followers: (broker epoch, log end, log start) by replica; its own entry is not used.
        asked: the proposal without answer: (bits, broker epochs by replica, partition epoch,
            whether it says RECOVERED).
        doubtful: bits of each proposal of unknown outcome.
        lives: broker epochs by replica, as its image has them.
        active: bits of the brokers that its image has as unfenced and not stopping.
    """

    partition_epoch: int
    isr: int
    recovering: bool
    start: int
    followers: tuple[tuple[int, int, int], ...]
    asked: tuple[int, tuple[int, ...], int, bool] | None
    doubtful: tuple[int, ...]
    lives: tuple[int, ...]
    active: int


@cache
def bits(ids: tuple[int, ...]) -> int:
    return sum(1 << one for one in set(ids))


@cache
def ids(mask: int) -> tuple[int, ...]:
    return tuple(one for one in range(mask.bit_length()) if mask >> one & 1)


class Leader:
    """The decisions of one kind of `InSyncReplicas`, for `replicas` of them."""

    def __init__(self, kind: type[InSyncReplicas], replicas: int, min_isr: int) -> None:
        self.kind, self.replicas, self.min_isr = kind, replicas, min_isr
        self.fetched = cache(self._fetched)
        self.high_watermark = cache(self._high_watermark)
        self.join = cache(self._join)
        self.leave = cache(self._leave)
        self.recover = cache(self._recover)
        self.learn = cache(self._learn)
        self.refused = cache(self._refused)
        self.still_undecided = cache(self._left_open)
        self.must_flush = cache(self._must_flush)

    def _load(self, me: int, lead: Lead) -> InSyncReplicas:
        asked = None
        if lead.asked is not None:
            members, epochs, partition_epoch, recovered = lead.asked
            asked = Proposal(
                tuple((one, epochs[one]) for one in ids(members)), recovered, partition_epoch
            )
        return self.kind(
            node_id=me,
            partition_epoch=lead.partition_epoch,
            replicas=tuple(range(self.replicas)),
            isr=ids(lead.isr),
            epoch_start_offset=lead.start,
            led_since_ms=LATE_MS,
            min_insync_replicas=self.min_isr,
            own_broker_epoch=lead.followers[me][0],
            is_recovering=lead.recovering,
            followers={
                one: Follower(broker_epoch=life, log_end_offset=end, log_start_offset=start)
                for one, (life, end, start) in enumerate(lead.followers)
                if one != me
            },
            proposal=asked,
            _doubtful=frozenset(ids(one) for one in lead.doubtful),
        )

    def _dump(self, me: int, held: InSyncReplicas, before: Lead) -> Lead:
        followers = list(before.followers)
        for one, follower in held.followers.items():
            followers[one] = (
                follower.broker_epoch,
                follower.log_end_offset,
                follower.log_start_offset,
            )
        asked = None
        if held.proposal is not None:
            epochs = dict(held.proposal.isr)
            asked = (
                bits(held.proposal.members),
                tuple(epochs.get(one, -1) for one in range(self.replicas)),
                held.proposal.partition_epoch,
                held.proposal.is_recovered,
            )
        return Lead(
            held.partition_epoch,
            bits(tuple(held.isr)),
            held.is_recovering,
            before.start,
            tuple(followers),
            asked,
            tuple(sorted(bits(one) for one in held._doubtful)),
            before.lives,
            before.active,
        )

    @staticmethod
    def _eligible(lead: Lead) -> Callable[[int, int], bool]:
        return lambda one, epoch: bool(lead.active >> one & 1) and lead.lives[one] == epoch

    def begin(
        self, me: int, end: int, view: Any, followers: tuple[tuple[int, int, int], ...]
    ) -> Lead:
        """As a broker becomes leader."""
        return Lead(
            view.partition_epoch,
            view.isr,
            view.recovering,
            end,
            followers,
            None,
            (),
            view.lives,
            view.active,
        )

    def _fetched(
        self, lead: Lead, me: int, replica: int, life: int, offset: int, start: int, end: int
    ) -> Lead:
        held = self._load(me, lead)
        held.fetch(
            replica,
            broker_epoch=life,
            offset=offset,
            log_start_offset=start,
            leader_end=end,
            now_ms=NOW_MS,
        )
        return self._dump(me, held, lead)

    def _high_watermark(self, lead: Lead, me: int, now: int, end: int) -> int:
        return self._load(me, lead).high_watermark(
            now, own_end=end, leader_end=end, since_ms=NOW_MS, is_eligible=self._eligible(lead)
        )

    def _join(
        self, lead: Lead, me: int, replica: int, high_watermark: int, start: int
    ) -> Lead | None:
        held = self._load(me, lead)
        asked = held.to_join(
            replica,
            high_watermark=high_watermark,
            log_start_offset=start,
            is_eligible=self._eligible(lead),
        )
        return None if asked is None else self._dump(me, held, lead)

    def _leave(self, lead: Lead, me: int, stay: int, end: int) -> Lead | None:
        """None unless exactly `stay` are left."""
        held = self._load(me, lead)
        for one, follower in held.followers.items():
            if stay >> one & 1:
                follower.caught_up_ms = NOW_MS
        asked = held.to_leave(
            leader_end=end, now_ms=NOW_MS, lag_ms_max=LAG_MS, clocks_begun_ms=LATE_MS
        )
        if asked is None or bits(asked.members) != stay:
            return None
        return self._dump(me, held, lead)

    def _recover(self, lead: Lead, me: int) -> Lead | None:
        held = self._load(me, lead)
        return None if held.to_recover() is None else self._dump(me, held, lead)

    def _learn(self, lead: Lead, me: int, partition_epoch: int, isr: int, recovering: bool) -> Lead:
        held = self._load(me, lead)
        held.learn(
            partition_epoch=partition_epoch,
            replicas=held.replicas,
            isr=ids(isr),
            is_recovering=recovering,
        )
        return self._dump(me, held, lead)

    def _refused(self, lead: Lead, me: int) -> Lead:
        held = self._load(me, lead)
        held.refused()
        return self._dump(me, held, lead)

    def _left_open(self, lead: Lead, me: int) -> Lead:
        held = self._load(me, lead)
        held.still_undecided()
        return self._dump(me, held, lead)

    def _must_flush(self, lead: Lead, me: int, members: int) -> bool:
        return self._load(me, lead).must_flush(members)
