"""What every reader computes from the metadata topic: one pure function of its records."""

from collections.abc import Iterable
from functools import lru_cache

from tier_model.setup import Setup
from tier_model.state import (
    DELETE_STARTED,
    FINISHED,
    NO_SEGMENT,
    STARTED,
    UNKNOWN,
    Fold,
    Record,
)


def without(ids: tuple[int, ...], gone: int) -> tuple[int, ...]:
    return tuple(one for one in ids if one != gone)


def transition(fold: Fold, kind: str, one: int) -> tuple[Fold, bool]:
    """The table of segment states; a record may repeat its segment's state."""
    started, finished, deleting = fold.started, fold.finished, fold.deleting
    if kind == STARTED:
        if one in finished or one in deleting:
            return fold, False
        return fold._replace(started=tuple(sorted({*started, one}))), True
    if kind == FINISHED:
        if one not in started:
            return fold, one in finished
        return fold._replace(started=without(started, one), finished=(*finished, one)), True
    if kind == DELETE_STARTED:
        if one not in started + finished:
            return fold, one in deleting
        moved = tuple(sorted((*deleting, one)))
        return Fold(
            fold.fence, fold.highest, without(started, one), without(finished, one), moved,
            *fold[5:],
        ), True  # fmt: skip
    if one == NO_SEGMENT:
        return fold, True
    return fold._replace(deleting=without(deleting, one)), one in deleting


class Reader:
    """The fold of one run's rules; results are remembered, for states share most of their topic."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.apply = lru_cache(maxsize=None)(self._apply)

    def fold(self, fold: Fold, records: Iterable[Record]) -> Fold:
        for record in records:
            fold = self.apply(fold, record)
        return fold

    def _apply(self, fold: Fold, record: Record) -> Fold:
        setup, pair = self.setup, record.pair
        if setup.fence and pair < fold.fence:
            return fold
        after, accepted = transition(fold, record.kind, record.id)
        after = after._replace(highest=max(fold.highest, pair))
        if accepted or setup.fence_refused:
            after = after._replace(fence=max(fold.fence, pair))
        return self.accept(after, record) if accepted else after

    def accept(self, fold: Fold, record: Record) -> Fold:
        """What counts only from records whose transition was allowed."""
        fold = fold._replace(
            ever=fold.ever or record.id != NO_SEGMENT, unclean=max(fold.unclean, record.unclean)
        )
        if record.log_start != UNKNOWN:
            carried, epoch = dict(fold.carried), record.pair[0]
            carried[epoch] = max(record.log_start, carried.get(epoch, UNKNOWN))
            fold = fold._replace(carried=tuple(sorted(carried.items())))
        if self.setup.pick == "repeated" and record.kind == FINISHED:
            repeated = {**dict(fold.repeated), record.id: record.pair}
            fold = fold._replace(repeated=tuple(sorted(repeated.items())))
        return fold
