"""Stories of lost, old and contradictory files (shared model, group D and H), as one node plays
them: nothing is deleted, and what can be known again is."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from broker.replica.validation import Validation
from kafka_protocol.types import EpochEntry
from rlm.link.messages import Loss, PartitionSettings
from rlm.maintenance.effects import Restore
from rlmm.api import MetadataRefusedError, SegmentUpdate
from rlmm.events import SegmentAdded, SegmentUpdated
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.segment import IndexType, SegmentState
from rsm_plugins.testing import Operation
from tests.support.tier.log_in_memory import PARTITION, Killed
from tests.support.tier.scene import COPY_MAX_MS, Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def fill_over_epochs(scene: Scene, segments: int = 4) -> None:
    """One closed segment an epoch, all copied, and only the last epoch's is local."""
    for _ in range(segments):
        scene.broker.fill(1)
        scene.broker.new_epoch()
        scene.start_tier()
        scene.pass_all()
    scene.broker.fill(1)
    scene.settle()
    scene.broker.expire_local(keep=2)
    assert scene.broker.local_start == 3 * segments


def restart(scene: Scene) -> None:
    scene.broker.new_epoch()
    scene.start_tier()


def deletions(scene: Scene) -> int:
    return sum(1 for call in scene.storage.calls if call.operation is Operation.DELETE)


def assert_unhealthy(scene: Scene, loss: Loss) -> str:
    """Nothing is copied, raised or deleted, however often it is tried."""
    before = (scene.objects(), len(scene.metadata.log), scene.broker.log_start, deletions(scene))
    for _ in range(2):
        unhealthy = scene.pass_all()
        assert loss in unhealthy, unhealthy
        assert scene.broker.verdict is loss
        assert scene.broker.copied == -1
        scene.clock.advance(COPY_MAX_MS + 1)
    after = (scene.objects(), len(scene.metadata.log), scene.broker.log_start, deletions(scene))
    assert after == before
    assert "Remedy" in unhealthy
    return unhealthy


def assert_green(scene: Scene) -> None:
    scene.settle()
    assert scene.pass_all() == ""
    assert scene.broker.verdict is Validation.SOUND
    scene.check_readable()
    scene.check_no_leak()


def test_d1_a_lost_chain_deletes_nothing_and_is_read_from_the_store(scene: Scene) -> None:
    fill_over_epochs(scene)
    whole, objects = list(scene.broker.chain), scene.objects()
    scene.broker.lose_chain()
    restart(scene)
    assert_green(scene)
    assert scene.broker.chain[: len(whole)] == whole
    assert scene.broker.log_start == 0
    assert set(objects) <= set(scene.objects())


@pytest.mark.parametrize("kill_before", [True, False])
def test_d1_killed_at_any_step_of_restoring_the_chain_nothing_is_lost(
    tmp_path: Path, kill_before: bool
) -> None:
    def prepared(name: str) -> Scene:
        scene = Scene(tmp_path / name)
        fill_over_epochs(scene, 2)
        scene.broker.lose_chain()
        restart(scene)
        return scene

    probe = prepared("probe")
    probe.pass_all()
    assert any(isinstance(effect, Restore) for effect in probe.tier.effects)
    for step in range(1, probe.tier.steps + 1):
        scene = prepared(f"{step}")
        scene.kill_at, scene.kill_before = step, kill_before
        with pytest.raises(Killed):
            scene.pass_all()
        if scene.broker.chain_problem:
            scene.broker.lose_chain()
        restart(scene)
        assert_green(scene)
        assert scene.broker.log_start == 0


def test_d2_an_old_chain_that_contradicts_nothing_is_read_from_the_store(scene: Scene) -> None:
    fill_over_epochs(scene)
    whole = list(scene.broker.chain)
    scene.broker.chain = [*whole[:2], *whole[4:]]
    restart(scene)
    assert_green(scene)
    assert scene.broker.chain[: len(whole)] == whole


def test_d3_chain_and_log_start_lost_together_come_back(scene: Scene) -> None:
    fill_over_epochs(scene)
    scene.broker.delete_records(4)
    scene.settle()
    scene.broker.lose_chain()
    scene.broker.lose_log_start()
    restart(scene)
    assert_green(scene)
    assert scene.broker.log_start == 4, "records carry it"


def test_a_store_that_is_away_while_the_chain_is_lost_touches_nothing(scene: Scene) -> None:
    fill_over_epochs(scene)
    scene.broker.lose_chain()
    restart(scene)
    scene.storage.fail_next(Operation.FETCH_INDEX, RetriableRemoteStorageError("down"))
    objects = scene.objects()
    with pytest.raises(RetriableRemoteStorageError):
        scene.pass_all()
    assert scene.broker.copied == -1
    assert scene.objects() == objects
    assert_green(scene)


def test_h2_a_barrier_carries_no_log_start_and_a_settled_owner_does(scene: Scene) -> None:
    fill_over_epochs(scene, 2)
    scene.broker.delete_records(4)
    scene.settle()
    before = len(scene.metadata.log)
    restart(scene)
    barrier = [event.stamp.log_start for event, _ in scene.metadata.log[before:]]
    assert barrier
    assert set(barrier) == {-1}
    before = len(scene.metadata.log)
    scene.broker.fill(1)
    scene.pass_all()
    carried = [event.stamp.log_start for event, _ in scene.metadata.log[before:]]
    assert carried
    assert set(carried) == {4}


def test_h3_an_older_directory_is_unhealthy_by_a_merely_started_segment(
    scene: Scene,
) -> None:
    scene.broker.fill(2)
    scene.storage.fail_next(Operation.COPY, RetriableRemoteStorageError("down"))
    with pytest.raises(RetriableRemoteStorageError):
        scene.pass_all()
    scene.broker.cut_to(0)
    restart(scene)
    assert "3 were given before" in assert_unhealthy(scene, Loss.LOG_END)


def test_h3_a_carried_log_start_above_the_log_end_is_unhealthy(scene: Scene) -> None:
    scene.broker.fill(2)
    scene.pass_all()
    scene.broker.fill(1, records=1)
    scene.broker.delete_records(7)
    scene.settle()
    scene.broker.cut_to(6)
    scene.broker.log_start = 0
    restart(scene)
    assert_unhealthy(scene, Loss.LOG_END)


def test_h6_other_batches_where_a_segment_was_finished_are_a_lost_log_end(scene: Scene) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.cut_to(3)
    scene.broker.new_epoch()
    scene.broker.fill(3)  # the same offsets again, beyond all that was given
    scene.start_tier()
    assert_unhealthy(scene, Loss.LOG_END)


def test_h7_a_chain_in_no_index_is_unhealthy_until_records_are_deleted(
    scene: Scene,
) -> None:
    fill_over_epochs(scene)
    scene.broker.lose_chain()
    for path in scene.root.rglob("*.indexes"):
        path.unlink()
    restart(scene)
    assert "DeleteRecords to 12" in assert_unhealthy(scene, Loss.CHAIN)
    scene.broker.delete_records(12)
    scene.settle()
    assert scene.pass_all() == ""
    scene.check_readable()
    scene.broker.fill(1)
    scene.pass_all()
    assert scene.broker.copied == scene.broker.end - 1, "copying continues by itself"


def test_h7_two_indexes_that_differ_below_the_local_start_are_unhealthy(scene: Scene) -> None:
    fill_over_epochs(scene, 2)
    scene.broker.lose_chain()
    _copy_again_with(scene, b"0\n2\n1 0\n2 4\n")
    restart(scene)
    assert "different" in assert_unhealthy(scene, Loss.CHAIN)


def _copy_again_with(scene: Scene, index: bytes) -> None:
    """Another finished copy of the last remote segment, whose index tells something else."""
    original = next(m for m in scene.metadata.list_segments(PARTITION) if m.start_offset == 3)
    other = replace(original, id=replace(original.id, id=b"o" * 16))
    started = replace(
        other, state=SegmentState.COPY_SEGMENT_STARTED, leader_epochs=(EpochEntry(2, 4),)
    )
    stamp = scene.metadata.log[-1][0].stamp
    scene.metadata.land(SegmentAdded(started, stamp))
    finished = SegmentUpdate(other.id, SegmentState.COPY_SEGMENT_FINISHED, 1, 1)
    scene.metadata.land(SegmentUpdated(finished, stamp))
    fetch = scene.storage.fetch_index

    def fetch_index(metadata: object, kind: IndexType) -> object:
        if metadata.id.id == other.id.id and kind is IndexType.LEADER_EPOCH:  # type: ignore[attr-defined]
            return io.BytesIO(index)
        return fetch(metadata, kind)  # type: ignore[arg-type]

    scene.storage.fetch_index = fetch_index  # type: ignore[method-assign, assignment]


def without(scene: Scene, *starts: int, carried: int = -1) -> None:
    """The metadata topic lost all records of these segments; the others carry this log start."""
    kept = [m for m in scene.metadata.list_segments(PARTITION) if m.start_offset not in starts]
    stamp = scene.metadata.log[-1][0].stamp
    scene.metadata = InMemoryRemoteLogMetadataManager(scene.clock, scene.rng)
    for metadata in kept:
        started = replace(metadata, state=SegmentState.COPY_SEGMENT_STARTED)
        scene.metadata.land(SegmentAdded(started, replace(stamp, log_start=carried)))
        finished = SegmentUpdate(metadata.id, SegmentState.COPY_SEGMENT_FINISHED, 1, 1)
        scene.metadata.land(SegmentUpdated(finished, replace(stamp, log_start=carried)))


def test_h8_a_log_start_is_not_taken_from_a_run_behind_a_hole(scene: Scene) -> None:
    scene.broker.fill(4)
    scene.pass_all()
    scene.broker.expire_local(keep=2)
    without(scene, 3)
    scene.broker.lose_log_start()
    restart(scene)
    assert "DeleteRecords to 9" in assert_unhealthy(scene, Loss.LOG_START)
    scene.broker.delete_records(9)
    scene.settle()
    assert scene.pass_all() == ""
    assert scene.broker.log_start == 9


def test_h8_an_empty_run_proves_no_log_start(scene: Scene) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.expire_local()
    without(scene, 0, 3, 6)
    scene.broker.lose_log_start()
    restart(scene)
    assert_unhealthy(scene, Loss.LOG_START)


def test_h8_a_run_on_the_whole_chain_is_the_log_start(scene: Scene) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.expire_local()
    without(scene)  # records of Kafka: none carries a log start
    scene.broker.lose_log_start()
    restart(scene)
    assert_green(scene)
    assert scene.broker.log_start == 0


def test_h9_switching_on_is_no_loss_where_the_checkpoint_is_sound(scene: Scene) -> None:
    scene.broker.fill(3)
    scene.broker.delete_records(3)
    del scene.broker.segments[0]
    scene.broker.lose_log_start()
    scene.broker.has_no_entry = True
    assert_green(scene)
    assert scene.broker.log_start == 3


def test_a_hole_is_unhealthy_and_ends_with_records_deleted_up_to_above_it(scene: Scene) -> None:
    scene.broker.fill(4)
    scene.pass_all()
    scene.broker.expire_local(keep=1)
    without(scene, 3)
    restart(scene)
    assert "DeleteRecords to 6" in assert_unhealthy(scene, Loss.HOLE)
    scene.broker.delete_records(6)
    scene.settle()
    assert scene.pass_all() == ""
    scene.check_readable()


def test_a_hole_with_an_unknown_log_start_names_an_offset_to_delete_to(
    scene: Scene,
) -> None:
    scene.broker.fill(4)
    scene.pass_all()
    scene.broker.expire_local(keep=1)
    without(scene, 3, carried=0)
    scene.broker.lose_log_start()
    restart(scene)
    unhealthy = assert_unhealthy(scene, Loss.HOLE)
    (named,) = re.findall(r"DeleteRecords to (\d+)", unhealthy)
    scene.broker.delete_records(int(named))  # refused below the local start
    scene.settle()
    assert scene.pass_all() == ""
    assert scene.broker.log_start == 12
    scene.check_readable()


def test_h11_a_leader_epoch_below_the_chain_writes_nothing(scene: Scene) -> None:
    scene.broker.fill(1)
    scene.broker.new_epoch(7)
    scene.start_tier()
    scene.pass_all()
    scene.broker.fill(1)
    scene.broker.leader_epoch = 3
    with pytest.raises(MetadataRefusedError) as refused:
        scene.start_tier()
    assert refused.value.fence is not None
    assert refused.value.fence.leader_epoch == 7
    scene.metadata = InMemoryRemoteLogMetadataManager(scene.clock, scene.rng)
    scene.start_tier()  # the metadata topic is of that time, too: only the chain knows
    assert_unhealthy(scene, Loss.LEADER_EPOCH)
    assert {request.used for request in scene.broker.epoch_requests} == {7}
    scene.broker.new_epoch(8)
    scene.start_tier()
    assert scene.pass_all() == ""


def test_an_upgraded_partition_without_carried_log_starts_is_healthy(scene: Scene) -> None:
    fill_over_epochs(scene)
    scene.broker.delete_records(4)
    scene.settle()
    without(scene)
    restart(scene)
    assert_green(scene)
    assert scene.broker.log_start == 4


def test_an_owner_with_an_older_checkpoint_takes_the_highest_log_start(
    scene: Scene,
) -> None:
    fill_over_epochs(scene)
    scene.broker.delete_records(4)
    scene.settle()
    assert min(m.start_offset for m in scene.metadata.list_segments(PARTITION)) == 3
    scene.broker.log_start = scene.broker.checkpointed_log_start = 0
    restart(scene)
    assert_green(scene)
    assert scene.broker.log_start == 4
    assert [move.reason for move in scene.broker.moves] == ["carried"]


def test_total_retention_carries_the_new_log_start_before_it_deletes(scene: Scene) -> None:
    scene.broker.fill(4)
    scene.pass_all()
    scene.broker.expire_local()
    scene.settings = PartitionSettings(retention_bytes=1)
    before = len(scene.metadata.log)
    scene.pass_all()
    started = [
        event.stamp.log_start
        for event, _ in scene.metadata.log[before:]
        if isinstance(event, SegmentUpdated)
        and event.update.state is SegmentState.DELETE_SEGMENT_STARTED
    ]
    assert scene.broker.log_start == 9, "the last segment stays"
    assert started == [9] * 3
