"""What the controller decides about the one partition: a compact twin with its rules as switches.

After Kafka 4.3 (PartitionChangeBuilder, ReplicationControlManager) and the rules on lost log
directories. Where several replicas could lead each may: that covers assignment orders, elections
of preferred leaders and moves before a stop.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.model.replication.leader import ids
from tests.model.replication.rules import Rules

NOBODY = -1


class Committed(NamedTuple):
    """The metadata: of the partition and of the brokers.

    Attributes:
        isr, elr: bits.
        last_known: leader when the ISR became empty; -1: none.
        lives: broker epoch of each registration.
        unfenced: bits.
        stopping: bits of those in controlled shutdown.
        suspects: bits of those that left ISR or ELR by an unclean end, while the ISR was below
            min.insync.replicas (the last known ELR of KIP-966).
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: int
    elr: int
    last_known: int
    recovering: bool
    lives: tuple[int, ...]
    unfenced: int
    stopping: int = 0
    suspects: int = 0

    @property
    def active(self) -> int:
        return self.unfenced & ~self.stopping


class Request(NamedTuple):
    """An AlterPartition on its way.

    Attributes:
        sender, life: the leader and its broker epoch.
        isr: bits.
        epochs: of the members, by replica; -1: not said.
    """

    sender: int
    life: int
    leader_epoch: int
    isr: int
    epochs: tuple[int, ...]
    partition_epoch: int
    recovered: bool


class Controller:
    """Decisions under `rules`; each answers with all that may be committed next."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.all = (1 << rules.replicas) - 1
        for name in ("fence", "unfence", "stop", "register", "alter", "elect"):
            setattr(self, name, cache(getattr(self, name)))

    def fence(self, now: Committed, broker: int) -> tuple[Committed, ...]:
        """Its session has ended."""
        bit = 1 << broker
        then = now._replace(unfenced=now.unfenced & ~bit)
        return tuple(self._changed(now, then, now.isr & ~bit))

    def stop(self, now: Committed, broker: int) -> tuple[Committed, ...]:
        """It asks to be let go."""
        then = now._replace(stopping=now.stopping | 1 << broker)
        return tuple(self._changed(now, then, now.isr & ~(1 << broker)))

    def unfence(self, now: Committed, broker: int) -> tuple[Committed, ...]:
        """It has caught up with the metadata."""
        then = now._replace(unfenced=now.unfenced | 1 << broker)
        return tuple(self._changed(now, then, now.isr)) if now.leader == NOBODY else (then,)

    def register(
        self, now: Committed, broker: int, life: int, *, clean: bool, lost: bool
    ) -> tuple[Committed, ...]:
        """A new life of it registers.

        Args:
            clean: it names the broker epoch of the life before as cleanly ended.
            lost: the log directory of the replica is not among those it registers.
        """
        rules, bit = self.rules, 1 << broker
        lives = (*now.lives[:broker], life, *now.lives[broker + 1 :])
        then = now._replace(lives=lives, stopping=now.stopping & ~bit)
        leaves, gone = 0, 0
        if rules.register_fences:
            then = then._replace(unfenced=then.unfenced & ~bit)
            leaves = bit
        if rules.elr and rules.unclean_leaves and not clean:
            leaves = gone = bit
        if lost and rules.lost_leaves_isr:
            leaves = bit
            gone |= bit if rules.lost_leaves_elr else 0
            if rules.lost_leaves_last_known and then.last_known == broker:
                then = then._replace(last_known=NOBODY)
        after = self._changed(
            now, then, now.isr & ~leaves, gone=gone, may_empty=lost and rules.lost_leaves_isr
        )
        if lost:
            # An empty log is never the longest that is left.
            after = iter([one._replace(suspects=one.suspects & ~bit) for one in after])
        if lost and rules.lost_leaves_last_known:
            # What the last known leader had is gone with its disk.
            return tuple(
                one._replace(last_known=NOBODY) if one.last_known == broker else one
                for one in after
            )
        return tuple(after)

    def alter(self, now: Committed, request: Request) -> Committed | None:
        """A leader asks for an ISR; None: refused."""
        rules = self.rules
        if rules.alter_checks_leader_epoch and request.leader_epoch != now.leader_epoch:
            return None
        if request.sender != now.leader or now.lives[request.sender] != request.life:
            return None
        if rules.alter_checks_partition_epoch and request.partition_epoch != now.partition_epoch:
            return None
        if any(self._is_ineligible(now, request, one) for one in ids(request.isr)):
            return None
        is_alone = request.isr.bit_count() == 1
        if rules.alter_asks_recovered and not (request.recovered or is_alone):
            return None
        then = now._replace(recovering=now.recovering and not request.recovered)
        (after,) = self._changed(now, then, request.isr)
        assert after.leader == now.leader, "an ISR has the leader"
        return after

    def _is_ineligible(self, now: Committed, request: Request, member: int) -> bool:
        rules = self.rules
        return bool(
            (rules.alter_refuses_fenced and not now.unfenced >> member & 1)
            or (rules.alter_refuses_stopping and now.stopping >> member & 1)
            or (
                rules.alter_checks_broker_epochs
                and request.epochs[member] >= 0
                and request.epochs[member] != now.lives[member]
            )
        )

    def elect(self, now: Committed, to: int) -> tuple[Committed, ...]:
        """By command: another member leads, or an unclean election where nobody leads."""
        if not now.active >> to & 1 or to == now.leader:
            return ()
        if now.leader != NOBODY:
            if not now.isr >> to & 1:
                return ()
            return (_settled(now, _with_leader(now, to), self.rules),)
        if not self.rules.unclean or (now.isr or now.elr) & now.active:
            return ()
        return (_settled(now, self._uncleanly(now, to), self.rules),)

    def suspects(self, now: Committed) -> tuple[int, ...]:
        """Those of which the longest log shall lead; none before all of them are there."""
        is_asked = now.leader == NOBODY and not now.isr and not now.elr
        is_there = now.suspects and not now.suspects & ~now.active
        return ids(now.suspects) if is_asked and is_there else ()

    def elect_longest(self, now: Committed, to: int) -> Committed:
        """The one of the suspects that has the longest log."""
        return _settled(now, self._uncleanly(now, to), self.rules)

    def _changed(
        self, now: Committed, then: Committed, isr: int, *, gone: int = 0, may_empty: bool = False
    ) -> Iterator[Committed]:
        """`then` with that ISR, and what follows of it: ELR, leader, last known leader."""
        rules, elr = self.rules, now.elr
        if rules.elr:
            if rules.elr_ends and isr.bit_count() >= min(rules.min_isr, rules.replicas):
                elr = 0
            else:
                elr = (elr | now.isr) & ~isr & ~gone
        elif not isr and not may_empty and rules.last_member_stays:
            isr = now.isr
        suspects = 0
        if rules.last_known_leads == "longest" and isr.bit_count() < rules.min_isr:
            suspects = now.suspects & ~isr | ((now.isr | now.elr) & gone)
        then = then._replace(isr=isr, elr=elr, suspects=suspects)
        may_lead = self.all if rules.dead_may_lead else then.active
        chosen = ids((isr or elr) & may_lead)
        if now.leader in chosen:
            chosen = (now.leader,)
        for one in chosen:
            led = _with_leader(then, one)
            if not isr >> one & 1:
                led = led._replace(isr=1 << one, elr=elr & ~(1 << one))
            yield _settled(now, led, rules)
        if chosen:
            return
        last = then.last_known
        is_last_known = rules.last_known_leads is True and last >= 0 and may_lead >> last & 1
        if is_last_known and not isr and not elr:
            yield _settled(now, self._uncleanly(then, last), rules)
        else:
            yield _settled(now, _with_leader(then, NOBODY), rules)

    def _uncleanly(self, then: Committed, to: int) -> Committed:
        return _with_leader(then, to)._replace(
            isr=1 << to,
            elr=0,
            suspects=then.suspects & ~(1 << to),
            recovering=self.rules.unclean_recovers,
        )


def _with_leader(now: Committed, leader: int) -> Committed:
    if leader == now.leader:
        return now
    return now._replace(leader=leader, leader_epoch=now.leader_epoch + 1)


def _settled(now: Committed, then: Committed, rules: Rules) -> Committed:
    if rules.elr:
        if then.leader != NOBODY:
            then = then._replace(last_known=NOBODY)
        elif not then.isr and now.leader != NOBODY:
            then = then._replace(last_known=now.leader)
    if then[:7] != now[:7]:
        then = then._replace(partition_epoch=now.partition_epoch + 1)
    return then
