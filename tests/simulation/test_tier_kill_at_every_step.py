"""The write-order table of docs/tiering.md: killed at each step of each row, nothing is lost or
leaked."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlm.link.messages import CopiedThrough, PartitionSettings
from rlmm.api import MetadataWriteTimeoutError, SegmentUpdate
from rlmm.memory import Fault, InMemoryRemoteLogMetadataManager
from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError
from rsm_plugins.segment import SegmentState
from rsm_plugins.testing import Operation
from tests.support.tier.log_in_memory import PARTITION, Killed
from tests.support.tier.scene import COPY_MAX_MS, Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def steps_of(scene: Scene) -> int:
    before = scene.tier.steps
    scene.pass_all()
    return scene.tier.steps - before


def test_closed_segments_are_copied_oldest_first_and_reported(scene: Scene) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    copied = [segment.start_offset for segment in scene.metadata.list_segments(PARTITION)]
    assert copied == [0, 3, 6]
    assert scene.broker.copied == 8
    scene.broker.expire_local()
    assert scene.broker.local_start == 9
    scene.check_readable()
    scene.check_no_leak()


@pytest.mark.parametrize("kill_before", [True, False])
def test_killed_at_any_step_of_copying_nothing_is_lost_and_nothing_leaks(
    tmp_path: Path, kill_before: bool
) -> None:
    probe = Scene(tmp_path / "probe")
    probe.broker.fill(2)
    total = steps_of(probe)
    assert total > 15
    for step in range(1, total + 1):
        scene = Scene(tmp_path / f"{step}")
        scene.broker.fill(2)
        scene.kill_at, scene.kill_before = step, kill_before
        with pytest.raises(Killed):
            scene.pass_all()
        scene.broker.expire_local()
        scene.check_readable()
        scene.start_tier()
        scene.settle()
        scene.broker.expire_local()
        scene.check_readable()
        scene.check_no_leak()
        assert scene.broker.copied == 5, step


@pytest.mark.parametrize("kill_before", [True, False])
def test_killed_at_any_step_of_retention_nothing_is_lost_and_nothing_leaks(
    tmp_path: Path, kill_before: bool
) -> None:
    def prepared(name: str) -> Scene:
        scene = Scene(tmp_path / name, PartitionSettings(retention_bytes=400))
        scene.settings = PartitionSettings()
        scene.broker.fill(4)
        scene.pass_all()
        scene.broker.expire_local()
        scene.settings = PartitionSettings(retention_bytes=400)
        scene.clock.advance(COPY_MAX_MS + 1)
        return scene

    probe = prepared("probe")
    total = steps_of(probe)
    assert probe.broker.log_start > 0
    for step in range(1, total + 1):
        scene = prepared(f"{step}")
        scene.tier.steps = 0
        scene.kill_at, scene.kill_before = step, kill_before
        with pytest.raises(Killed):
            scene.pass_all()
        scene.broker.restart()
        scene.start_tier()
        scene.check_readable()
        scene.settle()
        scene.check_readable()
        scene.check_no_leak()
        assert scene.broker.log_start == probe.broker.log_start


def test_a_restart_of_the_broker_keeps_the_run_over_several_epochs(scene: Scene) -> None:
    for _ in range(3):
        scene.broker.fill(1)
        scene.broker.append(2)
        scene.broker.new_epoch()
        scene.start_tier()
    scene.broker.append(1)
    scene.broker.roll()
    scene.settle()
    scene.broker.expire_local()
    assert scene.broker.copied == scene.broker.end - 1
    scene.check_readable()


def test_delete_records_removes_whole_segments_and_keeps_a_straddling_one(
    scene: Scene,
) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.expire_local()
    scene.broker.delete_records(4)
    scene.settle()
    left = [segment.start_offset for segment in scene.metadata.list_segments(PARTITION)]
    assert left == [3, 6]
    scene.check_readable()
    scene.check_no_leak()


def test_a_segment_waits_until_the_transaction_in_it_ends(scene: Scene) -> None:
    scene.broker.fill(2)
    scene.broker.last_stable = 4
    scene.pass_all()
    assert scene.broker.copied == 2
    scene.broker.last_stable = None
    scene.pass_all()
    assert scene.broker.copied == 5


def test_a_write_of_unknown_outcome_ends_the_ownership_and_loses_nothing(scene: Scene) -> None:
    original = scene.metadata._write
    for lands in (True, False):
        for at in range(4):
            scene.broker.fill(1)
            scene.metadata.faults.clear()
            writes = 0

            def faulty(event: object, at: int = at, lands: bool = lands) -> object:
                nonlocal writes
                if writes == at:
                    scene.metadata.faults.append(Fault(lands))
                writes += 1
                return original(event)  # type: ignore[arg-type]

            scene.metadata._write = faulty  # type: ignore[assignment, method-assign]
            try:
                scene.pass_all()
            except MetadataWriteTimeoutError:
                scene.start_tier()
            finally:
                scene.metadata._write = original  # type: ignore[method-assign]
            scene.broker.expire_local()
            scene.check_readable()
    scene.start_tier()
    scene.settle()
    scene.broker.expire_local()
    scene.check_readable()
    scene.check_no_leak()


def test_a_failed_copy_is_cleaned_and_copied_again_under_a_new_id(scene: Scene) -> None:
    scene.broker.fill(1)
    scene.storage.fail_next_after(Operation.COPY, RetriableRemoteStorageError("lost answer"))
    with pytest.raises(RetriableRemoteStorageError):
        scene.pass_all()
    first = {segment.id.id for segment in scene.metadata.list_segments(PARTITION)}
    scene.settle()
    second = {segment.id.id for segment in scene.metadata.list_segments(PARTITION)}
    assert len(second) == 1
    assert not first & second
    scene.check_no_leak()


def test_a_store_error_while_deleting_stops_nothing_else(scene: Scene) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.expire_local()
    scene.broker.delete_records(6)
    scene.clock.advance(COPY_MAX_MS + 1)
    scene.storage.fail_next(Operation.DELETE, RemoteStorageError("refused"))
    scene.pass_all()
    states = [segment.state for segment in scene.metadata.list_segments(PARTITION)]
    assert states == [SegmentState.DELETE_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED]
    scene.settle()
    scene.check_no_leak()


def test_a_store_that_is_away_ends_a_deleting_pass_at_its_first_call(scene: Scene) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.expire_local()
    scene.broker.delete_records(6)
    scene.storage.down = True
    for _ in range(3):
        with pytest.raises(RetriableRemoteStorageError):
            scene.pass_all()
    asked = [call for call in scene.storage.calls if call.operation is Operation.DELETE]
    assert len(asked) == 3
    begun, done = SegmentState.DELETE_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED
    states = [segment.state for segment in scene.metadata.list_segments(PARTITION)]
    assert states == [begun, done, done], "no further one was begun"
    scene.storage.down = False
    scene.settle()
    scene.check_no_leak()


def test_a_hole_below_the_local_start_is_unhealthy_and_deletes_nothing(
    scene: Scene,
) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.expire_local()
    kept = next(iter(scene.metadata.list_segments(PARTITION)))
    objects = scene.objects()
    # The metadata topic lost all but the first segment.
    scene.metadata = InMemoryRemoteLogMetadataManager(scene.clock, scene.rng)
    fence = scene.start_tier().ownership.fence
    started = replace(kept, state=SegmentState.COPY_SEGMENT_STARTED)
    scene.metadata.add(started, fence, 7).result(0)
    finished = SegmentUpdate(kept.id, SegmentState.COPY_SEGMENT_FINISHED, 1, 1)
    scene.metadata.update(finished, fence, 7).result(0)
    assert "hole" in scene.pass_all()
    assert scene.broker.log_start == 0
    assert scene.objects() == objects


def test_a_lost_log_start_checkpoint_is_rebuilt_from_remote_metadata(scene: Scene) -> None:
    scene.broker.fill(4)
    scene.pass_all()
    scene.broker.expire_local()
    scene.broker.delete_records(3)
    scene.settle()
    chain = list(scene.broker.chain)
    scene.broker.log_start = scene.broker.local_start
    scene.broker.log_start_known = False
    scene.broker.chain = chain
    scene.broker.new_epoch()
    scene.start_tier()
    scene.settle()
    assert scene.broker.log_start == 3
    scene.check_readable()


def test_dropping_a_tier_raises_the_log_start_first_and_empties_the_store(
    scene: Scene,
) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.expire_local()
    scene.settings = PartitionSettings(mode="drop")
    scene.settle()
    assert scene.broker.log_start == 9
    assert not list(scene.metadata.list_segments(PARTITION))
    scene.check_no_leak()


def test_read_only_copies_nothing_more_and_total_retention_continues(scene: Scene) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.expire_local()
    scene.broker.fill(2)
    local_bytes = sum(len(segment.log) for segment in scene.broker.segments)
    scene.settings = PartitionSettings(mode="read_only", retention_bytes=local_bytes)
    scene.settle()
    reports = [each for each in scene.broker.reports if isinstance(each, CopiedThrough)]
    assert max(report.last_offset for report in reports) == 8
    assert scene.broker.log_start == 9
    scene.check_readable()
    scene.settings = PartitionSettings(mode="read_only", retention_bytes=1)
    scene.settle()
    assert scene.broker.log_start == 12, "nothing is remote any more"
    assert not scene.objects()
    scene.check_readable()


def test_the_copy_maximum_lets_no_put_start(scene: Scene) -> None:
    scene.broker.fill(1)
    original = scene.metadata.add

    def slow(*args: object) -> object:
        scene.clock.advance(COPY_MAX_MS + 1)
        return original(*args)  # type: ignore[arg-type]

    scene.metadata.add = slow  # type: ignore[assignment, method-assign]
    with pytest.raises(RetriableRemoteStorageError, match="copy maximum"):
        scene.pass_all()
    assert not [call for call in scene.storage.calls if call.operation is Operation.COPY]
