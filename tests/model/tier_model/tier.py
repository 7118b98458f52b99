"""The model of the tier: one user partition, two brokers, the metadata topic and the store."""

from collections.abc import Sequence
from typing import Any

from tier_model import damage, invariants, leadership, steps_topic, steps_work, ways_out
from tier_model.explore import Step
from tier_model.setup import Setup
from tier_model.state import (
    NAMES,
    Broker,
    Budget,
    Epochs,
    Fold,
    Ownership,
    Segment,
    State,
    bits,
)
from tier_model.turn import Rules, Turn, me

OF_EACH_BROKER = (
    steps_topic.topic,
    steps_topic.taking_over,
    steps_topic.reports,
    steps_work.copies,
    steps_work.deletions,
    steps_topic.timeouts,
    steps_work.expiry,
    ways_out.ways_out,
    steps_work.appends,
    damage.restarts,
    leadership.faults,
    leadership.steps_down,
    leadership.follows,
)
OF_ALL = (
    steps_topic.late_records,
    steps_work.store,
    steps_topic.topic_losses,
    steps_topic.caches_ahead,
)
EPOCHS_MAX = 10


class Tier:
    """The first state, the steps, the invariants."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.rules = Rules(setup)

    def first(self) -> State:
        setup = self.setup
        epoch, count = setup.first_epoch, len(setup.copied)
        owns = Ownership.NONE if setup.fresh else Ownership.READY
        a, b = (
            Broker(leads, log, *starts, copied_through=-1, incarnation=number + 1, ownership=own)
            for number, (leads, log, starts, own) in enumerate(
                zip((epoch, 0), setup.logs, setup.starts, (owns, Ownership.NONE), strict=True)
            )
        )
        known = setup.first_unclean if setup.unclean_known == "records" else 0
        pair = (epoch, 1)
        return State(
            leader=0,
            epoch=epoch,
            brokers=(a._replace(led_from=len(setup.logs[0])), b),
            base=Fold(pair, pair, finished=tuple(range(count)), ever=count > 0, unclean=known),
            tail=(),
            queues=((), ()),
            ghosts=(),
            segments=self.first_segments(),
            objects=(1 << count) - 1,
            puts=0,
            aged=0,
            ordered=tuple(setup.first_ordered if e == epoch else 0 for e in range(EPOCHS_MAX)),
            durable=0,
            budget=Budget(
                tier_deaths=setup.tier_deaths,
                elections=setup.elections,
                unclean_elections=setup.unclean,
                raises=setup.raises,
                timeouts=setup.timeouts,
                retried_puts=setup.retried_puts,
                topic_losses=setup.topic_losses,
                damages=setup.damages,
            ),
            unclean=setup.first_unclean,
            recovering=0,
        )

    def first_segments(self) -> tuple[Segment, ...]:
        setup = self.setup
        pairs = setup.copied_pairs or ((1, 1),) * len(setup.copied)
        return tuple(
            Segment(*given[:3], 0, *pair, self.index_of(given))
            for given, pair in zip(setup.copied, pairs, strict=True)
        )

    def index_of(self, given: tuple[Any, ...]) -> Epochs:
        """The LEADER_EPOCH index; a segment of another lineage than the leader's names its own."""
        if len(given) > 3:
            return given[3]
        first, _, epochs = given
        return self.setup.logs[0][:first] + epochs

    def steps(self, state: State) -> list[Step]:
        if state.alarm:
            return []
        turn = Turn(self.rules, state)
        for number in (0,) if self.setup.solo else (0, 1):
            mine = me(turn, number)
            for family in OF_EACH_BROKER:
                family(mine)
        for family in OF_ALL:
            family(turn)
        return turn.steps

    def broken(self, state: State, steps: Sequence[Step]) -> str | None:
        return invariants.broken(self.rules, state, steps)

    def show(self, state: State) -> str:
        truth = self.rules.fold(state.base, state.tail)
        lines = [self.show_broker(state, number) for number in (0, 1)]
        segments = " ".join(
            f"s{one}[{seg.first}..{seg.last}]e{''.join(map(str, seg.epochs))}"
            for one, seg in enumerate(state.segments)
            if seg
        )
        flying = [tuple(map(tuple, queue)) for queue in state.queues + state.ghosts if queue]
        lines.append(
            f"topic S{truth.started} F{truth.finished} D{truth.deleting} fence {truth.fence} "
            f"in flight {flying or 'nothing'} store {bits(state.objects)} "
            f"puts {bits(state.puts)} {segments}"
        )
        return f"\n{'':9}".join(lines)

    def show_broker(self, state: State, number: int) -> str:
        broker = state.brokers[number]
        role = f"leads {broker.epoch}" if broker.epoch else "follows"
        shown = (
            f"{NAMES[number]}{'*' if number == state.leader else ''} {role} "
            f"log {''.join(map(str, broker.log))} local from {broker.local_start} "
            f"log start {broker.log_start} copied {broker.copied_through} "
            f"{Ownership(broker.ownership).name}"
        )
        if broker.chain is not None:
            shown += f" believes {broker.chain}"
        if broker.copying:
            shown += f" copies {broker.copying}"
        return shown + (f" deletes {broker.deleting}" if broker.deleting else "")
