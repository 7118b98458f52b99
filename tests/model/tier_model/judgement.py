"""What an owner concludes from its files and the topic: the rows of tiering.md on taking over."""

from enum import Enum
from typing import NamedTuple

from tier_model.lineage import Segments, holds, named, on_chain
from tier_model.setup import Setup
from tier_model.state import GAP, NO_EPOCH, UNKNOWN, Broker, Epochs, Fold, Ownership


class Verdict(Enum):
    """Green, or why not."""

    GREEN = "green"
    CHAIN = "chain lost"
    UNKNOWN = "log start unknown"
    HOLE = "hole"
    END = "log end lost"
    PROVISIONAL = "nothing was ever accepted"


class Evidence(NamedTuple):
    """What an owner looks at."""

    broker: Broker
    fold: Fold
    segments: Segments
    unclean: int  # leader epoch of the last unclean election, as this owner knows it


def carried_log_start(setup: Setup, broker: Broker, carried: tuple[tuple[int, int], ...]) -> int:
    """The highest carried log start; each counts up to the first later epoch of the own chain."""
    if not carried or setup.carry == "off":
        return UNKNOWN
    highest = max(start for _, start in carried)
    if setup.carry == "text":
        return min(highest, broker.led_from)
    if setup.carry == "whole":
        return highest
    chain, best = broker.believed(), UNKNOWN
    for epoch, start in carried:
        later = next((offset for offset, one in enumerate(chain) if one > epoch), start)
        own = broker.led_from if epoch < broker.epoch else start
        best = max(best, min(start, later, own))
    return best


def judge(setup: Setup, seen: Evidence) -> tuple[Verdict, int]:
    """The verdict and, where green, the log start."""
    broker = seen.broker
    if setup.start_rule == "remote":
        return Verdict.GREEN, remote_log_start(seen)
    if end_is_lost(setup, seen):
        return Verdict.END, UNKNOWN
    start = max(broker.log_start, carried_log_start(setup, broker, seen.fold.carried))
    if setup.chain_check:
        verdict = judge_chain(setup, seen, start)
        if verdict is not None:
            return verdict, UNKNOWN
    if start == UNKNOWN:
        verdict, start = settle_log_start(setup, seen)
        if verdict is not Verdict.GREEN:
            return verdict, UNKNOWN
    if setup.hole_check and has_hole(seen, start):
        return Verdict.HOLE, UNKNOWN
    return Verdict.GREEN, start


def remote_log_start(seen: Evidence) -> int:
    """The old rule: the higher of the own checkpoint and the remote start on the own chain."""
    broker, chain = seen.broker, seen.broker.believed()
    on = [
        offset
        for one in seen.fold.finished
        for (_, offset), yes in zip(
            named(seen.segments, one).records(),
            on_chain(named(seen.segments, one), chain),
            strict=True,
        )
        if yes
    ]
    return max(broker.log_start, min(on) if on else broker.local_start)


def end_is_lost(setup: Setup, seen: Evidence) -> bool:
    """Did an accepted record name an offset at or above the log's end?"""
    if setup.end_check == "off":
        return False
    end, fold = len(seen.broker.log), seen.fold
    ids = fold.finished if setup.end_check == "finished" else fold.known()
    for one in ids:
        segment = named(seen.segments, one)
        if segment.last >= end and segment.epoch >= seen.unclean:
            return True
    return setup.end_check == "any" and any(
        start > end and epoch >= seen.unclean for epoch, start in fold.carried
    )


def judge_chain(setup: Setup, seen: Evidence, start: int) -> Verdict | None:
    broker, fold, segments = seen.broker, seen.fold, seen.segments
    chain, local_start = broker.believed(), broker.local_start
    if start != UNKNOWN and NO_EPOCH in chain[start:local_start]:
        return Verdict.CHAIN
    if start == UNKNOWN and local_start and chain[local_start - 1] == NO_EPOCH:
        for one in fold.finished:
            if reaches(segments, one, local_start):
                return Verdict.CHAIN
    if not setup.sound:
        return None
    contradicted = [
        offset
        for one in fold.finished
        if named(segments, one).epoch >= seen.unclean
        for epoch, offset in named(segments, one).records()
        if max(start, 0) <= offset < len(chain) and chain[offset] not in (epoch, NO_EPOCH, GAP)
    ]
    if not contradicted:
        return None
    return Verdict.CHAIN if min(contradicted) < local_start else Verdict.END


def reaches(segments: Segments, one: int, local_start: int) -> bool:
    """Does the segment hold the offset right below the local start?"""
    segment = named(segments, one)
    return segment.first < local_start <= segment.last + 1


def settle_log_start(setup: Setup, seen: Evidence) -> tuple[Verdict, int]:
    """Log start unknown: neither a checkpoint nor an accepted record names one."""
    broker, fold, segments = seen.broker, seen.fold, seen.segments
    chain, local_start = broker.believed(), broker.local_start
    run = local_start
    while run > 0 and holds(segments, fold.finished, chain[run - 1], run - 1):
        run -= 1
    below = any(
        offset < run and chain[offset : offset + 1] == (epoch,)
        for one in fold.finished
        for epoch, offset in named(segments, one).records()
    )
    if setup.run_whole and below:
        return Verdict.HOLE, UNKNOWN
    proved = any(epoch != GAP for epoch in chain[run:local_start]) or setup.gap_proves
    if (run < local_start and proved) or local_start == 0 or setup.vacuous:
        return Verdict.GREEN, run
    if fold.ever or setup.nothing_ever == "red":
        return Verdict.UNKNOWN, UNKNOWN
    if setup.nothing_ever == "local":
        return Verdict.GREEN, local_start
    return Verdict.PROVISIONAL, UNKNOWN


def has_hole(seen: Evidence, start: int) -> bool:
    chain = seen.broker.believed()
    return any(
        not holds(seen.segments, seen.fold.finished, chain[offset], offset)
        for offset in range(start, seen.broker.local_start)
    )


def judged(setup: Setup, seen: Evidence) -> Broker:
    """The owner after it has judged."""
    verdict, start = judge(setup, seen)
    if verdict is Verdict.GREEN:
        return seen.broker._replace(log_start=start, ownership=Ownership.READY)
    red = Ownership.PROVISIONAL if verdict is Verdict.PROVISIONAL else Ownership.RED
    return seen.broker._replace(ownership=red)


def rebuilt_chain(setup: Setup, seen: Evidence, objects: int) -> tuple[Epochs | None] | None:
    """The chain below the local start from a segment's LEADER_EPOCH index.

    Returns:
        The believed epochs in a tuple of one, None in it where they are the log's; None where no
        index serves or nothing changes.
    """
    broker, local_start = seen.broker, seen.broker.local_start
    one = pick_segment(setup, seen, objects)
    if one is None:
        return None
    index = named(seen.segments, one).index[:local_start]
    chain = None if index == broker.log[:local_start] else index
    return None if chain == broker.chain else (chain,)


def pick_segment(setup: Setup, seen: Evidence, objects: int) -> int | None:
    """The segment whose index is taken; none where nothing fits or two differ."""
    segments = seen.segments
    candidates = [
        one
        for one in seen.fold.finished
        if reaches(segments, one, seen.broker.local_start) and objects >> one & 1
    ]
    if setup.pick in ("repeated", "first"):
        repeated = dict(seen.fold.repeated) if setup.pick == "repeated" else {}
        newest = max(
            candidates,
            key=lambda one: (repeated.get(one, named(segments, one)[4:6]), one),
            default=None,
        )
        return newest if newest is not None and fits_local(setup, seen, newest) else None
    candidates = [one for one in candidates if fits_local(setup, seen, one)]
    settled = [one for one in candidates if named(segments, one).epoch >= seen.unclean]
    if setup.pick == "older":
        settled = settled or candidates
    return agreed_index(seen, settled)


def fits_local(setup: Setup, seen: Evidence, one: int) -> bool:
    """Does the index contradict no local batch, and touch the local log?"""
    index, broker = named(seen.segments, one).index, seen.broker
    log, local_start = broker.log, broker.local_start
    if not setup.touching and len(index) <= local_start:
        return False
    both = range(local_start, min(len(index), len(log)))
    if any(index[offset] != log[offset] for offset in both):
        return False
    return local_start >= len(log) or index[local_start - 1] <= log[local_start]


def agreed_index(seen: Evidence, candidates: list[int]) -> int | None:
    """The candidate whose index reaches deepest, if no other contradicts it."""
    below = {one: named(seen.segments, one).index[: seen.broker.local_start] for one in candidates}
    if not below:
        return None
    deepest = min(index.count(NO_EPOCH) for index in below.values())
    best = {index for index in below.values() if index.count(NO_EPOCH) == deepest}
    if len(best) > 1:
        return None
    (index,) = best
    for other in below.values():
        if any(a not in (NO_EPOCH, b) for a, b in zip(other, index, strict=True)):
            return None
    return next(one for one in candidates if below[one] == index)


def first_offset_never_given(fold: Fold, segments: Segments, unclean: int) -> int:
    """Below it every offset is proved to have been given, by an accepted record."""
    ends = [
        named(segments, one).last + 1
        for one in fold.known()
        if named(segments, one).epoch >= unclean
    ]
    starts = [start for epoch, start in fold.carried if epoch >= unclean]
    return max([0, *ends, *starts])
