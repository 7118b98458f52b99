"""What `tidemark remote adopt` decides, by facts of one log and its history."""

import pytest

from kafka_protocol.types import EpochEntry
from rlm.link.messages import LogDescription
from rlm.maintenance.log_validation import Validated, validate_log
from rlmm.api import PartitionHistory, SegmentHistory
from tests.support.tier.partition_facts import Chain, segment
from tests.support.tier.partition_facts import log as log_with
from tidemark.remote.adoption import AdoptRefusedError, adopt_chain, adopt_end


def log(local_start: int, end: int, chain: Chain = ((1, 0),), lost: str = "") -> LogDescription:
    return log_with(local_start=local_start, end=end, chain=chain, chain_problem=lost)


def finished(first: int, last: int, *epochs: tuple[int, int]) -> SegmentHistory:
    return segment(first, last, epochs, under=epochs[-1][0])


def history(*segments: SegmentHistory, given: int = 0) -> PartitionHistory:
    ends = {5: given} if given else {}
    return PartitionHistory({}, ends, -1, 5, segments)


def test_local_records_stay_where_nothing_above_them_is_finished():
    decided = adopt_end(log(10, 30), history(finished(0, 19, (1, 0)), given=40))
    assert (decided.adopted.begin, decided.adopted.end) == (None, 40)
    assert decided.gap == (30, 40)
    assert decided.given_up == (30, 30)
    assert decided.adopted.chain == (EpochEntry(1, 0),)


def test_records_that_stand_where_others_were_lost_stay_and_are_named():
    restarted = ((1, 0), (7, 45), (9, 100))
    known = history(finished(0, 39, (1, 0)), given=70)
    decided = adopt_end(log(20, 120, restarted), known)
    assert (decided.adopted.begin, decided.adopted.end) == (None, 121)
    assert (decided.doubled, decided.gap, decided.given_up) == ((45, 70), (120, 121), (120, 120))
    assert decided.adopted.chain == tuple(EpochEntry(*entry) for entry in restarted)
    assert decided.epoch == 9, "the highest of the log and the records"
    again = log_with(local_start=20, end=121, chain=restarted, adopted_epoch=decided.epoch)
    with pytest.raises(AdoptRefusedError, match="not lost"):
        adopt_end(again, known)


def test_lost_records_in_finished_segments_return_although_more_was_given():
    known = history(finished(0, 19, (1, 0)), finished(20, 59, (1, 20)), given=70)
    decided = adopt_end(log(20, 65, ((1, 0), (7, 45))), known)
    assert (decided.adopted.begin, decided.adopted.end) == (60, 70)
    assert (decided.given_up, decided.doubled) == ((45, 65), (65, 65))


def test_finished_records_above_a_local_end_stay_readable_in_their_epochs():
    known = history(finished(0, 19, (1, 0)), finished(20, 39, (1, 20), (3, 25)), given=44)
    decided = adopt_end(log(10, 22), known)
    assert (decided.adopted.begin, decided.adopted.end) == (40, 44)
    assert decided.gap == (40, 44)
    assert decided.given_up[0] == decided.given_up[1]
    assert decided.adopted.chain == (EpochEntry(1, 0), EpochEntry(3, 25))


def test_diverging_local_records_are_given_up_and_no_offset_is_reused():
    known = history(finished(0, 19, (1, 0)), finished(20, 39, (2, 20)), given=40)
    decided = adopt_end(log(20, 50, ((1, 0), (3, 20))), known)
    assert (decided.adopted.begin, decided.adopted.end) == (40, 51)
    assert decided.given_up == (20, 50)
    assert decided.adopted.chain == (EpochEntry(1, 0), EpochEntry(2, 20))


@pytest.mark.parametrize("end", [25, 36, 70])
def test_a_log_begun_again_over_remote_records_gives_up_all_local_ones(end: int) -> None:
    known = history(finished(0, 19, (1, 0)), finished(20, 35, (1, 20)), given=36)
    decided = adopt_end(log(0, end, ((4, 0),)), known)
    assert (decided.adopted.begin, decided.given_up) == (36, (0, end))
    assert decided.adopted.end == max(36, end + 1)
    assert decided.adopted.chain == (EpochEntry(1, 0),)


def test_local_records_that_the_remote_ones_continue_from_are_not_given_up() -> None:
    known = history(finished(0, 19, (1, 0)), finished(20, 39, (1, 20), (2, 32)), given=40)
    decided = adopt_end(log(10, 35, ((1, 0), (3, 32))), known)
    assert decided.given_up == (32, 35), "the same ones up to there"


def test_an_end_below_given_offsets_or_of_a_log_without_loss_is_refused():
    with pytest.raises(AdoptRefusedError, match="offsets below 40 were given"):
        adopt_end(log(10, 30), history(given=40), 39)
    with pytest.raises(AdoptRefusedError, match="not lost"):
        adopt_end(log(10, 30), history(given=30))
    assert adopt_end(log(10, 30), history(given=40), 100).adopted.end == 100


def test_segments_that_contradict_each_other_leave_no_end_to_adopt():
    known = history(finished(20, 39, (4, 20)), finished(30, 49, (2, 30)), given=50)
    with pytest.raises(AdoptRefusedError, match="contradict"):
        adopt_end(log(20, 25), known)


def test_of_two_indexes_that_differ_the_named_one_is_the_chain():
    named, other = finished(10, 29, (2, 10)), finished(15, 29, (2, 15))
    here = log(30, 40, ((3, 30),), "damaged")
    index = [EpochEntry(1, 0), EpochEntry(2, 8)]
    chain = adopt_chain(here, history(named, other), named.metadata, index)
    assert chain == [*index, EpochEntry(3, 30)]


def test_an_index_that_ends_below_the_local_start_is_extended_by_records():
    named, later = finished(0, 9, (1, 0)), finished(10, 29, (1, 10), (2, 12))
    here = log(30, 40, ((2, 30),), "damaged")
    chain = adopt_chain(here, history(named, later), named.metadata, [EpochEntry(1, 0)])
    assert chain == [EpochEntry(1, 0), EpochEntry(2, 12)]


@pytest.mark.parametrize(
    ("index", "refusal"),
    [
        ([EpochEntry(1, 0)], "contradicts its own record"),
        ([], "contradicts its own record"),
        ([EpochEntry(2, 5)], "not whole: it begins at 5"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(index: list[EpochEntry], refusal: str) -> None:
    named = finished(10, 29, (2, 10))
    with pytest.raises(AdoptRefusedError, match=refusal):
        adopt_chain(log(30, 40, ((3, 30),), "damaged"), history(named), named.metadata, index)


def test_a_chain_that_is_whole_is_not_replaced():
    named = finished(10, 29, (1, 10))
    with pytest.raises(AdoptRefusedError, match="not lost"):
        adopt_chain(log(30, 40), history(named), named.metadata, [EpochEntry(1, 0)])


REMOTE_LEFT = (finished(40, 69, (3, 40), (5, 46)), finished(70, 99, (5, 70)))
"""What is left of a log that began at 50 when last heard of: below 40 retention took it."""


@pytest.mark.parametrize("own_start", [0, 50])
@pytest.mark.parametrize(
    ("end", "chain", "given_up", "new_end"),
    [
        (60, ((1, 0), (3, 30), (5, 46)), (100, 100), 100),
        (80, ((1, 0), (3, 30), (5, 46), (7, 60)), (60, 80), 100),
        (120, ((1, 0), (3, 30), (5, 46), (7, 60)), (60, 120), 121),
    ],
)
def test_a_copy_that_begins_below_remote_records_gets_those_above_its_end(
    own_start: int, end: int, chain: Chain, given_up: tuple[int, int], new_end: int
) -> None:
    known = PartitionHistory({5: 50}, {5: 100}, -1, 5, REMOTE_LEFT)
    decided = adopt_end(log_with(start=own_start, end=end, chain=chain), known)
    assert (decided.adopted.begin, decided.adopted.end) == (100, new_end)
    assert (decided.given_up, decided.gap) == (given_up, (100, new_end))
    whole = ((1, 0), (3, 30), (5, 46))
    assert decided.adopted.chain == tuple(EpochEntry(*entry) for entry in whole)
    made = log_with(
        start=own_start,
        local_start=100,
        end=new_end,
        chain=(*whole, (9, new_end)),
        adopted_epoch=decided.epoch,
    )
    assert validate_log(made, known) == Validated(50)


def test_so_do_those_above_the_end_of_a_copy_that_ends_below_the_log_start() -> None:
    known = PartitionHistory({5: 50}, {5: 100}, -1, 5, REMOTE_LEFT)
    decided = adopt_end(log_with(end=45, chain=((1, 0), (3, 30), (7, 45))), known)
    assert (decided.adopted.begin, decided.adopted.end, decided.gap) == (100, 100, (100, 100))
    restarted = adopt_end(log_with(end=55, chain=((1, 0), (3, 30), (7, 45))), known)
    assert (restarted.adopted.begin, restarted.given_up) == (100, (46, 55))
    assert restarted.adopted.chain == (EpochEntry(1, 0), EpochEntry(3, 30), EpochEntry(5, 46))
