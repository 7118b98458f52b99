"""Look-ups by (leader epoch, offset) at the edges that the random worlds meet only now and then."""

from kafka_protocol.types import EpochEntry
from rlmm.lineage import CopiedRun, Coverage, Span, chain_spans, copied_through, holds, is_covered
from rlmm.testing import segment


def test_epochs_without_an_offset_have_no_span() -> None:
    chain = [EpochEntry(0, 0), EpochEntry(1, 5), EpochEntry(2, 5), EpochEntry(3, 9)]
    assert chain_spans(chain, 9) == [Span(0, 0, 4), Span(2, 5, 8)]


def test_a_segment_does_not_hold_an_offset_under_another_epoch() -> None:
    two_epochs = segment(1, 0, 9, ((1, 0), (2, 5)))
    assert holds(two_epochs, 2, 5)
    assert not holds(two_epochs, 1, 5)
    assert not holds(two_epochs, 2, 10)


def test_spans_with_one_offset_between_them_are_not_joined() -> None:
    covered = Coverage()
    covered.add_span(Span(1, 0, 4))
    covered.add_span(Span(1, 6, 9))
    assert not covered.has_span(Span(1, 5, 5))
    assert covered.count_in(Span(1, 0, 9)) == 9
    covered.add_span(Span(1, 5, 5))
    assert covered.has_span(Span(1, 0, 9))


def test_the_run_of_what_is_not_covered_ends_before_it_begins() -> None:
    assert Coverage().end_of_run(1, 5) == 4


def test_a_run_continues_in_the_next_epoch() -> None:
    covered = Coverage([segment(1, 0, 9, ((1, 0), (2, 6)))])
    chain = [EpochEntry(1, 0), EpochEntry(2, 6)]
    for log_start in (0, 5, 6):
        assert copied_through(covered, chain, log_start, 20) == CopiedRun(9, 2)
    assert copied_through(covered, chain, 0, 6) == CopiedRun(5, 1)
    assert copied_through(covered, chain, 10, 20) is None


def test_a_run_does_not_begin_above_the_log_start() -> None:
    covered = Coverage([segment(1, 5, 9, ((1, 5),))])
    assert copied_through(covered, [EpochEntry(1, 5)], 4, 20) is None


def test_a_range_is_covered_from_within_an_epoch_on() -> None:
    covered = Coverage([segment(1, 0, 9, ((1, 0), (2, 6)))])
    chain = [EpochEntry(1, 0), EpochEntry(2, 6)]
    for first in (0, 5, 6, 7):
        assert is_covered(covered, chain, first, 9)
        assert not is_covered(covered, chain, first, 10)


def test_the_first_offset_that_is_in_may_be_the_last_of_the_span() -> None:
    covered = Coverage([segment(1, 5, 9, ((1, 5),))])
    assert covered.first_in(Span(1, 0, 5)) == 5
    assert covered.first_in(Span(1, 0, 4)) is None
