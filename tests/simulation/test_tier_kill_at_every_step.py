"""The write-order table of docs/tiering.md: killed at each step of each row, nothing is lost or
leaked."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlm.copy_task import copy_pass
from rlm.expiration_task import expiration_pass
from rlm.messages import CopiedThrough, PartitionSettings
from rlm.performer import EXPIRATION_POOL, World
from rlm.plugin_calls import PluginCalls
from rlm.takeover_task import take_over
from rlm.telemetry import Telemetry
from rlm.testing import PARTITION, Killed, SimulatedBroker, SteppedTier, values_of
from rlmm import lineage
from rlmm.api import Fence, MetadataWriteTimeoutError, SegmentUpdate
from rlmm.memory import Fault, InMemoryRemoteLogMetadataManager
from rsm_plugins.api import RemoteStorageManager, RetriableRemoteStorageError
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import SegmentState
from rsm_plugins.testing import FaultyStorage, Operation
from runtime.clock import ManualClock
from runtime.dice import SeededDice

COPY_MAX_MS = 60_000


class Scene:
    """One broker, one store, one metadata topic, and tiers that come and go."""

    def __init__(self, root: Path, settings: PartitionSettings | None = None) -> None:
        self.root = root
        self.clock = ManualClock(wall_ms=10_000_000)
        self.broker = SimulatedBroker()
        self.broker.now_ms = 10_000_000
        self.storage = FaultyStorage(self.open_storage())
        self.dice = SeededDice(7)
        self.metadata = InMemoryRemoteLogMetadataManager(self.clock, self.dice)
        self.settings = settings or PartitionSettings()
        self.incarnation = 0
        self.kill_at: int | None = None
        self.kill_before = False
        self.tier = self.start_tier()

    def open_storage(self) -> RemoteStorageManager:
        """The plugin."""
        plugin = LocalFsRemoteStorageManager()
        plugin.configure({"dir": str(self.root)})
        return plugin

    def objects(self) -> list[str]:
        """Everything that is in the store, half-written things too."""
        return [str(path) for path in self.root.rglob("*") if path.is_file()]

    def start_tier(self) -> SteppedTier:
        self.incarnation += 1
        world = World(
            broker=self.broker,
            metadata=self.metadata,
            storage=self.storage,
            clock=self.clock,
            dice=self.dice,
            calls=PluginCalls(self.clock),
            telemetry=Telemetry(),
            copy_max_ms=COPY_MAX_MS,
            call_max_ms=COPY_MAX_MS,
        )
        self.tier = SteppedTier(world, Fence(self.broker.leader_epoch, self.incarnation))
        self.tier.own()
        return self.tier

    def pass_all(self) -> str:
        """Take over; copy and expire unless that is red; the reason if something is red."""
        tier = self.tier
        tier.kill_at, tier.kill_before = self.kill_at, self.kill_before
        red = tier.run(take_over()).red
        if red:
            return red
        reds = [
            tier.run(
                copy_pass(
                    PARTITION,
                    self.settings,
                    broker_id=1,
                    custom_metadata_bytes_max=128,
                    throttle_ms=lambda size: 0,
                )
            ).red,
            tier.run(
                expiration_pass(
                    self.settings,
                    tier.ownership.own_copies,
                    broker_id=1,
                    copy_max_ms=COPY_MAX_MS,
                ),
                EXPIRATION_POOL,
            ).red,
        ]
        return next((red for red in reds if red), "")

    def settle(self) -> None:
        """Quiescence and two passes, the copy maximum being over."""
        self.kill_at = None
        self.pass_all()
        self.clock.advance(COPY_MAX_MS + 1)
        self.pass_all()
        self.clock.advance(COPY_MAX_MS + 1)
        self.pass_all()

    def check_readable(self) -> None:
        """Every offset from the log start on is readable, with the bytes its leader wrote."""
        local = self.broker.local_values()
        for offset in range(self.broker.log_start, self.broker.end):
            epoch = lineage.epoch_at(self.broker.chain, offset)
            assert epoch is not None, offset
            found = local.get((epoch, offset))
            if found is None:
                segment = self.metadata.segment_for(PARTITION, epoch, offset)
                assert segment is not None, f"offset {offset} is in no tier"
                with self.storage.fetch_log_segment(segment, 0) as stream:
                    found = values_of(stream.read())[epoch, offset]
            assert found == self.broker.truth[epoch, offset], offset

    def check_no_leak(self) -> None:
        """The store holds the objects of FINISHED segments, exactly."""
        listed = list(self.metadata.list_segments(PARTITION))
        assert {segment.state for segment in listed} <= {SegmentState.COPY_SEGMENT_FINISHED}
        assert len(self.objects()) == 3 * len(listed), self.objects()


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


def test_delete_records_removes_what_is_wholly_below_and_keeps_the_straddling_segment(
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


def test_a_segment_waits_for_the_end_of_the_transaction_that_reaches_into_it(scene: Scene) -> None:
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
    scene.storage.fail_next(Operation.DELETE, RetriableRemoteStorageError("down"))
    scene.pass_all()
    states = [segment.state for segment in scene.metadata.list_segments(PARTITION)]
    assert states == [SegmentState.DELETE_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED]
    scene.settle()
    scene.check_no_leak()


def test_a_hole_between_remote_end_and_local_start_is_red_and_touches_nothing(
    scene: Scene,
) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.expire_local()
    kept = next(iter(scene.metadata.list_segments(PARTITION)))
    objects = scene.objects()
    # The metadata topic lost all but the first segment.
    scene.metadata = InMemoryRemoteLogMetadataManager(scene.clock, scene.dice)
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


def test_tiering_switched_off_with_drop_moves_the_log_start_first_and_empties_the_store(
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


def test_read_only_copies_nothing_more_and_total_retention_goes_on(scene: Scene) -> None:
    scene.broker.fill(3)
    scene.pass_all()
    scene.broker.expire_local()
    scene.broker.fill(2)
    scene.settings = PartitionSettings(mode="read_only", retention_bytes=100)
    scene.settle()
    reports = [each for each in scene.broker.reports if isinstance(each, CopiedThrough)]
    assert max(report.last_offset for report in reports) == 8
    assert scene.broker.log_start == 9
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
