"""The promises of `RemoteLogMetadataManager` as tests to inherit.

Define a fixture `manager` (configured, with an empty topic). If futures complete only while
something runs, also define a fixture `pump` that runs it for a moment. For readable failures put
`pytest.register_assert_rewrite("rlmm.testing")` into conftest.py.
"""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import replace

import pytest

from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlmm.api import (
    Fence,
    MetadataNotReadyError,
    MetadataRefusedError,
    PartitionHistory,
    RemoteLogMetadataManager,
    SegmentUpdate,
)
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

PARTITION = TopicIdPartition(bytes(range(1, 17)), 0, "orders")
FENCE = Fence(3, 1)
Pump = Callable[[], None]
State = SegmentState
DELETED = (State.DELETE_SEGMENT_STARTED, State.DELETE_SEGMENT_FINISHED)


def segment(
    number: int,
    first: int,
    last: int,
    epochs: tuple[tuple[int, int], ...] = ((3, 0),),
    partition: TopicIdPartition = PARTITION,
) -> RemoteLogSegmentMetadata:
    """STARTED of a segment `[first, last]`, both inclusive, with its `epochs` as (epoch, start)."""
    return RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(partition, number.to_bytes(16, "big")),
        start_offset=first,
        end_offset=last,
        max_timestamp_ms=1_700_000_000_000 + last,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        segment_size_bytes=1_000,
        leader_epochs=tuple(EpochEntry(epoch, max(first, start)) for epoch, start in epochs),
    )


def update(
    of: RemoteLogSegmentMetadata, state: SegmentState, custom: bytes | None = None
) -> SegmentUpdate:
    """An update of a segment to `state`."""
    return SegmentUpdate(of.id, state, of.event_timestamp_ms + int(state), 1, custom)


def outcome(future: "Future[None]", pump: Pump) -> BaseException | None:
    """The error of a future, None for success; fails after about 20 s."""
    for _ in range(2_000):
        pump()
        if wait_for([future], timeout=0.01).done:
            return future.exception()
    raise AssertionError("the future did not end")


class RemoteLogMetadataManagerContract:
    """The promises of every metadata manager."""

    @pytest.fixture
    def manager(self) -> RemoteLogMetadataManager:
        raise NotImplementedError("give a fixture `manager`")

    @pytest.fixture
    def pump(self) -> Pump:
        return lambda: None

    @pytest.fixture
    def owned(self, manager: RemoteLogMetadataManager, pump: Pump) -> RemoteLogMetadataManager:
        assert outcome(manager.own(PARTITION, FENCE), pump) is None
        return manager

    def finish(
        self,
        manager: RemoteLogMetadataManager,
        pump: Pump,
        *segments: RemoteLogSegmentMetadata,
        fence: Fence = FENCE,
    ) -> None:
        for one in segments:
            assert outcome(manager.add(one, fence, 5), pump) is None
            done = manager.update(update(one, State.COPY_SEGMENT_FINISHED), fence, 5)
            assert outcome(done, pump) is None

    def test_nothing_is_ready_before_it_was_asked_for(
        self, manager: RemoteLogMetadataManager
    ) -> None:
        assert not manager.is_ready(PARTITION)

    def test_an_owner_is_ready_when_its_barrier_was_read_back(
        self, owned: RemoteLogMetadataManager
    ) -> None:
        assert owned.is_ready(PARTITION)
        assert list(owned.list_segments(PARTITION)) == []

    def test_a_follower_is_ready_and_cannot_write(
        self, manager: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        assert outcome(manager.follow(PARTITION), pump) is None
        assert manager.is_ready(PARTITION)
        error = outcome(manager.add(segment(1, 0, 9), FENCE, 5), pump)
        assert isinstance(error, MetadataNotReadyError)

    def test_a_released_partition_is_not_ready(self, owned: RemoteLogMetadataManager) -> None:
        owned.release(PARTITION)
        assert not owned.is_ready(PARTITION)

    def test_writes_under_another_pair_are_refused(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        error = outcome(owned.add(segment(1, 0, 9), Fence(3, 2), 5), pump)
        assert isinstance(error, MetadataNotReadyError)

    def test_a_started_segment_is_known_and_not_served(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        one = segment(1, 0, 9)
        assert outcome(owned.add(one, FENCE, 5), pump) is None
        assert owned.segment(one.id) == one
        assert list(owned.list_segments(PARTITION)) == [one]
        assert owned.segment_for(PARTITION, 3, 4) is None
        assert owned.next_segment(PARTITION, 3, 0) is None
        assert owned.highest_offset_for_epoch(PARTITION, 3) is None
        assert owned.finished_order(one.id) is None
        assert owned.started_seen_ms(one.id) is not None

    def test_a_finished_segment_is_served_with_its_custom_metadata(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        one = segment(1, 0, 9)
        assert outcome(owned.add(one, FENCE, 5), pump) is None
        done = owned.update(update(one, State.COPY_SEGMENT_FINISHED, b"key"), FENCE, 5)
        assert outcome(done, pump) is None
        found = owned.segment_for(PARTITION, 3, 9)
        assert found is not None
        assert found.state is State.COPY_SEGMENT_FINISHED
        assert found.custom_metadata == b"key"
        assert owned.finished_order(one.id) is not None

    def test_a_deleted_segment_keeps_its_custom_metadata_and_is_not_served(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        one = segment(1, 0, 9)
        outcome(owned.add(one, FENCE, 5), pump)
        outcome(owned.update(update(one, State.COPY_SEGMENT_FINISHED, b"key"), FENCE, 5), pump)
        done = owned.update(update(one, State.DELETE_SEGMENT_STARTED), FENCE, 5)
        assert outcome(done, pump) is None
        known = owned.segment(one.id)
        assert known is not None
        assert known.custom_metadata == b"key"
        assert owned.segment_for(PARTITION, 3, 9) is None

    def test_a_segment_whose_deletion_finished_is_forgotten(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        one = segment(1, 0, 9)
        self.finish(owned, pump, one)
        for state in DELETED:
            assert outcome(owned.update(update(one, state), FENCE, 5), pump) is None
        assert owned.segment(one.id) is None
        assert list(owned.list_segments(PARTITION)) == []

    @pytest.mark.parametrize(
        "state", [State.COPY_SEGMENT_FINISHED, State.DELETE_SEGMENT_STARTED, DELETED[1]]
    )
    def test_updates_of_unknown_segments_are_refused(
        self, owned: RemoteLogMetadataManager, pump: Pump, state: SegmentState
    ) -> None:
        error = outcome(owned.update(update(segment(9, 0, 9), state), FENCE, 5), pump)
        assert isinstance(error, MetadataRefusedError)

    def test_moves_that_the_table_does_not_know_are_refused_and_change_nothing(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        one = segment(1, 0, 9)
        self.finish(owned, pump, one)
        late = owned.update(update(one, State.DELETE_SEGMENT_FINISHED), FENCE, 5)
        assert isinstance(outcome(late, pump), MetadataRefusedError)
        assert isinstance(outcome(owned.add(one, FENCE, 5), pump), MetadataRefusedError)
        assert owned.segment_for(PARTITION, 3, 0) is not None

    def test_look_ups_are_by_epoch_and_offset(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        two_epochs = segment(1, 0, 9, ((1, 0), (3, 5)))
        other = segment(2, 5, 14, ((2, 5),))
        self.finish(owned, pump, two_epochs, other)
        assert _ids(owned.segment_for(PARTITION, 1, 4)) == 1
        assert owned.segment_for(PARTITION, 1, 5) is None
        assert _ids(owned.segment_for(PARTITION, 3, 5)) == 1
        assert _ids(owned.segment_for(PARTITION, 2, 5)) == 2
        assert owned.segment_for(PARTITION, 2, 15) is None
        assert owned.segment_for(PARTITION, 7, 5) is None
        assert owned.highest_offset_for_epoch(PARTITION, 1) == 4
        assert owned.highest_offset_for_epoch(PARTITION, 2) == 14

    def test_the_next_segment_is_the_smallest_start_at_or_above(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        self.finish(owned, pump, segment(1, 0, 9), segment(2, 10, 19), segment(3, 30, 39))
        assert _ids(owned.next_segment(PARTITION, 3, 0)) == 1
        assert _ids(owned.next_segment(PARTITION, 3, 1)) == 2
        assert _ids(owned.next_segment(PARTITION, 3, 20)) == 3
        assert owned.next_segment(PARTITION, 3, 31) is None

    def test_segments_are_listed_ascending_whole_and_by_epoch(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        self.finish(owned, pump, segment(2, 10, 19, ((3, 0), (4, 15))), segment(1, 0, 9, ((1, 0),)))
        assert [_ids(one) for one in owned.list_segments(PARTITION)] == [1, 2]
        assert [_ids(one) for one in owned.list_segments(PARTITION, 4)] == [2]
        assert [_ids(one) for one in owned.list_segments(PARTITION, 1)] == [1]

    def test_the_first_finished_counts_for_the_order(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        one, two = segment(1, 0, 9), segment(2, 0, 9)
        self.finish(owned, pump, one, two)
        again = owned.update(update(one, State.COPY_SEGMENT_FINISHED), FENCE, 5)
        assert outcome(again, pump) is None
        first, second = owned.finished_order(one.id), owned.finished_order(two.id)
        assert first is not None
        assert second is not None
        assert first < second

    def test_partitions_do_not_see_each_other(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        other = PARTITION._replace(partition=1)
        assert outcome(owned.own(other, FENCE), pump) is None
        self.finish(owned, pump, segment(1, 0, 9))
        assert list(owned.list_segments(other)) == []

    def test_a_barrier_repeats_the_newest_segment_and_changes_nothing(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        one, two = segment(1, 0, 9), segment(2, 10, 19)
        self.finish(owned, pump, one)
        assert outcome(owned.add(two, FENCE, 5), pump) is None
        order = owned.finished_order(one.id)
        assert outcome(owned.own(PARTITION, Fence(4, 1)), pump) is None
        states = [known.state for known in owned.list_segments(PARTITION)]
        assert states == [State.COPY_SEGMENT_FINISHED, State.COPY_SEGMENT_STARTED]
        assert owned.finished_order(one.id) == order

    def test_a_lower_pair_cannot_become_the_owner_again(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        assert outcome(owned.own(PARTITION, Fence(4, 1)), pump) is None
        error = outcome(owned.own(PARTITION, FENCE), pump)
        assert isinstance(error, MetadataRefusedError)
        assert error.fence == Fence(4, 1), "the next incarnation must go above it"
        assert not owned.is_ready(PARTITION)

    def test_history_is_not_ready_until_the_barrier_is_read_back(
        self, manager: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        with pytest.raises(MetadataNotReadyError):
            manager.history(PARTITION)
        assert outcome(manager.own(PARTITION, FENCE), pump) is None
        manager.release(PARTITION)
        with pytest.raises(MetadataNotReadyError):
            manager.history(PARTITION)

    def test_an_empty_partition_proves_nothing(self, owned: RemoteLogMetadataManager) -> None:
        history = known_history(owned)
        assert (history.log_starts, history.given_ends, history.segments) == ({}, {}, ())
        assert (history.last_unclean_epoch, history.highest_epoch) == (-1, 3)

    def test_records_carry_the_log_start_that_their_owner_has_settled(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        self.finish(owned, pump, segment(1, 0, 9))
        assert known_history(owned).log_starts == {}
        owned.carry(PARTITION, FENCE, 5)
        assert known_history(owned).log_starts == {}, "what was not written is not known"
        self.finish(owned, pump, segment(2, 10, 19))
        assert known_history(owned).log_starts == {3: 5}
        owned.carry(PARTITION, FENCE, 8)
        done = owned.update(update(segment(1, 0, 9), State.DELETE_SEGMENT_STARTED), FENCE, 5)
        assert outcome(done, pump) is None
        assert known_history(owned).log_starts == {3: 8}

    def test_the_next_owner_carries_no_log_start_before_it_has_settled(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        owned.carry(PARTITION, FENCE, 5)
        self.finish(owned, pump, segment(1, 0, 9))
        later = Fence(4, 1)
        assert outcome(owned.own(PARTITION, later), pump) is None
        owned.carry(PARTITION, FENCE, 7)  # late, of the owner before
        self.finish(owned, pump, segment(2, 10, 19), fence=later)
        assert known_history(owned).log_starts == {3: 5}
        owned.carry(PARTITION, later, 4)
        self.finish(owned, pump, segment(3, 20, 29), fence=later)
        assert known_history(owned).log_starts == {3: 5, 4: 4}

    def test_every_later_owner_carries_the_last_unclean_election(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        assert outcome(owned.own(PARTITION, Fence(4, 1), 5, 4), pump) is None
        assert known_history(owned).last_unclean_epoch == 4, "its barrier has told it"
        assert outcome(owned.own(PARTITION, Fence(5, 1)), pump) is None
        assert known_history(owned).last_unclean_epoch == 4

    def test_history_names_the_pairs_of_each_segment(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        self.finish(owned, pump, segment(1, 0, 9))
        assert outcome(owned.add(segment(2, 10, 19), FENCE, 5), pump) is None
        assert outcome(owned.own(PARTITION, Fence(4, 1)), pump) is None
        history = known_history(owned)
        assert [one.named_under for one in history.segments] == [FENCE, FENCE]
        assert [one.finished_under for one in history.segments] == [FENCE, None]
        assert history.segments[0].finished_order == owned.finished_order(segment(1, 0, 9).id)
        assert history.given_ends == {3: 20}
        assert history.highest_epoch == 4

    def test_catching_up_ends_for_owners_and_followers_only(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        assert outcome(owned.catch_up(PARTITION), pump) is None
        other = PARTITION._replace(partition=1)
        assert isinstance(outcome(owned.catch_up(other), pump), MetadataNotReadyError)
        assert outcome(owned.follow(other), pump) is None
        assert outcome(owned.catch_up(other), pump) is None

    def test_a_segment_may_be_known_by_any_spelling_of_its_topic(
        self, owned: RemoteLogMetadataManager, pump: Pump
    ) -> None:
        one = segment(1, 0, 9)
        self.finish(owned, pump, one)
        renamed = replace(one.id, topic_id_partition=PARTITION._replace(topic="else"))
        assert owned.segment(renamed) is not None


def known_history(manager: RemoteLogMetadataManager) -> PartitionHistory:
    """The history of PARTITION; the manager must keep one."""
    history = manager.history(PARTITION)
    assert history is not None
    return history


def _ids(found: RemoteLogSegmentMetadata | None) -> int | None:
    return None if found is None else int.from_bytes(found.id.id, "big")
