"""Stories of given up lineages, by facts of one log and its history: one node cannot play them."""

from collections.abc import Mapping

import pytest

from kafka_protocol.types import EpochEntry
from rlm.link.messages import LogDescription, Loss, Restoration
from rlm.maintenance.chain_restore import restored_chain
from rlm.maintenance.log_validation import ChainLost, Unhealthy, Validated, validate_log
from rlmm.api import PartitionHistory, SegmentHistory
from rsm_plugins.segment import SegmentState
from tests.support.tier.partition_facts import Chain, log, segment

STARTED = SegmentState.COPY_SEGMENT_STARTED


def history(
    *segments: SegmentHistory,
    log_starts: Mapping[int, int] | None = None,
    given_ends: Mapping[int, int] | None = None,
    unclean: int = -1,
    highest_epoch: int = 1,
) -> PartitionHistory:
    return PartitionHistory(log_starts or {}, given_ends or {}, unclean, highest_epoch, segments)


def entries(*chain: tuple[int, int]) -> list[EpochEntry]:
    return [EpochEntry(epoch, start) for epoch, start in chain]


def lost(verdict: object) -> ChainLost:
    assert isinstance(verdict, ChainLost), verdict
    return verdict


def loss_of(verdict: object) -> Loss:
    assert isinstance(verdict, Unhealthy), verdict
    return verdict.loss


def test_h1_a_log_start_of_an_ended_lineage_counts_up_to_its_end() -> None:
    """Epoch 1 raised its log start to 2; epoch 2 was elected uncleanly and begins at 1."""
    mine = log(end=3, chain=((1, 0), (2, 1), (3, 3)), leader_epoch=3)
    assert validate_log(mine, history(log_starts={1: 2}, unclean=2)) == Validated(1)
    assert validate_log(mine, history(log_starts={2: 2}, unclean=2)) == Validated(2)


def test_h2_the_same_log_start_under_the_later_pair_would_count_whole() -> None:
    mine = log(end=3, chain=((1, 0), (2, 1), (3, 3)), leader_epoch=3)
    assert validate_log(mine, history(log_starts={1: 2, 3: 0}, unclean=2)) == Validated(1)


def test_h3_segments_in_any_state_and_log_starts_prove_a_lost_log_end() -> None:
    assert validate_log(log(end=50), history(given_ends={1: 50})) == Validated(0)
    assert loss_of(validate_log(log(end=50), history(given_ends={1: 51}))) is Loss.LOG_END
    assert loss_of(validate_log(log(end=50), history(log_starts={1: 51}))) is Loss.LOG_END


def test_what_was_appended_before_the_validation_does_not_hide_a_lost_end() -> None:
    given = history(given_ends={1: 40})
    assert loss_of(validate_log(log(end=60, unvalidated_end=39), given)) is Loss.LOG_END
    assert validate_log(log(end=60, unvalidated_end=40), given) == Validated(0)
    assert validate_log(log(end=60), given) == Validated(0)
    assert validate_log(log(end=50, unvalidated_end=60), given) == Validated(0), "it was cut since"


def test_what_lineages_before_an_unclean_election_gave_is_no_loss() -> None:
    given_up = history(given_ends={1: 70}, log_starts={1: 60}, unclean=2)
    assert validate_log(log(end=50, chain=((1, 0), (2, 40))), given_up) == Validated(40)


def test_an_empty_leader_does_not_give_up_what_is_in_the_store() -> None:
    """Its disk was replaced; the election was unclean since nobody else was there."""
    given_up = history(given_ends={1: 70}, log_starts={1: 60}, unclean=2)
    empty = log(end=0, chain=((2, 0),), leader_epoch=2)
    assert loss_of(validate_log(empty, given_up)) is Loss.LOG_END
    since = log(end=5, chain=((2, 0),), leader_epoch=2, unvalidated_end=0)
    assert loss_of(validate_log(since, given_up)) is Loss.LOG_END, "it took records meanwhile"
    again = log(end=5, chain=((2, 0), (3, 5)), leader_epoch=3, unvalidated_end=0)
    assert loss_of(validate_log(again, given_up)) is Loss.LOG_END, "it was elected once more"
    opened = log(end=5, chain=((2, 0), (4, 5)), leader_epoch=4, unvalidated_end=5)
    assert loss_of(validate_log(opened, given_up)) is Loss.LOG_END, "its broker was started again"
    settled = history(given_ends={1: 70}, log_starts={1: 60, 2: 0}, unclean=2)
    assert validate_log(opened, settled) == Validated(0)


def test_a_lineage_that_has_settled_is_not_restored_over_what_it_has() -> None:
    """It began at offset 0 with an unclean election, and lost its end much later."""
    mine = log(end=5, chain=((2, 0), (4, 5)), leader_epoch=4)
    given = history(
        segment(0, 9, ((2, 0),), under=2), given_ends={2: 10}, log_starts={2: 0}, unclean=2
    )
    verdict = validate_log(mine, given)
    assert loss_of(verdict) is Loss.LOG_END
    assert isinstance(verdict, Unhealthy)
    assert verdict.restoration is None


@pytest.mark.parametrize(
    ("chain", "end", "unvalidated_end"),
    [
        (((1, 49), (2, 50)), 50, -1),
        (((1, 49), (2, 50)), 50, 50),
        (((1, 49), (2, 50)), 55, 50),
        (((2, 49), (3, 50)), 50, 50),
    ],
    ids=["validated before", "not validated", "its own ones, too", "led by another before"],
)
def test_a_log_with_all_records_deleted_is_a_lineage_to_continue(
    chain: Chain, end: int, unvalidated_end: int
) -> None:
    """Model findings F6 and F7: its chain keeps the epoch of the last record."""
    given_up = history(given_ends={1: 70}, log_starts={1: 60}, unclean=2)
    epoch = max(chain)[0]
    where = {"start": end, "local_start": end, "end": end, "unvalidated_end": unvalidated_end}
    assert validate_log(log(chain=chain, leader_epoch=epoch, **where), given_up) == Validated(end)
    nothing = log(chain=((epoch, end),), leader_epoch=epoch, **where)
    assert loss_of(validate_log(nothing, given_up)) is Loss.LOG_END


def test_what_was_given_up_stays_so_when_all_records_are_deleted_later() -> None:
    """A lineage since has settled: its topic became idle, and retention took everything."""
    given_up = history(given_ends={1: 4_500}, log_starts={1: 60, 3: 10}, unclean=2)
    deleted = log(start=4_000, local_start=4_000, end=4_000, chain=((3, 4_000),), leader_epoch=3)
    assert validate_log(deleted, given_up) == Validated(4_000)


def test_what_kafka_wrote_proves_no_loss() -> None:
    others = segment(0, 59, ((7, 0),), under=None)
    assert validate_log(log(end=50), history(others, given_ends={-1: 60})) == Validated(0)


def test_h5_a_segment_of_a_given_up_lineage_tells_no_chain() -> None:
    """Both reach the local start; the barrier repeated the one of epoch 1 last (D13)."""
    old = segment(0, 9, ((1, 0),), under=1)
    new = segment(0, 9, ((1, 0), (2, 5)), under=2)
    mine = log(local_start=10, end=20, chain=((2, 10),), chain_problem="missing", leader_epoch=2)
    verdict = lost(validate_log(mine, history(old, new, unclean=2)))
    assert verdict.sources == (new.metadata,)
    made = restored_chain(mine, history(old, new, unclean=2), verdict, [entries((1, 0), (2, 5))])
    assert made == entries((1, 0), (2, 5))


def test_h5_with_only_segments_of_a_given_up_lineage_it_stays_unhealthy() -> None:
    """The own offsets were taken by retention, both files are lost (D39)."""
    old = segment(0, 9, ((1, 0),), under=1)
    mine = log(local_start=10, end=20, chain=((2, 10),), chain_problem="missing", leader_epoch=2)
    given = history(old, unclean=2)
    verdict = lost(validate_log(mine, given))
    assert verdict.sources == ()
    assert loss_of(restored_chain(mine, given, verdict, [])) is Loss.CHAIN


def test_h5_an_index_that_contradicts_a_local_batch_is_not_asked() -> None:
    across = segment(5, 14, ((3, 5),), under=3)
    later = segment(0, 9, ((4, 0),), under=4)
    touching = segment(0, 9, ((1, 0), (3, 7)), under=3)
    mine = log(local_start=10, end=10, chain=((3, 10),), chain_problem="empty", leader_epoch=3)
    asked = lost(validate_log(mine, history(across, later, touching, highest_epoch=3)))
    assert asked.sources == (across.metadata, touching.metadata)
    mine = log(local_start=10, end=20, chain=((2, 10), (3, 12)), chain_problem="empty")
    assert validate_log(mine, history(across)) == Unhealthy(Loss.LOG_END, _reason(mine, across))


def _reason(mine: LogDescription, *segments: SegmentHistory) -> str:
    verdict = validate_log(mine, history(*segments))
    assert isinstance(verdict, Unhealthy)
    return verdict.reason


def test_an_index_that_misses_the_log_start_or_its_records_is_refused() -> None:
    source = segment(0, 9, ((1, 0), (2, 5)), under=2)
    mine = log(local_start=10, end=20, chain=((2, 10),), chain_problem="missing", leader_epoch=2)
    given = history(source, highest_epoch=2)
    verdict = lost(validate_log(mine, given))
    for index in (
        entries((1, 3), (2, 5)),  # begins above the log start
        entries((1, 0), (2, 6)),  # contradicts its record
        entries((2, 5), (1, 0)),  # descends
        entries((1, 0), (2, 5), (3, 8)),
        [],
        None,
    ):
        assert loss_of(restored_chain(mine, given, verdict, [index])) is Loss.CHAIN, index
    assert restored_chain(mine, given, verdict, [entries((1, 0), (2, 5))]) == entries(
        (1, 0), (2, 5)
    )


def test_of_two_indexes_the_one_that_reaches_lower_is_taken() -> None:
    """The second copier's log start was higher."""
    first, second = segment(0, 9, ((1, 0), (2, 5)), under=2), segment(5, 9, ((2, 5),), under=2)
    mine = log(local_start=10, end=20, chain=((2, 10),), chain_problem="missing", leader_epoch=2)
    given = history(first, second, highest_epoch=2)
    verdict = lost(validate_log(mine, given))
    indexes = [entries((1, 0), (2, 5)), entries((1, 3), (2, 5))]
    assert restored_chain(mine, given, verdict, indexes) == indexes[0]


def test_h6_a_chain_that_leaves_off_a_finished_segment_is_lost() -> None:
    all_remote = [segment(0, 9), segment(10, 19, ((2, 10),), under=2)]
    mine = log(local_start=20, end=20, chain=((1, 0), (3, 20)), leader_epoch=3)
    verdict = lost(validate_log(mine, history(*all_remote, highest_epoch=2)))
    assert "leaves off" in verdict.problem
    assert verdict.sources == (all_remote[1].metadata,)


def test_a_chain_is_asked_nothing_below_a_log_start_that_is_carried() -> None:
    mine = log(local_start=20, end=30, chain=((2, 20),), chain_problem="missing", leader_epoch=2)
    assert validate_log(mine, history(log_starts={2: 20}, highest_epoch=2)) == Validated(20)
    lost(validate_log(mine, history(log_starts={1: 20}, highest_epoch=2)))


def test_an_epoch_of_no_local_batch_confirms_no_carried_log_start() -> None:
    """Of an old chain of a log whose local segments are all empty."""
    old, new = segment(0, 0, ((0, 0),), under=0), segment(1, 59, ((1, 1),), under=1)
    mine = log(start=None, local_start=60, end=60, chain=((0, 0),))
    lost(validate_log(mine, history(old, new, log_starts={0: 60}, unclean=1)))


def test_a_sound_checkpoint_without_an_entry_needs_no_earlier_chain() -> None:
    mine = log(
        start=None, local_start=20, chain=((1, 20),), chain_problem="empty", has_no_entry=True
    )
    assert validate_log(mine, history()) == Validated(20)
    lost(validate_log(mine, history(segment(0, 19))))


def test_an_unknown_log_start_is_lost_if_a_segment_lies_below_the_run() -> None:
    mine = log(start=None, local_start=20)
    assert validate_log(mine, history(segment(0, 9), segment(10, 19))) == Validated(0)
    assert validate_log(mine, history(segment(10, 19))) == Validated(10)
    assert loss_of(validate_log(mine, history(segment(0, 8), segment(10, 19)))) is Loss.LOG_START
    assert loss_of(validate_log(mine, history())) is Loss.LOG_START
    old, new = segment(0, 9), segment(10, 19, ((2, 10),), under=2)
    high = log(start=None, local_start=20, chain=((2, 10),))  # is it whole?
    assert loss_of(validate_log(high, history(old, new, unclean=2))) is Loss.LOG_START
    assert validate_log(high, history(new, unclean=2)) == Validated(10)
    assert validate_log(log(start=None, local_start=0), history()) == Validated(0)


def test_a_hole_names_the_offset_above_the_highest_one() -> None:
    verdict = validate_log(
        log(local_start=40), history(segment(0, 9), segment(15, 19), segment(30, 39))
    )
    assert loss_of(verdict) is Loss.HOLE
    assert isinstance(verdict, Unhealthy)
    assert "DeleteRecords to 30" in verdict.reason


def test_h11_a_pair_or_a_chain_above_the_own_leader_epoch_is_unhealthy() -> None:
    assert loss_of(validate_log(log(leader_epoch=3), history(highest_epoch=4))) is Loss.LEADER_EPOCH
    later = log(leader_epoch=3, chain=((1, 0), (7, 50)))
    assert loss_of(validate_log(later, history())) is Loss.LEADER_EPOCH


def test_a_lost_log_begins_at_the_newest_segment_and_ends_above_all_given() -> None:
    old = segment(0, 9, ((1, 0),), under=1)
    newest = segment(10, 29, ((1, 10), (3, 15)), under=3)
    unfinished = segment(30, 39, ((3, 30),), under=3, state=STARTED)
    known = history(old, newest, unfinished, given_ends={3: 40}, unclean=5, highest_epoch=5)
    empty = log(end=0, chain=((5, 0),), leader_epoch=5)
    verdict = validate_log(empty, known)
    assert isinstance(verdict, Unhealthy)
    assert verdict.restoration == Restoration(30, 3, 40, 4)
    assert "restore-partition` to begin at 40" in verdict.reason
    since = log(end=5, chain=((5, 0),), leader_epoch=5, unvalidated_end=0)
    assert validate_log(since, known) == verdict, (
        "what was taken before the validation is no lineage"
    )


def test_of_an_ended_lineage_the_higher_end_counts_and_not_the_state() -> None:
    given_up = segment(0, 59, ((1, 0),), under=1)
    newest = segment(0, 29, ((1, 0), (3, 20)), under=3)
    empty = log(end=0, chain=((5, 0),), leader_epoch=5)
    verdict = validate_log(
        empty, history(given_up, newest, given_ends={1: 60, 3: 30}, unclean=3, highest_epoch=5)
    )
    assert isinstance(verdict, Unhealthy)
    assert verdict.restoration == Restoration(30, 3, 60, 4)


def test_where_records_are_left_or_no_copy_is_nothing_is_restored() -> None:
    finished = segment(0, 29, ((1, 0),), under=1)
    started = segment(0, 29, ((1, 0),), under=1, state=STARTED)
    here = validate_log(log(end=20, chain=((1, 0),)), history(finished, given_ends={1: 30}))
    nowhere = validate_log(
        log(end=0, chain=((2, 0),), leader_epoch=2), history(started, given_ends={1: 30})
    )
    for verdict in (here, nowhere):
        assert isinstance(verdict, Unhealthy)
        assert verdict.restoration is None
        assert "remote adopt" in verdict.reason
