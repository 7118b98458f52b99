"""An owner's work and the store: copy, delete, expire, raise the log start, append; PUTs land."""

from typing import Any

from tier_model.judgement import Verdict, first_offset_never_given, judge
from tier_model.lineage import (
    closed_segments,
    copied_through,
    holds,
    named,
    next_to_copy,
    to_delete,
)
from tier_model.state import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    NO_EPOCH,
    STARTED,
    Fold,
    Ownership,
    State,
    replaced,
)
from tier_model.steps_topic import ended_incarnation
from tier_model.turn import Me, Turn


def unassigned(me: Me) -> dict[str, Any]:
    return {} if me.leads else {"alarm": "a plugin call after Unassign was answered"}


def copies(me: Me) -> None:
    """STARTED, the objects, FINISHED."""
    turn, state, broker, setup = me.turn, me.turn.state, me.broker, me.turn.setup
    may = me.acts or broker.ownership == Ownership.PROVISIONAL
    if may and broker.copying is None and broker.ahead is None and len(state.segments) < setup.ids:
        wanted = next_to_copy(
            setup, setup.roll[me.number], state.segments, me.fold.finished, broker
        )
        if wanted:
            one = len(state.segments)
            turn.go(
                ("copy-STARTED", me.name, f"s{one}[{wanted[0]}..{wanted[1]}]"),
                segments=(*state.segments, me.segment(*wanted)),
                brokers=me.changed(copying=(1, one)),
                queues=me.sends(me.record(STARTED, one)),
            )
    if broker.copying is None:
        return
    stage, one = broker.copying
    bit = 1 << one
    started = one in me.fold.started or not setup.started_first
    if stage == 1 and started and not (state.aged & bit and setup.deadline_sent):
        changes = {"puts": state.puts | bit, "brokers": me.changed(copying=(2, one))}
        turn.go(("put", me.name, one), **changes | unassigned(me))
    elif stage == 2 and state.objects & bit:
        turn.go(
            ("copy-FINISHED", me.name, one),
            queues=me.sends(me.record(FINISHED, one)),
            brokers=me.changed(copying=(3, one)),
        )


def deletions(me: Me) -> None:
    """DELETE_STARTED, the objects, DELETE_FINISHED."""
    turn, state, broker, setup = me.turn, me.turn.state, me.broker, me.turn.setup
    if me.acts and len(broker.deleting) < setup.deletions and broker.ahead is None:
        busy = {one for _, one in broker.deleting}
        for one, why in to_delete(setup, me.number, broker, me.fold, state.segments, state.aged):
            if one in busy:
                continue
            brokers = me.changed(deleting=tuple(sorted((*broker.deleting, (1, one)))))
            if why == "resume":
                turn.go(("delete-resume", me.name, one), brokers=brokers)
            else:
                queues = me.sends(me.record(DELETE_STARTED, one))
                turn.go(("delete-STARTED", me.name, one, why), brokers=brokers, queues=queues)
    for stage, one in broker.deleting:
        bit = 1 << one
        started = one in me.fold.deleting or not setup.deleted_first
        if stage != 1 or not started or not (state.aged & bit or not setup.aged_first):
            continue
        if state.objects & bit and is_last_copy(state, turn.truth, one):
            alarm = f"the last copy of s{one} is deleted, nobody ordered it"
            turn.alarm(("delete-objects", me.name, one), alarm)
            continue
        left = tuple(sorted(set(broker.deleting) - {(1, one)} | {(2, one)}))
        changes = {
            "objects": state.objects & ~bit,
            "queues": me.sends(me.record(DELETE_FINISHED, one)),
            "brokers": me.changed(deleting=left),
        }
        turn.go(("delete-objects+FINISHED", me.name, one), **changes | unassigned(me))


def is_last_copy(state: State, truth: Fold, one: int) -> bool:
    """Is a record of some broker's log in it that nothing else holds and nobody ordered away?"""
    others = [other for other in truth.finished if other != one and state.objects >> other & 1]
    for epoch, offset in named(state.segments, one).records():
        owners = [w for w in state.brokers if w.log[offset : offset + 1] == (epoch,)]
        if not owners or any(offset >= owner.local_start for owner in owners):
            continue
        if not is_ordered_away(state.ordered, epoch, offset) and not holds(
            state.segments, others, epoch, offset
        ):
            return True
    return False


def is_ordered_away(ordered: tuple[int, ...], epoch: int, offset: int) -> bool:
    """By retention or DeleteRecords of a leader whose epoch is not below the record's."""
    return any(start > offset for start in ordered[max(epoch, 0) :])


def with_order(ordered: tuple[int, ...], epoch: int, start: int) -> tuple[int, ...]:
    return replaced(ordered, epoch, max(ordered[epoch], start))


def expiry(me: Me) -> None:
    """CopiedThrough reaches the broker; local segments go; the log start rises."""
    turn, state, broker, setup = me.turn, me.turn.state, me.broker, me.turn.setup
    if setup.expire[me.number]:
        through = broker.copied_through
        red = setup.red_expires and broker.ownership == Ownership.RED
        if (me.acts or not me.leads or red) and broker.ahead is None:
            now = copied_through(setup, state.segments, done_ids(me), broker)
            if not setup.split:
                through = max(through, now)
            elif now > through:
                turn.go(
                    ("CopiedThrough", me.name, now),
                    fair=False,
                    brokers=me.changed(copied_through=now),
                )
        expire_first_segment(me, through)
    if not (me.leads and me.acts and state.budget.raises):
        return
    for start in setup.raise_to:
        if broker.log_start < start <= len(broker.log):
            raised = me.changed(log_start=start)
            if setup.raise_all:
                other = raised[1 - me.number]
                other = other._replace(log_start=max(start, other.log_start))
                raised = replaced(raised, 1 - me.number, other)
            turn.go(
                ("raise-log-start", me.name, start),
                fair=False,
                brokers=raised,
                ordered=with_order(state.ordered, broker.epoch, start),
                budget=state.budget.spend(raises=1),
            )


def done_ids(me: Me) -> tuple[int, ...]:
    """FINISHED ids; the mutant counts the one whose FINISHED is still on its way."""
    finished, copying = me.fold.finished, me.broker.copying
    early = not me.turn.setup.copied_through_durable
    if early and copying and copying[0] == 3 and copying[1] not in finished:
        return (*finished, copying[1])
    return finished


def expire_first_segment(me: Me, through: int) -> None:
    turn, broker, setup = me.turn, me.broker, me.turn.setup
    for first, last in closed_segments(setup.roll[me.number], broker.log, broker.local_start)[:1]:
        if last <= through or last < broker.log_start:
            after: dict[str, Any] = {"local_start": last + 1}
            if not setup.chain_kept:
                after["chain"] = (NO_EPOCH,) * (last + 1)
            turn.go(
                ("expire-local", me.name, f"[{first}..{last}]"),
                fair=False,
                brokers=me.changed(**after),
            )


def appends(me: Me) -> None:
    """The leader gives the next offset."""
    turn, state, broker, setup = me.turn, me.turn.state, me.broker, me.turn.setup
    if not setup.late or me.number != state.leader or broker.epoch != state.epoch:
        return
    if len(broker.log) >= setup.late[state.epoch]:
        return
    if broker.ownership < Ownership.READY:
        opened = not setup.produce_waits
    else:
        lost = broker.ownership == Ownership.RED
        opened = not lost or judge(setup, me.evidence())[0] is not Verdict.END
    if not opened:
        return
    if len(broker.log) < first_offset_never_given(turn.truth, state.segments, state.unclean):
        alarm = f"offset {len(broker.log)} is given again, health not red"
        turn.alarm(("append", me.name), alarm)
    else:
        log = (*broker.log, state.epoch)
        turn.go(("append", me.name), fair=False, brokers=me.changed(log=log))


def store(turn: Turn) -> None:
    """PUTs land, or land and a retry still flies; the copy maximum passes."""
    state = turn.state
    for one, segment in enumerate(state.segments):
        bit = 1 << one
        if state.puts & bit:
            landed = state.objects | bit
            turn.go(("put-lands", one), puts=state.puts & ~bit, objects=landed)
            if state.budget.retried_puts and not state.objects & bit:
                budget = state.budget.spend(retried_puts=1)
                turn.go(("put-lands-retry-left", one), fair=False, objects=landed, budget=budget)
        waiting = one in turn.truth.started or one in turn.truth.deleting
        if segment is not None and waiting and not state.aged & bit:
            copy_maximum_passes(turn, one)


def copy_maximum_passes(turn: Turn, one: int) -> None:
    """From here on no PUT of the id can land; a live copy that is so slow is a fault."""
    state, bit, setup = turn.state, 1 << one, turn.setup
    segment = named(state.segments, one)
    number = segment.copier
    writer = state.brokers[number]
    alive = writer.incarnation == segment.incarnation
    aged = state.aged | bit
    copying = writer.copying
    if not (alive and copying and copying[1] == one and copying[0] < 3):
        spared = state.puts & bit if alive and not setup.killed else 0
        turn.go(("copy-max-passes", one), aged=aged, puts=(state.puts & ~bit) | spared)
        return
    if not state.budget.timeouts:
        return
    budget = state.budget.spend(timeouts=1)
    if copying[0] == 1:
        label = ("copy-max-passes-before-put", one)
        turn.go(label, fair=False, aged=aged, budget=budget)
    elif setup.killed:
        ended = writer._replace(**ended_incarnation(writer))
        turn.go(
            ("copy-max-passes-TIER-ENDS", one),
            fair=False,
            aged=aged,
            puts=state.puts & ~bit,
            budget=budget,
            brokers=replaced(state.brokers, number, ended),
            **turn.ghosts_with(number),
        )
    else:
        left = replaced(state.brokers, number, writer._replace(copying=None))
        label = ("copy-max-passes-thread-left", one)
        turn.go(label, fair=False, aged=aged, budget=budget, brokers=left)
