"""Which records of a log the remote segments hold: pure rules on (leader epoch, offset)."""

from collections.abc import Sequence

from tier_model.setup import Setup
from tier_model.state import GAP, NO_EPOCH, UNKNOWN, Broker, Epochs, Fold, Segment

Segments = Sequence[Segment | None]
Ids = Sequence[int]


def named(segments: Segments, one: int) -> Segment:
    """An id that somebody still names has its segment."""
    segment = segments[one]
    assert segment is not None
    return segment


def holds(segments: Segments, ids: Ids, epoch: int, offset: int) -> bool:
    """Is the record in one of the segments? A gap needs none, an unknown epoch is in none."""
    if epoch <= NO_EPOCH:
        return epoch == GAP
    for one in ids:
        first, last, epochs = named(segments, one)[:3]
        if first <= offset <= last and epochs[offset - first] == epoch:
            return True
    return False


def closed_segments(records_each: int, log: Epochs, local_start: int) -> list[tuple[int, int]]:
    """First and last offset of each closed local segment."""
    found, first = [], local_start
    while True:
        end = (first // records_each + 1) * records_each
        if end > len(log):
            return found
        found.append((first, end - 1))
        first = end


def copied_through(setup: Setup, segments: Segments, finished: Ids, broker: Broker) -> int:
    if setup.copied_through == "highest":
        return highest_copied(segments, finished, broker.log)
    if broker.log_start == UNKNOWN:
        return -1
    chain, offset = broker.believed(), broker.log_start
    while offset < len(chain) and holds(segments, finished, chain[offset], offset):
        offset += 1
    return offset - 1


def highest_copied(segments: Segments, finished: Ids, log: Epochs) -> int:
    """The mutant: from the newest epoch down, whatever lies between."""
    for epoch in sorted(set(log), reverse=True):
        last = max(offset for offset, one in enumerate(log) if one == epoch)
        remote = [
            offset
            for one in finished
            for of, offset in named(segments, one).records()
            if of == epoch
        ]
        if remote:
            return min(last, max(remote))
    return -1


def on_chain(segment: Segment, chain: Epochs) -> list[bool]:
    return [chain[offset : offset + 1] == (epoch,) for epoch, offset in segment.records()]


def is_covered(setup: Setup, segments: Segments, finished: tuple[int, ...], one: int) -> bool:
    """Do other FINISHED segments hold all records of this one?"""
    if setup.overlap == "earlier":
        others = finished[: finished.index(one)]
    else:
        others = tuple(other for other in finished if other != one)
    records = named(segments, one).records()
    if setup.covered == "pairs":
        return all(holds(segments, others, *record) for record in records)
    ranges = [named(segments, other) for other in others]
    return all(any(seg.first <= offset <= seg.last for seg in ranges) for _, offset in records)


def next_to_copy(
    setup: Setup, roll: int, segments: Segments, finished: Ids, broker: Broker
) -> tuple[int, int] | None:
    """The first closed segment at or above the log start that is not wholly copied."""
    log = broker.log
    for first, last in closed_segments(roll, log, broker.local_start):
        if last < broker.log_start:
            continue
        if setup.copied_through == "highest":
            if last > highest_copied(segments, finished, log):
                return first, last
        elif not all(
            holds(segments, finished, log[offset], offset) for offset in range(first, last + 1)
        ):
            return first, last
    return None


def to_delete(
    setup: Setup,
    broker_number: int,
    broker: Broker,
    fold: Fold,
    segments: Segments,
    aged: int,
) -> list[tuple[int, str]]:
    """What the leader's pass would take away, and why."""
    below = sorted(
        (one for one in fold.finished if named(segments, one).last < broker.log_start),
        key=lambda one: named(segments, one).first,
    )
    found = [(one, "below") for one in (below[:1] if setup.ascending else below)]
    found += [(one, "resume") for one in fold.deleting]
    if setup.overlap != "off":
        found += [
            (one, "overlap")
            for one in fold.finished
            if is_covered(setup, segments, fold.finished, one)
        ]
    if setup.offchain != "below":
        wanted = all if setup.offchain == "part" else any
        found += [
            (one, "offchain")
            for one in fold.finished
            if not wanted(on_chain(named(segments, one), broker.believed()))
        ]
    running = broker.copying[1] if broker.copying else None
    for one in fold.started:
        segment = named(segments, one)
        own_dead = segment.copier == broker_number and segment[4:6] != broker.pair()
        late = aged >> one & 1 or (setup.own_at_once and own_dead) or not setup.wait_late_puts
        if one == running or not late:
            continue
        if not setup.recopy_first or all(
            holds(segments, fold.finished, *record) for record in segment.records()
        ):
            found.append((one, "dangling"))
    return found
