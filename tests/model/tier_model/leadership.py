"""Tiers that die, elections, leaders that step down, followers that follow."""

from typing import Any

from tier_model.lineage import named
from tier_model.setup import Setup
from tier_model.state import GAP, Broker, Ownership, replaced
from tier_model.steps_topic import ended_incarnation
from tier_model.turn import Me, Turn


def faults(me: Me) -> None:
    """The tier is killed; this broker is elected."""
    turn, state, broker = me.turn, me.turn.state, me.broker
    if state.budget.tier_deaths:
        dead = me.changed(copied_through=-1, **ended_incarnation(broker))
        turn.go(
            ("kill-tier", me.name),
            fair=False,
            brokers=dead,
            budget=state.budget.spend(tier_deaths=1),
            **turn.ghosts_with(me.number),
        )
    if not state.budget.elections:
        return
    clean = broker.log == state.brokers[state.leader].log
    if clean or state.budget.unclean_elections:
        changes = elected(turn, me.number, clean=clean)
        budget = state.budget.spend(elections=1, unclean_elections=int(not clean))
        label = ("elect" if clean else "elect-UNCLEAN", me.name)
        turn.go(label, fair=False, budget=budget, **changes)


def elected(turn: Turn, number: int, *, clean: bool = True) -> dict[str, Any]:
    """A leader of the next epoch; the old one goes on until it steps down."""
    state, setup, broker = turn.state, turn.setup, turn.state.brokers[number]
    epoch = state.epoch + 1
    recovering = state.recovering if clean else epoch
    kept = broker.copied_through if setup.copied_through_checked == "none" else -1
    leader = broker._replace(
        epoch=epoch,
        log=broker.log + (epoch,) * max(0, setup.grow[epoch] - len(broker.log)),
        ownership=Ownership.NONE,
        copying=None,
        deleting=(),
        copied_through=kept,
        led_from=len(broker.log),
        unclean=told_by_image(setup, recovering, epoch),
    )
    return {
        "leader": number,
        "epoch": epoch,
        "brokers": replaced(state.brokers, number, leader),
        "unclean": state.unclean if clean else epoch,
        "recovering": recovering if setup.unclean_known == "records" else 0,
        **turn.ghosts_with(number),
    }


def told_by_image(setup: Setup, recovering: int, epoch: int) -> int:
    """The last unclean election, as a new leader of `epoch` learns it from the image."""
    if setup.unclean_known != "records" or not recovering:
        return 0
    return recovering if setup.recovering_keeps == "epoch" else epoch


def steps_down(me: Me) -> None:
    """A deposed leader learns of it."""
    turn, broker, setup = me.turn, me.broker, me.turn.setup
    if not me.leads or broker.epoch >= turn.state.epoch:
        return
    if not setup.cancel_first:
        down = me.changed(epoch=0, ownership=Ownership.NONE, unclean=0)
        turn.go(("step-down", me.name), brokers=down)
        return
    kept = broker.copied_through if setup.copied_through_checked == "none" else -1
    down = me.changed(
        epoch=0,
        ownership=Ownership.NONE,
        copying=None,
        deleting=(),
        copied_through=kept,
        unclean=0,
    )
    turn.go(("step-down", me.name), brokers=down, **turn.ghosts_with(me.number))


def follows(me: Me) -> None:
    """Truncate where the leader's log differs and go on, or begin at its local start."""
    turn, state, broker, setup = me.turn, me.turn.state, me.broker, me.turn.setup
    leader = state.brokers[state.leader]
    if me.leads or me.number == state.leader or leader.epoch != state.epoch:
        return
    if broker.log == leader.log and broker.log_start >= leader.log_start:
        return
    common = common_end(broker, leader)
    if not may_truncate(me, leader, common):
        return
    lost = lost_by_leader(me, leader, common)
    if lost is not None:
        alarm = f"the follower throws offset {lost} away, which the leader has lost"
        turn.alarm(("follow", me.name), alarm)
        return
    stays = common >= leader.local_start and broker.local_start <= common
    through = broker.copied_through
    if setup.copied_through_checked == "chain":
        through = min(through, common - 1)
    chain = broker.chain
    if not stays:
        whole = leader.chain is None
        chain = None if whole else leader.believed()[: leader.local_start]
    own_start = stays and common >= broker.log_start
    start = max(broker.log_start, leader.log_start) if own_start else leader.log_start
    after = me.changed(
        log=leader.log,
        local_start=broker.local_start if stays else leader.local_start,
        copied_through=through,
        chain=chain,
        log_start=start,
    )
    turn.go(("follow" if stays else "bootstrap", me.name), brokers=after)


def common_end(one: Broker, other: Broker) -> int:
    end = 0
    while end < min(len(one.log), len(other.log)) and one.log[end] == other.log[end]:
        end += 1
    return end


def may_truncate(me: Me, leader: Broker, common: int) -> bool:
    """The rule for followers whose log reaches beyond the leader's."""
    setup, state, log = me.turn.setup, me.turn.state, me.broker.log
    if common == len(log) or setup.follow == "any":
        return True
    if setup.follow == "judged":
        return leader.ownership == Ownership.READY
    return state.unclean > max(log[common:])


def lost_by_leader(me: Me, leader: Broker, common: int) -> int | None:
    """A record that the leader held once, and that only this follower still has locally."""
    state, log = me.turn.state, me.broker.log
    if not me.turn.setup.check_followers or state.unclean > max((*log[common:], 0)):
        return None
    if len(leader.log) > common and leader.log[common] != GAP:
        return None
    for offset in range(max(common, me.broker.local_start), len(log)):
        if any(
            log[offset] == named(state.segments, one).epochs[offset - segment.first]
            for one in me.turn.truth.known()
            if (segment := named(state.segments, one)).first <= offset <= segment.last
        ):
            return offset
    return None
