"""Starts of the metadata log after kills and power cuts at the worst moments."""

import errno
from pathlib import Path

import pytest

from local_log.errors import KafkaStorageError
from metadata_topic.image.records import make
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.errors import DamagedMetadataError
from metadata_topic.quorum.log.batches import data_batch, note_flushed_end
from metadata_topic.quorum.log.flushed_end_file import NO_EPOCH, FlushedEndFile
from metadata_topic.quorum.log.metadata_log import MetadataLog
from metadata_topic.quorum.snapshot.snapshots import SnapshotFiles, snapshot_chunks
from metadata_topic.quorum.start.recovery import read_directory, repair
from metadata_topic.raft.messages import SnapshotId
from tests.support.sim.clock import ManualClock
from tests.support.sim.memory_disk import MemoryDisk, ProcessEnded
from tests.support.sim.memory_machine import MemoryMachine, MemoryNode
from tests.support.sim.rng import SeededRng

pytestmark = pytest.mark.lasts(seconds=12)

HOME = Path("/log")
BASE = SnapshotId(268, 3)


def start(disk: MemoryDisk, *, segment_bytes: int = 1 << 20) -> MetadataLog:
    """As one of several voters, or an observer."""
    files = SnapshotFiles(HOME, disk, SeededRng(1))
    found = read_directory(HOME, files=files, disk=disk, replays=False)
    config = MetadataLogConfig(segment_bytes=segment_bytes)
    return repair(found, files=files, config=config, disk=disk, clock=ManualClock())


def batch(offset: int, flushed_end: int) -> bytearray:
    data = data_batch([make("NoOpRecord")], base_offset=offset, epoch=3, timestamp_ms=1)
    note_flushed_end(data, flushed_end)
    return data


def write_snapshot(disk: MemoryDisk, snapshot_id: SnapshotId) -> None:
    chunks = snapshot_chunks(
        [make("NoOpRecord")],
        snapshot_id=snapshot_id,
        last_contained_timestamp_ms=0,
        now_ms=lambda: 1,
    )
    SnapshotFiles(HOME, disk, SeededRng(1)).write(snapshot_id, chunks)


def begun_at_a_snapshot(machine: MemoryMachine) -> MetadataLog:
    """A log that begins at a snapshot's end and has fetched a batch that is not flushed."""
    disk = MemoryDisk(machine)
    log = start(disk)
    write_snapshot(disk, BASE)
    log.restart_at(BASE)
    log.append_fetched(batch(268, 268), timestamp_ms=1)
    return log


def test_a_node_notes_before_its_first_fetch_that_it_led_nothing() -> None:
    machine = MemoryMachine()
    start(MemoryDisk(machine))
    machine.cut(SeededRng(1))
    noted = FlushedEndFile(HOME, MemoryDisk(machine)).read()
    assert noted is not None
    assert noted.led_epoch == NO_EPOCH


def test_a_torn_batch_fetched_with_a_later_one_is_a_torn_tail() -> None:
    machine = MemoryMachine()
    log = start(MemoryDisk(machine))
    log.append_fetched(batch(0, 0) + batch(1, 1), timestamp_ms=1)
    file = machine.find(HOME / f"{0:020}.log")
    assert isinstance(file, MemoryNode)
    file.live[70] ^= 1  # in the first batch; the second says that its leader had flushed it
    assert start(MemoryDisk(machine)).end_offset == 0


@pytest.mark.parametrize("seed", range(12))
def test_a_start_over_a_torn_first_batch_may_be_cut_short_anywhere(seed: int) -> None:
    operation = 0
    while True:
        operation += 1
        machine = MemoryMachine()
        begun_at_a_snapshot(machine)
        file = machine.find(HOME / f"{268:020}.log")
        assert isinstance(file, MemoryNode)
        file.live[70] ^= 1
        disk = MemoryDisk(machine)
        disk.end_after(operation)
        try:
            start(disk)
        except ProcessEnded:
            machine.cut(SeededRng(seed))
            assert start(MemoryDisk(machine)).start_offset == 268
            continue
        machine.cut(SeededRng(seed))
        assert start(MemoryDisk(machine)).end_offset == 268
        return


def test_names_that_a_killed_process_left_are_durable_after_a_start() -> None:
    machine = MemoryMachine()
    begun_at_a_snapshot(machine)
    start(MemoryDisk(machine))
    assert machine.durable(HOME / f"{268:020}.log") is not None


def padded(count: int, in_sector: int) -> bytearray:
    """A batch of so many records that ends so many bytes before the end of a sector."""
    for size in range(1, 2000):
        topic = make("TopicRecord", name="x" * size, topic_id=bytes(16))
        records = [topic, *[make("NoOpRecord")] * (count - 1)]
        data = data_batch(records, base_offset=0, epoch=3, timestamp_ms=1)
        if (len(data) + in_sector) % 512 == 0:
            return data
    raise AssertionError("no size fits")


@pytest.mark.parametrize("offset", [1, 23, 255, 256, 300])
@pytest.mark.parametrize("in_sector", range(1, 12))
def test_a_batch_whose_offset_lay_in_a_lost_sector_is_a_torn_tail(
    in_sector: int, offset: int
) -> None:
    machine = MemoryMachine()
    log = start(MemoryDisk(machine))
    log.append_fetched(padded(offset, in_sector), timestamp_ms=1)
    log.flush()
    log.note_flushed()
    position = log.size_bytes
    assert (position + in_sector) % 512 == 0
    log.flush()
    log.append_fetched(batch(offset, 0), timestamp_ms=1)
    file = machine.find(HOME / f"{0:020}.log")
    assert isinstance(file, MemoryNode)
    file.live[position : position + in_sector] = bytes(in_sector)
    lost = file.live[position : position + 8] != offset.to_bytes(8, "big")
    assert start(MemoryDisk(machine)).end_offset == (offset if lost else offset + 1)


def test_another_offset_than_is_due_is_damage_where_no_sector_ends() -> None:
    machine = MemoryMachine()
    log = start(MemoryDisk(machine))
    log.append_fetched(batch(0, 0) + batch(1, 0), timestamp_ms=1)
    file = machine.find(HOME / f"{0:020}.log")
    assert isinstance(file, MemoryNode)
    file.live[len(batch(0, 0)) + 7] = 0
    with pytest.raises(DamagedMetadataError, match="a batch at offset 0 where 1 is due"):
        start(MemoryDisk(machine))


@pytest.mark.parametrize("seed", range(40))
def test_the_newest_segment_is_there_whatever_is_left_of_a_deletion(seed: int) -> None:
    machine = MemoryMachine()
    disk = MemoryDisk(machine)
    log = start(disk, segment_bytes=100)
    log.append_fetched(batch(0, 0) + batch(1, 0), timestamp_ms=1)
    log.flush()
    log.note_flushed()
    log.set_high_watermark(2)
    write_snapshot(disk, SnapshotId(2, 3))
    log.append_fetched(batch(2, 2), timestamp_ms=1)  # in a segment of its own, not flushed
    log.raise_start(2)
    log.take_out_old_segments()
    log.delete_old_segments()
    machine.cut(SeededRng(seed))
    assert start(MemoryDisk(machine)).end_offset >= 2


@pytest.mark.parametrize("seed", range(4))
def test_a_truncation_of_many_segments_may_be_cut_short_anywhere(seed: int) -> None:
    """No segment goes permanently before those behind it have gone: that would be a hole."""
    operation, is_whole = 0, False
    while not is_whole:
        operation += 1
        machine = MemoryMachine()
        disk = MemoryDisk(machine)
        log = start(disk, segment_bytes=100)
        for offset in range(7):
            log.append_fetched(batch(offset, offset), timestamp_ms=1)
            log.flush()
        log.note_flushed()
        disk.end_after(operation)
        try:
            log.truncate_to(1)
            is_whole = True
        except ProcessEnded:
            pass
        machine.cut(SeededRng(seed))
        assert 1 <= start(MemoryDisk(machine)).end_offset <= 7


@pytest.mark.parametrize("seed", range(40))
def test_an_append_undone_by_a_full_disk_is_in_no_closed_segment(seed: int) -> None:
    machine = MemoryMachine()
    log = start(MemoryDisk(machine))
    log.append_fetched(batch(0, 0), timestamp_ms=1)
    log.flush()
    log.note_flushed()
    machine.fault = lambda operation, _path: errno.ENOSPC if operation == "append" else 0
    with pytest.raises(KafkaStorageError):
        log.append_fetched(batch(1, 1), timestamp_ms=1)
    machine.fault = None
    log = start(MemoryDisk(machine), segment_bytes=50)
    log.append_fetched(batch(1, 1), timestamp_ms=1)  # in another segment
    log.flush()
    machine.cut(SeededRng(seed))
    assert start(MemoryDisk(machine)).end_offset == 2
