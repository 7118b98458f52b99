"""Deleted topics leave nothing behind, and living ones are never touched."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlmm.api import Fence, PartitionDeleteState
from rlmm.events import SegmentAdded, Stamp
from rlmm.lifecycle import Verdict
from rlmm.memory import Fault
from rlmm.testing import PARTITION
from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.testing import LOG_BYTES, Operation, segment_data
from tests.support.tier.remover_setup import COPY_MAX_MS, FENCE, GRACE_MS, S0, S1, Setup


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path / "remote")


def test_a_living_topic_is_left_alone(setup: Setup) -> None:
    setup.copy()
    setup.run_until_gone()
    assert setup.state() is None
    assert len(setup.objects()) == 3


def test_a_deleted_topic_goes_step_by_step(setup: Setup) -> None:
    setup.copy(S0)
    setup.copy(S1)
    setup.delete_topic()
    setup.run_pass()
    assert setup.state() is PartitionDeleteState.DELETE_PARTITION_MARKED
    setup.clock.advance(GRACE_MS - 1)
    setup.run_pass()
    assert len(setup.objects()) == 6
    setup.clock.advance(1)
    setup.run_pass()
    assert setup.state() is PartitionDeleteState.DELETE_PARTITION_STARTED
    assert setup.objects() == []
    assert len(list(setup.manager.list_segments(PARTITION))) == 2  # a late PUT may land yet
    setup.clock.advance(COPY_MAX_MS + 1)
    setup.run_pass()
    assert setup.state() is PartitionDeleteState.DELETE_PARTITION_FINISHED
    assert list(setup.manager.list_segments(PARTITION)) == []


def test_a_put_that_lands_late_is_removed_too(setup: Setup) -> None:
    setup.copy()
    setup.delete_topic()
    setup.run_pass()
    setup.clock.advance(GRACE_MS)
    setup.run_pass()
    late = replace(S0, segment_size_bytes=len(LOG_BYTES))
    setup.storage.copy_log_segment_data(late, segment_data())
    setup.clock.advance(COPY_MAX_MS + 1)
    setup.run_pass()
    assert setup.objects() == []
    assert setup.state() is PartitionDeleteState.DELETE_PARTITION_FINISHED


def test_another_clusters_image_proves_nothing(setup: Setup) -> None:
    setup.copy()
    setup.delete_topic()
    setup.log.cluster_id = "other"
    setup.run_until_gone()
    assert setup.state() is None
    assert len(setup.objects()) == 3


def test_from_the_mark_on_the_old_owner_is_not_heard(setup: Setup) -> None:
    setup.copy()
    setup.delete_topic()
    setup.run_pass()
    assert setup.manager.land(SegmentAdded(S1, Stamp(Fence(99, 99)))) is Verdict.FENCED
    assert not setup.manager.is_ready(PARTITION)


def test_an_unavailable_store_is_told_once(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    setup.copy()
    setup.delete_topic()
    setup.run_pass()
    setup.clock.advance(GRACE_MS)
    setup.storage.down = True
    for _ in range(3):
        setup.run_pass()
    setup.storage.down = False
    setup.run_pass()
    told = [record.message for record in caplog.records if "removing deleted" in record.message]
    assert len(told) == 2
    assert "fails" in told[0]
    assert "works again: failed_attempts=3" in told[1]


def test_after_a_store_error_the_next_pass_continues(setup: Setup) -> None:
    setup.copy()
    setup.delete_topic()
    setup.run_pass()
    setup.clock.advance(GRACE_MS)
    setup.storage.fail_next(Operation.DELETE, RetriableRemoteStorageError("later"))
    setup.run_pass()
    assert len(setup.objects()) == 3
    setup.clock.advance(COPY_MAX_MS + 1)
    setup.run_pass()
    assert setup.objects() == []
    assert setup.state() is PartitionDeleteState.DELETE_PARTITION_FINISHED


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("dies_at", range(8))
def test_another_remover_continues_after_any_step(
    tmp_path: Path, dies_at: int, lands: bool
) -> None:
    setup = Setup(tmp_path / "remote")
    setup.copy()
    setup.delete_topic()
    setup.run_pass()
    setup.clock.advance(GRACE_MS + COPY_MAX_MS + 1)
    for step, effect in enumerate(setup.remover.steps(PARTITION)):
        if step == dies_at:
            setup.manager.faults.append(Fault(lands))
            setup.remover.perform(effect)
            setup.manager.faults.clear()
            break
        setup.remover.perform(effect)
    setup.remover = setup.new_remover()
    setup.run_until_gone()
    assert setup.objects() == []
    assert setup.state() is PartitionDeleteState.DELETE_PARTITION_FINISHED


def test_a_pass_over_what_is_gone_does_nothing(setup: Setup) -> None:
    setup.copy()
    setup.delete_topic()
    setup.run_until_gone()
    setup.run_until_gone()
    before = len(setup.manager.log)
    setup.run_pass()
    assert len(setup.manager.log) == before


def test_a_new_topic_of_the_same_name_is_another_topic(setup: Setup) -> None:
    setup.copy()
    again = PARTITION._replace(topic_id=b"n" * 16)
    setup.manager.own(again, FENCE, 102)
    setup.delete_topic()
    setup.log.topic_ids.add(again.topic_id)
    setup.run_until_gone()
    assert setup.state() is PartitionDeleteState.DELETE_PARTITION_FINISHED
    living = setup.manager.deletion(again)
    assert living is not None
    assert living.state is None
