"""What records prove beyond the state of segments; stories H* are of the model's findings."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmm.api import Fence, PartitionDeleteState
from rlmm.lifecycle import OffsetsByEpoch, Verdict, raised
from rlmm.testing import segment
from rsm_plugins.segment import SegmentState
from tests.support.tier.folded_topic import A, B, Topic, make_barrier

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED
C = Fence(3, 1)
S0, S1, S2 = segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29)


@pytest.fixture
def topic() -> Topic:
    return Topic()


def test_a_carried_log_start_counts_for_the_leader_epoch_of_its_record(topic: Topic) -> None:
    topic.add(S0, A, log_start=7)
    topic.move(S0, FINISHED, A, log_start=5)
    assert topic.history.log_starts == {1: 7}, "the highest counts"
    topic.add(S1, B, log_start=4)
    assert topic.history.log_starts == {1: 7, 2: 4}
    topic.add(S2, C, log_start=9)
    assert topic.history.log_starts == {3: 9}, "the others conclude nothing more"


def test_a_log_start_of_zero_is_one_and_none_is_none(topic: Topic) -> None:
    topic.add(S0, A)
    assert topic.history.log_starts == {}
    topic.add(S1, A, log_start=0)
    assert topic.history.log_starts == {1: 0}


def test_a_refused_record_carries_no_log_start(topic: Topic) -> None:
    topic.add(S0, B)
    assert topic.add(S1, A, log_start=50) is Verdict.FENCED
    assert topic.move(S0, DELETED, B, log_start=50) is Verdict.ILLEGAL_TRANSITION
    assert topic.history.log_starts == {}


def test_h2_a_barrier_repeats_no_log_start(topic: Topic) -> None:
    topic.add(S0, A, log_start=5)
    topic.barrier(B)
    assert topic.history.log_starts == {1: 5}


def test_the_highest_unclean_election_counts(topic: Topic) -> None:
    assert topic.add(S0, A) is Verdict.ACCEPTED
    assert topic.history.last_unclean_epoch == -1
    topic.barrier(B, unclean_epoch=2)
    topic.add(S1, C, unclean_epoch=-1)  # of Kafka, say
    assert topic.history.last_unclean_epoch == 2


def test_an_election_in_a_stale_barrier_is_known_all_the_same(topic: Topic) -> None:
    topic.add(S0, A)
    stale = make_barrier([S0], B, unclean_epoch=2)
    topic.move(S0, FINISHED, A)
    assert [topic.read(event) for event in stale] == [Verdict.ILLEGAL_TRANSITION]
    assert topic.history.last_unclean_epoch == 2


def test_an_election_told_below_the_fence_is_not_known(topic: Topic) -> None:
    topic.barrier(C)
    assert topic.add(S0, B, unclean_epoch=2) is Verdict.FENCED
    assert topic.history.last_unclean_epoch == -1


def test_the_highest_epoch_is_that_of_any_owner_refused_or_not(topic: Topic) -> None:
    topic.add(S0, A)
    assert topic.move(S1, FINISHED, C) is Verdict.UNKNOWN_SEGMENT
    topic.partition(PartitionDeleteState.DELETE_PARTITION_MARKED)
    assert topic.history.highest_epoch == 3, "the remover is no owner"
    assert topic.add(S1, Fence(4, 1)) is Verdict.FENCED
    assert topic.history.highest_epoch == 4


def test_a_segment_is_known_by_the_pairs_that_named_and_finished_it_first(topic: Topic) -> None:
    topic.add(S0, A)
    topic.move(S0, FINISHED, Fence(1, 2))
    topic.add(S1, Fence(1, 2))
    topic.barrier(B)  # repeats S1's STARTED
    topic.move(S1, FINISHED, B)
    topic.barrier(C)  # repeats its FINISHED
    one, two = topic.history.segments
    assert (one.metadata.id, one.named_under, one.finished_under) == (S0.id, A, Fence(1, 2))
    assert (two.metadata.id, two.named_under, two.finished_under) == (S1.id, Fence(1, 2), B)
    assert (one.finished_order, two.finished_order) == (1, 4)


def test_a_segment_that_is_not_finished_says_so(topic: Topic) -> None:
    topic.add(S0, A)
    topic.add(S1, A)
    topic.move(S1, DELETING, A)
    assert [one.finished_under for one in topic.history.segments] == [None, None]
    assert [one.metadata.state for one in topic.history.segments] == [S0.state, DELETING]


@pytest.mark.parametrize("until", [DELETING, DELETED])
def test_h3_offsets_of_a_segment_that_was_ever_named_were_given(
    topic: Topic, until: SegmentState
) -> None:
    topic.add(S0, A)
    assert topic.history.given_ends == {1: 10}
    topic.add(S1, A)
    for state in (DELETING, DELETED):
        if state <= until:
            topic.move(S1, state, A)
    assert topic.history.given_ends == {1: 20}


def test_a_refused_record_proves_no_offset(topic: Topic) -> None:
    topic.barrier(B)
    assert topic.add(S0, A) is Verdict.FENCED
    assert topic.history.given_ends == {}


def test_a_barrier_proves_no_offset_for_its_own_epoch(topic: Topic) -> None:
    topic.barrier(A)
    assert topic.history.given_ends == {}, "its own id has no bytes"
    topic.add(S0, A)
    topic.barrier(B)
    assert topic.history.given_ends == {1: 10}


def test_a_barriers_own_id_is_told_apart(topic: Topic) -> None:
    topic.read(make_barrier([], A)[0])  # its owner died right after
    topic.add(S0, A)
    assert {one.is_placeholder for one in topic.history.segments} == {True, False}
    (own,) = [one for one in topic.history.segments if one.is_placeholder]
    assert own.metadata.id.id == b"b" * 16


def test_records_of_kafka_prove_offsets_under_no_epoch(topic: Topic) -> None:
    topic.add(S0, Fence(-1, -1))
    topic.move(S0, FINISHED, Fence(-1, -1))
    (one,) = topic.history.segments
    assert one.finished_under == Fence(-1, -1)
    assert topic.history.given_ends == {-1: 10}
    assert topic.history.highest_epoch == -1


def test_what_a_mapping_says_cannot_be_changed_by_its_reader(topic: Topic) -> None:
    topic.add(S0, A, log_start=1)
    with pytest.raises(TypeError):
        topic.history.log_starts[1] = 9  # type: ignore[index]
    assert replace(topic.history) == topic.history


class Chain(NamedTuple):
    """First offsets of leader epochs."""

    starts: list[tuple[int, int]]

    def end(self, epoch: int) -> int:
        return next((start for own, start in self.starts if own > epoch), 10**9)


EPOCHS, OFFSETS = st.integers(-1, 6), st.integers(0, 20)


@given(
    st.lists(st.tuples(EPOCHS, OFFSETS)),
    st.lists(OFFSETS, max_size=7),
    EPOCHS,
)
def test_what_is_left_out_concludes_nothing_more(
    said: list[tuple[int, int]], starts: list[int], unclean: int
) -> None:
    known: OffsetsByEpoch = ()
    for epoch, offset in said:
        known = raised(known, epoch, offset)
    chain = Chain(list(enumerate(sorted(starts))))
    clipped = [max((min(far, chain.end(e)) for e, far in of), default=-1) for of in (said, known)]
    proved = [max((far for e, far in of if e >= unclean), default=-1) for of in (said, known)]
    assert clipped[0] == clipped[1]
    assert proved[0] == proved[1]
    assert list(known) == sorted(known)
    assert [far for _, far in known] == sorted((far for _, far in known), reverse=True)
    assert len({far for _, far in known}) == len(known)
