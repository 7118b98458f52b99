"""A state of the remover's model, and what every reader makes of the remote metadata topic."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

STARTED, FINISHED, DELETE_STARTED, DELETE_FINISHED = "SFDX"
MARKED, PARTITION_STARTED, PARTITION_FINISHED = "MARKED", "STARTED", "FINISHED"
PARTITION = (MARKED, PARTITION_STARTED, PARTITION_FINISHED)  # state 1, 2, 3 of a partition
BARRIER = "B"
CREATED, REMOVED, OTHER = "cro"  # records of the cluster metadata log
HIGHEST_PAIR = (99, 99)
NAMES = "PQ"


@dataclass(frozen=True)
class RemoverSetup:
    """Bounds, then rules with the value of docs/tiering.md as default."""

    ids: int = 1
    moves: int = 0  # the remover moves so often
    kills: int = 0  # the copier's tier dies so often
    lag: int = 1  # readers are at most so many records behind
    restores: int = 0  # the metadata log is replaced by an earlier copy
    others: int = 0  # so many other records in it
    snapshots: int = 0
    judge: str = "removed"  # absent: not in the image | removed: only ids whose removal was read
    ask_high_watermark: bool = False
    read_record_first: bool = True  # the high watermark is asked after the segment's record is read
    quorum_checked: bool = True  # it comes from a controller that a majority confirmed
    tags: bool = False  # segment records carry their writer's image offset
    mark_closes: bool = True  # from MARKED on every reader refuses STARTED and FINISHED of the id
    aged_first: bool = True
    remover_outranks: bool = True
    finished_checks: bool = True  # PARTITION_FINISHED is refused while segments are left
    lists: bool = True  # a snapshot lists the removed tiered ids
    forget: bool = True  # way out for an unknown id: a command
    start_checks: bool = True  # it judges again before PARTITION_STARTED
    resumes: bool = False  # a remover that finds the partition marked goes on without judging
    delete_again: bool = True  # way out of "marked, but exists"


class Record(NamedTuple):
    """A record of the remote metadata topic."""

    kind: str
    id: int
    pair: tuple[int, int]
    image: int = 0


class Fold(NamedTuple):
    """What a reader holds."""

    fence: tuple[int, int] = (1, 1)
    started: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    deleting: tuple[int, ...] = ()
    partition: int = 0
    image: int = 0  # highest image offset that an accepted record carries

    def known(self) -> tuple[int, ...]:
        return self.started + self.finished + self.deleting


class Copier(NamedTuple):
    """Broker A, which leads the user partition; its image lags."""

    image: int = 0
    incarnation: int = 1
    copying: tuple[int, int] | None = None  # stage, id
    position: int = 0


class Remover(NamedTuple):
    """A broker that leads or led the metadata partition."""

    image: int = 0
    position: int = 0
    high_watermark: int = -1  # as a controller answered it
    read_removal: bool = False
    begun: bool = False


class Budget(NamedTuple):
    moves: int
    kills: int
    restores: int
    others: int
    snapshots: int


class State(NamedTuple):
    log: str  # the cluster metadata log; images are positions in it
    copier: Copier
    removers: tuple[Remover, Remover]
    base: Fold
    tail: tuple[Record, ...]
    queues: tuple[tuple[Record, ...], ...]  # of A, P, Q
    ghosts: tuple[tuple[Record, ...], ...]
    objects: int
    puts: int
    aged: int
    ids: int
    active: int
    budget: Budget
    ordered: bool = False  # the removal was ordered, by DeleteTopics or by command
    snapshot_end: int = 0
    alarm: str = ""


def exists(log: str) -> bool:
    return CREATED in log and REMOVED not in log


def replaced(items: tuple, index: int, value: Any) -> tuple:
    return (*items[:index], value, *items[index + 1 :])


def without(ids: tuple[int, ...], gone: int) -> tuple[int, ...]:
    return tuple(one for one in ids if one != gone)


class Reader:
    """The fold of one run's rules."""

    def __init__(self, setup: RemoverSetup) -> None:
        self.setup = setup
        self.apply = lru_cache(maxsize=None)(self._apply)

    def fold(self, fold: Fold, records: Iterable[Record]) -> Fold:
        for record in records:
            fold = self.apply(fold, record)
        return fold

    def _apply(self, fold: Fold, record: Record) -> Fold:
        if record.pair < fold.fence:
            return fold
        closed = bool(self.setup.mark_closes and fold.partition)
        fold = fold._replace(fence=record.pair)
        if record.kind in PARTITION:
            return self.partition(fold, PARTITION.index(record.kind) + 1)
        if record.kind in (STARTED, FINISHED):
            return fold if closed else self.copied(fold, record)
        if record.kind == DELETE_STARTED and record.id in fold.started + fold.finished:
            return fold._replace(
                started=without(fold.started, record.id),
                finished=without(fold.finished, record.id),
                deleting=tuple(sorted((*fold.deleting, record.id))),
            )
        if record.kind == DELETE_FINISHED:
            return fold._replace(deleting=without(fold.deleting, record.id))
        return fold

    def partition(self, fold: Fold, number: int) -> Fold:
        left = number == 3 and self.setup.finished_checks and fold.known()
        if number != fold.partition + 1 or left:
            return fold
        if number == 3:
            return fold._replace(partition=3, started=(), finished=(), deleting=())
        return fold._replace(partition=number)

    def copied(self, fold: Fold, record: Record) -> Fold:
        one = record.id
        if self.setup.tags:
            fold = fold._replace(image=max(fold.image, record.image))
        if record.kind == STARTED and one not in fold.known():
            return fold._replace(started=tuple(sorted((*fold.started, one))))
        if record.kind == FINISHED and one in fold.started:
            finished = tuple(sorted((*fold.finished, one)))
            return fold._replace(started=without(fold.started, one), finished=finished)
        return fold
