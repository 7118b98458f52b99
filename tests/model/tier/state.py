"""What a state is made of."""

from typing import NamedTuple

from tests.model.replication.chains import Log

NONE = -1


class Segment(NamedTuple):
    """Offsets `[first, last]`, and the LEADER_EPOCH index: the epoch of each offset from 0 on.

    0: below the log start of the broker that copied it.
    """

    first: int
    last: int
    index: Log


class Record(NamedTuple):
    """Of the metadata topic; `kind` is one of S F D X (the four states) and N.

    N is the barrier of a partition without live segments: an id that goes through its whole life.
    """

    kind: str
    id: int
    epoch: int
    incarnation: int
    start: int = NONE
    unclean: int = NONE
    segment: Segment | None = None
    is_barrier: bool = False
    validated: str = ""
    """Of D: the state that the segment had for its writer."""


class Task(NamedTuple):
    """What a tier is at: the record that it waits for, or has read back (`is_read`)."""

    record: Record
    is_read: bool = False


class Beside(NamedTuple):
    """A log directory that is built beside: it begins, empty, at the end of `log`.

    `snapshot`: the offset as of which the producers in it are; -1: there is none.
    """

    epoch: int
    log: Log
    start: int
    snapshot: int
    is_complete: bool = False
    is_old_gone: bool = False


class Broker(NamedTuple):
    """A broker with its replica and its tier.

    Attributes:
        epoch: leader epoch of its image; 0: it has just started.
        leads: whether it leads in it.
        log: the leader epoch of each offset; below the local start: as its chain has it, 0 unknown.
        start: log start, checkpointed.
        local: local start.
        copied: CopiedThrough, -1: not known.
        begun: as leader: the first offset of its epoch.
        unvalidated: as leader: where the log ended that nobody has validated yet; -1: it was
            validated.
        known: as leader: (log end, log start) of the follower, as of its last Fetch.
        owner: 0, 1 its barrier is written, 2 settled.
        position: in the tail of the metadata topic; -1: it has read all.
        seen: view that it had before records of the topic were lost; -1: none were.
    """

    epoch: int
    leads: bool
    log: Log
    start: int
    local: int
    watermark: int
    copied: int = NONE
    begun: int = 0
    unvalidated: int = NONE
    known: tuple[int, int] = (NONE, NONE)
    incarnation: int = 1
    owner: int = 0
    barrier: Record | None = None
    task: Task | None = None
    position: int = NONE
    seen: int = NONE
    beside: Beside | None = None


class Report(NamedTuple):
    """A CopiedThrough on its way."""

    broker: int
    epoch: int
    offset: int
    offset_epoch: int


class Budget(NamedTuple):
    """How much may still happen."""

    moves: int
    unclean: int
    kills: int
    disks: int
    tiers: int
    shrinks: int
    raises: int
    deletes: int
    late_reports: int
    power_cuts: int
    losses: int


class World(NamedTuple):
    """A state.

    Attributes:
        told: records below the highest watermark that anybody was told.
        since: leader epoch of the last unclean election.
        is_open: since it nobody has settled.
        answered: log start that all in-sync replicas have, or a DeleteRecords was answered with.
        ordered: (leader epoch, highest log start that a leader of it ordered), ascending.
        view: what the records before `tail` come to; see `topic`.
        durable: so many of the tail are on the disks of enough replicas.
        objects: what is in the store, by id.
    """

    leader: int
    epoch: int
    isr: tuple[int, ...]
    brokers: tuple[Broker, Broker]
    told: Log
    since: int
    is_open: bool
    answered: int
    ordered: tuple[tuple[int, int], ...]
    view: int
    tail: tuple[Record, ...]
    durable: int
    flight: tuple[Record, ...]
    objects: tuple[tuple[int, Segment], ...]
    reports: tuple[Report, ...]
    budget: Budget


def put(brokers: tuple[Broker, Broker], one: int, broker: Broker) -> tuple[Broker, Broker]:
    return (broker, brokers[1]) if one == 0 else (brokers[0], broker)
