"""Steps on the metadata topic: records land and are read, barriers, time-outs, losses."""

from typing import Any

from tier_model.judgement import judged
from tier_model.lineage import named
from tier_model.state import (
    DELETE_STARTED,
    EMPTY_BARRIER,
    FINISHED,
    NO_SEGMENT,
    STARTED,
    Broker,
    Ownership,
    State,
    replaced,
)
from tier_model.turn import Me, Turn


def topic(me: Me) -> None:
    """The next record of this tier's client lands; this tier reads."""
    turn, state, broker = me.turn, me.turn.state, me.broker
    queue = state.queues[me.number]
    if queue:
        turn.go(
            ("land", me.name),
            tail=(*state.tail, queue[0]),
            queues=replaced(state.queues, me.number, queue[1:]),
        )
    if me.caught_up or broker.ahead is not None:
        return
    end = len(state.tail)
    for to in range(broker.position + 1, end + 1) if turn.setup.read_one else (end,):
        count = (to - broker.position,) if turn.setup.read_one else ()
        after = turn.rules.read(state, broker, to)
        turn.go(("read", me.name, *count), brokers=replaced(state.brokers, me.number, after))


def taking_over(me: Me) -> None:
    """A barrier is sent; an owner below the fence gets a higher leader epoch."""
    turn, state, broker, setup = me.turn, me.turn.state, me.broker, me.turn.setup
    if me.low and broker.epoch == state.epoch:
        raise_leader_epoch(me, me.fold.highest[0] + 1)
    if not me.leads or broker.ownership != Ownership.NONE or broker.ahead is not None:
        return
    if state.queues[me.number] or me.low:
        return
    newest = newest_live(me)
    if not setup.barrier or (newest is None and not setup.empty_barrier):
        if me.caught_up:
            at_once = judged(setup, me.evidence())
            turn.go(("ready", me.name), brokers=replaced(state.brokers, me.number, at_once))
        return
    kind, one = newest or (EMPTY_BARRIER, NO_SEGMENT)
    turn.go(
        ("barrier", me.name, kind, one),
        brokers=me.changed(ownership=Ownership.BARRIER_SENT),
        queues=me.sends(me.record(kind, one)),
    )


def raise_leader_epoch(me: Me, epoch: int) -> None:
    me.turn.go(
        ("leader-epoch-raised", me.name, epoch),
        epoch=epoch,
        brokers=me.changed(
            epoch=epoch,
            ownership=Ownership.NONE,
            copying=None,
            deleting=(),
            copied_through=-1,
            led_from=len(me.broker.log),
        ),
        **me.turn.ghosts_with(me.number),
    )


def newest_live(me: Me) -> tuple[str, int] | None:
    """State and id of the live segment that reaches highest."""
    fold, segments = me.fold, me.turn.state.segments
    live = [
        (named(segments, one).last, one, kind)
        for kind, ids in (
            (STARTED, fold.started),
            (FINISHED, fold.finished),
            (DELETE_STARTED, fold.deleting),
        )
        for one in ids
    ]
    if not live:
        return None
    _, one, kind = max(live)
    return kind, one


def reports(me: Me) -> None:
    """The broker reports an unclean election as recovered."""
    turn, state, broker = me.turn, me.turn.state, me.broker
    if not state.recovering or broker.epoch != state.epoch:
        return
    if turn.setup.recovered_at == "election" or broker.ownership >= Ownership.READY:
        turn.go(("reports-recovered", me.name), recovering=0)


def timeouts(me: Me) -> None:
    """A stuck task gives up; any metadata write may time out, and its record flies on."""
    turn, state, broker, setup = me.turn, me.turn.state, me.broker, me.turn.setup
    if me.idle:
        stuck_tasks(me)
    if state.budget.timeouts and state.queues[me.number]:
        budget = state.budget.spend(timeouts=1)
        if setup.fresh_pair:
            ended = me.changed(**ended_incarnation(broker))
            turn.go(
                ("timeout", me.name),
                fair=False,
                brokers=ended,
                budget=budget,
                **turn.ghosts_with(me.number),
            )
        else:
            ready = broker.ownership == Ownership.READY
            kept = Ownership.READY if ready else Ownership.NONE
            dropped = me.changed(copying=None, deleting=(), ownership=kept)
            turn.go(("timeout", me.name), fair=False, brokers=dropped, budget=budget)
    refused = broker.ownership == Ownership.BARRIER_SENT and me.fold.highest != broker.pair()
    if me.leads and me.idle and refused and broker.epoch == state.epoch and not me.low:
        turn.go(("barrier-again", me.name), brokers=me.changed(ownership=Ownership.NONE))


def ended_incarnation(broker: Broker) -> dict[str, Any]:
    """The tier's next incarnation; numbers of A are odd, of B even."""
    return {
        "incarnation": broker.incarnation + 2,
        "ownership": Ownership.NONE,
        "copying": None,
        "deleting": (),
    }


def stuck_tasks(me: Me) -> None:
    turn, state, broker, fold = me.turn, me.turn.state, me.broker, me.fold
    if broker.copying:
        stage, one = broker.copying
        stored = (state.objects | state.puts) >> one & 1
        too_old = state.aged >> one & 1 and turn.setup.deadline_sent
        if (
            (stage == 1 and (one not in fold.started or too_old))
            or (stage == 2 and not stored)
            or (stage == 3 and one not in fold.finished)
        ):
            turn.go(("give-up-copy", me.name), brokers=me.changed(copying=None))
    for stage, one in broker.deleting:
        if (stage == 1) != (one in fold.deleting):
            left = tuple(sorted(set(broker.deleting) - {(stage, one)}))
            turn.go(("give-up-delete", me.name, one), brokers=me.changed(deleting=left))


def late_records(turn: Turn) -> None:
    """What dead writers had sent."""
    state = turn.state
    for number, queue in enumerate(state.ghosts):
        rest = state.ghosts[:number] + state.ghosts[number + 1 :]
        left = tuple(sorted((*rest, queue[1:]))) if queue[1:] else rest
        record = queue[0]
        turn.go(("late-land", record.kind, record.id), tail=(*state.tail, record), ghosts=left)
        if turn.setup.lost:
            turn.go(("late-lost",), fair=False, ghosts=rest)


def topic_losses(turn: Turn) -> None:
    """The metadata topic loses visible records, and grows on in a new epoch."""
    state, setup = turn.state, turn.setup
    if not state.budget.topic_losses or not state.tail:
        return
    if state.durable < len(state.tail):
        turn.go(("topic-durable",), fair=False, durable=len(state.tail))
    budget = state.budget.spend(topic_losses=1)
    for keep in range(0 if setup.cut_any else state.durable, len(state.tail)):
        brokers = tuple(after_loss(turn, number, keep) for number in (0, 1))
        late = {}
        if setup.rebarrier_next:
            flying = tuple(sorted(state.ghosts + tuple(one for one in state.queues if one)))
            late = {"queues": ((), ()), "ghosts": flying}
        turn.go(
            ("TOPIC-LOSES", len(state.tail) - keep),
            fair=False,
            tail=state.tail[:keep],
            brokers=brokers,
            budget=budget,
            **late,
        )


def after_loss(turn: Turn, number: int, keep: int) -> Broker:
    setup, broker = turn.setup, turn.state.brokers[number]
    if broker.position > keep:
        if setup.drop_ahead == "epoch":
            broker = broker._replace(position=keep)
        else:
            broker = broker._replace(ahead=turn.rules.cache(turn.state, number))
    if setup.rebarrier and broker.epoch and broker.ownership:
        broker = broker._replace(ownership=Ownership.NONE)
    after = broker._replace(copying=None, deleting=(), copied_through=-1)
    return after._replace(incarnation=after.incarnation + 2 * setup.rebarrier_next)


def caches_ahead(turn: Turn) -> None:
    """The mutants that go on at their old position once the topic has grown past it."""
    state: State = turn.state
    for number, broker in enumerate(state.brokers):
        if broker.ahead is None:
            continue
        name = "AB"[number]
        if broker.position <= len(state.tail):
            fold = turn.rules.fold(broker.ahead, state.tail[broker.position :])
            if fold != turn.truth:
                turn.alarm(("reads-on", name), f"readers differ: {name} holds {fold}")
                continue
            after = broker._replace(ahead=None, position=len(state.tail))
        elif turn.setup.drop_ahead == "end":
            after = broker._replace(ahead=None, position=min(broker.position, state.durable))
        else:
            continue
        turn.go(("reads-on", name), fair=False, brokers=replaced(state.brokers, number, after))
