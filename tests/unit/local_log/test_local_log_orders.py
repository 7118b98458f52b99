"""What is written before what: truncations, flushes beside them, log starts, dropped segments."""

import errno
import struct

import pytest

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.files.producer_snapshot import ProducerEntry
from kafka_protocol.records.batch import write_crc
from local_log.errors import KafkaStorageError
from local_log.log import lookups, retention
from local_log.log.results import LogHooks
from local_log.log.truncation import truncate_fully_and_start_at, truncate_to
from local_log.producers.state import CompletedTransaction, ProducerStates
from runtime.disk import Disk, OpenFile
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.local_log import (
    NOW_MS,
    SMALL,
    append,
    batch_of,
    drop,
    filled,
    open_log,
    with_config,
)


class _BusyDisk(Disk):
    """Does something once in the middle of the next fsync of a log file."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile = None

    def fsync(self, file: OpenFile) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().fsync(file)


# -- truncation --------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [25, 5, 0])
def test_truncation_lowers_the_marks_durably_before_a_file_changes(tmp_path, offset):
    seen = []

    def before_truncation(end):
        names = {path.name for path in tmp_path.iterdir() if path.suffix == ".log"}
        seen.append((end, log.recovery_point, log.high_watermark, len(names)))

    log = filled(tmp_path, hooks=LogHooks(before_truncation=before_truncation))
    log.flush()
    count = len(log.segments.all)
    truncate_to(log, offset)
    ((end, point, watermark, names),) = seen
    assert (end, names) == (log.log_end_offset, count)
    assert end <= offset
    assert (point, watermark) == (end, end)


def test_failed_order_before_a_truncation_changes_no_file(tmp_path):
    def before_truncation(_end):
        raise OSError(errno.ENOSPC, "full")

    log = filled(tmp_path, hooks=LogHooks(before_truncation=before_truncation))
    before = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    with pytest.raises(KafkaStorageError):
        truncate_to(log, 25)
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == before


def test_flush_beside_a_truncation_raises_no_recovery_point_over_it(tmp_path):
    disk = _BusyDisk()
    log = filled(tmp_path, disk=disk)
    disk.meanwhile = lambda: truncate_to(log, 10)
    log.flush()
    assert log.recovery_point == log.log_end_offset <= 10


def test_flush_counts_nothing_that_was_appended_after_it_began(tmp_path):
    """A roll and an append while segments are fsynced lie in a file that it does not know."""
    disk = _BusyDisk()
    log = filled(tmp_path, disk=disk)
    end = log.log_end_offset

    def meanwhile():
        log.roll(NOW_MS)
        append(log)

    disk.meanwhile = meanwhile
    log.flush()
    assert (log.recovery_point, log.log_end_offset) == (end, end + 1)


def test_flush_up_to_the_log_start_moves_the_recovery_point_there(tmp_path):
    log = filled(tmp_path)
    assert log.recovery_point == 0
    log.raise_log_start(30)
    log.flush(log.log_start_offset)
    assert log.recovery_point == 30
    log.flush(10)
    assert log.recovery_point == 30


# -- retention ---------------------------------------------------------------------------------


def test_expired_segments_stay_until_their_log_start_could_be_checkpointed(tmp_path):
    log = filled(tmp_path, config=with_config(retention_bytes=3000))
    count = len(log.segments.all)
    expiry = retention.expire(log, NOW_MS)
    assert expiry is not None
    assert log.log_start_offset == expiry.log_start_offset > 0
    assert len(log.segments.all) == count
    assert not list(tmp_path.glob("*.deleted"))
    result = drop(log, expiry)
    assert result == expiry.dropped
    assert len(log.segments.all) == count - len(expiry.dropped)
    assert log.segments.bases[0] == log.log_start_offset


def test_segments_that_went_between_the_two_steps_are_passed_over(tmp_path):
    log = filled(tmp_path, config=with_config(retention_bytes=3000))
    expiry = retention.expire(log, NOW_MS)
    truncate_fully_and_start_at(log, 100)
    append(log)
    assert drop(log, expiry) == ()
    assert len(log.segments.all) == 1


def test_nothing_expired_is_none(tmp_path):
    assert retention.expire(filled(tmp_path), NOW_MS) is None


def test_unreadable_facts_fail_that_log_alone(tmp_path):
    log = filled(tmp_path, config=with_config(retention_ms=1))
    log.close()
    log = open_log(tmp_path, config=log.config, high_watermark=log.log_end_offset)
    log.segments.all[0].path(".timeindex").unlink()
    with pytest.raises(KafkaStorageError):
        retention.expire(log, NOW_MS + 10_000)
    assert log.is_offline


# -- recovery after a cut ----------------------------------------------------------------------


def test_new_segment_has_its_name_on_the_disk_when_flush_returns(tmp_path):
    class Watched(Disk):
        def __init__(self) -> None:
            super().__init__()
            self.synced = []

        def fsync_path(self, path):
            self.synced.append(path)
            super().fsync_path(path)

    disk = Watched()
    log = open_log(tmp_path, disk=disk)
    append(log)
    log.flush()
    log.roll(NOW_MS)
    append(log)
    disk.synced.clear()
    log.flush()
    assert tmp_path in disk.synced


def test_open_transactions_of_a_snapshot_are_sorted_by_their_offsets():
    entries = [ProducerEntry(pid, 0, 0, first, 0, 0, 0, first) for pid, first in ((1, 9), (2, 4))]
    states = ProducerStates()
    states.load(entries, 20)
    done = CompletedTransaction(3, 15, 19, True)
    assert states.last_stable_after(done) == 4


# -- appends -----------------------------------------------------------------------------------


def test_header_with_more_records_than_its_bytes_can_hold_is_refused(tmp_path):
    log = open_log(tmp_path)
    batch = batch_of(2)
    fits = (len(batch) - 61) // 7
    for count, taken in ((2**31 - 1, False), (fits + 1, False), (fits, True)):
        batch = batch_of(2)
        struct.pack_into(">i", batch, 23, count - 1)
        struct.pack_into(">i", batch, 57, count)
        write_crc(batch, 0, len(batch))
        if taken:
            assert log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS).first_offset == 0
            continue
        with pytest.raises(KafkaError) as refused:
            log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
        assert refused.value.code == ErrorCode.INVALID_RECORD
        assert log.log_end_offset == 0


@pytest.mark.parametrize(("kind", "stamp"), [("LogAppendTime", NOW_MS), ("CreateTime", -1)])
def test_repeated_batch_answers_the_time_it_was_stored_with(tmp_path, kind, stamp):
    log = open_log(tmp_path, config=with_config(message_timestamp_type=kind))
    known = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    first = append(log, at_ms=7, now_ms=NOW_MS, **known)
    repeat = append(log, at_ms=7, now_ms=NOW_MS + 1000, **known)
    assert repeat.is_duplicate
    assert first.log_append_time_ms == repeat.log_append_time_ms == stamp


# -- closed indexes ----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_unreadable_index_of_a_closed_segment_takes_the_directory_offline(tmp_path, suffix):
    failed, disk = [], FaultyDisk()
    log = filled(tmp_path, disk=disk, hooks=LogHooks(failed=failed.append))
    disk.fail(["read_at"], path_part=f"{0:020d}{suffix}", error=errno.EIO)
    with pytest.raises(KafkaStorageError):
        log.read(5, 100) if suffix == ".index" else lookups.offset_for_timestamp(log, NOW_MS + 30)
    assert [error.errno for error in failed] == [errno.EIO]


def test_unreadable_index_at_a_start_is_an_error_of_the_disk(tmp_path):
    filled(tmp_path).close()
    disk = FaultyDisk()
    disk.fail(["read_at"], path_part=".index", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        open_log(tmp_path, disk=disk)


def test_look_ups_in_a_long_closed_index_find_what_a_scan_finds(tmp_path):
    config = with_config(
        SMALL, segment_bytes=1 << 20, index_interval_bytes=1, segment_index_bytes=1 << 20
    )
    log = open_log(tmp_path, config=config)
    for i in range(1500):
        append(log, at_ms=NOW_MS + i // 3, size=1)
    index, times = log.segments.all[0].offset_index, log.segments.all[0].time_index
    offsets = [*range(0, 1500, 7), 1499, 511, 512, 513, 1023, 1024, 1025]
    positions = [index.lookup(offset).position for offset in offsets]
    following = [index.first_entry_from(position) for position in positions]
    stamps = [times.lookup(NOW_MS + i) for i in range(-1, 502)]
    log.roll(NOW_MS)
    assert len(log.segments.all) == 2
    for order in (1, -1):
        again = [index.lookup(offset).position for offset in offsets[::order]]
        assert again[::order] == positions
        entries = [index.first_entry_from(position) for position in positions[::order]]
        assert entries[::order] == following
        assert [times.lookup(NOW_MS + i) for i in range(-1, 502)][::order] == stamps[::order]
