"""What a state is made of, and states that differ by names of replicas as one."""

from functools import cache
from typing import NamedTuple

from tests.model.replication.chains import Chain, Log
from tests.model.replication.controller import NOBODY, Committed, Request
from tests.model.replication.leader import Lead

NONE = -1


class Broker(NamedTuple):
    """A broker with its replica.

    Attributes:
        up: its process runs.
        life: its broker epoch.
        flushed: what a power cut leaves at least (exclusive).
        high_watermark: that it was told, or tells.
        leader, epoch: of its image.
        lead: what it holds as leader.
        clean: broker epoch in its clean-shutdown file; -1: there is none.
        same_boot: its machine has not lost power since this life of it, or the last one, began.
        hurt: it lost records, and the controller does not know yet.
        empty: its disk was replaced, and the controller does not know yet.
        start: its log start, checkpointed; records below are kept here, they do no harm.
    """

    up: bool
    life: int
    log: Log
    chain: Chain
    flushed: int
    high_watermark: int
    leader: int
    epoch: int
    lead: Lead | None = None
    clean: int = NONE
    same_boot: bool = True
    hurt: bool = False
    empty: bool = False
    start: int = 0


class Late(NamedTuple):
    """A Fetch that is still on its way."""

    to: int
    epoch: int
    replica: int
    life: int
    offset: int
    start: int


class Budget(NamedTuple):
    """How much may still happen."""

    kills: int
    cuts: int
    disks: int
    stops: int
    fences: int
    moves: int
    lost_answers: int
    late_fetches: int
    deletes: int


class World(NamedTuple):
    """A state.

    Attributes:
        told: records below the highest watermark that anybody was told.
        since: leader epoch of the last unclean election: what older epochs told does not count.
        pending: one was held, and its leader does not know yet.
        deleted: log start that a DeleteRecords was answered with.
        lost: ((offset, epoch), copies that a fault took, or could have taken), sorted.
    """

    committed: Committed
    brokers: tuple[Broker, ...]
    requests: tuple[Request, ...]
    late: tuple[Late, ...]
    told: Log
    since: int
    pending: bool
    lost: tuple[tuple[tuple[int, int], int], ...]
    budget: Budget
    deleted: int = 0


def put(items: tuple[Broker, ...], index: int, value: Broker) -> tuple[Broker, ...]:
    return (*items[:index], value, *items[index + 1 :])


def order_of(world: World) -> tuple[int, ...]:
    """The replicas, sorted by what is true of each whatever its name is."""
    now = world.committed

    def traits(one: int) -> tuple[object, ...]:
        broker = world.brokers[one]
        return (
            now.leader == one,
            now.last_known == one,
            now.isr >> one & 1,
            now.elr >> one & 1,
            now.unfenced >> one & 1,
            broker.log,
            broker[:2],
            broker[3:6],
            broker.leader == one,
            broker.epoch,
            broker[9:],
            now.stopping >> one & 1,
        )

    return tuple(sorted(range(len(world.brokers)), key=traits))


@cache
def _places(order: tuple[int, ...]) -> tuple[int, ...]:
    """The new name of each; the last entry is for nobody (-1)."""
    return (*(order.index(one) for one in range(len(order))), NOBODY)


@cache
def _bits_renamed(mask: int, order: tuple[int, ...]) -> int:
    return sum(1 << new for new, one in enumerate(order) if mask >> one & 1)


@cache
def _lead_renamed(lead: Lead, order: tuple[int, ...]) -> Lead:
    asked = lead.asked
    if asked is not None:
        epochs = tuple(asked[1][one] for one in order)
        asked = (_bits_renamed(asked[0], order), epochs, *asked[2:])
    return lead._replace(
        isr=_bits_renamed(lead.isr, order),
        followers=tuple(lead.followers[one] for one in order),
        asked=asked,
        doubtful=tuple(sorted(_bits_renamed(one, order) for one in lead.doubtful)),
        lives=tuple(lead.lives[one] for one in order),
        active=_bits_renamed(lead.active, order),
    )


@cache
def _committed_renamed(now: Committed, order: tuple[int, ...]) -> Committed:
    places = _places(order)
    return Committed(
        places[now.leader],
        now.leader_epoch,
        now.partition_epoch,
        _bits_renamed(now.isr, order),
        _bits_renamed(now.elr, order),
        places[now.last_known],
        now.recovering,
        tuple(now.lives[one] for one in order),
        _bits_renamed(now.unfenced, order),
        _bits_renamed(now.stopping, order),
        _bits_renamed(now.suspects, order),
    )


@cache
def _broker_renamed(broker: Broker, order: tuple[int, ...]) -> Broker:
    lead = None if broker.lead is None else _lead_renamed(broker.lead, order)
    return broker._replace(leader=_places(order)[broker.leader], lead=lead)


@cache
def _request_renamed(request: Request, order: tuple[int, ...]) -> Request:
    return request._replace(
        sender=_places(order)[request.sender],
        isr=_bits_renamed(request.isr, order),
        epochs=tuple(request.epochs[one] for one in order),
    )


def renamed(world: World, order: tuple[int, ...]) -> World:
    """The same with the replicas in another order: no rule knows their names."""
    if order == tuple(range(len(order))):
        return world
    places = _places(order)
    requests = tuple(sorted(_request_renamed(one, order) for one in world.requests))
    late = tuple(
        sorted(one._replace(to=places[one.to], replica=places[one.replica]) for one in world.late)
    )
    return World(
        _committed_renamed(world.committed, order),
        tuple(_broker_renamed(world.brokers[one], order) for one in order),
        requests,
        late,
        *world[4:],
    )
