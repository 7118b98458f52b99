"""From committed records to images: never above the high watermark, in order, in steps."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_protocol.records.batch import read_header
from kafka_protocol.records.control import leader_change
from local_log.errors import UnexpectedAppendOffset
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.loader import ImageLoader
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.log.batches import (
    data_batch,
    flushed_end_of,
    note_flushed_end,
    value_batch,
)
from metadata_topic.quorum.log.flushed_end_file import NO_EPOCH, FlushedEnd, FlushedEndFile
from metadata_topic.quorum.log.metadata_log import MetadataLog
from metadata_topic.quorum.metadata_loader import Applied, MetadataLoader, UnreadableCommitError
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles
from metadata_topic.quorum.snapshot.store import StoredMetadata
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import SimPorts, simulated
from tests.support.sim.scheduler import ManualScheduler


class LaterScheduler(ManualScheduler):
    """Calls nothing within `call_soon`, as an event loop."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, fn: Callable[[], object]) -> None:
        self.soon.append(fn)

    def turns(self) -> int:
        count = 0
        while self.soon:
            self.soon.pop(0)()
            count += 1
        return count


class World:
    def __init__(self, path: Path) -> None:
        self.ports: SimPorts = simulated()
        self.log = self.opened(path)
        self.files = SnapshotFiles(path, Disk(), self.ports.rng)
        self.images: list[MetadataImage] = []
        self.applied: list[Applied] = []
        self.failures: list[Exception] = []

    def opened(self, path: Path) -> MetadataLog:
        config = MetadataLogConfig(segment_bytes=100_000)
        return MetadataLog.open(
            path, config=config, disk=Disk(), clock=self.ports.clock, recovery_point=0
        )

    def loader(self, ports: SimPorts | None = None) -> MetadataLoader:
        made = MetadataLoader(
            StoredMetadata(self.log, self.files),
            ImageLoader(EMPTY_IMAGE),
            0,
            ports or self.ports,
            on_applied=self.applied.append,
            on_failure=self.failures.append,
        )
        made.subscribe(lambda image, delta: self.images.append(image))
        return made

    def append(self, *records: MetadataRecord, epoch: int = 1) -> int:
        end = self.log.end_offset
        batch = data_batch(records, base_offset=end, epoch=epoch, timestamp_ms=5)
        note_flushed_end(batch, self.log.flushed_end)
        self.log.append_fetched(batch, timestamp_ms=5)
        return self.log.end_offset


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def topic(name: str) -> MetadataRecord:
    return make("TopicRecord", name=name, topic_id=name.encode().ljust(16, b"-"))


def test_nothing_above_the_high_watermark_is_applied(world: World) -> None:
    loader = world.loader()
    first = world.append(topic("a"))
    world.append(topic("b"), topic("c"))
    loader.on_high_watermark(first)
    assert set(loader.image.topics_by_name) == {"a"}
    assert loader.end_offset == loader.image.provenance.end_offset == first
    loader.on_high_watermark(first + 1)  # within a batch
    assert loader.end_offset == first
    loader.on_high_watermark(first + 2)
    assert set(loader.image.topics_by_name) == {"a", "b", "c"}
    assert loader.image.provenance.end_offset == first + 2
    loader.on_high_watermark(0)
    assert [len(image.topics_by_name) for image in world.images] == [1, 3]


def test_a_run_of_batches_makes_one_image(world: World) -> None:
    loader = world.loader()
    for n in range(50):
        world.append(topic(f"t{n}"))
    loader.on_high_watermark(world.log.end_offset)
    assert [len(image.topics_by_name) for image in world.images] == [50]
    assert [one.end_offset for one in world.applied] == [50]


def test_control_batches_move_the_end_and_publish_nothing(world: World) -> None:
    loader = world.loader()
    world.log.append_controls([leader_change(1, [1], [1])], epoch=1, timestamp_ms=5)
    loader.on_high_watermark(1)
    assert world.images == []
    assert [one.end_offset for one in world.applied] == [1]


def test_an_open_transaction_waits_for_its_end(world: World) -> None:
    loader = world.loader()
    world.append(topic("a"))
    world.append(make("BeginTransactionRecord"), topic("b"))
    loader.on_high_watermark(3)
    assert set(loader.image.topics_by_name) == {"a"}
    assert (world.applied[-1].end_offset, world.applied[-1].in_transaction) == (3, True)
    assert loader.image.provenance.end_offset == 1
    world.append(make("EndTransactionRecord"))
    loader.on_high_watermark(4)
    assert set(loader.image.topics_by_name) == {"a", "b"}
    assert not world.applied[-1].in_transaction


@pytest.mark.parametrize("value", [b"\x01\x63\x00", b""])
def test_a_record_that_cannot_be_read_ends_the_node_and_is_named(
    world: World, value: bytes
) -> None:
    loader = world.loader()
    world.append(topic("a"))
    end = world.log.end_offset
    bad = value_batch([value], base_offset=end, epoch=1, timestamp_ms=5)
    world.log.append_fetched(bad, timestamp_ms=5)
    loader.on_high_watermark(end)
    loader.on_high_watermark(end + 1)
    [failure] = world.failures
    assert isinstance(failure, UnreadableCommitError)
    assert f"at offset {end}" in str(failure)
    world.append(topic("b"))
    loader.on_high_watermark(end + 2)
    assert set(loader.image.topics_by_name) == {"a"}


def test_a_large_batch_is_taken_in_steps(world: World) -> None:
    scheduler = LaterScheduler(world.ports.clock)
    ports = SimPorts(
        clock=world.ports.clock,
        scheduler=scheduler,
        executors=world.ports.executors,
        disk=world.ports.disk,
        rng=world.ports.rng,
    )
    loader = world.loader(ports)
    end = world.append(*(topic(f"t{n}") for n in range(3_000)))
    loader.on_high_watermark(end)
    assert world.images == []
    world.append(topic("later"))
    loader.on_high_watermark(end + 1)
    assert scheduler.turns() > 20
    assert [len(image.topics_by_name) for image in world.images] == [3_000, 3_001]


def test_after_a_close_nothing_is_applied(world: World) -> None:
    loader = world.loader()
    world.append(topic("a"))
    loader.close()
    loader.on_high_watermark(1)
    assert (world.images, world.applied) == ([], [])


def test_fetched_batches_are_kept_as_they_came_and_must_follow(world: World) -> None:
    batch = data_batch([topic("a")], base_offset=0, epoch=3, timestamp_ms=5)
    after = data_batch([topic("b")], base_offset=2, epoch=3, timestamp_ms=5)
    for wrong in (after, batch + after):
        with pytest.raises(UnexpectedAppendOffset):
            world.log.append_fetched(wrong, timestamp_ms=9)
    world.log.append_fetched(batch, timestamp_ms=9)
    assert world.log.read(0, 1) == bytes(batch)
    assert flushed_end_of(read_header(batch)) is None
    assert world.log.read(1, 100) == b""


def test_only_a_led_epoch_is_noted_and_a_truncation_forgets_it(
    world: World, tmp_path: Path
) -> None:
    noted = FlushedEndFile(tmp_path, Disk())
    world.append(topic("a"), epoch=1)
    assert world.log.flush() == 1
    assert noted.read() == FlushedEnd(1)
    world.log.append_controls([leader_change(1, [1], [1])], epoch=2, timestamp_ms=5)
    world.log.flush()
    found = noted.read()
    assert found is not None
    assert (found.offset, found.led_epoch) == (2, 2)
    world.log.truncate_to(1)
    found = noted.read()
    assert found is not None
    assert (found.offset, found.led_epoch) == (1, NO_EPOCH)
    assert world.log.end_offset == world.log.flushed_end == 1


def test_a_full_segment_waits_for_its_flush(world: World, tmp_path: Path) -> None:
    names = [f"{n:0>200}" for n in range(600)]
    for name in names[:300]:
        world.append(make("TopicRecord", name=name, topic_id=name.encode()[-16:]))
    assert not world.log.wants_flush
    for name in names[300:400]:
        world.append(make("TopicRecord", name=name, topic_id=name.encode()[-16:]))
    assert world.log.wants_flush
    assert len(list(tmp_path.glob("*.log"))) == 1
    world.log.flush()
    world.append(topic("next"))
    assert len(list(tmp_path.glob("*.log"))) == 2


def test_an_image_that_is_followed_for_long_leaves_less_idle_time(world: World) -> None:
    loader = world.loader()
    clock, metrics = world.ports.clock, world.ports.metrics

    def idle_ratio() -> float:
        (found,) = (one.value for one in metrics.samples() if one.name.endswith("AvgIdleRatio"))
        return found

    clock.advance(1_000)
    assert idle_ratio() == 1
    loader.subscribe(lambda _image, _delta: clock.advance(250))
    world.append(topic("a"))
    loader.on_high_watermark(world.log.end_offset)
    assert idle_ratio() == 0.8


def test_a_failing_subscriber_is_counted_apart_from_an_unreadable_record(
    world: World,
) -> None:
    def broken(_image: MetadataImage, _delta: object) -> None:
        raise RuntimeError("bug")

    loader = world.loader()
    loader.subscribe(broken)
    world.append(topic("a"))
    loader.on_high_watermark(world.log.end_offset)
    counted = {
        one.name.rpartition("metrics_")[2]: one.value for one in world.ports.metrics.samples()
    }
    assert counted["metadata_apply_error_count"] == len(world.failures) == 1
    assert counted["metadata_load_error_count"] == 0
