"""What an audit finds, and above all what it does not find while brokers are at work."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from kafka_protocol.types import TopicIdPartition
from rlmm.lifecycle import SegmentEntry
from rsm_plugins.segment import SegmentState
from tests.support.samples.remote import (
    COPY_MAX_MS,
    DELETING,
    FINISHED,
    NOW_MS,
    PARTITION,
    STARTED,
    entry,
    held,
    metadata,
)
from tidemark.remote.audit import (
    DANGLING_SLACK_MS,
    SUFFIXES,
    Finding,
    Held,
    Kind,
    Observed,
    layout_bases,
    validate,
)

ONE = metadata(0, 9)
(BASE,) = layout_bases(ONE)


def seen(*entries: SegmentEntry, **more: object) -> Observed:
    return Observed(**{"partition": PARTITION, "is_known": True, "entries": entries, **more})  # type: ignore[arg-type]


def found(observed: Observed) -> list[Finding]:
    return list(validate(observed, now_ms=NOW_MS, copy_max_ms=COPY_MAX_MS))


def kinds(observed: Observed) -> list[Kind]:
    return [one.kind for one in found(observed)]


def test_a_whole_segment_gives_no_finding() -> None:
    assert kinds(seen(entry(ONE), held=held(ONE))) == []


@pytest.mark.parametrize("absent", SUFFIXES)
def test_an_object_that_is_not_there_is_missing(absent: str) -> None:
    others = [suffix for suffix in SUFFIXES if suffix != absent]
    (one,) = found(seen(entry(ONE), held=held(ONE, *others)))
    assert one.kind is Kind.MISSING
    assert one.keys == (f"{BASE}{absent}",)
    assert (one.start_offset, one.end_offset) == (0, 9)


def test_a_segment_of_which_nothing_is_there_is_missing_once() -> None:
    (one,) = found(seen(entry(ONE), held={}))
    assert one.kind is Kind.MISSING
    assert len(one.keys) == 3


@pytest.mark.parametrize("size_bytes", [0, 999, 1_001])
def test_a_log_of_another_size_is_short(size_bytes: int) -> None:
    (one,) = found(seen(entry(ONE), held=held(ONE, log_bytes=size_bytes)))
    assert one.kind is Kind.SHORT
    assert one.detail == f"{size_bytes} bytes, the metadata says 1000"


def test_what_was_read_wrong_is_told() -> None:
    broken = {ONE.id.id: (Kind.CORRUPT, "batch at position 7: its checksum is wrong")}
    (one,) = found(seen(entry(ONE), held=held(ONE), broken=broken))
    assert (one.kind, one.detail) == (Kind.CORRUPT, "batch at position 7: its checksum is wrong")


def test_without_a_listing_only_what_was_read_counts() -> None:
    assert kinds(seen(entry(ONE))) == []
    assert kinds(seen(entry(ONE), broken={ONE.id.id: (Kind.MISSING, "")})) == [Kind.MISSING]


@pytest.mark.parametrize("state", [STARTED, DELETING])
def test_copies_and_deletions_under_way_may_have_any_objects(state: SegmentState) -> None:
    one = replace(ONE, state=state)
    for count in range(4):
        objects = held(one, *SUFFIXES[:count]) if count else {}
        assert kinds(seen(entry(one), held=objects)) == []


def test_a_copy_that_began_longer_ago_than_any_may_take_is_dangling() -> None:
    edge = COPY_MAX_MS + DANGLING_SLACK_MS
    for age_ms, expected in ((edge, []), (edge + 1, [Kind.DANGLING])):
        one = metadata(0, 9, state=STARTED, age_ms=age_ms)
        assert kinds(seen(entry(one), held={})) == expected
        assert kinds(seen(entry(one), held={}, is_closing=True)) == []


def test_objects_that_the_metadata_does_not_know_are_orphans() -> None:
    (one,) = found(seen(held=held(ONE)))
    assert (one.kind, one.is_ours, one.size_bytes) == (Kind.ORPHAN, True, 1_020)
    assert one.keys == tuple(f"{BASE}{suffix}" for suffix in SUFFIXES)


def test_a_partition_that_no_record_ever_named_is_not_ours() -> None:
    (one,) = found(seen(is_known=False, held=held(ONE)))
    assert (one.kind, one.is_ours) == (Kind.ORPHAN, False)


def test_the_same_id_at_another_offset_is_another_object() -> None:
    elsewhere = metadata(5, 9, number=0)
    assert kinds(seen(entry(ONE), held=held(ONE) | held(elsewhere))) == [Kind.ORPHAN]


def test_the_later_of_two_copies_of_the_same_offsets_is_a_duplicate() -> None:
    again = metadata(0, 9, number=77)
    observed = seen(entry(ONE, 5), entry(again, 9), held=held(ONE) | held(again))
    (one,) = found(observed)
    assert (one.kind, one.segment_id) == (Kind.DUPLICATE, again.id.id)


def test_the_same_offsets_of_another_lineage_are_no_duplicate() -> None:
    other = metadata(0, 9, number=77, epoch=1)
    assert kinds(seen(entry(ONE, 5), entry(other, 9), held=held(ONE) | held(other))) == []


def test_what_another_lineage_copies_below_its_first_epoch_is_no_duplicate() -> None:
    """The first copy continues in the lineage that was given up, and ends for nobody else."""
    below, above = metadata(0, 4, number=77), metadata(5, 20, number=78, epoch=1)
    held_all = held(ONE) | held(below) | held(above)
    assert kinds(seen(entry(ONE, 5), entry(below, 9), entry(above, 11), held=held_all)) == []


def test_objects_in_a_possible_place_are_no_orphans_and_one_place_is_read() -> None:
    def two_places(_: object) -> list[str]:
        return ["ab/" + BASE, BASE]

    (one,) = found(seen(entry(ONE), held=held(ONE), bases=two_places))
    assert one.kind is Kind.MISSING
    assert one.keys[0] == f"ab/{BASE}.log"
    under_way = entry(replace(ONE, state=STARTED))
    assert kinds(seen(under_way, held=held(ONE), bases=two_places)) == []


# ---------------------------------------------------------------------- a cluster at work

LIFE = (
    "started",
    "put .log",
    "put .indexes",
    "put .manifest",
    "finished",
    "delete started",
    "remove .manifest",
    "remove .log",
    "remove .indexes",
    "delete finished",
)
"""A segment's life in the order of docs/tiering.md: what is durable after each step."""


def state_after(steps: int) -> SegmentState | None:
    done = LIFE[:steps]
    if "delete finished" in done or "started" not in done:
        return None
    if "delete started" in done:
        return DELETING
    return FINISHED if "finished" in done else STARTED


def objects_after(steps: int) -> set[str]:
    there: set[str] = set()
    for step in LIFE[:steps]:
        verb, _, suffix = step.partition(" ")
        if verb == "put":
            there.add(suffix)
        elif verb == "remove":
            there.discard(suffix)
    return there


def observations() -> Iterator[tuple[int, Observed]]:
    """Every way in which an audit's looks can fall between the steps of a segment's life.

    The looks: M1, one for each object as the listing passes it, the reading of the contents, M2.
    """
    for looks in combinations_with_replacement(range(len(LIFE) + 1), 6):
        m1, *listing, contents, m2 = looks
        listed = {
            suffix
            for suffix, steps in zip((".indexes", ".log", ".manifest"), listing, strict=True)
            if suffix in objects_after(steps)
        }
        states = {state_after(steps) for steps in range(m1, m2 + 1)}
        state = state_after(m2)
        broken = {}
        if state_after(m1) is FINISHED and objects_after(contents) != set(SUFFIXES):
            broken[ONE.id.id] = (Kind.MISSING, "it could not be found when it was read")
        now = [] if state is None else [entry(replace(ONE, state=state))]
        yield (
            sum(looks),
            seen(
                *now,
                in_motion={ONE.id.id} if len(states) > 1 else set(),
                held=held(ONE, *listed) if listed else {},
                broken=broken,
            ),
        )


def test_no_interleaving_with_a_copy_or_a_deletion_gives_a_finding() -> None:
    looked = 0
    for _, observed in observations():
        looked += 1
        assert kinds(observed) == []
    assert looked == 8_008


def test_without_the_ids_in_motion_there_would_be_false_findings() -> None:
    wrong = {
        kind for _, observed in observations() for kind in kinds(replace(observed, in_motion=set()))
    }
    assert wrong == {Kind.MISSING, Kind.ORPHAN}


def test_damage_is_found_in_each_interleaving_with_a_segment_at_rest() -> None:
    still = [one for _, one in observations() if one.entries and not one.in_motion]
    still = [one for one in still if one.entries[0].metadata.state is FINISHED]
    assert still
    for observed in still:
        assert kinds(replace(observed, held={})) == [Kind.MISSING]
        assert observed.held is not None
        leaked: dict[str, Held] = {**observed.held, **held(metadata(50, 59))}
        assert kinds(replace(observed, held=leaked)) == [Kind.ORPHAN]


def test_a_partition_of_a_deleted_topic_is_validated_like_any_other() -> None:
    gone = TopicIdPartition(bytes(16), 3, "gone")
    assert kinds(seen(partition=gone, held=held(ONE))) == [Kind.ORPHAN]
    assert kinds(seen(entry(replace(ONE, state=DELETING)), partition=gone, held=held(ONE))) == []
