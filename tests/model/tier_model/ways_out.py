"""What ends a red state: RestoreChain by the tier, and the operator's commands, taken some time."""

from tier_model.judgement import (
    Verdict,
    first_offset_never_given,
    judge,
    judged,
    reaches,
    rebuilt_chain,
)
from tier_model.leadership import elected
from tier_model.lineage import holds, named
from tier_model.state import GAP, NAMES, Broker, Epochs, Ownership, replaced
from tier_model.steps_work import with_order
from tier_model.turn import Me


def ways_out(me: Me) -> None:
    state, broker, setup = me.turn.state, me.broker, me.turn.setup
    if not me.leads or broker.ownership != Ownership.RED or broker.epoch != state.epoch:
        return
    if not me.caught_up or state.queues[me.number]:
        return
    verdict, _ = judge(setup, me.evidence())
    if verdict is Verdict.CHAIN:
        from_chain(me)
    elif verdict is Verdict.UNKNOWN and "unknown" in setup.ways:
        delete_records(me, broker.local_start)
    elif verdict is Verdict.HOLE and "hole" in setup.ways:
        delete_records(me, above_highest_hole(me))
    elif verdict is Verdict.END and "end" in setup.ways:
        adopt(me)


def done(me: Me, label: tuple, after: Broker, **changes: object) -> None:
    """The owner judges again; a command that changes nothing is no step."""
    turn, broker = me.turn, me.broker
    after = judged(turn.setup, me.evidence()._replace(broker=after))
    if after != broker:
        brokers = replaced(turn.state.brokers, me.number, after)
        turn.go(label, brokers=brokers, **changes)


def from_chain(me: Me) -> None:
    """The tier rebuilds the chain; else the operator names a segment, or gives records up."""
    state, broker, setup = me.turn.state, me.broker, me.turn.setup
    rebuilt = rebuilt_chain(setup, me.evidence(), state.objects)
    if rebuilt is not None:
        label = ("RestoreChain", me.name, rebuilt[0] or "whole")
        done(me, label, broker._replace(chain=rebuilt[0]))
        return
    right = broker.log[: broker.local_start]
    usable = [
        one
        for one in me.fold.finished
        if reaches(state.segments, one, broker.local_start)
        and state.objects >> one & 1
        and named(state.segments, one).index[: broker.local_start] == right
    ]
    if "named" in setup.ways and usable and broker.chain is not None:
        done(me, ("op-RestoreChain", me.name, usable[0]), broker._replace(chain=None))
    elif "chain" in setup.ways:
        delete_records(me, broker.local_start)


def delete_records(me: Me, start: int) -> None:
    """DeleteRecords, allowed while red; it must not be the only way while all records are there."""
    turn, state, broker = me.turn, me.turn.state, me.broker
    label = ("op-DeleteRecords", me.name, start)
    gone = [
        (epoch, offset)
        for offset, epoch in enumerate(broker.log[: broker.local_start])
        if offset >= broker.log_start
    ]
    if all(epoch > 0 and holds(state.segments, me.fold.finished, epoch, at) for epoch, at in gone):
        turn.alarm(label, "the only way out gives up records that are all there")
        return
    after = broker._replace(log_start=max(start, broker.log_start))
    done(me, label, after, ordered=with_order(state.ordered, state.epoch, start))


def above_highest_hole(me: Me) -> int:
    chain, offset = me.broker.believed(), me.broker.local_start
    segments, finished = me.turn.state.segments, me.fold.finished
    while offset > 0 and holds(segments, finished, chain[offset - 1], offset - 1):
        offset -= 1
    return offset


def adopt(me: Me) -> None:
    """Begin above the highest offset that is proved to have been given; between lies a gap."""
    state, setup, broker = me.turn.state, me.turn.setup, me.broker
    other = state.brokers[1 - me.number]
    has_more = len(other.log) > len(broker.log) and other.log[: len(broker.log)] == broker.log
    if setup.elect_whole and not setup.solo and has_more:
        number = 1 - me.number
        me.turn.go(("op-elect", NAMES[number]), **elected(me.turn, number))
        return
    unclean = me.evidence().unclean
    log = adopted_log(me, unclean)
    if setup.end_check == "finished":
        end = len(log)
    else:
        proof = me.turn.truth
        if setup.end_check != "any":
            proof = proof._replace(carried=())
        end = first_offset_never_given(proof, state.segments, unclean)
    keeps = setup.adopt_keeps and log == broker.log
    log += (GAP,) * (end - len(log))
    local_start = broker.local_start if keeps else len(log)
    chain = broker.chain if keeps else None
    after = broker._replace(log=log, local_start=local_start, chain=chain, led_from=len(log))
    done(me, ("op-adopt", me.name, len(log)), after)


def adopted_log(me: Me, unclean: int) -> Epochs:
    """The chain of the FINISHED segment that reaches highest, or the own log."""
    state = me.turn.state
    usable = [
        one
        for one in me.fold.finished
        if named(state.segments, one).epoch >= unclean and state.objects >> one & 1
    ]
    if not usable:
        return me.broker.log
    top = max(
        usable,
        key=lambda one: (named(state.segments, one).last, named(state.segments, one)[4:6]),
    )
    return named(state.segments, top).index
