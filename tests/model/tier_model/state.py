"""What one state of the tier's model consists of.

One user partition on two brokers, A (0) and B (1). A record's identity is (leader epoch, offset): a
log is a tuple of leader epochs, one per offset, so another lineage shows as another epoch.
"""

from enum import IntEnum
from typing import NamedTuple

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = "SFDX"
EMPTY_BARRIER = "N"  # the barrier of a partition without a live segment
NO_SEGMENT = -1
UNKNOWN = -1  # a log start
NO_EPOCH, GAP = 0, -1  # in a believed chain: unknown; given up, reads skip it

Pair = tuple[int, int]  # leader epoch, tier incarnation
Epochs = tuple[int, ...]
NAMES = "AB"


class Ownership(IntEnum):
    """How far a broker's tier has come in taking the partition over."""

    NONE = 0
    BARRIER_SENT = 1
    READY = 2
    RED = 3
    PROVISIONAL = 4  # nothing was ever accepted: copies, with the log start in memory


class Record(NamedTuple):
    """A record of the metadata topic."""

    kind: str
    id: int
    pair: Pair
    log_start: int = UNKNOWN  # tagged field 10003
    unclean: int = 0  # tagged field 10004


class Fold(NamedTuple):
    """What every reader makes of the topic up to its position."""

    fence: Pair
    highest: Pair  # of the records that were not refused by the fence
    started: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()  # in the order of their first FINISHED
    deleting: tuple[int, ...] = ()
    carried: tuple[tuple[int, int], ...] = ()  # (leader epoch, highest log start it carried)
    ever: bool = False  # a segment was ever accepted
    repeated: tuple[tuple[int, Pair], ...] = ()  # pair of the last FINISHED of an id
    unclean: int = 0  # the highest 10004 of accepted records

    def known(self) -> tuple[int, ...]:
        return self.started + self.finished + self.deleting


class Segment(NamedTuple):
    """A remote segment: which records it holds and what its copier knew."""

    first: int
    last: int
    epochs: Epochs
    copier: int
    epoch: int
    incarnation: int
    index: Epochs  # the LEADER_EPOCH index, from offset 0 on; NO_EPOCH below the copier's log start

    def records(self) -> list[tuple[int, int]]:
        return [(epoch, self.first + n) for n, epoch in enumerate(self.epochs)]


class Broker(NamedTuple):
    """One broker with its tier."""

    epoch: int  # the leader epoch it leads under; 0: a follower
    log: Epochs
    local_start: int
    log_start: int
    copied_through: int
    incarnation: int
    ownership: int
    copying: tuple[int, int] | None = None  # stage, id
    deleting: tuple[tuple[int, int], ...] = ()  # (stage, id) of each running deletion
    position: int = 0
    ahead: Fold | None = None  # a cache that holds more than the topic
    chain: Epochs | None = (
        None  # believed epochs below the local start, where they are not the log's
    )
    led_from: int = 0  # first offset of its own leader epoch
    unclean: int = 0  # what the image said of unclean elections when it became leader

    def pair(self) -> Pair:
        return (self.epoch, self.incarnation)

    def believed(self) -> Epochs:
        """The epoch of each offset, as this broker believes it."""
        return self.log if self.chain is None else self.chain + self.log[len(self.chain) :]


class Budget(NamedTuple):
    """How many of each fault or wish may still happen."""

    tier_deaths: int
    elections: int
    unclean_elections: int
    raises: int
    timeouts: int
    retried_puts: int
    topic_losses: int
    damages: int

    def spend(self, **counts: int) -> "Budget":
        return self._replace(**{name: getattr(self, name) - n for name, n in counts.items()})


class State(NamedTuple):
    """Everything; sets of ids are bit masks."""

    leader: int
    epoch: int
    brokers: tuple[Broker, Broker]
    base: Fold  # of what every reader has consumed
    tail: tuple[Record, ...]
    queues: tuple[tuple[Record, ...], tuple[Record, ...]]  # of each tier's client, in order
    ghosts: tuple[tuple[Record, ...], ...]  # queues that outlived their writer
    segments: tuple[Segment | None, ...]
    objects: int
    puts: int
    aged: int  # the copy maximum has passed since their STARTED
    ordered: tuple[int, ...]  # the log start that retention or DeleteRecords said, by leader epoch
    durable: int  # so many records of the tail survive a loss of the metadata topic
    budget: Budget
    unclean: int  # leader epoch of the last unclean election
    recovering: int  # the same in the image, 0 once the broker has reported it as recovered
    alarm: str = ""


def replaced(pair: tuple, index: int, value: object) -> tuple:
    return (*pair[:index], value, *pair[index + 1 :])


def bits(mask: int) -> list[int]:
    return [n for n in range(mask.bit_length()) if mask >> n & 1]
