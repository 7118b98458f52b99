"""The state tables and the fence, record by record; stories B* are of the model's findings."""

import re
from dataclasses import replace
from enum import Enum
from itertools import product
from pathlib import Path

import pytest

from rlmm.api import LOWEST_FENCE, REMOVER_FENCE, Fence, PartitionDeleteState
from rlmm.events import SegmentAdded, SegmentUpdated, Stamp
from rlmm.lifecycle import (
    PARTITION_TRANSITIONS,
    SEGMENT_TRANSITIONS,
    PartitionFacts,
    Verdict,
    apply,
)
from rlmm.testing import PARTITION, segment, update
from rsm_plugins.segment import SegmentState
from tests.support.tier.folded_topic import A, B, Topic, make_barrier

PAGE = Path(__file__).parents[3] / "docs" / "tiering-fence.md"

STARTED = SegmentState.COPY_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED
P_MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
P_STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED
P_FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED


@pytest.fixture
def topic() -> Topic:
    return Topic()


C = Fence(3, 1)
S0, S1 = segment(1, 0, 9), segment(2, 10, 19)


def brought_to(state: SegmentState | None) -> Topic:
    topic = Topic()
    if state is not None:
        topic.add(S0)
    if state in {FINISHED, DELETING}:
        topic.move(S0, FINISHED)
    if state is DELETING:
        topic.move(S0, DELETING)
    return topic


@pytest.mark.parametrize(
    ("present", "wanted"), list(product([None, STARTED, FINISHED, DELETING], SegmentState))
)
def test_exactly_the_moves_of_the_table_are_made(
    present: SegmentState | None, wanted: SegmentState
) -> None:
    topic = brought_to(present)
    verdict = topic.add(S0) if wanted is STARTED else topic.move(S0, wanted)
    legal = wanted in SEGMENT_TRANSITIONS[present]
    assert (verdict is Verdict.ACCEPTED) == legal
    now = topic.state(S0)
    assert now == ((None if wanted is DELETED else wanted) if legal else present)
    assert topic.facts.live_count == (0 if now is None else 1)


@pytest.mark.parametrize("present", [STARTED, FINISHED, DELETING])
@pytest.mark.parametrize("seen", [None, STARTED, FINISHED])
def test_a_copy_that_is_finished_is_not_deleted_as_a_dangling_one(
    present: SegmentState, seen: SegmentState | None
) -> None:
    """Its FINISHED landed after the validation, and the topic has lost the barrier (finding F5)."""
    topic = brought_to(present)
    event = SegmentUpdated(replace(update(S0, DELETING), seen_state=seen), Stamp(B))
    legal = not (seen is STARTED and present is FINISHED)
    assert topic.read(event) is (Verdict.ACCEPTED if legal else Verdict.ILLEGAL_TRANSITION)
    assert topic.state(S0) is (DELETING if legal else FINISHED)
    assert topic.facts.fence == B


def test_an_update_cannot_say_started(topic: Topic) -> None:
    topic.add(S0)
    assert topic.move(S0, STARTED) is Verdict.ILLEGAL_TRANSITION


def test_a_full_record_can_only_say_started(topic: Topic) -> None:
    topic.add(S0)
    assert topic.add(replace(S0, state=FINISHED)) is Verdict.ILLEGAL_TRANSITION
    assert topic.state(S0) is STARTED


@pytest.mark.parametrize(
    ("present", "wanted"), list(product([None, *PartitionDeleteState], PartitionDeleteState))
)
def test_partitions_die_by_their_table(
    present: PartitionDeleteState | None, wanted: PartitionDeleteState
) -> None:
    topic = Topic()
    for state in PartitionDeleteState:
        if present is not None and state <= present:
            topic.partition(state)
    verdict = topic.partition(wanted)
    legal = wanted in PARTITION_TRANSITIONS[present]
    assert (verdict is Verdict.ACCEPTED) == legal
    assert topic.facts.delete_state == (wanted if legal else present)


def test_a_partition_is_not_finished_while_segments_are_left(topic: Topic) -> None:
    topic.add(S0)
    topic.partition(P_MARKED)
    topic.partition(P_STARTED)
    assert topic.partition(P_FINISHED) is Verdict.SEGMENTS_LEFT
    topic.move(S0, DELETING, REMOVER_FENCE)
    topic.move(S0, DELETED, REMOVER_FENCE)
    assert topic.partition(P_FINISHED) is Verdict.ACCEPTED


def test_the_first_finish_sets_the_order_and_a_barrier_does_not_change_it(topic: Topic) -> None:
    topic.add(S0)
    topic.move(S0, FINISHED)
    topic.barrier(B)
    entry = topic.entry(S0)
    assert entry is not None
    assert entry.finished_order == 1
    assert entry.started_seen_ms == 1_000


def test_a_repeated_started_does_not_begin_the_copy_maximum_anew(topic: Topic) -> None:
    topic.add(S0)
    topic.barrier(B)  # repeats it, in a full record
    topic.add(S0, B)
    entry = topic.entry(S0)
    assert entry is not None
    assert entry.started_seen_ms == 1_000


def test_a_lower_pair_changes_nothing_from_the_barrier_on(topic: Topic) -> None:
    topic.add(S0)
    topic.barrier(B)
    assert topic.move(S0, FINISHED, A) is Verdict.FENCED
    assert topic.move(S0, FINISHED, B) is Verdict.ACCEPTED
    assert topic.facts.fence == B


def test_a_record_without_a_pair_counts_as_lowest(topic: Topic) -> None:
    assert topic.add(S0, LOWEST_FENCE) is Verdict.ACCEPTED
    topic.barrier(A)
    assert topic.move(S0, FINISHED, LOWEST_FENCE) is Verdict.FENCED


def test_incarnations_are_ordered_within_an_epoch(topic: Topic) -> None:
    topic.add(S0, Fence(1, 2))
    assert topic.move(S0, FINISHED, Fence(1, 1)) is Verdict.FENCED
    assert topic.move(S0, FINISHED, Fence(1, 3)) is Verdict.ACCEPTED


def test_a_refused_barrier_raises_the_fence_all_the_same(topic: Topic) -> None:
    topic.add(S0)
    stale = make_barrier([S0], B)
    topic.move(S0, FINISHED)  # lands before the barrier that says STARTED
    assert [topic.read(event) for event in stale] == [Verdict.ILLEGAL_TRANSITION]
    assert topic.move(S0, DELETING, A) is Verdict.FENCED
    assert topic.state(S0) is FINISHED


def test_a_barrier_names_no_segment_that_is_forgotten_by_then(topic: Topic) -> None:
    """Its offsets would look as given under the new pair: log end lost, nothing being so (F2)."""
    topic.add(S0)
    topic.add(S1)
    stale = make_barrier([S0, S1], C)
    topic.barrier(B)
    topic.move(S1, DELETING, B)
    topic.move(S1, DELETED, B)
    assert [topic.read(event) for event in stale] == [Verdict.UNKNOWN_SEGMENT]
    assert topic.state(S1) is None
    assert (topic.facts.fence, topic.facts.live_count) == (C, 1)
    assert C.leader_epoch not in topic.history.given_ends
    assert topic.move(S0, DELETING, B) is Verdict.FENCED
    assert topic.add(S1, C) is Verdict.ACCEPTED, "a copy names an unknown id"


def test_an_empty_partition_gets_a_barrier_too(topic: Topic) -> None:
    assert topic.barrier(B) == [Verdict.ACCEPTED] * 3
    assert topic.facts.live_count == 0
    assert topic.add(S0, A) is Verdict.FENCED


def test_from_the_mark_on_nobody_else_is_heard(topic: Topic) -> None:
    topic.add(S0)
    topic.partition(P_MARKED)
    assert topic.add(S1, Fence(2**31 - 2, 99)) is Verdict.FENCED
    assert topic.move(S0, FINISHED, B) is Verdict.FENCED


def test_a_mark_with_a_low_pair_closes_the_partition_too(topic: Topic) -> None:
    topic.add(S0, A)
    topic.partition(P_MARKED, A)
    assert topic.add(S1, B) is Verdict.PARTITION_CLOSED
    assert topic.move(S0, FINISHED, B) is Verdict.PARTITION_CLOSED
    assert topic.move(S0, DELETING, B) is Verdict.ACCEPTED


def test_a_barrier_of_a_restarted_tier_does_not_stop_the_remover(topic: Topic) -> None:
    topic.add(S0)
    topic.partition(P_MARKED)
    topic.barrier(Fence(9, 9))
    assert topic.partition(P_STARTED) is Verdict.ACCEPTED


def test_a_late_record_of_a_finished_partition_is_refused(topic: Topic) -> None:
    for state in PartitionDeleteState:
        topic.partition(state)
    assert topic.add(S0, Fence(50, 1)) is Verdict.FENCED


def test_the_highest_metadata_offset_is_kept_also_of_refused_records(topic: Topic) -> None:
    topic.add(S0, B, 7)
    topic.add(S1, A, 9)
    assert topic.facts.metadata_offset == 9


def test_the_mark_is_seen_once(topic: Topic) -> None:
    topic.partition(P_MARKED)
    topic.partition(P_MARKED)
    assert topic.facts.marked_seen_ms == 1_000


def test_custom_metadata_survives_updates_that_do_not_repeat_it(topic: Topic) -> None:
    topic.add(S0)
    topic.read(SegmentUpdated(update(S0, FINISHED, b"key"), Stamp(A)))
    topic.move(S0, DELETING)
    entry = topic.entry(S0)
    assert entry is not None
    assert entry.metadata.custom_metadata == b"key"


def test_a_barrier_has_the_form_that_kafkas_readers_take() -> None:
    (repeated,) = make_barrier([S0, S1], B)
    assert isinstance(repeated, SegmentAdded)
    assert repeated.metadata.id == S1.id
    finished = replace(S1, state=FINISHED, custom_metadata=b"key")
    (repeated_update,) = make_barrier([S0, finished], B)
    assert isinstance(repeated_update, SegmentUpdated)
    assert repeated_update.update.custom_metadata == b"key"


def test_validating_does_not_need_a_segment_for_a_fenced_record() -> None:
    facts = PartitionFacts(PARTITION, fence=B)
    applied = apply(facts, None, SegmentAdded(S0, Stamp(A)), order=0, seen_ms=0)
    assert applied.verdict is Verdict.FENCED
    assert applied.entry is None


def drawn(prefix: str) -> set[tuple[str, str]]:
    """The arrows of the page's diagram whose states begin with `prefix`, ends left out."""
    diagrams = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", PAGE.read_text(), re.DOTALL)
    of_prefix = next(each for each in diagrams if f"[*] --> {prefix}" in each)
    return set(re.findall(r"(\w+) --> (\w+):", of_prefix))


@pytest.mark.parametrize(
    ("prefix", "table"), [("COPY", SEGMENT_TRANSITIONS), ("DELETE", PARTITION_TRANSITIONS)]
)
def test_the_page_draws_the_table(prefix: str, table: dict[Enum | None, frozenset[Enum]]) -> None:
    arrows = {
        (old.name.replace("_SEGMENT", ""), new.name.replace("_SEGMENT", ""))
        for old, news in table.items()
        if old is not None
        for new in news
    }
    assert drawn(prefix) == arrows
