"""Metadata logs that are restored, cut or read late: the stories of the model, one node of it.

Each is a way in which an id is absent from an image though nobody removed it, or is there again
though somebody did. Numbers are those of the model (H: stories, D: runs that failed).
"""

import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_protocol.wire.primitives import uuid_to_text
from rlmm.api import PartitionDeleteState, PartitionDeletion
from rlmm.testing import PARTITION
from rlmm.topic_based.removal_policy import Standing, first_of, text_of
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tests.support.tier.remover_setup import COPY_MAX_MS, FENCE, GRACE_MS, S1, MetadataLog, Setup

ID = uuid_to_text(PARTITION.topic_id)
MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
STARTED = PartitionDeleteState.DELETE_PARTITION_STARTED
FINISHED = PartitionDeleteState.DELETE_PARTITION_FINISHED


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    setup = Setup(tmp_path / "remote")
    setup.copy()
    return setup


def before_creation(setup: Setup) -> MetadataLog:
    log = setup.log.copy()
    log.topic_ids.discard(PARTITION.topic_id)
    return log


def test_h12_d31_a_metadata_log_cut_below_a_records_offset_blocks_nothing(
    setup: Setup,
) -> None:
    earlier = setup.log.copy()  # ends below the offset 50 that the records carry
    setup.restore(earlier)
    setup.delete_topic()
    setup.run_until_gone()
    assert setup.state() is FINISHED
    assert setup.objects() == []


def test_an_image_of_before_the_topics_creation_proves_nothing(setup: Setup) -> None:
    after, setup.log = setup.log, before_creation(setup)
    setup.run_until_gone()
    assert setup.state() is None
    assert len(setup.objects()) == 3
    setup.log = after
    setup.run_until_gone()
    assert setup.state() is None
    assert setup.remover.unhealthy == ()


def test_d32_a_removal_counts_however_much_later_its_list_is_read(setup: Setup) -> None:
    setup.delete_topic()
    setup.remover = setup.new_remover()  # the one that saw the record did not write its mark
    setup.run_until_gone()
    assert setup.state() is FINISHED
    assert setup.objects() == []


def test_d33_an_unknown_id_is_kept_and_unhealthy_until_it_is_forgotten(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.restore(before_creation(setup))
    with caplog.at_level(logging.ERROR):
        setup.run_until_gone()
    assert setup.state() is None
    assert len(setup.objects()) == 3
    (reason,) = setup.remover.unhealthy
    assert f"tidemark remote forget {ID}" in reason
    assert [record.message for record in caplog.records] == [reason], "said once"
    setup.log.removed.add(PARTITION.topic_id)
    setup.run_until_gone()
    assert setup.objects() == []
    assert setup.state() is FINISHED
    setup.run_pass()
    assert setup.remover.unhealthy == ()


def test_without_a_list_an_unknown_id_is_yellow_until_it_is_forgotten(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.log.topic_ids.clear()
    setup.log.removals_are_listed = False
    with caplog.at_level(logging.WARNING):
        setup.run_until_gone()
    assert setup.state() is None
    assert len(setup.objects()) == 3
    assert setup.remover.unhealthy == ()
    (reason,) = setup.remover.yellow
    assert f"tidemark remote forget {ID}" in reason
    assert [record.message for record in caplog.records] == [reason], "said once"
    setup.log.removed.add(PARTITION.topic_id)
    setup.run_until_gone()
    assert (setup.state(), setup.objects()) == (FINISHED, [])
    setup.run_pass()
    assert setup.remover.yellow == ()


@pytest.mark.parametrize("state", [MARKED, STARTED, FINISHED])
def test_h13_d34_d35_a_marked_topic_that_exists_is_unhealthy_until_deleted(
    setup: Setup, state: PartitionDeleteState
) -> None:
    before_removal = setup.log.copy()
    setup.delete_topic()
    setup.run_pass()
    for after, wait_ms in ((STARTED, GRACE_MS), (FINISHED, COPY_MAX_MS + 1)):
        if state >= after:
            setup.clock.advance(wait_ms)
            setup.run_pass()
    assert setup.state() is state
    left = len(setup.objects())
    setup.restore(before_removal)
    setup.run_until_gone()
    assert setup.state() is state
    assert len(setup.objects()) == left
    (reason,) = setup.remover.unhealthy
    assert "orders" in reason
    assert "delete the topic once more" in reason
    setup.delete_topic()
    setup.run_until_gone()
    assert setup.remover.unhealthy == ()
    assert setup.state() is FINISHED
    assert setup.objects() == []


def test_a_marked_id_of_a_log_from_before_its_creation_is_unknown(setup: Setup) -> None:
    """The mark says that a removal was read in a log that is no more the cluster's."""
    before = before_creation(setup)
    setup.delete_topic()
    setup.run_pass()
    setup.restore(before)
    setup.run_until_gone()
    assert setup.state() is MARKED
    assert len(setup.objects()) == 3
    assert len(setup.remover.unhealthy) == 1


def test_the_removal_is_read_again_before_partition_started(setup: Setup) -> None:
    setup.delete_topic()
    setup.run_pass()
    setup.clock.advance(GRACE_MS)
    steps = setup.remover.steps(PARTITION)
    setup.log.removed.clear()  # `tidemark remote forget --take-back`
    assert list(steps) == []


def test_the_removal_is_read_again_before_each_segment(setup: Setup) -> None:
    setup.copy(S1)
    setup.delete_topic()
    setup.run_pass()
    setup.clock.advance(GRACE_MS)
    for effect in setup.remover.steps(PARTITION):
        setup.remover.perform(effect)
        if len(setup.objects()) == 3:  # of one segment: the other's are next
            setup.log.removed.clear()
            setup.clock.advance(5_000)
    assert len(setup.objects()) == 3


def test_a_removal_that_no_log_tells_is_unknown_also_where_it_was_marked(setup: Setup) -> None:
    """Kafka, or a version of before 0.1.0, marked it: `remote forget` is the remedy."""
    setup.delete_topic()
    setup.run_pass()
    setup.restore(MetadataLog(topic_ids=set()))
    setup.run_until_gone()
    assert len(setup.objects()) == 3
    [reason] = setup.remover.unhealthy
    assert "tidemark remote forget" in reason


def test_a_remover_that_does_not_see_all_partitions_settles_nothing(setup: Setup) -> None:
    setup.manager.leads_all = lambda: False  # type: ignore[method-assign]
    setup.delete_topic()
    setup.run_until_gone()
    setup.run_until_gone()
    assert setup.state() is FINISHED
    assert setup.log.removed == {PARTITION.topic_id}


# ---------------------------------------------------------------- the list


def test_an_id_leaves_the_list_when_all_its_partitions_are_finished(setup: Setup) -> None:
    second = PARTITION._replace(partition=1)
    setup.manager.own(second, FENCE, 50)
    setup.delete_topic()
    setup.run_until_gone()
    assert setup.state() is FINISHED
    setup.run_pass()
    assert setup.log.removed == {PARTITION.topic_id}, "a record may be on its way"
    setup.clock.advance(GRACE_MS)
    setup.run_pass()
    assert setup.log.removed == set()
    setup.run_until_gone()
    assert setup.remover.unhealthy == ()


def test_an_id_with_a_partition_left_stays_on_the_list(setup: Setup) -> None:
    setup.delete_topic()
    setup.run_pass()
    setup.clock.advance(GRACE_MS)
    for _ in range(3):
        setup.run_pass()
        setup.clock.advance(GRACE_MS)
    assert setup.state() is STARTED
    assert setup.log.removed == {PARTITION.topic_id}


def test_an_id_that_no_record_names_leaves_the_list_too(setup: Setup) -> None:
    other = b"o" * 16
    setup.log.removed.add(other)
    setup.run_pass()
    assert setup.log.removed == {other}
    setup.clock.advance(GRACE_MS)
    setup.run_pass()
    assert setup.log.removed == set()
    assert len(setup.objects()) == 3


def test_a_topic_with_records_within_the_grace_time_is_not_forgotten(setup: Setup) -> None:
    late = PARTITION._replace(topic_id=b"l" * 16)
    setup.log.removed.add(late.topic_id)
    setup.run_pass()
    setup.manager.own(late, FENCE, 50)
    setup.clock.advance(GRACE_MS)
    setup.run_pass()
    assert late.topic_id in setup.log.removed
    setup.run_until_gone()
    known = setup.manager.deletion(late)
    assert known is not None
    assert known.state is FINISHED


def test_many_unhealthy_ids_are_counted_beyond_twenty() -> None:
    many = [
        PartitionDeletion(PARTITION._replace(topic_id=bytes([n]) * 16, partition=p), -1, None, None)
        for n in range(25)
        for p in range(3)
    ]
    reasons = first_of(text_of(Standing.UNKNOWN, one) for one in many)
    assert len(reasons) == 21
    assert reasons[-1].startswith("and 5 more such topic ids. Remedy: ")


# ---------------------------------------------------------------- against a naive validate


def do(setup: Setup, saved: list[MetadataLog], what: str) -> None:
    topic_id = PARTITION.topic_id
    match what:
        case "delete" if topic_id in setup.log.topic_ids:
            setup.delete_topic()
        case "save":
            saved.append(setup.log.copy())
        case "restore":
            setup.restore(saved.pop() if len(saved) > 1 else saved[0].copy())
        case "forget" if topic_id not in setup.log.topic_ids:
            setup.log.removed.add(topic_id)
        case "undo":
            setup.log.removed.discard(topic_id)
            setup.clock.advance(1_001)
        case "pass":
            setup.run_pass()
        case "die":
            setup.remover = setup.new_remover()
        case "grace":
            setup.clock.advance(GRACE_MS)
        case "copy max":
            setup.clock.advance(COPY_MAX_MS + 1)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["delete", "save", "restore", "forget", "undo", "pass", "die", "grace", "copy max"]
        ),
        max_size=25,
    )
)
def test_objects_go_only_while_the_removal_stands_in_the_log(
    tmp_path_factory: pytest.TempPathFactory, history: list[str]
) -> None:
    setup = Setup(tmp_path_factory.mktemp("remote"))
    setup.copy()
    saved = [before_creation(setup), setup.log.copy()]
    inner = setup.storage.delete_log_segment_data

    def validated(metadata: RemoteLogSegmentMetadata) -> None:
        topic_id = metadata.topic_id_partition.topic_id
        assert topic_id not in setup.log.topic_ids
        assert topic_id in setup.log.removed
        inner(metadata)

    setup.storage.delete_log_segment_data = validated  # type: ignore[method-assign]
    topic_id = PARTITION.topic_id
    for what in history:
        do(setup, saved, what)
    setup.run_until_gone()
    state, is_left = setup.state(), bool(setup.objects())
    if topic_id in setup.log.topic_ids:
        assert bool(setup.remover.unhealthy) is (state is not None)
    elif topic_id in setup.log.removed or state is FINISHED:
        assert (state, is_left) == (FINISHED, False)
    else:
        assert setup.remover.unhealthy
