"""A lost log end stays lost over restarts: what later lives append does not stand for it."""

from collections.abc import Mapping

import pytest

from rlm.link.messages import Loss
from rlm.maintenance.log_validation import ChainLost, Unhealthy, Validated, validate_log
from rlmm.api import PartitionHistory, SegmentHistory
from rsm_plugins.segment import SegmentState
from tests.support.tier.partition_facts import Chain, log, segment

COPY: Chain = ((1, 0), (3, 30))
"""An older copy: its log ended at 45, and the life of leader epoch 5 is not on it."""
RESTARTED: Chain = (*COPY, (7, 45), (9, 100))
"""Lives of leader epochs 7 and 9 came after it was put back."""


def history(
    *segments: SegmentHistory,
    log_starts: Mapping[int, int] | None = None,
    given_ends: Mapping[int, int] | None = None,
    unclean: int = -1,
) -> PartitionHistory:
    return PartitionHistory(log_starts or {}, given_ends or {}, unclean, 7, segments)


def is_lost(verdict: object) -> bool:
    if isinstance(verdict, Unhealthy):
        assert verdict.loss is Loss.LOG_END
        return True
    assert isinstance(verdict, Validated), verdict
    return False


@pytest.mark.parametrize("field", ["given_ends", "log_starts"])
@pytest.mark.parametrize(
    ("epoch", "end", "lost"),
    [
        (5, 46, True),
        (5, 45, False),
        (6, 70, True),
        (7, 70, False),
        (7, 100, False),
        (7, 101, True),
        (9, 120, False),
        (9, 121, True),
    ],
)
def test_offsets_given_under_a_leader_epoch_lie_below_the_next_one(
    field: str, epoch: int, end: int, lost: bool
) -> None:
    said = history(**{field: {epoch: end}})  # type: ignore[arg-type]
    assert is_lost(validate_log(log(end=120, chain=RESTARTED), said)) is lost


def test_where_nothing_was_appended_since_the_end_is_as_it_was() -> None:
    assert is_lost(validate_log(log(end=45, chain=(*COPY, (9, 45))), history(given_ends={5: 46})))
    assert not is_lost(
        validate_log(log(end=45, chain=(*COPY, (9, 45))), history(given_ends={5: 45}))
    )


def test_local_batches_tell_it_and_not_what_is_said_of_offsets_below_them() -> None:
    said = history(given_ends={5: 70})
    assert is_lost(validate_log(log(start=60, local_start=60, end=120, chain=RESTARTED), said))
    assert not is_lost(validate_log(log(start=70, local_start=70, end=120, chain=RESTARTED), said))


def test_offsets_before_an_unclean_election_are_no_loss_in_later_epochs() -> None:
    said = history(given_ends={5: 70}, log_starts={5: 60}, unclean=7)
    assert not is_lost(validate_log(log(end=120, chain=RESTARTED), said))


@pytest.mark.parametrize(
    "state", [SegmentState.COPY_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_STARTED]
)
def test_an_unfinished_segment_of_other_epochs_is_a_lost_end(state: SegmentState) -> None:
    """Leader epochs up to 5 were given twice: 7 is the first that is above the segment's pair."""
    twice: Chain = ((1, 0), (3, 30), (7, 100))
    started = segment(40, 69, ((3, 40), (5, 60)), under=5, state=state)
    mine = log(end=120, chain=twice)
    assert is_lost(validate_log(mine, history(started)))
    assert not is_lost(validate_log(mine, history(started, unclean=7)))
    by_kafka = segment(40, 69, ((3, 40), (5, 60)), under=None, state=state)
    assert not is_lost(validate_log(mine, history(by_kafka)))
    same = segment(40, 69, ((3, 40),), under=5, state=state)
    assert not is_lost(validate_log(mine, history(same)))


@pytest.mark.parametrize("state", SegmentState)
def test_records_deleted_up_to_the_log_end_are_no_loss_at_the_next_start(
    state: SegmentState,
) -> None:
    """Their segments are still here; the chain begins at the log start, with this life's epoch."""
    known = history(segment(0, 44, COPY, under=5, state=state), given_ends={5: 45})
    mine = log(start=45, local_start=0, end=45, chain=((7, 45),))
    assert not is_lost(validate_log(mine, known))
    assert is_lost(validate_log(log(start=44, local_start=0, end=45, chain=((7, 44),)), known))


def test_what_was_adopted_counts_above_the_log_end_alone() -> None:
    started = segment(40, 69, ((3, 40), (5, 50)), state=SegmentState.COPY_SEGMENT_STARTED, under=5)
    said = history(started, given_ends={5: 70}, log_starts={5: 50})
    assert not is_lost(validate_log(log(end=120, chain=RESTARTED, adopted_epoch=5), said))
    assert is_lost(validate_log(log(end=120, chain=RESTARTED, adopted_epoch=4), said))
    assert is_lost(validate_log(log(end=60, chain=COPY, adopted_epoch=5), said))
    finished = segment(40, 69, ((3, 40), (5, 50)), under=5)
    assert is_lost(validate_log(log(end=120, chain=RESTARTED, adopted_epoch=5), history(finished)))


def test_an_adopted_gap_whose_chain_was_lost_is_no_lost_end() -> None:
    """The gap's batch names no epoch, so a chain made from the batches begins behind it."""
    gap_and_more = segment(40, 69, ((5, 40), (7, 60)), under=7)
    mine = log(start=20, local_start=40, end=120, chain=((7, 60),), adopted_epoch=5)
    verdict = validate_log(mine, history(segment(20, 39, ((5, 20),), under=5), gap_and_more))
    assert isinstance(verdict, ChainLost), verdict
    others = segment(40, 69, ((5, 40), (6, 60)), under=7)
    assert is_lost(validate_log(mine, history(others)))
