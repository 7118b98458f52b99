"""The two logs: who leads, how they follow, what they drop, and how a follower begins again."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.model.explore import Broken, Label
from tests.model.tier import topic
from tests.model.tier.rules import Rules
from tests.model.tier.state import NONE, Beside, Broker, Report, Segment, World, put

Made = Callable[[], World | None]
NAMES = "AB"
FOLLOWS: dict[str, Any] = {
    "leads": False,
    "begun": 0,
    "unvalidated": NONE,
    "known": (NONE, NONE),
    "incarnation": 1,
    "owner": 0,
    "barrier": None,
    "task": None,
    "position": NONE,
}
"""What a broker holds of a role that is over."""


class Replica:
    """Steps of logs and their leadership."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def _view(self, world: World, position: int = NONE) -> int:
        """What the metadata topic comes to, up to its end or a position in its tail."""
        rules, view = self.rules, world.view
        for record in world.tail if position == NONE else world.tail[:position]:
            view = topic.read(view, record, rules.fence, not rules.barrier_adds_none)
        return view

    def _own(self, world: World, broker: Broker) -> int:
        return self._view(world, broker.position)

    @staticmethod
    def _with(world: World, one: int, **changes: Any) -> World:
        broker = world.brokers[one]._replace(**changes)
        return world._replace(brokers=put(world.brokers, one, broker))

    # -- the controller ---------------------------------------------------------------------------

    def _controller_steps(self, world: World) -> Iterator[tuple[Label, Made]]:
        budget, leader = world.budget, world.brokers[world.leader]
        for one in (0, 1):
            if one in world.isr and not leader.leads:
                yield ("elect", NAMES[one]), partial(self._elected, world, one)
            elif one in world.isr and one != world.leader and budget.moves:
                left = world._replace(budget=budget._replace(moves=budget.moves - 1))
                yield ("move", NAMES[one]), partial(self._elected, left, one)
            elif one not in world.isr and budget.unclean and self._has_something(world, one):
                left = world._replace(budget=budget._replace(unclean=budget.unclean - 1))
                yield ("elect uncleanly", NAMES[one]), partial(self._elected_uncleanly, left, one)
        for one, broker in enumerate(world.brokers):
            if one != world.leader and broker.epoch < world.epoch:
                yield ("learn", NAMES[one]), partial(self._learned, world, one)
        if leader.leads:
            yield from self._isr_steps(world, leader)

    def _has_something(self, world: World, one: int) -> bool:
        """An uncleanly elected replica with nothing in either tier is unhealthy by intent."""
        broker = self._swapped_if_begun(world, one).brokers[one]
        return len(broker.log) > broker.start or any(broker.log[-1:])

    def _isr_steps(self, world: World, leader: Broker) -> Iterator[tuple[Label, Made]]:
        one, other, budget = world.leader, 1 - world.leader, world.budget
        if other in world.isr and budget.shrinks:
            left = budget._replace(shrinks=budget.shrinks - 1)
            alone = world._replace(isr=(one,), budget=left)
            yield ("leave", NAMES[other]), partial(self._led, alone)
        end, start = leader.known
        has_start = start >= leader.start or not self.rules.joins_by_start
        has_end = end >= max(leader.watermark, leader.begun)
        is_there = world.brokers[other].epoch == world.epoch
        if other not in world.isr and has_start and has_end and is_there and not world.is_open:
            both = world._replace(isr=(0, 1))
            yield ("join", NAMES[other]), partial(self._led, both)

    def _elected(self, world: World, one: int) -> World:
        old = world.leader
        if world.brokers[old].leads and old != one:
            world = self._with(world, old, position=self._here(world, old))
        world = self._in_new_epoch(world, one, world.epoch + 1)
        log = world.brokers[one].log
        world = self._with(world, one, leads=True, begun=len(log), unvalidated=len(log))
        return self._led(world._replace(leader=one, epoch=world.epoch + 1))

    @staticmethod
    def _here(world: World, one: int) -> int:
        position = world.brokers[one].position
        return len(world.tail) if position == NONE else position

    def _elected_uncleanly(self, world: World, one: int) -> World:
        """What it has is what counts from now on."""
        world = self._swapped_if_begun(world, one)
        broker = world.brokers[one]
        world = world._replace(
            isr=(one,),
            told=broker.log[: min(len(broker.log), len(world.told))],
            since=world.epoch + 1,
            is_open=True,
            answered=min(world.answered, broker.start),
        )
        return self._elected(world, one)

    def _learned(self, world: World, one: int) -> World:
        world = self._swapped_if_begun(world, one)
        return self._in_new_epoch(world, one, world.epoch)

    def _in_new_epoch(self, world: World, one: int, epoch: int) -> World:
        rules, broker = self.rules, world.brokers[one]
        copied = NONE if rules.forgotten_at_epoch else broker.copied
        stays = not rules.ends_with_epoch or not rules.start_looks_at_old
        beside = broker.beside if stays else None
        return self._with(world, one, **FOLLOWS, epoch=epoch, copied=copied, beside=beside)

    def _killed(self, world: World, one: int) -> World:
        """It ends, and starts at once; its image comes later."""
        world = world._replace(budget=world.budget._replace(kills=world.budget.kills - 1))
        beside = world.brokers[one].beside
        if beside is not None and (beside.is_old_gone or not self.rules.start_looks_at_old):
            if not beside.is_complete:
                half = beside._replace(snapshot=NONE)
                world = self._with(world, one, beside=half)
            world = self._swapped(world, one)
        return self._ended(world, one)

    def _emptied(self, world: World, one: int) -> World:
        world = world._replace(budget=world.budget._replace(disks=world.budget.disks - 1))
        empty = {"log": (), "start": 0, "local": 0, "watermark": 0}
        return self._ended(self._with(world, one, **empty), one)

    def _ended(self, world: World, one: int) -> World:
        """What its leader knows is of a life that is over."""
        world = self._with(world, world.leader, known=(NONE, NONE))
        return self._with(world, one, **FOLLOWS, epoch=0, copied=NONE, beside=None)

    def _led(self, world: World) -> World:
        """The leader's high watermark, moved as far as it may."""
        one, leader = world.leader, world.brokers[world.leader]
        end = len(leader.log)
        if len(world.isr) > 1:
            end = min(end, leader.known[0])
        if end <= leader.watermark:
            end = leader.watermark
        world = self._with(world, one, watermark=end)
        return world._replace(told=world.told + leader.log[len(world.told) : end])

    def _answered(self, world: World) -> World:
        leader = world.brokers[world.leader]
        if not leader.leads:
            return world
        is_alone = len(world.isr) == 1 or not self.rules.answered_by_all
        if is_alone or leader.known[1] >= leader.start:
            return world._replace(answered=max(world.answered, leader.start))
        return world

    # -- one log ----------------------------------------------------------------------------------

    def _log_steps(self, world: World, one: int, broker: Broker) -> Iterator[tuple[Label, Made]]:
        rules, name, budget = self.rules, NAMES[one], world.budget
        end = len(broker.log)
        if broker.leads and end < rules.records:
            yield ("append", name), partial(self._appended, world, one)
        if broker.leads and world.leader == one and budget.deletes:
            for start in range(broker.start + 1, broker.watermark + 1):
                label = ("delete records", name, start)
                yield label, partial(self._raised, world, one, start, "deletes")
        is_whole = broker.beside is None or not broker.beside.is_old_gone
        if rules.expires[one] and is_whole:
            closed = topic.closed_segments(end, broker.local, rules.roll[one])
            if topic.to_expire(
                end, broker.start, broker.local, broker.watermark, broker.copied, closed
            ):
                yield ("expire", name), partial(self._with, world, one, local=[*closed, end][1])
        if broker.owner == 2 or (broker.epoch and not broker.leads and is_whole):
            yield from self._report_steps(world, one, broker)
        if one != world.leader and broker.epoch == world.epoch:
            yield from self._follower_steps(world, one, broker)

    def _appended(self, world: World, one: int) -> World:
        broker = world.brokers[one]
        world = self._with(world, one, log=(*broker.log, broker.epoch))
        return self._led(world) if world.leader == one else world

    def _raised(self, world: World, one: int, start: int, why: str) -> World:
        broker, budget = world.brokers[one], world.budget
        orders = dict(world.ordered)
        orders[broker.epoch] = max(start, orders.get(broker.epoch, 0))
        left = budget._replace(**{why: getattr(budget, why) - 1})
        world = world._replace(ordered=tuple(sorted(orders.items())), budget=left)
        return self._with(world, one, start=start)

    # -- CopiedThrough ----------------------------------------------------------------------------

    def _report_steps(self, world: World, one: int, broker: Broker) -> Iterator[tuple[Label, Made]]:
        if not self.rules.expires[one]:
            return
        views = {self._own(world, broker)}
        if not broker.leads and not self.rules.asked_again:
            views |= {self._view(world, position) for position in range(len(world.tail))}
            views |= {broker.seen} - {NONE}
        for offset, epoch in {self._copied(view, broker) for view in views} - {None}:
            report = Report(one, broker.epoch, offset, epoch)
            if offset != broker.copied:
                yield ("report", NAMES[one], offset), partial(self._taken, world, report)
            if world.budget.late_reports and report not in world.reports:
                left = world.budget._replace(late_reports=world.budget.late_reports - 1)
                reports = tuple(sorted((*world.reports, report)))
                label = ("report sent", NAMES[one], offset)
                yield label, partial(world._replace, reports=reports, budget=left)

    def _copied(self, view: int, broker: Broker) -> tuple[int, int] | None:
        rules, log = self.rules, broker.log
        watermark = broker.watermark if rules.below_own_watermark else len(log)
        if rules.by_epoch and rules.a_run:
            return topic.copied_through(
                view, log, broker.start, broker.local, watermark, rules.whole_segments
            )
        found = [
            (offset, log[offset])
            for it in topic.segments(view).values()
            for offset in range(max(it.first, broker.start), min(it.last + 1, watermark))
            if not rules.by_epoch or topic.holds(it, log[offset], offset)
        ]
        return max(found, default=None)

    def _taken(self, world: World, report: Report) -> World:
        rules, broker = self.rules, world.brokers[report.broker]
        is_other = broker.log[report.offset : report.offset + 1] != (report.offset_epoch,)
        if rules.report_names_epoch and report.epoch != broker.epoch:
            return world
        if is_other and rules.report_fits_chain and rules.by_epoch:
            return world
        return self._with(world, report.broker, copied=report.offset)

    def _arrived(self, world: World, report: Report) -> World:
        left = tuple(it for it in world.reports if it != report)
        return self._taken(world._replace(reports=left), report)

    # -- following --------------------------------------------------------------------------------

    def _follower_steps(
        self, world: World, one: int, broker: Broker
    ) -> Iterator[tuple[Label, Made]]:
        name, leader = NAMES[one], world.brokers[world.leader]
        if broker.beside is not None and (
            broker.beside.epoch == broker.epoch or not self.rules.ends_with_epoch
        ):
            yield from self._beside_steps(world, one, broker.beside)
            return
        if not leader.leads:
            return
        end, cut = len(broker.log), self._divergence(broker, leader)
        is_below = end < max(leader.local, leader.start)
        is_cut_below = broker.start < broker.local and cut < min(broker.local, end)
        if is_below or (is_cut_below and self.rules.cut_below_local_is_bootstrap):
            yield from self._bootstrap_steps(world, one, leader)
        elif cut < end:
            yield ("fetch", name), partial(self._truncated, world, one, cut)
        else:
            yield ("fetch", name), partial(self._fetched, world, one)

    @staticmethod
    def _divergence(broker: Broker, leader: Broker) -> int:
        """The first offset that the leader does not have, or has of another epoch.

        The chain keeps the epoch of the last committed record, also where that was deleted.
        """
        end = min(len(broker.log), len(leader.log))
        first = max(0, min(max(broker.start, leader.start), len(broker.log)) - 1)
        pairs = zip(broker.log[first:end], leader.log[first:end], strict=True)
        return next((first + at for at, (own, its) in enumerate(pairs) if 0 < own != its > 0), end)

    def _truncated(self, world: World, one: int, cut: int) -> World:
        rules, broker = self.rules, world.brokers[one]
        is_other = cut < broker.start or not any(broker.log[cut - 1 : cut])
        if rules.start_falls and cut <= broker.start and is_other:
            begin = world.brokers[world.leader].start
            empty = {"log": (0,) * begin, "start": begin, "local": begin, "watermark": begin}
            return self._with(world, one, **empty, copied=NONE)
        if broker.start < cut < broker.local:
            raise Broken(f"{NAMES[one]} begins at {cut}, and no producers are as of there")
        return self._with(
            world,
            one,
            log=broker.log[:cut],
            local=min(broker.local, cut),
            watermark=min(broker.watermark, cut),
            copied=min(broker.copied, cut - 1) if rules.cut_at_truncation else broker.copied,
        )

    def _fetched(self, world: World, one: int) -> World:
        broker = world.brokers[one]
        world = self._with(world, world.leader, known=(len(broker.log), broker.start))
        world = self._led(world)
        leader, at = world.brokers[world.leader], len(broker.log)
        log = broker.log + leader.log[at : at + 1]
        return self._with(
            world,
            one,
            log=log,
            start=max(broker.start, min(leader.start, len(log))),
            watermark=min(leader.watermark, len(log)),
        )

    # -- bootstrap --------------------------------------------------------------------------------

    def _bootstrap_steps(
        self, world: World, one: int, leader: Broker
    ) -> Iterator[tuple[Label, Made]]:
        rules, name, stored = self.rules, NAMES[one], dict(world.objects)
        if leader.local <= leader.start:
            log = (0,) * leader.start
            beside = Beside(leader.epoch, log, leader.start, NONE)
            yield ("bootstrap", name), partial(self._with, world, one, beside=beside)
            return
        last = leader.local - 1
        for uid, segment in topic.segments(self._view(world)).items():
            if uid not in stored or not topic.holds(segment, leader.log[last], last):
                continue
            end, index = segment.last, stored[uid].index
            is_whole = leader.log[end : end + 1] == index[end:] or not rules.whole_on_chain
            if is_whole and (0 not in index[leader.start :] or not rules.index_reaches_start):
                beside = self._built(leader, stored[uid])
                yield ("bootstrap", name, uid), partial(self._with, world, one, beside=beside)

    def _built(self, leader: Broker, segment: Segment) -> Beside:
        rules = self.rules
        begin = segment.last + 1 if rules.begins_behind_segment else leader.local
        log = segment.index[:begin]
        unknown = leader.start if rules.restores_chain else begin
        log = (0,) * unknown + log[unknown:]
        start = leader.start if rules.takes_start else begin
        return Beside(leader.epoch, log, start, segment.last + 1)

    def _beside_steps(self, world: World, one: int, beside: Beside) -> Iterator[tuple[Label, Made]]:
        name = NAMES[one]
        complete = beside._replace(is_complete=True)
        gone = beside._replace(is_old_gone=True)
        if not beside.is_complete:
            yield ("complete", name), partial(self._with, world, one, beside=complete)
        if not beside.is_old_gone and (beside.is_complete or not self.rules.complete_first):
            yield ("rename old", name), partial(self._with, world, one, beside=gone)
        if beside.is_old_gone and beside.is_complete:
            yield ("rename new", name), partial(self._swapped, world, one)

    def _swapped_if_begun(self, world: World, one: int) -> World:
        """The two renames are one call: a new role waits for it."""
        beside = world.brokers[one].beside
        is_begun = beside is not None and beside.is_old_gone
        return self._swapped(world, one) if is_begun else world

    def _swapped(self, world: World, one: int) -> World:
        beside = world.brokers[one].beside
        assert beside is not None
        begin = len(beside.log)
        if begin > beside.start and beside.snapshot != begin:
            raise Broken(
                f"{NAMES[one]} begins at {begin}, its producers are as of {beside.snapshot}"
            )
        return self._with(
            world,
            one,
            log=beside.log,
            start=beside.start,
            local=begin,
            watermark=begin if self.rules.end_is_committed else 0,
            copied=NONE,
            beside=None,
        )
