"""What to copy and what to expire, by small tables of facts."""

from random import Random

import pytest
from msgspec.structs import replace

from kafka_protocol.types import EpochEntry
from rlm.link.messages import ClosedLocalSegment, PartitionSettings
from rlm.maintenance import copy_policy, retention_policy
from rlm.maintenance.copy_policy import PASS_MS, PASS_SEGMENTS_MAX, CopyPriority, is_over, queue_key
from rlm.maintenance.log_facts import LogFacts
from rlmm import lineage
from rsm_plugins.segment import RemoteLogSegmentId, SegmentState
from tests.support.tier.facts import facts, local, remote
from tests.support.tier.log_in_memory import PARTITION

CLOSED = [local(0, 9), local(10, 19), local(20, 29)]
ACTIVE = PartitionSettings()


def base_of(segment: ClosedLocalSegment | None) -> int | None:
    return None if segment is None else segment.base_offset


def test_the_first_segment_that_is_not_wholly_remote_is_copied() -> None:
    assert base_of(copy_policy.next_to_copy(facts(CLOSED, []), ACTIVE, 0)) == 0
    assert base_of(copy_policy.next_to_copy(facts(CLOSED, [remote(1, 0, 9)]), ACTIVE, 0)) == 10
    partly = [remote(1, 0, 9), remote(2, 10, 14)]
    assert base_of(copy_policy.next_to_copy(facts(CLOSED, partly), ACTIVE, 0)) == 10


def test_a_range_that_only_another_lineage_has_is_copied_again() -> None:
    other = [remote(1, 0, 9, epochs=((7, 0),))]
    assert base_of(copy_policy.next_to_copy(facts(CLOSED, other), ACTIVE, 0)) == 0


OTHERWISE = ((1, 0), (3, 15))
"""The chain of a leader that was elected uncleanly and lacked what epoch 1 had from 15 on."""


def test_a_segment_that_ends_off_the_chain_is_copied_again() -> None:
    """No follower can begin at the end of that segment (model finding F1)."""
    given = facts(CLOSED, TWO, chain=OTHERWISE)
    assert given.copied_through() == lineage.CopiedRun(9, 1)
    assert given.stored_through() == lineage.CopiedRun(14, 1)
    assert base_of(copy_policy.next_to_copy(given, ACTIVE, 0)) == 10


def test_a_segment_counts_as_a_copy_below_the_own_high_watermark_alone() -> None:
    assert facts(CLOSED, TWO, high_watermark=20).copied_through() == lineage.CopiedRun(19, 1)
    assert facts(CLOSED, TWO, high_watermark=19).copied_through() == lineage.CopiedRun(9, 1)


def test_below_the_local_start_counts_what_is_stored() -> None:
    """Nothing can be copied again there, and nothing above would ever go."""
    other_borders = [*TWO, remote(3, 15, 29, epochs=((3, 15),))]
    given = facts([local(15, 29)], other_borders, local_start=15, chain=OTHERWISE)
    assert given.copied_through() == lineage.CopiedRun(29, 3)
    nothing_more = facts([local(15, 29)], TWO, local_start=15, chain=OTHERWISE)
    assert nothing_more.copied_through() == lineage.CopiedRun(14, 1)
    holed = facts([], TWO[1:], local_start=15, chain=OTHERWISE)
    assert holed.copied_through() is None


def test_a_started_copy_covers_nothing() -> None:
    started = [remote(1, 0, 9, state=SegmentState.COPY_SEGMENT_STARTED)]
    assert base_of(copy_policy.next_to_copy(facts(CLOSED, started), ACTIVE, 0)) == 0


def test_no_segment_below_the_log_start_or_above_last_stable_is_copied() -> None:
    assert base_of(copy_policy.next_to_copy(facts(CLOSED, [], start=12), ACTIVE, 0)) == 10
    assert copy_policy.next_to_copy(facts(CLOSED, [], stable=9), ACTIVE, 0) is None


def test_a_segment_waits_for_its_lag_in_time_or_bytes() -> None:
    settings = PartitionSettings(copy_lag_ms=1_000, copy_lag_bytes=-1)
    young = [local(0, 9, at_ms=500)]
    assert copy_policy.next_to_copy(facts(young, []), settings, 1_000) is None
    assert base_of(copy_policy.next_to_copy(facts(young, []), settings, 1_500)) == 0
    by_bytes = PartitionSettings(copy_lag_ms=1_000, copy_lag_bytes=250)
    big = facts(young, [], local_bytes=400)
    assert base_of(copy_policy.next_to_copy(big, by_bytes, 1_000)) == 0


def test_a_segment_from_the_future_does_not_wait_for_its_time() -> None:
    ahead = facts([local(0, 9, at_ms=2_001)], [])
    by_time = PartitionSettings(copy_lag_ms=1_000, copy_lag_bytes=-1)
    assert base_of(copy_policy.next_to_copy(ahead, by_time, 2_000)) == 0
    assert copy_policy.next_to_copy(ahead, by_time, 2_001) is None
    never = PartitionSettings(copy_lag_ms=-1, copy_lag_bytes=-1)
    assert copy_policy.next_to_copy(ahead, never, 2_000) is None


def test_a_time_lag_of_zero_means_at_once_whatever_the_lag_in_bytes() -> None:
    at_once = PartitionSettings(copy_lag_ms=0, copy_lag_bytes=1)
    alone = facts([local(0, 9, at_ms=500)], [], local_bytes=100)
    assert base_of(copy_policy.next_to_copy(alone, at_once, 500)) == 0


def test_epochs_of_a_copy_are_clipped_to_the_segment() -> None:
    given = facts(CLOSED, [], chain=((1, 0), (3, 15), (4, 25)))
    made = copy_policy.started_metadata(
        given,
        CLOSED[1],
        id=RemoteLogSegmentId(PARTITION, b"i" * 16),
        size_bytes=5,
        txn_index_empty=True,
        broker_id=1,
        now_ms=2,
    )
    assert made.leader_epochs == (EpochEntry(1, 10), EpochEntry(3, 15))


TWO = [remote(1, 0, 9, at_ms=100), remote(2, 10, 19, at_ms=200)]


def move(given: LogFacts, **settings: int) -> tuple[int, str] | None:
    found = retention_policy.log_start_by_retention(given, PartitionSettings(**settings), 1_000)
    return None if found is None else (found.offset, found.reason)


def test_time_retention_stops_at_the_first_young_segment() -> None:
    given = facts([], TWO, local_start=20)
    assert move(given, retention_ms=850) == (10, "time")
    assert move(given, retention_ms=100) == (20, "time")
    assert move(given, retention_ms=900) is None
    assert move(given) is None


def test_a_segment_that_holds_the_log_start_alone_is_given_up_too() -> None:
    assert move(facts([], TWO, start=9, local_start=20), retention_ms=850) == (10, "time")
    assert aged(facts(CLOSED, [], start=9), retention_bytes=200) == (10, "size")


def test_retention_of_zero_keeps_nothing_and_of_minus_one_everything() -> None:
    small = [remote(1, 0, 9, size=1)]
    assert move(facts([], TWO, local_start=20), retention_ms=0) == (20, "time")
    assert move(facts([], TWO, local_start=20), retention_bytes=0) == (20, "size")
    assert move(facts([], small, local_start=10), retention_ms=-1, retention_bytes=-1) is None
    assert aged(facts(CLOSED, []), retention_ms=0) == (30, "time")
    assert aged(facts([local(0, 9, size=1)], [])) is None


def test_what_time_gave_up_counts_no_more_for_the_size() -> None:
    given = facts([], TWO, local_start=20)
    assert move(given, retention_ms=850, retention_bytes=150) == (10, "time")


def test_a_young_segment_inside_an_old_one_keeps_nothing_behind_it() -> None:
    """The one inside was finished first: neither is superseded."""
    inside, around = remote(1, 5, 14, at_ms=900), remote(2, 0, 19)
    given = facts([], [inside, around, remote(3, 20, 29)], local_start=30)
    assert move(given, retention_ms=500) == (30, "time")


def test_a_segment_behind_a_gap_is_not_given_up() -> None:
    given = facts([], [TWO[0], remote(3, 20, 29)], local_start=30)
    assert move(given, retention_ms=1) == (10, "time")


def test_what_is_remote_of_a_dropped_topic_is_given_up() -> None:
    def dropped(given: LogFacts) -> retention_policy.MoveLogStart | None:
        drop = PartitionSettings(mode="drop")
        return retention_policy.log_start_by_retention(given, drop, 1_000)

    assert dropped(facts([], TWO, local_start=20)) == retention_policy.MoveLogStart(20, "drop")
    assert dropped(facts([], TWO, start=20, local_start=20)) is None
    # An in-sync replica has less on its disk, and may lead next.
    less = facts([], TWO, local_start=10)
    for highest, start in ((9, 10), (15, 15), (1_200, 1_000)):
        log = replace(less.log, members_highest_log_start=highest)
        moved = dropped(LogFacts(log, less.remote))
        assert moved == retention_policy.MoveLogStart(start, "drop")


def test_size_retention_counts_bytes_in_both_tiers_once() -> None:
    given = facts(CLOSED, TWO, local_bytes=330)
    assert move(given, retention_bytes=330) is None
    assert move(given, retention_bytes=231) is None
    assert move(given, retention_bytes=230) == (10, "size")


def test_size_retention_counts_offsets_in_two_segments_once() -> None:
    """Of two leaders that closed their segments at different offsets."""
    overlapping = [remote(1, 0, 9, size=100), remote(2, 5, 14, size=100)]
    given = facts([], overlapping, local_start=15, local_bytes=10)
    assert move(given, retention_bytes=160) is None
    assert move(given, retention_bytes=150) is None
    assert move(given, retention_bytes=60) == (10, "size")
    assert move(given, retention_bytes=61) is None
    assert move(given, retention_bytes=10) == (15, "size")


def test_size_retention_counts_a_segment_of_two_epochs_whole() -> None:
    two_epochs = remote(2, 10, 19, epochs=((1, 0), (2, 14)))
    given = facts([], [TWO[0], two_epochs], local_start=20, chain=((1, 0), (2, 14)))
    assert move(given, retention_bytes=101) is None
    assert move(given, retention_bytes=100) == (10, "size")


def test_size_retention_rounds_the_bytes_of_a_part_down() -> None:
    overlapping = [remote(1, 0, 9), remote(2, 8, 14, size=11), remote(3, 13, 19, size=11)]
    given = facts([], overlapping, local_start=20)  # 5 of 7 offsets, of two: 7 bytes each
    assert move(given, retention_bytes=15) is None
    assert move(given, retention_bytes=14) == (10, "size")


def test_what_is_not_copied_is_never_given_up_however_old_or_big() -> None:
    assert move(facts(CLOSED, [], local_bytes=10_000), retention_ms=1, retention_bytes=1) is None
    behind_a_gap = [remote(2, 10, 19)]
    assert move(facts(CLOSED, behind_a_gap), retention_ms=1, retention_bytes=1) is None


def aged(given: LogFacts, **settings: int) -> tuple[int, str] | None:
    """Of a topic that is copied no more."""
    read_only = PartitionSettings(mode="read_only", **settings)
    found = retention_policy.log_start_by_retention(given, read_only, 1_000)
    return None if found is None else (found.offset, found.reason)


def test_what_is_copied_no_more_is_given_up_where_nothing_is_remote() -> None:
    given = facts(CLOSED, [], local_bytes=330)
    assert aged(given, retention_ms=999) == (30, "time")
    assert aged(given, retention_ms=1_000) is None
    assert aged(given, retention_bytes=230) == (10, "size")
    assert aged(given, retention_bytes=231) is None
    assert aged(given) is None
    young = [local(0, 9), local(10, 19, at_ms=500), local(20, 29)]
    assert aged(facts(young, []), retention_ms=999) == (10, "time")


def test_no_bytes_are_kept_of_what_is_copied_no_more_where_none_are_wanted() -> None:
    given = facts(CLOSED, [], local_bytes=330)
    assert aged(given, retention_bytes=0) == (30, "size")
    assert aged(given, retention_bytes=-1) is None


def test_a_topic_no_longer_copied_drops_only_committed_segments() -> None:
    given = facts(CLOSED, [], local_bytes=330, high_watermark=20)
    assert aged(given, retention_bytes=0) == (20, "size")
    assert aged(facts(CLOSED, [], high_watermark=19), retention_ms=1) == (10, "time")


def test_bytes_below_the_log_start_do_not_count_for_what_is_copied_no_more() -> None:
    given = facts(CLOSED, [], start=15, local_bytes=330)
    assert aged(given, retention_bytes=130) == (20, "size")
    assert aged(given, retention_bytes=131) is None


def test_records_without_a_time_that_are_copied_no_more_go_by_size_alone() -> None:
    timeless = facts([local(0, 9, at_ms=-1)], [], local_bytes=200)
    assert aged(timeless, retention_ms=1) is None
    assert aged(timeless, retention_ms=1, retention_bytes=100) == (10, "size")


def test_what_is_copied_no_more_stays_as_long_as_something_is_remote() -> None:
    every = {"retention_ms": 1, "retention_bytes": 1}
    assert aged(facts(CLOSED, TWO, local_bytes=330), **every) == (20, "size")
    assert aged(facts(CLOSED, [remote(2, 10, 19)]), **every) is None


def test_a_segment_closed_and_copied_since_the_description_counts_once() -> None:
    given = facts(CLOSED[:1], TWO, local_bytes=200)  # the second segment was active then
    assert move(given, retention_bytes=200) is None
    assert move(given, retention_bytes=101) is None
    assert move(given, retention_bytes=100) == (10, "size")


def test_closed_segments_that_the_description_leaves_out_count_once() -> None:
    known = {"local_bytes": 330, "closed_from": 20, "closed_bytes_below": 200}
    given = facts(CLOSED[2:], TWO, **known)
    assert move(given, retention_bytes=231) is None
    assert move(given, retention_bytes=230) == (10, "size")
    unknown = known | {"closed_from": 21, "closed_bytes_below": 210}  # less is copied now
    assert move(facts([], TWO, **unknown), retention_bytes=431) is None
    assert move(facts([], TWO, **unknown), retention_bytes=430) == (10, "size")


def test_local_bytes_of_which_the_first_offset_is_copied_count_once() -> None:
    active = facts([], [remote(1, 0, 10)], local_start=10, local_bytes=50)
    for given in (active, facts(CLOSED[:2], [remote(1, 0, 10)])):
        assert move(given, retention_bytes=1) is None
        assert move(given, retention_bytes=0) == (11, "size")


def test_a_segment_of_which_another_leader_copied_a_part_counts_once() -> None:
    part = remote(2, 10, 18, size=90)
    given = facts(CLOSED, [TWO[0], part], local_bytes=330)
    assert move(given, retention_bytes=300) is None, "330 bytes are there"
    in_active = facts(CLOSED, [*TWO, remote(3, 20, 34, size=150)], local_bytes=400)
    assert move(in_active, retention_bytes=350) is None, "400 bytes are there"


def test_only_finished_segments_on_the_chain_count() -> None:
    others = [
        remote(3, 0, 9, epochs=((9, 0),), size=10_000),
        remote(4, 10, 19, state=SegmentState.COPY_SEGMENT_STARTED, size=10_000),
    ]
    assert move(facts(CLOSED, TWO + others, local_bytes=330), retention_bytes=330) is None


def reasons(
    given: LogFacts, log_start: int, own: set[bytes] | None = None
) -> list[tuple[int, str]]:
    found = retention_policy.deletions(given, log_start, own or set())
    return [(each.metadata.start_offset, each.reason) for each in found]


def test_deletions_are_in_offset_order_and_keep_what_straddles() -> None:
    given = facts([], [TWO[1], TWO[0], remote(3, 20, 29)], local_start=30)
    assert reasons(given, 20) == [(0, "below log start"), (10, "below log start")]
    assert reasons(given, 15) == [(0, "below log start")]


def test_a_dangling_copy_goes_and_an_own_running_one_stays() -> None:
    started = remote(5, 20, 29, state=SegmentState.COPY_SEGMENT_STARTED)
    given = facts(CLOSED, [started])
    assert reasons(given, 0) == [(20, "dangling")]
    assert reasons(given, 0, {started.metadata.id.id}) == []


def test_a_deletion_that_was_begun_continues() -> None:
    begun = remote(5, 20, 29, state=SegmentState.DELETE_SEGMENT_STARTED)
    assert reasons(facts(CLOSED, [begun]), 0) == [(20, "begun")]


def test_a_deletion_is_due_when_no_put_of_that_copy_can_land() -> None:
    assert not retention_policy.deletion_is_due(1_000, now_ms=1_050, copy_max_ms=50)
    assert retention_policy.deletion_is_due(1_000, now_ms=1_051, copy_max_ms=50)


def test_of_two_copies_the_one_finished_first_stays() -> None:
    later = remote(9, 0, 9)
    given = facts(CLOSED, [TWO[0], later])
    found = retention_policy.deletions(given, 0, set())
    assert [(each.metadata.id, each.reason) for each in found] == [(later.metadata.id, "overlap")]


def test_of_two_copies_the_one_finished_later_is_deleted_in_any_order() -> None:
    later = remote(1, 0, 9)._replace(finished_order=1)
    earlier = remote(2, 0, 9)._replace(finished_order=0)
    found = retention_policy.deletions(facts(CLOSED, [later, earlier]), 0, set())
    assert [(each.metadata.id, each.reason) for each in found] == [(later.metadata.id, "overlap")]


def test_a_segment_is_given_up_for_none_that_was_finished_later() -> None:
    """All leaders go by the order of the metadata topic, or two of them delete both copies."""
    inside = remote(1, 5, 9)._replace(finished_order=6)
    around = remote(2, 0, 19)._replace(finished_order=7)
    assert reasons(facts(CLOSED, [inside, around]), 0) == []
    finished_later = inside._replace(finished_order=8)
    assert reasons(facts(CLOSED, [finished_later, around]), 0) == [(5, "overlap")]


def test_no_copy_is_given_up_for_a_segment_that_ends_off_the_chain() -> None:
    again = remote(3, 10, 14)
    assert reasons(facts(CLOSED, [*TWO, again], chain=OTHERWISE), 0) == []
    assert reasons(facts(CLOSED, [*TWO, again]), 0) == [(10, "overlap")]
    assert reasons(facts(CLOSED, [*TWO, again], high_watermark=19), 0) == []


def test_total_retention_counts_a_segment_as_far_as_it_is_on_the_chain() -> None:
    given = facts([local(15, 29)], TWO, local_start=15, chain=OTHERWISE, local_bytes=100)
    assert move(given, retention_bytes=100) == (15, "size")
    assert given.hole() is None
    assert given.remote_bytes == 200


def test_an_overlap_by_offsets_of_another_lineage_is_none() -> None:
    lineages = [remote(1, 0, 9), remote(2, 0, 9, epochs=((2, 0),))]
    assert reasons(facts(CLOSED, lineages, chain=((2, 0),)), 0) == []


def test_an_off_chain_segment_is_kept_until_below_the_log_start() -> None:
    abandoned = [remote(1, 5, 9, epochs=((7, 5),))]
    assert reasons(facts(CLOSED, abandoned), 9) == []
    assert reasons(facts(CLOSED, abandoned), 10) == [(5, "below log start")]


def test_a_hole_is_seen_only_above_the_log_start() -> None:
    assert facts([], TWO, local_start=20).hole() is None
    assert facts([], TWO, local_start=25).hole() == (20, 25)
    assert facts([], [TWO[1]], local_start=20).hole() == (0, 20)
    assert facts([], [TWO[1]], local_start=20, start=10).hole() is None


def served(turns: dict[str, CopyPriority], times: int) -> list[str]:
    """Who gets on, where each waits again at once."""
    present, order = 0, []
    for _ in range(times):
        (present, _), name = min(
            (queue_key(priority, present), name) for name, priority in turns.items()
        )
        turns[name].round = present
        order.append(name)
    return order


def test_in_a_round_each_is_served_once_and_the_largest_lag_first() -> None:
    turns = {"a": CopyPriority(5), "b": CopyPriority(0), "c": CopyPriority(70)}
    assert served(turns, 7) == ["c", "a", "b", "c", "a", "b", "c"]


def test_one_that_nobody_has_looked_at_comes_before_all_others() -> None:
    assert served({"a": CopyPriority(2**62), "new": CopyPriority()}, 2) == ["new", "a"]


def test_who_comes_later_is_served_in_the_present_round_and_not_before_it() -> None:
    assert queue_key(CopyPriority(9, round=2), 7) == (7, -9)
    assert queue_key(CopyPriority(9, round=7), 7) == (8, -9)
    assert queue_key(CopyPriority(0), 7) < queue_key(CopyPriority(9**9, round=7), 7)


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_served_twice_while_another_waits_for_its_first_turn(seed: int) -> None:
    rng = Random(seed)
    turns = {str(at): CopyPriority(rng.randrange(10**9)) for at in range(rng.randrange(2, 20))}
    count, order = len(turns), served(turns, 60)
    for at in range(0, 60 - count, count):
        assert set(order[at : at + count]) == set(turns)


@pytest.mark.parametrize(
    ("copied", "took_ms", "over"),
    [
        (0, 10 * PASS_MS, False),
        (1, PASS_MS - 1, False),
        (1, PASS_MS, True),
        (PASS_SEGMENTS_MAX - 1, 0, False),
        (PASS_SEGMENTS_MAX, 0, True),
    ],
)
def test_a_turn_ends_by_segments_or_by_time_and_copies_at_least_one(
    copied: int, took_ms: int, over: bool
) -> None:
    assert is_over(copied, took_ms) is over
