"""One partition: its replicas, the controller, and what is on its way between them.

A step is what one of them does at once; everything that may come late, twice or never is a step of
its own or a budget. README.md says what is excluded, and why nothing is hidden by it.
"""

from collections.abc import Callable, Iterator
from functools import partial

from tests.model.explore import Broken, Label
from tests.model.replication.chains import Log, assigned, chain_of, cut, end_offset_for, epochs_by
from tests.model.replication.controller import NOBODY, Committed, Controller, Request
from tests.model.replication.leader import Lead, Leader, ids
from tests.model.replication.rules import Rules
from tests.model.replication.state import (
    NONE,
    Broker,
    Budget,
    Late,
    World,
    order_of,
    put,
    renamed,
)

FAIR = frozenset(
    {
        "start",
        "unfence",
        "learn",
        "fetch",
        "ask to join",
        "ask as recovered",
        "ask again",
        "decide",
        "stopped",
        "elect the longest",
        "answer",
    }
)
"""Steps that a cluster without faults makes; "fence" of a dead broker is overtaken by its start."""

Made = Callable[[], World | None]


class Replication:
    """The model: its start, its steps and its promises, under `rules`."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.controller = Controller(rules)
        self.leader = Leader(rules.isr, rules.replicas, rules.leader_min_isr or rules.min_isr)
        self.needed = min(rules.min_isr, rules.replicas)
        self.drops_dead_requests = (
            rules.alter_checks_leader_epoch and rules.alter_checks_partition_epoch
        )

    def start(self) -> World:
        """All are in sync and agree; broker 0 leads."""
        rules = self.rules
        count = rules.replicas
        log: Log = (1,) * rules.begins_with
        everybody = (1 << count) - 1
        committed = Committed(0, 1, 0, everybody, 0, NOBODY, False, (0,) * count, everybody)
        end = len(log)
        lead = Lead(
            0, everybody, False, 0, ((0, end, 0),) * count, None, (), (0,) * count, everybody
        )
        flushed = end if rules.starts_flushed else 0
        brokers = tuple(
            Broker(True, 0, log, ((1, 0),), flushed, end, 0, 1, lead if one == 0 else None)
            for one in range(count)
        )
        budget = Budget(*(getattr(rules, name) for name in Budget._fields))
        return World(committed, brokers, (), (), log, 0, False, (), budget)

    # -- steps ------------------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[tuple[Label, Callable[[], World | None]]]:
        """All that may happen next; each is made when it is called."""
        for label, make in self._steps(world):
            yield label, partial(self._bounded, make)

    def _bounded(self, make: Made) -> World | None:
        after = make()
        if after is None or after.committed.leader_epoch > self.rules.epochs:
            return None
        after = self._canonical(after)
        return renamed(after, order_of(after)) if self.rules.is_symmetric else after

    def _steps(self, world: World) -> Iterator[tuple[Label, Made]]:
        for one, broker in enumerate(world.brokers):
            if broker.up:
                if broker.lead is not None:
                    yield from self._leader_steps(world, one, broker, broker.lead)
                yield from self._running_steps(world, one, broker)
            else:
                for index, then in enumerate(self._registered(world, one)):
                    yield ("start", one, index), partial(self._started, world, one, then)
            yield from self._fault_steps(world, one, broker)
        yield from self._controller_steps(world)
        for index, request in enumerate(world.requests):
            yield from self._request_steps(world, index, request)
        for index, fetch in enumerate(world.late):
            yield ("late fetch", fetch), partial(self._late_fetched, world, index)

    def _leader_steps(
        self, world: World, one: int, broker: Broker, lead: Lead
    ) -> Iterator[tuple[Label, Made]]:
        rules, end = self.rules, len(broker.log)
        if end < rules.records and (not rules.acks_all_only or lead.isr.bit_count() >= self.needed):
            yield ("append", one), partial(self._appended, world, one)
        yield from self._deletion_steps(world, one, broker, lead)
        for other in range(rules.replicas):
            if other != one:
                yield from self._follower_steps(world, one, other, broker, lead)
        for stay in range(1 << rules.replicas):
            if stay >> one & 1 and stay & ~lead.isr == 0 and stay != lead.isr:
                asked = self.leader.leave(lead, one, stay, end)
                if asked is not None:
                    yield ("ask to leave", one, ids(stay)), partial(self._asked, world, one, asked)
        asked = self.leader.recover(lead, one)
        if asked is not None:
            yield ("ask as recovered", one), partial(self._asked, world, one, asked)
        if lead.asked is not None:
            if not any(one == it.sender and lead.asked == it[3:] for it in world.requests):
                yield ("ask again", one), partial(self._asked_again, world, one, 0)
            elif world.budget.lost_answers:
                yield ("ask again", one), partial(self._asked_again, world, one, 1)

    def _deletion_steps(
        self, world: World, one: int, broker: Broker, lead: Lead
    ) -> Iterator[tuple[Label, Made]]:
        if world.budget.deletes:
            for start in range(broker.start + 1, broker.high_watermark + 1):
                yield ("delete records", one, start), partial(self._deleted, world, one, start)
        if broker.start > world.deleted and self._is_deleted(broker, one, lead):
            yield ("answer", one), partial(world._replace, deleted=broker.start)

    def _follower_steps(
        self, world: World, one: int, other: int, broker: Broker, lead: Lead
    ) -> Iterator[tuple[Label, Made]]:
        rules, follower = self.rules, world.brokers[other]
        is_epoch = follower.epoch == broker.epoch or not rules.fetch_checks_epoch
        is_life = lead.lives[other] == follower.life or not rules.fetch_checks_life
        if (
            follower.up
            and follower.leader == one
            and follower.lead is None
            and is_epoch
            and is_life
        ):
            yield ("fetch", other, one), partial(self._fetched, world, other, one, True)
            if world.budget.lost_answers:
                yield (
                    ("fetch unanswered", other, one),
                    partial(self._fetched, world, other, one, False),
                )
        start = broker.start if rules.joins_by_log_start else 0
        asked = self.leader.join(lead, one, other, broker.high_watermark, start)
        if asked is not None:
            yield ("ask to join", one, other), partial(self._asked, world, one, asked)

    def _running_steps(
        self, world: World, one: int, broker: Broker
    ) -> Iterator[tuple[Label, Made]]:
        now = world.committed
        yield ("learn", one), partial(self._learned, world, one)
        if now.lives[one] == broker.life and not now.unfenced >> one & 1:
            for index, then in enumerate(self.controller.unfence(now, one)):
                yield ("unfence", one, index), partial(self._commit, world, then)
        if world.budget.late_fetches and broker.lead is None and broker.leader not in (NOBODY, one):
            yield ("send a late fetch", one), partial(self._sent_late, world, one)
        if now.stopping >> one & 1:
            yield ("stopped", one), partial(self._stopped, world, one)

    def _fault_steps(self, world: World, one: int, broker: Broker) -> Iterator[tuple[Label, Made]]:
        budget = world.budget
        if broker.up and budget.kills:
            yield ("kill", one), partial(self._killed, world, one)
        if budget.cuts:
            for keep in range(broker.flushed, len(broker.log) + 1):
                yield ("power cut", one, keep), partial(self._cut, world, one, keep)
        if budget.disks and not broker.up:
            yield ("new disk", one), partial(self._emptied, world, one)

    def _controller_steps(self, world: World) -> Iterator[tuple[Label, Made]]:
        now, budget, rules = world.committed, world.budget, self.rules
        for one, broker in enumerate(world.brokers):
            if now.unfenced >> one & 1:
                is_dead = not broker.up or broker.life != now.lives[one]
                if is_dead or budget.fences:
                    left = budget if is_dead else budget._replace(fences=budget.fences - 1)
                    for index, then in enumerate(self.controller.fence(now, one)):
                        yield ("fence", one, index), partial(self._commit, world, then, left)
            if budget.stops and broker.up and now.active >> one & 1:
                left = budget._replace(stops=budget.stops - 1)
                for index, then in enumerate(self.controller.stop(now, one)):
                    yield ("stop", one, index), partial(self._commit, world, then, left)
            if one in self.controller.suspects(now):
                longest = max(self.controller.suspects(now), key=lambda it: _length(world, it))
                if one == longest:
                    then = self.controller.elect_longest(now, one)
                    yield ("elect the longest", one), partial(self._commit, world, then, None, True)
            is_move = now.leader != NOBODY
            if rules.unclean or (budget.moves and is_move):
                left = budget._replace(moves=budget.moves - 1) if is_move else budget
                if left.moves >= 0:
                    for then in self.controller.elect(now, one):
                        yield ("elect", one), partial(self._commit, world, then, left)

    def _request_steps(
        self, world: World, index: int, request: Request
    ) -> Iterator[tuple[Label, Made]]:
        name = (request.sender, ids(request.isr))
        yield ("decide", *name), partial(self._decided, world, index, True)
        if world.budget.lost_answers:
            yield ("decide unheard", *name), partial(self._decided, world, index, False)

    # -- what the leader does ---------------------------------------------------------------------

    def _appended(self, world: World, one: int) -> World:
        broker = world.brokers[one]
        offset = len(broker.log)
        for other in world.brokers:
            if broker.epoch in other.log[offset:]:
                raise Broken(f"epoch {broker.epoch} writes offset {offset} twice")
        return self._led(world, one, broker._replace(log=(*broker.log, broker.epoch)))

    def _deleted(self, world: World, one: int, start: int) -> World:
        left = world.budget._replace(deletes=world.budget.deletes - 1)
        broker = world.brokers[one]._replace(start=start)
        return world._replace(brokers=put(world.brokers, one, broker), budget=left)

    def _is_deleted(self, broker: Broker, one: int, lead: Lead) -> bool:
        """Whether all that are in sync have the log start of this leader."""
        if self.rules.deletes_at_min_isr and lead.isr.bit_count() < self.needed:
            return False
        asked = lead.asked[0] if lead.asked is not None else 0
        members = {*ids(lead.isr | asked), *(it for one in lead.doubtful for it in ids(one))}
        return all(lead.followers[it][2] >= broker.start for it in members if it != one)

    def _led(self, world: World, one: int, broker: Broker) -> World:
        """The world with that leader, its high watermark moved as far as it may."""
        lead = broker.lead
        assert lead is not None
        now = broker.high_watermark
        moved = self.leader.high_watermark(lead, one, now, len(broker.log))
        if moved < now:
            raise Broken(f"the high watermark goes back from {now} to {moved}")
        told = world.told
        if moved > now:
            broker = broker._replace(high_watermark=moved)
            if broker.epoch >= world.since:
                prefix = broker.log[:moved]
                if prefix[: len(told)] != told[:moved]:
                    raise Broken(f"{prefix} is told by broker {one}, {told} was told")
                told = max(told, prefix, key=len)
        return world._replace(brokers=put(world.brokers, one, broker), told=told)

    def _fetched(self, world: World, replica: int, one: int, is_answered: bool) -> World | None:
        follower, broker = world.brokers[replica], world.brokers[one]
        end = len(broker.log)
        diverging = self._divergence(follower, broker)
        if diverging is None or not self.rules.diverging_fetch_not_noted:
            offset = min(len(follower.log), end)
            world = self._noted(world, one, replica, follower.life, offset, follower.start)
            broker = world.brokers[one]
        if not is_answered:
            left = world.budget._replace(lost_answers=world.budget.lost_answers - 1)
            return world._replace(budget=left)
        if diverging is not None:
            after = self._truncated(follower, diverging, broker)
        else:
            after = self._copied(follower, broker)
        return world._replace(brokers=put(world.brokers, replica, after))

    def _divergence(self, follower: Broker, broker: Broker) -> tuple[int, int] | None:
        """Where the leader says that the follower's log is another than its own."""
        end = len(broker.log)
        asked = follower.chain[-1][0] if follower.chain else NONE
        if follower.log and not self.rules.chain_cut_at_end:
            asked = follower.log[-1]
        if self.rules.truncates_by == "watermark" or not follower.log:
            return None
        found = end_offset_for(broker.chain, asked, end)
        if found is None:
            # Nothing is known of so late an epoch: all that the leader has ends earlier.
            return (NONE, end) if len(follower.log) > end or asked > broker.epoch else None
        if found[0] < asked or found[1] < len(follower.log):
            return found
        return None

    def _truncated(self, follower: Broker, diverging: tuple[int, int], broker: Broker) -> Broker:
        epoch, end = diverging
        mine = end_offset_for(follower.chain, epoch, len(follower.log)) if epoch >= 0 else None
        if mine is None:
            to = min(end, len(follower.log))
        else:
            to = min(end, mine[1]) if mine[0] == epoch else mine[1]
        return self._cut_at(follower, min(to, len(follower.log)))

    def _cut_at(self, follower: Broker, end: int) -> Broker:
        """Truncated: the log, and the chain at its end."""
        if end == len(follower.log) and not self.rules.chain_cut_at_end:
            return follower
        return follower._replace(
            log=follower.log[:end],
            chain=cut(follower.chain, end),
            flushed=min(follower.flushed, end),
            high_watermark=min(follower.high_watermark, end),
        )

    def _copied(self, follower: Broker, broker: Broker) -> Broker:
        begin = len(follower.log)
        new = broker.log[begin:]
        chain = follower.chain
        for offset, epoch in enumerate(new, begin):
            if not chain or chain[-1][0] != epoch:
                chain = assigned(chain, epoch, offset)
        log = follower.log + new
        told = max(min(broker.high_watermark, len(log)), follower.high_watermark)
        start = max(broker.start, follower.start)
        return follower._replace(log=log, chain=chain, high_watermark=told, start=start)

    def _noted(
        self, world: World, one: int, replica: int, life: int, offset: int, start: int
    ) -> World:
        broker = world.brokers[one]
        assert broker.lead is not None
        lead = self.leader.fetched(broker.lead, one, replica, life, offset, start, len(broker.log))
        if lead == broker.lead:
            return world
        return self._led(world, one, broker._replace(lead=lead))

    def _asked(self, world: World, one: int, lead: Lead) -> World:
        broker = world.brokers[one]
        assert lead.asked is not None
        members = lead.asked[0]
        flushed = broker.flushed
        if self.rules.flushes_when_asking and self.leader.must_flush(
            lead, one, members.bit_count()
        ):
            flushed = len(broker.log)
        request = Request(one, broker.life, broker.epoch, *lead.asked)
        world = self._led(world, one, broker._replace(lead=lead, flushed=flushed))
        return world._replace(requests=(*world.requests, request))

    def _asked_again(self, world: World, one: int, cost: int) -> World:
        """No answer came: the same request is sent again, beside one that may still arrive."""
        broker = world.brokers[one]
        assert broker.lead is not None
        lead = self.leader.still_undecided(broker.lead, one)
        left = world.budget._replace(lost_answers=world.budget.lost_answers - cost)
        world = self._asked(world, one, lead)
        return world._replace(budget=left)

    # -- what a broker hears ----------------------------------------------------------------------

    def _learned(self, world: World, one: int) -> World:
        """It takes the newest image."""
        broker, now = world.brokers[one], world.committed
        if now.leader == one and now.lives[one] >= broker.life:
            if broker.lead is not None and broker.epoch == now.leader_epoch:
                lead = self.leader.learn(
                    broker.lead, one, now.partition_epoch, now.isr, now.recovering
                )
                lead = lead._replace(lives=now.lives, active=now.active)
                return self._seen(world, one, broker, lead)
            end = len(broker.log)
            unknown = tuple(
                (broker.life, end, 0) if other == one else (NONE, NONE, NONE)
                for other in range(self.rules.replicas)
            )
            lead = self.leader.begin(one, end, now, unknown)
            broker = broker._replace(
                leader=one,
                epoch=now.leader_epoch,
                chain=assigned(broker.chain, now.leader_epoch, end),
            )
            if world.pending:
                world = self._begun_uncleanly(world, broker)
            return self._seen(world, one, broker, lead)
        if broker.lead is None and (broker.leader, broker.epoch) == (now.leader, now.leader_epoch):
            return world
        broker = broker._replace(leader=now.leader, epoch=now.leader_epoch, lead=None)
        if self.rules.truncates_by == "watermark":
            broker = self._cut_at(broker, broker.high_watermark)
        broker = self._cut_at(broker, len(broker.log))
        return world._replace(brokers=put(world.brokers, one, broker))

    def _seen(self, world: World, one: int, broker: Broker, lead: Lead) -> World:
        """A leader has seen an ISR."""
        if self.rules.flushes_when_seeing and self.leader.must_flush(
            lead, one, lead.isr.bit_count()
        ):
            broker = broker._replace(flushed=len(broker.log))
        return self._led(world, one, broker._replace(lead=lead))

    def _commit(
        self, world: World, then: Committed, left: Budget | None = None, is_known: bool = False
    ) -> World:
        """The controller has decided."""
        now, pending = world.committed, world.pending
        if then.leader not in (now.leader, NOBODY, now.last_known) and not is_known:
            pending = pending or not (now.isr | now.elr) >> then.leader & 1
        return world._replace(committed=then, pending=pending, budget=left or world.budget)

    @staticmethod
    def _begun_uncleanly(world: World, broker: Broker) -> World:
        """The setting allows it: what the new leader has is what counts from now on."""
        told, log = world.told, broker.log
        common = next(
            (n for n, (a, b) in enumerate(zip(told, log, strict=False)) if a != b),
            min(len(told), len(log)),
        )
        own = log[: broker.high_watermark]
        told = max(told[:common], own, key=len)
        return world._replace(told=told, since=broker.epoch, pending=False)

    def _decided(self, world: World, index: int, is_heard: bool) -> World | None:
        """The controller decides on an AlterPartition, and the leader hears of it, or does not."""
        request = world.requests[index]
        then = self.controller.alter(world.committed, request)
        world = world._replace(requests=world.requests[:index] + world.requests[index + 1 :])
        if not is_heard:
            left = world.budget._replace(lost_answers=world.budget.lost_answers - 1)
            world = world._replace(budget=left)
        if then is not None:
            world = self._commit(world, then)
        sender = world.brokers[request.sender]
        lead = sender.lead
        if not is_heard or not sender.up or lead is None or sender.epoch != request.leader_epoch:
            return world
        if sender.life != request.life:
            return world
        if then is None:
            if lead.asked != request[3:]:
                return world
            lead = self.leader.refused(lead, request.sender)
            return self._led(world, request.sender, sender._replace(lead=lead))
        lead = self.leader.learn(
            lead, request.sender, then.partition_epoch, then.isr, then.recovering
        )
        return self._seen(world, request.sender, sender, lead)

    def _late_fetched(self, world: World, index: int) -> World:
        fetch = world.late[index]
        world = world._replace(late=world.late[:index] + world.late[index + 1 :])
        broker = world.brokers[fetch.to]
        if broker.lead is None:
            return world
        if self.rules.fetch_checks_epoch and broker.epoch != fetch.epoch:
            return world
        if self.rules.fetch_checks_life and broker.lead.lives[fetch.replica] != fetch.life:
            return world
        end = len(broker.log)
        offset = min(fetch.offset, end)
        return self._noted(world, fetch.to, fetch.replica, fetch.life, offset, fetch.start)

    def _sent_late(self, world: World, one: int) -> World | None:
        """Only of a log that the leader would not find diverging."""
        broker = world.brokers[one]
        to = world.brokers[broker.leader]
        if to.epoch != broker.epoch or to.lead is None:
            return None
        if self._divergence(broker, to) is not None:
            return None
        fetch = Late(broker.leader, broker.epoch, one, broker.life, len(broker.log), broker.start)
        left = world.budget._replace(late_fetches=world.budget.late_fetches - 1)
        return world._replace(late=(*world.late, fetch), budget=left)

    # -- lives of a broker ------------------------------------------------------------------------

    def _down(self, broker: Broker) -> Broker:
        """What is left when its memory is gone; its watermark checkpoint is old."""
        return broker._replace(up=False, high_watermark=0, leader=NOBODY, epoch=0, lead=None)

    def _killed(self, world: World, one: int) -> World:
        broker = self._down(world.brokers[one])
        left = world.budget._replace(kills=world.budget.kills - 1)
        return world._replace(brokers=put(world.brokers, one, broker), budget=left)

    def _cut(self, world: World, one: int, keep: int) -> World:
        broker = world.brokers[one]
        lost = self._losing(world, broker.log, broker.flushed)
        broker = self._down(broker)._replace(
            log=broker.log[:keep],
            chain=cut(broker.chain, keep),
            flushed=keep,
            hurt=True,
            same_boot=False,
        )
        left = world.budget._replace(cuts=world.budget.cuts - 1)
        return world._replace(brokers=put(world.brokers, one, broker), lost=lost, budget=left)

    def _emptied(self, world: World, one: int) -> World:
        broker = world.brokers[one]
        lost = self._losing(world, broker.log, 0)
        broker = broker._replace(log=(), chain=(), flushed=0, hurt=True, empty=True, start=0)
        left = world.budget._replace(disks=world.budget.disks - 1)
        return world._replace(brokers=put(world.brokers, one, broker), lost=lost, budget=left)

    def _losing(self, world: World, log: Log, keep: int) -> tuple[tuple[tuple[int, int], int], ...]:
        lost = dict(world.lost)
        for offset in range(keep, len(log)):
            record = (offset, log[offset])
            lost[record] = lost.get(record, 0) + 1
        return tuple(sorted(lost.items()))

    def _stopped(self, world: World, one: int) -> World:
        broker = world.brokers[one]
        flushed = len(broker.log) if self.rules.stop_flushes else broker.flushed
        broker = self._down(broker)._replace(flushed=flushed, clean=broker.life)
        return world._replace(brokers=put(world.brokers, one, broker))

    def _registered(self, world: World, one: int) -> tuple[Committed, ...]:
        """What may be committed when it starts again."""
        broker, now = world.brokers[one], world.committed
        clean = broker.clean == now.lives[one]
        if not self.rules.clean_epoch_checked:
            clean = broker.clean != NONE
        clean = clean or (self.rules.same_boot_is_clean and broker.same_boot)
        return self.controller.register(
            now, one, now.lives[one] + 1, clean=clean, lost=broker.empty
        )

    def _started(self, world: World, one: int, then: Committed) -> World:
        broker = world.brokers[one]
        broker = broker._replace(
            up=True,
            life=then.lives[one],
            chain=chain_of(broker.log),
            clean=NONE if self.rules.clean_file_ends else broker.clean,
            same_boot=True,
            hurt=False,
            empty=False,
        )
        world = self._commit(world._replace(brokers=put(world.brokers, one, broker)), then)
        return self._learned(world, one)

    # -- promises ---------------------------------------------------------------------------------

    def covers(self, world: World) -> bool:
        """Whether of no told record too many copies are lost; then all must hold."""
        if world.lost:
            lost = dict(world.lost)
            if any(
                lost.get((offset, epoch), 0) >= self.needed
                for offset, epoch in enumerate(world.told)
            ):
                return False
        self._hold(world)
        return True

    def _hold(self, world: World) -> None:
        now, told = world.committed, world.told
        if now.recovering and now.isr.bit_count() > 1:
            raise Broken(f"ISR {ids(now.isr)} while the leader recovers")
        if now.leader != NOBODY and not now.isr >> now.leader & 1:
            raise Broken(f"leader {now.leader} is not in ISR {ids(now.isr)}")
        if now.isr & ~now.active and (now.leader != NOBODY or self.rules.elr):
            raise Broken(f"ISR {ids(now.isr)}, and only {ids(now.active)} are active")
        for one, broker in enumerate(world.brokers):
            mark = broker.high_watermark
            if mark > len(broker.log):
                raise Broken(f"broker {one} has watermark {mark} above its end")
            # A follower truncates what an unclean election gave up when it next fetches.
            is_leader = broker.lead is not None and broker.epoch >= world.since
            is_bound = not world.pending and (world.since == 0 or is_leader)
            if is_bound and broker.log[:mark] != told[:mark]:
                raise Broken(
                    f"broker {one} has {broker.log[:mark]} below its watermark, not {told}"
                )
            if broker.epoch == now.leader_epoch and broker.lead and not world.pending:
                answers = mark >= broker.lead.start or not self.rules.answers_from_start
                if answers and mark < len(told):
                    raise Broken(f"leader {one} says the end is {mark}, {len(told)} was told")
            if epochs_by(broker.chain, len(broker.log)) != broker.log:
                raise Broken(f"broker {one} has {broker.log}, and chain {broker.chain}")
            is_member = (now.isr | now.elr) >> one & 1 and not broker.hurt and not world.pending
            if is_member and broker.start < world.deleted:
                raise Broken(f"member {one} begins at {broker.start}, below {world.deleted}")
            if is_member and broker.log[: len(told)] != told:
                kind = "ISR" if now.isr >> one & 1 else "ELR"
                raise Broken(f"{kind} member {one} has {broker.log}, {told} is committed")

    def is_fair(self, label: Label) -> bool:
        return label[0] in FAIR

    def rest(self, world: World) -> None:
        """Once faults are over all replicas come back in sync, and all is committed."""
        now = world.committed
        if now.leader == NOBODY:
            is_given_up = not (now.isr or now.elr) and (
                world.budget.disks < self.rules.disks or self.rules.last_known_leads is False
            )
            if not is_given_up:
                raise Broken("nobody leads, though all are there")
            return
        log = world.brokers[now.leader].log
        for one, broker in enumerate(world.brokers):
            if broker.log != log or broker.high_watermark != len(log):
                raise Broken(f"broker {one} rests with {broker.log}, its leader with {log}")
        if now.isr != now.active or now.recovering:
            raise Broken(f"ISR {ids(now.isr)} rests, active are {ids(now.active)}")

    # -- one state for many -----------------------------------------------------------------------

    def _canonical(self, world: World) -> World:
        """Partition epochs count by their order only; what nobody waits for is dropped."""
        now, requests, late = world.committed, world.requests, world.late
        if requests:
            if self.drops_dead_requests:
                requests = tuple(one for one in requests if self._matters(world, one))
            requests = tuple(sorted(requests))
        if late:
            late = tuple(sorted(one for one in late if self._may_be_heard(world, one)))
        used = {now.partition_epoch}
        for one in requests:
            used.add(one.partition_epoch)
        for broker in world.brokers:
            if broker.lead is not None:
                used.add(broker.lead.partition_epoch)
        brokers = world.brokers
        if max(used) >= len(used):
            rank = {epoch: index for index, epoch in enumerate(sorted(used))}
            now = now._replace(partition_epoch=rank[now.partition_epoch])
            requests = tuple(
                one._replace(partition_epoch=rank[one.partition_epoch]) for one in requests
            )
            brokers = tuple(
                broker
                if broker.lead is None or rank[broker.lead.partition_epoch] == broker.lead[0]
                else broker._replace(lead=_ranked(broker.lead, rank))
                for broker in brokers
            )
        elif requests == world.requests and late == world.late:
            return world
        return World(now, brokers, requests, late, *world[4:])

    def _may_be_heard(self, world: World, fetch: Late) -> bool:
        return world.brokers[fetch.to].epoch == fetch.epoch or not self.rules.fetch_checks_epoch

    def _matters(self, world: World, request: Request) -> bool:
        now = world.committed
        if (request.leader_epoch, request.partition_epoch) == (
            now.leader_epoch,
            now.partition_epoch,
        ):
            return True
        sender = world.brokers[request.sender]
        return (
            sender.lead is not None
            and sender.epoch == request.leader_epoch
            and sender.lead.asked == request[3:]
        )


def _ranked(lead: Lead, rank: dict[int, int]) -> Lead:
    """A proposal is for the partition epoch that its leader knows."""
    asked = lead.asked
    if asked is not None:
        asked = (*asked[:2], rank[lead.partition_epoch], asked[3])
    return lead._replace(partition_epoch=rank[lead.partition_epoch], asked=asked)


def _length(world: World, one: int) -> tuple[int, int]:
    """How much a log has, as elections compare it: last epoch, then end."""
    log = world.brokers[one].log
    return (log[-1] if log else 0, len(log))
