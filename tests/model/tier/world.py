"""A tiered partition of two replicas, the metadata topic and the store: steps and promises.

A step is what one process does at once; what may come late is a step of its own, or a budget.
README.md says what is excluded, and why nothing is hidden by it.
"""

from collections.abc import Callable, Iterator
from functools import partial

from tests.model.explore import Broken, Label
from tests.model.replication.chains import Log
from tests.model.tier import topic
from tests.model.tier.replica import Replica
from tests.model.tier.state import NONE, Broker, Budget, Record, Segment, Task, World, put

FAIR = frozenset(
    [
        "elect",
        "learn",
        "fetch",
        "bootstrap",
        "complete",
        "rename old",
        "rename new",
        "join",
        "barrier",
        "settle",
        "land",
        "copy",
        "put",
        "finish",
        "delete",
        "delete objects",
        "forget",
        "flush",
    ]
)

Made = Callable[[], World | None]
NAMES = "AB"


class Tiering(Replica):
    """The model: its start, its steps and its promises, under `rules`."""

    def start(self) -> World:
        """A leads and is settled, under the last epoch of its log; unclean if not the first."""
        rules = self.rules
        epoch = max((1, *rules.logs[0]))
        since = epoch if epoch > 1 else NONE
        view, objects = topic.EMPTY, []
        for uid, (first, index) in enumerate(rules.copied):
            segment = Segment(first, len(index) - 1, index)
            objects.append((uid, segment))
            for kind in "SF":
                view = topic.read(
                    view, Record(kind, uid, index[-1], 1, 0, NONE, segment), rules.fence
                )
        kind, uid, repeated = topic.newest(view)
        view = topic.read(view, Record(kind, uid, epoch, 1, NONE, since, repeated), rules.fence)
        ends = [len(log) for log in rules.logs]
        watermark = min(ends[one] for one in rules.in_sync)
        leader, follower = (
            Broker(epoch, one == 0, log, 0, rules.local_starts[one], min(watermark, ends[one]))
            for one, log in enumerate(rules.logs)
        )
        budget = Budget(*(getattr(rules, name) for name in Budget._fields))
        return World(
            leader=0,
            epoch=epoch,
            isr=rules.in_sync,
            brokers=(leader._replace(owner=2), follower),
            told=rules.logs[0][:watermark],
            since=since,
            is_open=False,
            answered=0,
            ordered=(),
            view=view,
            tail=(),
            durable=0,
            flight=(),
            objects=tuple(objects),
            reports=(),
            budget=budget,
        )

    def covers(self, world: World) -> bool:
        """All states within bounds, as long as all promises hold."""
        self._check(world)
        return True

    def is_fair(self, label: Label) -> bool:
        return label[0] in FAIR

    # -- what the tier of a broker does when it is gone

    def _tier_ended(self, world: World, one: int) -> World:
        broker = world.brokers[one]
        world = world._replace(budget=world.budget._replace(tiers=world.budget.tiers - 1))
        then = broker.incarnation + self.rules.new_incarnation
        return self._with(world, one, incarnation=then, owner=0, barrier=None, task=None)

    # -- steps ------------------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[tuple[Label, Made]]:
        """All that may happen next; each is made when it is called."""
        for label, make in self._steps(world):
            yield label, partial(self._bounded, make)

    def _bounded(self, make: Made) -> World | None:
        after = make()
        if after is None or after.epoch > self.rules.epochs:
            return None
        return self._settled_down(after)

    def _steps(self, world: World) -> Iterator[tuple[Label, Made]]:
        yield from self._controller_steps(world)
        for record in world.flight:
            name = (record.kind, record.id, f"{record.epoch}.{record.incarnation}")
            yield ("land", *name), partial(self._landed, world, record)
        for one, broker in enumerate(world.brokers):
            yield from self._log_steps(world, one, broker)
            yield from self._task_steps(world, one, broker)
            if broker.leads:
                yield from self._owner_steps(world, one, broker)
        yield from self._fault_steps(world)
        for report in world.reports:
            yield ("report arrives", NAMES[report.broker]), partial(self._arrived, world, report)

    def _fault_steps(self, world: World) -> Iterator[tuple[Label, Made]]:
        budget, tail = world.budget, world.tail
        for one, broker in enumerate(world.brokers):
            if budget.kills:
                yield ("kill", NAMES[one]), partial(self._killed, world, one)
            if budget.disks and one not in world.isr:
                yield ("new disk", NAMES[one]), partial(self._emptied, world, one)
            if budget.tiers and broker.leads and broker.owner:
                yield ("tier ends", NAMES[one]), partial(self._tier_ended, world, one)
        if not self.rules.flush_before_fetch and world.durable < len(tail):
            yield ("flush",), partial(world._replace, durable=len(tail))
        if budget.power_cuts and world.durable < len(tail):
            left = budget._replace(power_cuts=budget.power_cuts - 1)
            yield ("power cut",), partial(self._lost, world, world.durable, left)
        if budget.losses:
            left = budget._replace(losses=budget.losses - 1)
            for keep in range(len(tail)):
                yield ("topic loses", len(tail) - keep), partial(self._lost, world, keep, left)

    # -- the metadata topic -----------------------------------------------------------------------

    def _is_read(self, world: World, broker: Broker, record: Record) -> bool:
        behind = () if broker.position == NONE else world.tail[broker.position :]
        return record not in world.flight and record not in behind

    def _landed(self, world: World, record: Record) -> World:
        left = tuple(one for one in world.flight if one != record)
        return world._replace(flight=left, tail=(*world.tail, record))

    def _sent(self, world: World, record: Record) -> World:
        return world._replace(flight=tuple(sorted((*world.flight, record), key=repr)))

    def _lost(self, world: World, keep: int, budget: Budget) -> World | None:
        """Records that were read are gone; what that takes by itself is out of bounds."""
        rules = self.rules
        after = world._replace(tail=world.tail[:keep], durable=min(world.durable, keep))
        for one, broker in enumerate(world.brokers):
            copied = NONE if rules.forgotten_at_loss else broker.copied
            broker = broker._replace(owner=0, barrier=None, task=None, position=NONE, copied=copied)
            if broker.leads and broker.unvalidated == NONE:
                broker = broker._replace(unvalidated=len(broker.log))
            if not rules.asked_again:
                broker = broker._replace(seen=self._view(world))
            if rules.new_incarnation:
                broker = broker._replace(incarnation=broker.incarnation + 1)
            after = after._replace(brokers=put(after.brokers, one, broker))
        reports = () if rules.link_in_order else world.reports
        after = after._replace(budget=budget, reports=reports)
        if rules.flush_before_fetch:
            try:
                self._check(after)
            except Broken:
                return None
        return after

    def _settled_down(self, world: World) -> World:
        """The same state in its one form: what was read is acted on, what all read is folded."""
        world = self._answered(world)
        for one, broker in enumerate(world.brokers):
            unknown = self._unknown_below(broker)
            if unknown > 0 and any(broker.log[:unknown]):
                log = (0,) * unknown + broker.log[unknown:]
                world = self._with(world, one, log=log)
            if broker.task is not None and not broker.task.is_read:
                world = self._read_back(world, one, broker.task)
            if broker.position == len(world.tail):
                world = self._with(world, one, position=NONE)
        if not world.tail:
            return world
        if self.rules.flush_before_fetch and world.durable < len(world.tail):
            world = world._replace(durable=len(world.tail))
        return world if world.budget.losses else self._folded(world)

    def _unknown_below(self, broker: Broker) -> int:
        """Where the chain begins, and the local log: what lies below is not known any more."""
        rules, last = self.rules, broker.watermark - 1
        if not rules.keeps_last_epoch:
            last += 1
        if broker.unvalidated != NONE and rules.validated_as_taken_over:
            last = min(last, broker.unvalidated - 1)
        if broker.start >= broker.watermark:
            return min(broker.start, last)
        return min(broker.start, broker.local, last)

    def _folded(self, world: World) -> World:
        behind = [broker.position for broker in world.brokers if broker.position != NONE]
        fold = min([max(0, len(world.tail) - self.rules.lag), world.durable, *behind])
        if not fold:
            return world
        view = self._view(world, fold)
        for one, broker in enumerate(world.brokers):
            if broker.position != NONE:
                world = self._with(world, one, position=broker.position - fold)
        tail, durable = world.tail[fold:], world.durable - fold
        return world._replace(view=view, tail=tail, durable=durable)

    def _read_back(self, world: World, one: int, task: Task) -> World:
        record, broker = task.record, world.brokers[one]
        if not self._is_read(world, broker, record):
            return world
        state = topic.states(self._own(world, broker)).get(record.id)
        is_accepted = state == record.kind and record.kind in "SD"
        after = task._replace(is_read=True) if is_accepted else None
        return self._with(world, one, task=after)

    # -- the owner --------------------------------------------------------------------------------

    def _owner_steps(self, world: World, one: int, broker: Broker) -> Iterator[tuple[Label, Made]]:
        rules, name = self.rules, NAMES[one]
        pair = (broker.epoch, broker.incarnation)
        if broker.position != NONE:
            yield ("read", name), partial(self._with, world, one, position=NONE)
        own = self._own(world, broker)
        if topic.fence(own) > pair:
            return  # Another one owns it; a task may continue.
        if broker.owner == 0:
            first = len(world.tail) - rules.lag if broker.position == NONE else broker.position
            seen = set()
            for position in range(max(0, first), len(world.tail) + 1):
                record = self._barrier(world, broker, position)
                if record not in seen:
                    seen.add(record)
                    label = ("barrier", name, record.kind, record.id)
                    yield label, partial(self._barrier_sent, world, one, record)
        is_read = broker.barrier is None or self._is_read(world, broker, broker.barrier)
        if broker.owner == 1 and (is_read or not rules.barrier):
            yield ("settle", name), partial(self._settle, world, one)
        if broker.owner == 2:
            if broker.task is None:
                yield from self._new_tasks(world, one, broker, own)
            if world.budget.raises:
                through = topic.stored_through(own, *self._local(broker))
                for start in range(broker.start + 1, through + 2):
                    yield ("raise", name, start), partial(self._raised, world, one, start, "raises")

    @staticmethod
    def _local(broker: Broker) -> tuple[Log, int, int, int]:
        return broker.log, broker.start, broker.local, broker.watermark

    def _record(self, broker: Broker, world: World, kind: str, uid: int) -> Record:
        rules = self.rules
        start = broker.start if rules.carries_start else NONE
        unclean = world.since if broker.epoch >= world.since and rules.carries_unclean else NONE
        return Record(kind, uid, broker.epoch, broker.incarnation, start, unclean)

    def _barrier(self, world: World, broker: Broker, position: int) -> Record:
        kind, uid, segment = topic.newest(self._view(world, position))
        record = self._record(broker, world, kind, uid)
        return record._replace(start=NONE, segment=segment, is_barrier=True)

    def _barrier_sent(self, world: World, one: int, record: Record) -> World:
        if record.kind == "N" and not self.rules.barrier_if_empty:
            return self._with(world, one, owner=1, barrier=None)
        return self._sent(self._with(world, one, owner=1, barrier=record), record)

    def _settle(self, world: World, one: int) -> World:
        broker = world.brokers[one]
        own = self._own(world, broker)
        found = topic.settled(own, broker.epoch, *self._local(broker), broker.unvalidated)
        if isinstance(found, str):
            if self._has_lost(world) or world.epoch > broker.epoch:
                return world  # Red: that a record is gone, or another one leads.
            raise Broken(f"unhealthy without a fault: {found}")
        start = max(broker.start, found)
        world = self._with(world, one, owner=2, barrier=None, start=start, unvalidated=NONE)
        return world._replace(is_open=world.is_open and world.leader != one)

    def _new_tasks(
        self, world: World, one: int, broker: Broker, own: int
    ) -> Iterator[tuple[Label, Made]]:
        rules, name = self.rules, NAMES[one]
        closed = topic.closed_segments(len(broker.log), broker.local, rules.roll[one])
        found = topic.to_copy(own, *self._local(broker), rules.whole_segments, closed)
        if found is not None and rules.copies:
            used = {uid for uid, _ in world.objects} | set(topic.states(world.view))
            used |= {record.id for record in (*world.tail, *world.flight)}
            used |= {it.task.record.id for it in world.brokers if it.task is not None}
            free = [uid for uid in range(rules.segments) if uid not in used]
            span = f"{found.first}-{found.last}"
            if free:
                record = self._record(broker, world, "S", free[0])._replace(segment=found)
                yield ("copy", name, span, free[0]), partial(self._began, world, one, record)
            else:
                yield ("copy", name, span), lambda: None
        below = broker.start
        if rules.deletes_wait_for_isr and world.leader == one and len(world.isr) > 1:
            below = min(below, broker.known[1])
        elif rules.deletes_wait_for_isr and world.leader != one:
            below = min(below, broker.known[1])  # It holds its last ISR for true.
        doomed = topic.to_delete(own, *self._local(broker), rules.whole_segments, below)
        if doomed is None and not rules.keeps_off_chain:
            doomed = next(
                (
                    uid
                    for uid, it in topic.segments(own).items()
                    if not any(
                        holds_at(broker.log, it, offset) for offset in range(it.first, it.last + 1)
                    )
                ),
                None,
            )
        if doomed is not None:
            if topic.states(own)[doomed] == "D":
                record = self._record(broker, world, "D", doomed)
                task = Task(record, is_read=True)
                yield ("delete", name, doomed), partial(self._with, world, one, task=task)
            else:
                record = self._record(broker, world, "D", doomed)
                if rules.deletes_what_was_validated:
                    record = record._replace(validated=topic.states(own)[doomed])
                yield ("delete", name, doomed), partial(self._began, world, one, record)

    def _began(self, world: World, one: int, record: Record) -> World:
        is_read = record.kind == "S" and not self.rules.started_first
        is_read |= record.kind == "D" and not self.rules.deletes_in_topic_first
        return self._sent(self._with(world, one, task=Task(record, is_read)), record)

    def _task_steps(self, world: World, one: int, broker: Broker) -> Iterator[tuple[Label, Made]]:
        task, name = broker.task, NAMES[one]
        if task is None or not task.is_read:
            return
        uid, kind = task.record.id, task.record.kind
        has_objects = uid in dict(world.objects)
        if kind == "S" and not has_objects:
            yield ("put", name, uid), partial(self._put, world, one, task.record)
        if kind == "S" and (has_objects or not self.rules.finished_last):
            record = self._record(broker, world, "F", uid)
            yield ("finish", name, uid), partial(self._began, world, one, record)
        if kind == "D" and has_objects:
            left = tuple(it for it in world.objects if it[0] != uid)
            yield ("delete objects", name, uid), partial(world._replace, objects=left)
        if kind == "D" and not has_objects and not self._may_be_put(world, uid):
            record = self._record(broker, world, "X", uid)
            yield ("forget", name, uid), partial(self._began, world, one, record)

    def _may_be_put(self, world: World, uid: int) -> bool:
        """Whether the copy maximum of that uid has not passed yet."""
        tasks = [it.task.record for it in world.brokers if it.task is not None]
        return self.rules.deletes_wait_for_puts and any(
            record.id == uid and record.kind == "S" for record in tasks
        )

    def _put(self, world: World, one: int, record: Record) -> World:
        assert record.segment is not None
        objects = tuple(sorted((*world.objects, (record.id, record.segment))))
        return world._replace(objects=objects)

    # -- the promises -----------------------------------------------------------------------------

    def _check(self, world: World) -> None:
        """Raise `Broken` unless all promises hold."""
        view = self._view(world)
        stored, live = dict(world.objects), topic.states(view)
        finished = topic.segments(view)
        if not self._has_lost(world):
            for uid in stored:
                if uid not in live and not any(record.id == uid for record in world.flight):
                    raise Broken(f"objects of s{uid} are in the store, and nobody knows them")
            for uid in finished:
                if uid not in stored:
                    raise Broken(f"s{uid} is FINISHED, and its objects are gone")
        for one in world.isr:
            self._check_member(world, one, finished)
        leader = world.brokers[world.leader]
        if leader.leads and leader.owner == 2:
            for offset, epoch in enumerate(world.told[: leader.start]):
                if epoch and not any(by >= epoch and it > offset for by, it in world.ordered):
                    raise Broken(f"nobody ordered offset {offset} of epoch {epoch} away")

    def _check_member(self, world: World, one: int, finished: dict[int, Segment]) -> None:
        broker, name = world.brokers[one], NAMES[one]
        if broker.start < world.answered:
            raise Broken(f"{name} begins at {broker.start}, {world.answered} was answered")
        if len(broker.log) < len(world.told):
            raise Broken(f"{name} ends at {len(broker.log)}, below {len(world.told)}")
        for offset in range(broker.start, len(world.told)):
            epoch = world.told[offset]
            if broker.log[offset] != epoch:
                raise Broken(
                    f"{name} has offset {offset} of epoch {broker.log[offset]}, not {epoch}"
                )
            is_known = offset >= broker.local or world.is_open
            if not is_known and not any(topic.holds(it, epoch, offset) for it in finished.values()):
                raise Broken(f"{name} has offset {offset} of epoch {epoch} in no tier")

    def rest(self, world: World) -> None:
        """Nothing fair is left to do: all must be well."""
        view = self._view(world)
        leader, follower = world.brokers[world.leader], world.brokers[1 - world.leader]
        live, start = topic.states(view), max(leader.start, follower.start)
        if len(world.isr) < 2:
            raise Broken("at rest, and the follower is not in sync")
        if leader.log[start:] != follower.log[start:]:
            raise Broken("at rest, and the logs differ")
        if self._has_lost(world):
            return
        if leader.owner != 2:
            raise Broken("at rest, and the leader's tier is not ready")
        if set(live.values()) - {"F"}:
            raise Broken(f"at rest, and these remain: {live}")
        if set(live) != set(dict(world.objects)):
            raise Broken("at rest, and the store is not what is FINISHED")

    def _has_lost(self, world: World) -> bool:
        """The metadata topic lost records: what it no longer names is what that took."""
        rules, left = self.rules, world.budget
        return rules.losses > left.losses or rules.power_cuts > left.power_cuts


def holds_at(log: Log, segment: Segment, offset: int) -> bool:
    return log[offset : offset + 1] == (segment.index[offset],)
