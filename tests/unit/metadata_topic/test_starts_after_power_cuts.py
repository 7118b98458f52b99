"""Starts of the metadata log after kills and power cuts at the worst moments."""

from pathlib import Path

from metadata_topic.image.records import make
from metadata_topic.quorum.batches import data_batch, note_flushed_end
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.flushed_end_file import NO_EPOCH, FlushedEndFile
from metadata_topic.quorum.metadata_log import MetadataLog
from metadata_topic.quorum.recovery import read_directory, repair
from metadata_topic.quorum.snapshots import SnapshotFiles
from metadata_topic.raft.snapshot_id import SnapshotId
from runtime.sim.clock import ManualClock
from runtime.sim.dice import SeededDice
from runtime.sim.memory_disk import MemoryDisk, MemoryMachine, MemoryNode

HOME = Path("/log")
BASE = SnapshotId(268, 3)


def start(disk: MemoryDisk) -> MetadataLog:
    """As one of several voters, or an observer."""
    files = SnapshotFiles(HOME, disk, SeededDice(1))
    found = read_directory(HOME, files=files, disk=disk, replays_log=False)
    config = MetadataLogConfig()
    return repair(found, files=files, config=config, disk=disk, clock=ManualClock())


def batch(offset: int, flushed_end: int) -> bytearray:
    data = data_batch([make("NoOpRecord")], base_offset=offset, epoch=3, timestamp_ms=1)
    note_flushed_end(data, flushed_end)
    return data


def test_a_node_notes_before_its_first_fetch_that_it_led_nothing() -> None:
    machine = MemoryMachine()
    start(MemoryDisk(machine))
    machine.cut(SeededDice(1))
    noted = FlushedEndFile(HOME, MemoryDisk(machine)).read()
    assert noted is not None
    assert noted.led_epoch == NO_EPOCH


def test_a_batch_torn_before_another_that_was_fetched_with_it_is_a_torn_tail() -> None:
    machine = MemoryMachine()
    log = start(MemoryDisk(machine))
    log.append_fetched(batch(0, 0) + batch(1, 1), timestamp_ms=1)
    file = machine.find(HOME / f"{0:020}.log")
    assert isinstance(file, MemoryNode)
    file.live[70] ^= 1  # in the first batch; the second says that its leader had flushed it
    assert start(MemoryDisk(machine)).end_offset == 0
