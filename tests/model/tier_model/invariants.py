"""What must hold in every state."""

from collections.abc import Sequence

from tier_model.explore import Step
from tier_model.judgement import judge
from tier_model.lineage import holds, named
from tier_model.setup import Setup
from tier_model.state import Broker, Fold, Ownership, State
from tier_model.steps_work import is_ordered_away
from tier_model.turn import Rules


def broken(rules: Rules, state: State, steps: Sequence[Step]) -> str | None:
    """The first invariant that does not hold, in words."""
    if state.alarm:
        return state.alarm
    setup = rules.setup
    truth = rules.fold(state.base, state.tail)
    leader = state.brokers[state.leader]
    cut = state.budget.topic_losses < setup.topic_losses
    ready = leader.epoch == state.epoch and leader.ownership == Ownership.READY
    return (
        fence_is_missing(setup, state, truth)
        or (None if cut else store_disagrees(state, truth))
        or red_without_fault(rules, state, leader, cut=cut)
        or (wrong_log_start(setup, state, leader) if ready else None)
        or (unreadable(state, truth, leader) if ready else None)
        or (foreign_bytes(setup, state, truth, leader) if ready else None)
        or (None if any(step.fair for step in steps) else unsettled(rules, state, truth, cut=cut))
    )


def fence_is_missing(setup: Setup, state: State, truth: Fold) -> str | None:
    for broker in state.brokers:
        ready = broker.epoch == state.epoch and broker.ownership == Ownership.READY
        if ready and setup.check_fence and truth.fence < broker.pair():
            return "an owner is ready, but its fence is not in the topic"
    return None


def store_disagrees(state: State, truth: Fold) -> str | None:
    """After a cut-back topic neither can be demanded."""
    known = truth.known()
    for one in range(len(state.segments)):
        if state.objects >> one & 1 and one not in known:
            return f"leak: objects of s{one} lie in the store, no reader knows the id"
    for one in truth.finished:
        if not state.objects >> one & 1:
            return f"s{one} is FINISHED, its objects are gone"
    return None


def red_without_fault(rules: Rules, state: State, leader: Broker, *, cut: bool) -> str | None:
    setup = rules.setup
    faultless = state.budget.damages == setup.damages and not cut and not setup.tagless
    if setup.check_red and leader.ownership == Ownership.RED and faultless:
        return f"red without a fault: {why_red(rules, state)}"
    return None


def why_red(rules: Rules, state: State) -> str:
    leader = state.brokers[state.leader]
    fold = rules.cache(state, state.leader)
    return judge(rules.setup, rules.evidence(state, leader, fold))[0].value


def wrong_log_start(setup: Setup, state: State, leader: Broker) -> str | None:
    for offset, epoch in enumerate(leader.log[: leader.log_start]):
        if not is_ordered_away(state.ordered, epoch, offset):
            return (
                f"log start rose to {leader.log_start}, nobody ordered offset {offset} "
                f"(epoch {epoch}) away"
            )
    if setup.check_answered and leader.log_start < max(state.ordered):
        return f"log start is {leader.log_start} again, {max(state.ordered)} had been answered"
    return None


def unreadable(state: State, truth: Fold, leader: Broker) -> str | None:
    """Each offset below the local start is FINISHED, and looked up under its true epoch."""
    chain = leader.believed()
    for offset in range(leader.log_start, min(leader.local_start, len(leader.log))):
        epoch = leader.log[offset]
        if not holds(state.segments, truth.finished, epoch, offset):
            return (
                f"green, yet offset {offset} (epoch {epoch}) is in no tier; log start "
                f"{leader.log_start}, local start {leader.local_start}"
            )
        if chain[offset] != epoch:
            return (
                f"green, yet offset {offset} of epoch {epoch} is looked up under epoch "
                f"{chain[offset]}"
            )
    return None


def foreign_bytes(setup: Setup, state: State, truth: Fold, leader: Broker) -> str | None:
    """Whatever segment the look-up chooses; only the mutants of the look-up can fail."""
    if setup.lookup_epoch and setup.cut_regions:
        return None
    log = leader.log
    for offset in range(leader.log_start, min(leader.local_start, len(log))):
        for one in truth.finished:
            segment = named(state.segments, one)
            if not segment.first <= offset <= segment.last:
                continue
            right = segment.epochs[offset - segment.first] == log[offset]
            if not right and not setup.lookup_epoch:
                return f"a read of offset {offset} is served by s{one} of another lineage"
            rest = range(offset, min(segment.last + 1, len(log)))
            runs_on = any(segment.epochs[at - segment.first] != log[at] for at in rest)
            if right and runs_on and not setup.cut_regions:
                return f"a read of offset {offset} runs on into another lineage in s{one}"
    return None


def unsettled(rules: Rules, state: State, truth: Fold, *, cut: bool) -> str | None:
    """Nothing fair is left to do; a cache ahead of the topic waits for more records."""
    setup, leader = rules.setup, state.brokers[state.leader]
    if any(broker.ahead is not None for broker in state.brokers):
        return None
    if leader.epoch == state.epoch and leader.ownership == Ownership.READY:
        starved = len(state.segments) >= setup.ids and truth.started and setup.recopy_first
        if (truth.started or truth.deleting) and not starved:
            return (
                f"at rest, yet STARTED {truth.started} or DELETE_STARTED {truth.deleting} "
                "remain for ever"
            )
        if not cut and state.objects != sum(1 << one for one in truth.finished):
            return f"at rest, store {state.objects:b} is not FINISHED {truth.finished}"
        return None
    if leader.ownership == Ownership.RED:
        return f"at rest and red for ever: {why_red(rules, state)}"
    return "at rest, yet the leader never became ready"
