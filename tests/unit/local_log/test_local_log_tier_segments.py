"""Closed segments for the remote tier."""

import errno

import pytest

from kafka_protocol.files import epoch_checkpoint, producer_snapshot
from kafka_protocol.records.control import ControlType, end_transaction_batch
from local_log.errors import KafkaStorageError, OffsetOutOfRange
from local_log.log.partition_log import PartitionLog
from local_log.log.tier_segments import ClosedSegment, closed_tail, open_segment
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.worlds.local_log import (
    NOW_MS,
    append,
    batch_of,
    files_of,
    filled,
    open_log,
    retain,
)


def _content(file) -> bytes:
    with open(file.fd, "rb", closefd=False) as stream:
        return stream.read()


def closed_segments(log: PartitionLog) -> list[ClosedSegment]:
    return closed_tail(log, 0, 1_000).segments


def test_closed_segments_are_all_but_the_active_one(tmp_path):
    log = filled(tmp_path)
    closed = closed_segments(log)
    assert [segment.base_offset for segment in closed] == log.segments.bases[:-1]
    for one, following in zip(closed, log.segments.all[1:], strict=True):
        assert one.last_offset == following.base_offset - 1
    assert closed[0].size_bytes == (tmp_path / f"{0:020d}.log").stat().st_size
    times = [h.max_timestamp for _, h in log.segments.all[0].batches(0)]
    assert closed[0].max_timestamp_ms == max(times)


@pytest.mark.parametrize("count_max", [1, 3, 1_000])
def test_the_tail_is_what_the_whole_list_says_from_an_offset_on(tmp_path, count_max):
    log = filled(tmp_path)
    closed = closed_segments(log)
    assert len(closed) > 4
    for offset in (*range(log.log_end_offset + 2), 2**63 - 1):
        below = [one for one in closed if one.last_offset < offset]
        wanted = closed[len(below) :]
        tail = closed_tail(log, offset, count_max)
        assert tail.segments == wanted[:count_max]
        assert tail.bytes_below == sum(one.size_bytes for one in below)
        assert tail.more_count == len(wanted[count_max:])
        assert tail.more_bytes == sum(one.size_bytes for one in wanted[count_max:])


def test_a_disk_that_does_not_tell_their_ages_takes_the_log_offline(tmp_path):
    filled(tmp_path).close()
    disk = FaultyDisk()
    log = open_log(tmp_path, disk=disk)
    disk.fail(["open_read"], path_part=".timeindex", error=errno.EIO)
    with pytest.raises(KafkaStorageError):
        closed_segments(log)
    assert log.is_offline


def test_records_without_timestamps_are_as_old_as_their_file(tmp_path):
    log = filled(tmp_path, 0)
    for _ in range(60):
        append(log, 1, at_ms=-1)
    closed = closed_segments(log)
    assert closed
    # -1 would be older than any retention: the remote copy would expire at once.
    assert [one.max_timestamp_ms for one in closed] == [
        segment.modified_ms() for segment in log.segments.all[:-1]
    ]


def test_opened_segment_has_everything(tmp_path):
    log = filled(tmp_path)
    log.epochs.assign(2, log.log_end_offset)
    second = closed_segments(log)[1]
    files = open_segment(log, second.base_offset)
    disk_files = files_of(tmp_path)
    stem = f"{second.base_offset:020d}"
    assert _content(files.log) == disk_files[f"{stem}.log"]
    assert _content(files.offset_index) == disk_files[f"{stem}.index"]
    assert _content(files.time_index) == disk_files[f"{stem}.timeindex"]
    assert (
        _content(files.producer_snapshot) == disk_files[f"{second.last_offset + 1:020d}.snapshot"]
    )
    assert files.transaction_index is None
    assert files.txn_index_empty
    assert files.size_bytes == second.size_bytes
    assert [e.epoch for e in epoch_checkpoint.parse(files.leader_epoch_index)] == [0]


def test_its_epochs_begin_where_the_log_does(tmp_path):
    """A log that was deleted to its end keeps the epoch of the last record below that."""
    log = filled(tmp_path)
    start = log.log_end_offset
    log.update_high_watermark(start)
    log.raise_log_start(start)
    log.clip_chain(start)
    log.epochs.assign(2, start)
    for _ in range(60):
        append(log, 1)
    assert log.epochs.entries()[0].start_offset == start - 1
    base = next(one.base_offset for one in closed_segments(log) if one.base_offset >= start)
    index = epoch_checkpoint.parse(open_segment(log, base).leader_epoch_index)
    assert [(one.epoch, one.start_offset) for one in index] == [(2, start)]


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "zeros", "foreign"])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_damaged_index_is_made_again_before_the_copy(damage, suffix, tmp_path):
    log = filled(tmp_path)
    base = closed_segments(log)[1].base_offset
    path = tmp_path / f"{base:020d}.{suffix}"
    good = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(good[:-3])
        case "zeros":
            path.write_bytes(bytes(len(good)))
        case "foreign":
            path.write_bytes(good[:-8] + b"\x00\x00\x00\x07\x00\x00\x00\x07")
    files = open_segment(log, base)
    assert _content(files.offset_index if suffix == "index" else files.time_index) == good
    assert path.read_bytes() == good


def test_a_flipped_bit_of_the_time_index_does_not_change_a_segments_age(tmp_path):
    log = filled(tmp_path / "log")
    whole = closed_segments(log)
    log.close()
    path = tmp_path / "log" / f"{whole[1].base_offset:020d}.timeindex"
    good = path.read_bytes()
    for bit in range(8 * 12):
        at = len(good) - 12 + bit // 8
        flipped = bytes((good[at] ^ 1 << bit % 8,))
        path.write_bytes(good[:at] + flipped + good[at + 1 :])
        log = open_log(tmp_path / "log")
        assert closed_segments(log) == whole, bit
        log.close()
        path.write_bytes(good)


@pytest.mark.parametrize("from_end", [1, 2])
def test_a_time_that_no_batch_has_is_repaired_before_the_copy(from_end, tmp_path):
    log = filled(tmp_path)
    base = closed_segments(log)[1].base_offset
    path = tmp_path / f"{base:020d}.timeindex"
    good = path.read_bytes()
    entries = len(good) // 12
    assert entries >= from_end
    lowest_byte = (entries - from_end) * 12 + 7
    flipped = bytes((good[lowest_byte] ^ 1,))
    path.write_bytes(good[:lowest_byte] + flipped + good[lowest_byte + 1 :])
    assert _content(open_segment(log, base).time_index) == good
    assert path.read_bytes() == good


def test_missing_producer_snapshot_is_made(tmp_path):
    log = filled(tmp_path, 5)
    for i in range(60):
        append(log, producer_id=5, producer_epoch=1, base_sequence=i)
    closed = closed_segments(log)[1]
    path = tmp_path / f"{closed.last_offset + 1:020d}.snapshot"
    good = path.read_bytes()
    path.unlink()
    files = open_segment(log, closed.base_offset)
    assert producer_snapshot.parse(_content(files.producer_snapshot)) == producer_snapshot.parse(
        good
    )
    assert producer_snapshot.parse(good)[-1].last_offset == closed.last_offset


def test_segment_with_an_aborted_transaction_brings_its_index(tmp_path):
    log = filled(tmp_path, 1)
    log.append_as_leader(
        batch_of(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True),
        leader_epoch=0,
        now_ms=NOW_MS,
    )
    marker = end_transaction_batch(
        ControlType.ABORT,
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=NOW_MS,
        producer_id=5,
        producer_epoch=0,
        coordinator_epoch=0,
    )
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, from_client=False)
    log.roll(NOW_MS)
    files = open_segment(log, 0)
    assert files.transaction_index is not None
    assert not files.txn_index_empty
    assert len(_content(files.transaction_index)) == 34


def test_active_or_dropped_segment_is_refused(tmp_path):
    log = filled(tmp_path)
    with pytest.raises(OffsetOutOfRange):
        open_segment(log, log.segments.all[-1].base_offset)
    with pytest.raises(OffsetOutOfRange):
        open_segment(log, 1)
    log.raise_log_start(log.log_end_offset)
    retain(log, NOW_MS)
    with pytest.raises(OffsetOutOfRange):
        open_segment(log, 0)
