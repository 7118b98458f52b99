"""Copying, expiring and the broker's own work between any two steps of each other."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rlm.link.messages import DescribeLog, LogDescription, PartitionSettings
from rlm.maintenance.copy_task import copy_pass
from rlm.maintenance.effects import Effect, PassResult, Task, UpdateState
from rlm.maintenance.expiration_task import expiration_pass
from rlm.maintenance.performer import Performer
from rlm.maintenance.store_gate import StoreGate
from rlm.maintenance.takeover_task import take_over
from rlm.workers import COPIER_POOL, EXPIRATION_POOL
from rlmm.api import MetadataNotReadyError
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rsm_plugins.segment import SegmentState
from tests.support.tier.log_in_memory import PARTITION
from tests.support.tier.scene import COPY_MAX_MS, Scene


class Stepped:
    """A pass that is performed effect by effect."""

    def __init__(self, scene: Scene, task: Task[PassResult], pool: str) -> None:
        self.task = task
        self.performer = Performer(scene.tier.world, scene.tier.ownership, pool)
        self.effect: Effect | None = next(task)
        self.result: PassResult | None = None

    def step(self) -> None:
        assert self.effect is not None
        try:
            self.effect = self.task.send(self.performer(self.effect))
        except StopIteration as end:
            self.effect, self.result = None, end.value
            self.performer.end()

    def until(self, kind: type[Effect]) -> None:
        while not isinstance(self.effect, kind):
            self.step()

    def finish(self) -> PassResult:
        while self.effect is not None:
            self.step()
        assert self.result is not None
        return self.result


def copying(scene: Scene) -> Stepped:
    task = copy_pass(
        PARTITION,
        scene.settings,
        broker_id=1,
        custom_metadata_bytes_max=128,
        throttle_ms=lambda size: 0,
        gate=StoreGate(),
    )
    return Stepped(scene, task, COPIER_POOL)


def expiring(scene: Scene) -> Stepped:
    own = scene.tier.ownership.own_copies
    task = expiration_pass(
        scene.settings, own, broker_id=1, copy_max_ms=COPY_MAX_MS, gate=StoreGate()
    )
    return Stepped(scene, task, EXPIRATION_POOL)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def all_lost(scene: Scene) -> object:
    return scene.tier.run(take_over())


def copy_lost(scene: Scene) -> object:
    return copying(scene).finish()


def states(scene: Scene) -> list[SegmentState]:
    return [segment.state for segment in scene.metadata.list_segments(PARTITION)]


def test_a_copy_that_finishes_during_an_expiring_pass_is_not_dangling(
    scene: Scene,
) -> None:
    scene.broker.fill(1)
    copy = copying(scene)
    copy.until(UpdateState)
    expire = expiring(scene)
    expire.step()  # it has seen STARTED
    copy.finish()
    scene.broker.expire_local()
    expire.finish()
    assert states(scene) == [SegmentState.COPY_SEGMENT_FINISHED]
    scene.check_readable()


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_copy_that_begins_during_an_expiring_pass_is_not_dangling(
    scene: Scene, steps: int
) -> None:
    scene.broker.fill(2)
    expire = expiring(scene)
    copy = copying(scene)
    for _ in range(steps):
        copy.step()
    expire.step()
    copy.finish()
    scene.broker.expire_local()
    expire.finish()
    assert states(scene) == [SegmentState.COPY_SEGMENT_FINISHED] * 2
    scene.check_readable()


def test_a_copy_that_failed_is_dangling_for_the_next_look(scene: Scene) -> None:
    scene.broker.fill(1)
    copy = copying(scene)
    copy.until(UpdateState)
    copy.performer.end()
    expiring(scene).finish()
    assert states(scene) == [SegmentState.DELETE_SEGMENT_STARTED]


def test_a_segment_closed_and_copied_between_two_looks_counts_once(
    scene: Scene,
) -> None:
    broker = scene.broker
    broker.fill(3)
    scene.pass_all()
    broker.append(9)
    scene.settings = PartitionSettings(retention_bytes=sum(len(s.log) for s in broker.segments))
    describe = broker.describe

    def described_just_before_a_copy(question: DescribeLog) -> LogDescription:
        answer = describe(question)
        broker.describe = describe  # type: ignore[method-assign]
        broker.roll()
        copying(scene).finish()
        return answer

    broker.describe = described_just_before_a_copy  # type: ignore[method-assign]
    expiring(scene).finish()
    assert broker.copied == broker.end - 1, "the active segment has become remote meanwhile"
    assert (broker.log_start, broker.moves) == (0, []), "retention.bytes is not exceeded"


def test_a_log_start_that_moves_between_two_looks_is_no_hole(scene: Scene) -> None:
    scene.broker.fill(4)
    scene.pass_all()
    scene.broker.expire_local()
    describe = scene.broker.describe

    def described_just_before_a_deletion(question: DescribeLog) -> LogDescription:
        answer = describe(question)
        if scene.broker.log_start == 0:
            scene.broker.delete_records(6)
            scene.clock.advance(COPY_MAX_MS + 1)
            expiring(scene).finish()
        return answer

    scene.broker.describe = described_just_before_a_deletion  # type: ignore[method-assign]
    assert copying(scene).finish().unhealthy == ""
    assert states(scene) == [SegmentState.COPY_SEGMENT_FINISHED] * 2


@pytest.mark.parametrize("lost", [copy_lost, all_lost])
def test_after_metadata_was_lost_the_broker_is_told_to_keep_what_it_has(
    scene: Scene, lost: Callable[[Scene], object]
) -> None:
    scene.broker.fill(4)
    scene.pass_all()
    scene.broker.expire_local(keep=3)
    assert scene.broker.copied == 11
    scene.metadata = InMemoryRemoteLogMetadataManager(scene.clock, scene.rng)
    scene.start_tier()
    lost(scene)
    scene.broker.expire_local()
    assert scene.broker.local_start == 6


def test_a_pass_ends_when_the_settings_are_not_those_it_began_with(scene: Scene) -> None:
    scene.broker.fill(4)
    current = [True]
    task = copy_pass(
        PARTITION,
        scene.settings,
        broker_id=1,
        custom_metadata_bytes_max=128,
        throttle_ms=lambda size: 0,
        gate=StoreGate(),
        is_current=lambda: current[0],
    )
    copy = Stepped(scene, task, COPIER_POOL)
    copy.until(UpdateState)
    current[0] = False
    assert copy.finish().again_in_ms == 0
    assert states(scene) == [SegmentState.COPY_SEGMENT_FINISHED]
    assert scene.broker.copied == 2, "what was copied was told, all the same"


def test_no_task_validates_after_the_ownership_has_ended(scene: Scene) -> None:
    scene.broker.fill(1)
    scene.metadata.release(PARTITION)
    for task in (copying(scene), expiring(scene)):
        with pytest.raises(MetadataNotReadyError):
            task.finish()
    assert scene.broker.reports == []


def test_offsets_behind_a_hole_are_not_told_as_copied(scene: Scene) -> None:
    scene.broker.fill(1)
    scene.pass_all()
    scene.broker.fill(2)
    scene.broker.delete_records(6)
    scene.pass_all()
    # The next leader never learned of log start 6: own checkpoint 0, and all of the data.
    scene.broker.log_start = scene.broker.checkpointed_log_start = 0
    scene.broker.chain[0] = scene.broker.chain[0]._replace(start_offset=0)
    scene.broker.new_epoch()
    scene.start_tier()
    first = copying(scene)
    first.until(UpdateState)
    scene.broker.expire_local()
    scene.check_readable()
    first.finish()
    scene.settle()
    scene.broker.expire_local()
    scene.check_readable()
    scene.check_no_leak()


def test_with_nothing_remote_left_the_log_starts_where_it_is_local(scene: Scene) -> None:
    scene.broker.fill(2)
    scene.pass_all()
    scene.broker.expire_local()
    scene.broker.append(1)
    scene.broker.delete_records(6)
    scene.settle()
    assert states(scene) == []
    scene.broker.log_start = scene.broker.checkpointed_log_start = 0
    scene.broker.new_epoch()
    scene.start_tier()
    scene.pass_all()
    assert scene.broker.log_start == 6
    scene.check_readable()


def test_deletions_are_read_back_in_offset_order(scene: Scene) -> None:
    scene.broker.fill(4)
    scene.pass_all()
    scene.broker.expire_local()
    scene.broker.delete_records(9)
    expire = expiring(scene)
    seen = []
    while expire.effect is not None:
        if isinstance(expire.effect, UpdateState):
            seen.append(states(scene))
        expire.step()
    done, begun = SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED
    assert seen == [[done] * 4, [begun, done, done, done], [begun, begun, done, done]]


def test_a_finished_segment_is_deleted_again_before_it_is_forgotten(
    scene: Scene,
) -> None:
    scene.broker.fill(1)
    scene.pass_all()
    segment = next(iter(scene.metadata.list_segments(PARTITION)))
    objects = {path: path.read_bytes() for path in scene.root.rglob("*") if path.is_file()}
    scene.broker.delete_records(3)
    expiring(scene).finish()
    assert states(scene) == [SegmentState.DELETE_SEGMENT_STARTED]
    for path, data in objects.items():  # the first try of a retried PUT lands
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    expiring(scene).finish()
    assert scene.metadata.segment(segment.id) is not None, "a PUT may land still"
    scene.clock.advance(COPY_MAX_MS + 1)
    expiring(scene).finish()
    assert scene.metadata.segment(segment.id) is None
    scene.check_no_leak()


@pytest.mark.parametrize("mode", ["active", "read_only", "drop"])
def test_a_dangling_copy_goes_though_its_range_is_wanted_no_more(scene: Scene, mode: str) -> None:
    scene.broker.fill(1)
    copy = copying(scene)
    copy.until(UpdateState)
    copy.performer.end()  # the tier is gone
    scene.broker.delete_records(3)
    scene.broker.restart()
    scene.start_tier()
    scene.settings = PartitionSettings(mode=mode)
    scene.settle()
    assert states(scene) == []
    scene.check_no_leak()
