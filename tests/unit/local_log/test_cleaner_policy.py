"""Which log is cleaned next, how far, and which segments become one."""

from dataclasses import replace

import pytest

from local_log.cleaner.policy import (
    RELATIVE_OFFSET_MAX,
    Range,
    SourceSegment,
    cleanable,
    groups,
)
from local_log.config import LONG_MAX, LogConfig

NOW_MS = 1_000_000
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}))


def segment(base: int, end: int, size: int = 100, **facts: int) -> SourceSegment:
    return SourceSegment(base, end, size, **facts)


def cleanable_of(config: LogConfig = CONFIG, **changes: object) -> Range:
    """Of three closed segments of 100 bytes, 0-10-20-30; the active one reaches from 30 to 40."""
    segments = [segment(0, 10), segment(10, 20), segment(20, 30)]
    facts = {"log_start_offset": 0, "log_end_offset": 40, "stable_end": 40, "cleaned_to": None}
    facts = {"segments": segments, "config": config, "now_ms": NOW_MS} | facts | changes
    return cleanable(**facts)  # type: ignore[arg-type]


def test_all_that_is_closed_is_dirty_at_first() -> None:
    found = cleanable_of()
    assert (found.first_dirty, found.first_uncleanable) == (0, 30)
    assert (found.clean_bytes, found.cleanable_bytes, found.dirty_ratio) == (0, 300, 1.0)
    assert found.is_due(CONFIG)


def test_what_was_cleaned_counts_as_clean() -> None:
    found = cleanable_of(cleaned_to=20)
    assert (found.clean_bytes, found.cleanable_bytes) == (200, 100)
    assert not found.is_due(CONFIG)
    assert found.is_due(replace(CONFIG, min_cleanable_dirty_ratio=0.3))
    assert not found.is_due(replace(CONFIG, min_cleanable_dirty_ratio=1 / 3)), "above, not at"


@pytest.mark.parametrize(("stable_end", "end"), [(40, 30), (30, 30), (29, 20), (10, 10), (9, 0)])
def test_undecided_records_keep_their_segment(stable_end: int, end: int) -> None:
    found = cleanable_of(stable_end=stable_end)
    assert found.first_uncleanable == end
    assert found.cleanable_bytes == end * 10


def test_young_records_keep_their_segment_and_all_after_it() -> None:
    times = [NOW_MS - 900, NOW_MS - 100, NOW_MS - 900]
    segments = [segment(10 * n, 10 * n + 10, max_timestamp=time) for n, time in enumerate(times)]
    config = replace(CONFIG, min_compaction_lag_ms=500)
    assert cleanable_of(config, segments=segments).first_uncleanable == 10
    found = cleanable_of(config, segments=segments, cleaned_to=20)
    assert found.first_uncleanable == 30, "what is clean may be of any age"


@pytest.mark.parametrize(("age_ms", "end"), [(499, 0), (500, 10)])
def test_records_may_be_cleaned_from_the_age_of_the_lag_on(age_ms: int, end: int) -> None:
    segments = [segment(0, 10, max_timestamp=NOW_MS - age_ms)]
    config = replace(CONFIG, min_compaction_lag_ms=500)
    assert cleanable_of(config, segments=segments).first_uncleanable == end


def test_records_without_timestamps_do_not_count_as_waiting() -> None:
    config = replace(CONFIG, max_compaction_lag_ms=600)
    assert cleanable_of(config, segments=[segment(0, 10, first_timestamp=-1)]).delay_ms == 0


def test_records_that_wait_too_long_make_a_log_due() -> None:
    segments = [segment(0, 10, 10_000), segment(10, 20, 1, first_timestamp=NOW_MS - 700)]

    def found(max_lag_ms: int) -> Range:
        config = replace(CONFIG, max_compaction_lag_ms=max_lag_ms)
        return cleanable_of(config, segments=segments, cleaned_to=10)

    assert found(LONG_MAX).delay_ms == 0
    assert found(600).delay_ms == 100
    assert found(600).is_due(CONFIG)
    assert not found(700).is_due(CONFIG)


@pytest.mark.parametrize("cleaned_to", [5, 41])
def test_a_checkpoint_outside_of_the_log_is_no_truth(cleaned_to: int) -> None:
    found = cleanable_of(cleaned_to=cleaned_to, log_start_offset=7)
    assert (found.first_dirty, found.resets) == (7, True)


def bases(found: list[list[SourceSegment]]) -> list[list[int]]:
    return [[one.base_offset for one in group] for group in found]


def test_neighbours_become_one_as_far_as_one_may_be_large() -> None:
    some = [segment(0, 10, 60), segment(10, 20, 40), segment(20, 30, 1), segment(30, 40, 200)]
    assert bases(list(groups(some, segment_bytes=100, index_bytes=100))) == [[0, 10], [20], [30]]
    assert bases(list(groups(some, segment_bytes=400, index_bytes=100))) == [[0, 10, 20, 30]]


def test_indexes_and_offsets_bound_a_group_as_well() -> None:
    some = [segment(n, n + 1, 1, index_bytes=8, time_index_bytes=12) for n in range(3)]
    assert bases(list(groups(some, segment_bytes=100, index_bytes=24))) == [[0, 1], [2]]
    assert bases(list(groups(some, segment_bytes=100, index_bytes=36))) == [[0, 1, 2]]
    far = [
        segment(0, 1),
        segment(1, RELATIVE_OFFSET_MAX + 1),
        segment(RELATIVE_OFFSET_MAX + 1, 2**32),
    ]
    assert bases(list(groups(far, segment_bytes=1000, index_bytes=100))) == [[0, 1], [2**31]]
