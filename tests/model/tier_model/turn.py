"""One state's successors while they are collected, and the reading that follows every step."""

from typing import Any, NamedTuple

from tier_model.explore import Label, Step
from tier_model.judgement import Evidence, judged
from tier_model.readers import Reader
from tier_model.setup import Setup
from tier_model.state import NAMES, Broker, Fold, Ownership, Record, Segment, State, replaced


class Rules:
    """A run's rules with the functions that need no state of their own."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.reader = Reader(setup)
        self.fold = self.reader.fold

    def cache(self, state: State, number: int) -> Fold:
        broker = state.brokers[number]
        if broker.ahead is not None:
            return broker.ahead
        return self.fold(state.base, state.tail[: broker.position])

    def last_unclean(self, state: State, broker: Broker, fold: Fold) -> int:
        """Leader epoch of the last unclean election, as this owner knows it."""
        if self.setup.unclean_known == "given":
            return state.unclean
        if self.setup.unclean_known == "nobody":
            return 0
        return max(broker.unclean, fold.unclean)

    def evidence(self, state: State, broker: Broker, fold: Fold) -> Evidence:
        return Evidence(broker, fold, state.segments, self.last_unclean(state, broker, fold))

    def read(self, state: State, broker: Broker, position: int) -> Broker:
        """The broker's tier has read the topic up to `position`."""
        fold = self.fold(state.base, state.tail[:position])
        broker = broker._replace(position=position)
        read_back = broker.ownership == Ownership.BARRIER_SENT and fold.highest == broker.pair()
        if read_back or broker.ownership > Ownership.READY:
            broker = judged(self.setup, self.evidence(state, broker, fold))
        if broker.copying and broker.copying[0] == 3 and broker.copying[1] in fold.finished:
            broker = broker._replace(copying=None)
        if broker.deleting:
            left = tuple(
                (stage, one) for stage, one in broker.deleting if stage == 1 or one in fold.deleting
            )
            broker = broker._replace(deleting=left)
        return broker

    def settled(self, state: State) -> State:
        """Readers that are too far behind catch up; what nobody needs any more is forgotten."""
        if state.tail:
            brokers = tuple(self.kept_up(state, broker) for broker in state.brokers)
            if brokers != state.brokers:
                state = state._replace(brokers=brokers)
        state = self.forget_records(state)
        if not state.budget.topic_losses:
            state = state._replace(durable=0) if state.durable else state
        return state if state.tail else forget_segments(state)

    def kept_up(self, state: State, broker: Broker) -> Broker:
        least = len(state.tail) - self.setup.lag[broker.epoch == 0]
        if broker.position < least and broker.ahead is None:
            return self.read(state, broker, least)
        return broker

    def forget_records(self, state: State) -> State:
        brokers, setup = state.brokers, self.setup
        if any(broker.ahead is not None for broker in brokers):
            return state
        if state.budget.topic_losses and setup.cut_any:
            return state
        count = min(broker.position for broker in brokers[: 1 if setup.solo else 2])
        count = min(count, len(state.tail))
        if state.budget.topic_losses:
            count = min(count, state.durable)
        if not count:
            return state
        return state._replace(
            base=self.fold(state.base, state.tail[:count]),
            tail=state.tail[count:],
            brokers=tuple(
                broker._replace(position=max(0, broker.position - count)) for broker in brokers
            ),
            durable=max(0, state.durable - count),
        )


def forget_segments(state: State) -> State:
    """Ids that left no trace anywhere."""
    if not state.segments:
        return state
    alive = set(state.base.known())
    for broker in state.brokers:
        alive.update(one for _, one in broker.deleting)
        if broker.copying:
            alive.add(broker.copying[1])
    for queue in state.queues + state.ghosts:
        alive.update(record.id for record in queue)
    stored = state.objects | state.puts
    gone = [
        one
        for one, segment in enumerate(state.segments)
        if segment is not None and one not in alive and not stored >> one & 1
    ]
    if not gone:
        return state
    segments = (None if one in gone else segment for one, segment in enumerate(state.segments))
    aged = state.aged & ~sum(1 << one for one in gone)
    return state._replace(segments=tuple(segments), aged=aged)


class Turn:
    """Collects what can happen next in one state."""

    def __init__(self, rules: Rules, state: State) -> None:
        self.rules = rules
        self.setup = rules.setup
        self.state = state
        self.truth = rules.fold(state.base, state.tail)
        self.steps: list[Step] = []

    def go(self, label: Label, *, fair: bool = True, **changes: Any) -> None:
        after = self.rules.settled(self.state._replace(**changes))
        self.steps.append(Step(label, after, fair))

    def alarm(self, label: Label, alarm: str) -> None:
        self.steps.append(Step(label, self.state._replace(alarm=alarm), fair=True))

    def ghosts_with(self, number: int) -> dict[str, Any]:
        """The queue of a writer that ends goes on without it."""
        queue, state = self.state.queues[number], self.state
        if not queue:
            return {}
        return {
            "queues": replaced(state.queues, number, ()),
            "ghosts": tuple(sorted((*state.ghosts, queue))),
        }


class Me(NamedTuple):
    """The broker whose steps are collected, with what it knows."""

    turn: Turn
    number: int
    name: str
    broker: Broker
    fold: Fold  # of its own reader
    leads: bool
    ready: bool
    acts: bool  # copies, deletes, expires
    caught_up: bool
    low: bool  # the topic names a pair above its own

    def changed(self, **fields: Any) -> tuple[Broker, Broker]:
        return replaced(self.turn.state.brokers, self.number, self.broker._replace(**fields))

    def sends(self, record: Record) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
        queues = self.turn.state.queues
        return replaced(queues, self.number, (*queues[self.number], record))

    def record(self, kind: str, one: int) -> Record:
        """A record with this owner's fence and what it carries."""
        broker, setup = self.broker, self.turn.setup
        log_start = -1
        if broker.ownership == Ownership.READY:
            log_start = broker.log_start
        elif broker.ownership == Ownership.NONE and setup.barrier_carries:
            log_start = max([start for _, start in self.fold.carried], default=-1)
        if broker.epoch in setup.tagless or setup.carry == "off":
            log_start = -1
        unclean = 0
        if setup.unclean_known == "records":
            unclean = self.turn.rules.last_unclean(self.turn.state, broker, self.fold)
        return Record(kind, one, broker.pair(), log_start, unclean)

    def evidence(self) -> Evidence:
        return self.turn.rules.evidence(self.turn.state, self.broker, self.fold)

    @property
    def idle(self) -> bool:
        """Nothing is under way to it or from it."""
        sent = self.turn.state.queues[self.number]
        return not sent and self.caught_up and self.broker.ahead is None

    def segment(self, first: int, last: int) -> Segment:
        """A new segment; its LEADER_EPOCH index reaches down to the log start."""
        broker = self.broker
        index = tuple(
            epoch if offset >= broker.log_start else 0
            for offset, epoch in enumerate(broker.believed()[: last + 1])
        )
        epochs = broker.log[first : last + 1]
        return Segment(first, last, epochs, self.number, *broker.pair(), index)


def me(turn: Turn, number: int) -> Me:
    state, setup = turn.state, turn.setup
    broker = state.brokers[number]
    fold = turn.rules.cache(state, number)
    leads, fenced = broker.epoch > 0, fold.highest > broker.pair()
    ready = leads and broker.ownership == Ownership.READY and not (fenced and setup.fence)
    return Me(
        turn=turn,
        number=number,
        name=NAMES[number],
        broker=broker,
        fold=fold,
        leads=leads,
        ready=ready,
        acts=ready or (leads and not setup.ready_first),
        caught_up=broker.position >= len(state.tail),
        low=setup.epoch_jump and leads and fenced,
    )
