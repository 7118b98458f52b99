"""What counts as flushed, what is noted of it, and what of the note a power cut may take."""

from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from metadata_topic.image.records import make
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.errors import OtherLogError, UnusableMetadataError
from metadata_topic.quorum.log.batches import data_batch
from metadata_topic.quorum.log.flushed_end_file import FLUSHED_END, FlushedEndFile
from metadata_topic.quorum.log.metadata_log import MetadataLog
from metadata_topic.quorum.start.format import make_dirs_durably
from runtime.disk import Disk, OpenFile
from tests.support.sim.clock import ManualClock
from tests.support.sim.memory_disk import MemoryDisk
from tests.support.sim.memory_machine import MemoryMachine
from tests.support.sim.rng import SeededRng

HOME = Path("/log")
SEEDS = range(8)


class SlowDisk(MemoryDisk):
    """Something happens while lines of the note, or records, are being made durable.

    Of what it writes nothing is made durable by that fsync.
    """

    meanwhile: Callable[[], object] = staticmethod(lambda: None)
    meanwhile_in_log: Callable[[], object] = staticmethod(lambda: None)

    def fsync(self, file: OpenFile) -> None:
        if file.path.name == FLUSHED_END:
            self.meanwhile()
        super().fsync(file)
        if file.path.suffix == ".log":
            self.meanwhile_in_log()


def opened(machine: MemoryMachine) -> tuple[SlowDisk, MetadataLog]:
    disk = SlowDisk(machine)
    make_dirs_durably(disk, HOME)
    log = MetadataLog.open(
        HOME, config=MetadataLogConfig(), disk=disk, clock=ManualClock(), recovery_point=0
    )
    log.note.write()
    return disk, log


def append_one(log: MetadataLog) -> None:
    data = data_batch([make("NoOpRecord")], base_offset=log.end_offset, epoch=3, timestamp_ms=1)
    log.append_fetched(data, timestamp_ms=1)


def flush_one(log: MetadataLog) -> int:
    """Append a batch and flush it."""
    append_one(log)
    return log.flush()


def after_a_cut(machine: MemoryMachine, seed: int) -> int:
    """What the note says after a power cut."""
    machine.cut(SeededRng(seed))
    found = FlushedEndFile(HOME, MemoryDisk(machine)).read()
    assert found is not None
    return found.offset


@pytest.mark.parametrize("seed", SEEDS)
def test_a_whole_note_is_durable_also_while_its_lines_are_being_fsynced(seed: int) -> None:
    machine = MemoryMachine()
    disk, log = opened(machine)
    end = flush_one(log)
    found: list[int] = []

    def note_and_cut() -> None:
        log.note_flushed()
        found.append(after_a_cut(machine, seed))
        raise InterruptedError

    disk.meanwhile = note_and_cut
    with pytest.raises(InterruptedError):
        log.note.fsync_lines()
    assert found == [end]


@pytest.mark.parametrize("seed", SEEDS)
def test_lines_that_were_fsynced_outlast_a_power_cut(seed: int) -> None:
    machine = MemoryMachine()
    _, log = opened(machine)
    flush_one(log)
    end = flush_one(log)
    log.note.fsync_lines()
    assert not log.note.has_unsynced_lines
    assert after_a_cut(machine, seed) == end


def test_a_line_that_is_added_during_an_fsync_has_not_been_fsynced() -> None:
    disk, log = opened(MemoryMachine())
    flush_one(log)

    def add_a_line() -> None:
        disk.meanwhile = lambda: None
        flush_one(log)

    disk.meanwhile = add_a_line
    log.note.fsync_lines()
    assert log.note.has_unsynced_lines
    log.note.fsync_lines()
    assert not log.note.has_unsynced_lines


def test_a_batch_that_is_appended_during_a_flush_is_not_called_flushed() -> None:
    disk, log = opened(MemoryMachine())
    disk.meanwhile_in_log = lambda: append_one(log)
    end = flush_one(log)
    assert (end, log.flushed_end, log.end_offset) == (1, 1, 2)
    disk.meanwhile_in_log = lambda: None
    assert log.flush() == 2


@pytest.mark.parametrize(
    "text",
    [
        b"tidemark-flushed-end 1\nflushed 13\nrestart -1\n",
        b"tidemark-flushed-end 2\nflushed 13\nrestart -1 -1\nled 3\n",
    ],
)
def test_a_note_of_an_unreleased_version_is_refused_by_name(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FLUSHED_END).write_bytes(text + b"crc %08x\n" % crc32c(text))
    with pytest.raises(UnusableMetadataError, match=r"tidemark-flushed-end is of version [12]"):
        FlushedEndFile(tmp_path, Disk()).read()
    (tmp_path / FLUSHED_END).write_bytes(text + b"crc 00000000\n")
    assert FlushedEndFile(tmp_path, Disk()).read() is None


def test_a_cut_within_a_batch_is_refused_for_another_log() -> None:
    """Two logs that agree up to an offset have whole batches before it: nothing is cut."""
    _, log = opened(MemoryMachine())
    append_one(log)
    records = [make("NoOpRecord")] * 3
    data = data_batch(records, base_offset=1, epoch=3, timestamp_ms=1)
    log.append_fetched(data, timestamp_ms=1)
    log.flush()
    with pytest.raises(OtherLogError, match=r"offset 2, inside of the batch .* at offsets 1 to 3"):
        log.truncate_to(2)
    assert (log.end_offset, log.flushed_end) == (4, 4)
    log.truncate_to(1)
    assert log.end_offset == 1
