"""What one poll of the metadata topic gave, sorted by metadata partition."""

from rlmm.topic_based.reader import sort_events
from rlmm.topic_based.topic_port import Diverged, ReachedEnd, TopicRecord, Unreadable, damaged

UNREADABLE = Unreadable(0, damaged(0, 5))
RECORD, OTHERS_RECORD = TopicRecord(0, 5, 1, b"a"), TopicRecord(1, 5, 1, b"b")
DIVERGED = Diverged(0, "cut back")


def test_the_reading_ends_behind_what_was_read_before_the_damage() -> None:
    found = sort_events([RECORD, UNREADABLE, OTHERS_RECORD])
    assert found.stretches == {0: [RECORD], 1: [OTHERS_RECORD]}
    assert found.unreadable == {0: UNREADABLE}


def test_another_event_of_the_partition_says_that_it_can_be_read_again() -> None:
    for event in (RECORD, ReachedEnd(0, 5), DIVERGED):
        assert sort_events([UNREADABLE, event]).unreadable == {}
    assert sort_events([UNREADABLE, OTHERS_RECORD]).unreadable == {0: UNREADABLE}


def test_what_was_read_before_the_partition_diverged_counts_no_more() -> None:
    found = sort_events([RECORD, OTHERS_RECORD, DIVERGED])
    assert found.diverged == [DIVERGED]
    assert found.stretches == {1: [OTHERS_RECORD]}
    assert sort_events([DIVERGED, RECORD]).stretches == {0: [RECORD]}
