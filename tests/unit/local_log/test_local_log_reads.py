"""Reads by offset and by time, truncation."""

import pytest

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.records import build_batch, iter_records
from local_log.errors import OffsetIsRemote, OffsetOutOfRange
from local_log.log import lookups
from local_log.log.truncation import truncate_to
from tests.support.worlds.local_log import (
    NOW_MS,
    append,
    batch_of,
    filled,
    open_log,
    read_bytes,
    retain,
    with_config,
)


def _offsets(data: bytes) -> list[int]:
    return [r.offset for position, _ in iter_batches(data) for r in iter_records(data, position)]


def test_every_offset_is_found_in_its_batch(tmp_path):
    for again in (False, True):  # from the tail's memory, then from the files
        log = open_log(tmp_path) if again else filled(tmp_path, commit=False)
        for offset in range(log.log_end_offset):
            read = log.read(offset, 1 << 20)
            offsets = _offsets(read_bytes(log, offset, 1 << 20))
            assert read.first_batch_offset == offsets[0] <= offset <= offsets[-1]
            assert offsets[-1] < read.upper_bound_offset
        if not again:
            log.close()


def test_read_stops_at_the_end_it_is_given(tmp_path):
    log = filled(tmp_path)
    borders = [h.next_offset for h in (h for s in log.segments.all for _, h in s.batches(0))]
    for end in borders:
        for start in (0, max(0, end - 7)):
            data = read_bytes(log, start, 1 << 20, end_offset=end)
            if start < end:
                assert _offsets(data)[-1] < end
    assert log.read(5, 1000, end_offset=5).size_bytes == 0


def test_read_of_everything_from_segment_to_segment_gives_every_record(tmp_path):
    log = filled(tmp_path)
    seen: list[int] = []
    while not seen or seen[-1] + 1 < log.log_end_offset:
        offset = seen[-1] + 1 if seen else 0
        seen += [o for o in _offsets(read_bytes(log, offset, 700)) if o >= offset]
    assert seen == list(range(log.log_end_offset))


def test_byte_limit_below_the_first_batch(tmp_path):
    log = filled(tmp_path)
    assert log.read(0, 10).regions == []
    read = log.read(0, 10, min_one_batch=True)
    assert read.size_bytes == next(log.segments.all[0].batches(0))[1].size_bytes
    assert log.read(0, -1).regions == []


def test_offsets_outside_are_named(tmp_path):
    log = filled(tmp_path)
    with pytest.raises(OffsetOutOfRange) as refused:
        log.read(log.log_end_offset + 1, 10)
    assert refused.value.end == log.log_end_offset
    with pytest.raises(OffsetOutOfRange):
        log.read(-1, 10)
    assert log.read(log.log_end_offset, 10).size_bytes == 0
    log.raise_log_start(5)
    with pytest.raises(OffsetOutOfRange):
        log.read(4, 10)
    with pytest.raises(OffsetOutOfRange):
        log.raise_log_start(log.high_watermark + 1)


def test_remote_offsets_are_told_apart(tmp_path):
    config = with_config(remote_storage_enable=True, local_retention_bytes=0)
    log = filled(tmp_path, config=config, log_start=0)
    log.set_copied_through(log.segments.all[1].base_offset - 1, 0)
    retain(log, NOW_MS)
    with pytest.raises(OffsetIsRemote) as moved:
        log.read(0, 10)
    assert (moved.value.log_start, moved.value.local_start) == (0, log.local_log_start_offset)


def test_hole_is_skipped_to_the_next_batch(tmp_path):
    log = open_log(tmp_path)
    for base in (0, 10, 50, 51):
        log.append_batches(batch_of(1, base_offset=base, leader_epoch=0), now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.append_batches(batch_of(1, base_offset=90, leader_epoch=0), now_ms=NOW_MS)
    for asked, found in ((1, 10), (11, 50), (51, 51), (52, 90), (89, 90)):
        assert log.read(asked, 1000).first_batch_offset == found


# -- by time -----------------------------------------------------------------------------------


def _naive(records, timestamp, start=0):
    found = [(r.timestamp, r.offset) for r in records if r.timestamp >= timestamp]
    return next((hit for hit in found if hit[1] >= start), None)


def _records(log):
    data = [segment.read_bytes(0, segment.size_bytes) for segment in log.segments.all]
    return [r for part in data for at, _ in iter_batches(part) for r in iter_records(part, at)]


def test_time_look_up_agrees_with_reading_everything(tmp_path):
    log = open_log(tmp_path)
    times = [0, 50, 20, 90, 90, 10, 300, 120, 200, 1000, 5, 999, 1001, 40] * 6
    for i, at in enumerate(times):
        records = [(NOW_MS + at + j * 7 % 5 + i, b"k", b"v" * 40, []) for j in range(3)]
        log.append_as_leader(build_batch(records), leader_epoch=i // 20, now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    log.raise_log_start(17)
    for again in (False, True):
        if again:
            log.close()
            log = open_log(tmp_path, log_start=17)
        records = _records(log)
        for timestamp in range(NOW_MS - 2, NOW_MS + 1110, 3):
            found = lookups.offset_for_timestamp(log, timestamp)
            expected = _naive(records, timestamp, 17)
            assert (found and tuple(found[:2])) == expected
            assert found is None or found.leader_epoch == log.epochs.epoch_for(found.offset)
        newest = lookups.max_timestamp(log)
        largest = max(r.timestamp for r in records)
        assert (newest.timestamp, newest.offset) == _naive(records, largest)


def test_append_time_look_up_answers_the_first_of_the_batch(tmp_path):
    log = open_log(tmp_path, config=with_config(message_timestamp_type="LogAppendTime"))
    append(log, 3, now_ms=NOW_MS)
    append(log, 3, now_ms=NOW_MS + 10)
    assert tuple(lookups.offset_for_timestamp(log, NOW_MS + 1)) == (NOW_MS + 10, 3, 0)
    assert tuple(lookups.max_timestamp(log)) == (NOW_MS + 10, 3, 0)
    assert lookups.offset_for_timestamp(log, NOW_MS + 11) is None


def test_time_lookup_in_an_unreadable_batch_names_partition_and_offset(tmp_path):
    log = open_log(tmp_path)
    append(log)
    from kafka_protocol.records.batch import write_crc

    batch = batch_of(2, codec=4)
    batch[70:] = b"\x00" * (len(batch) - 70)
    write_crc(batch, 0, len(batch))
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(KafkaError, match=r"orders-0.*offset 1") as refused:
        lookups.offset_for_timestamp(log, NOW_MS + 1)
    assert refused.value.code == ErrorCode.CORRUPT_MESSAGE


# -- truncation --------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 5, 29, 30, 31, 60, 100, 118, 119, 500])
def test_truncated_log_is_the_log_that_was_never_longer(offset, tmp_path):
    log = filled(tmp_path)
    log.epochs.assign(3, 60)
    expected = _records(log)
    truncate_to(log, offset)
    kept = _records(log)
    assert kept == expected[: len(kept)]
    assert log.log_end_offset == (kept[-1].offset + 1 if kept else 0)
    assert offset - 3 < log.log_end_offset <= offset or offset > 120
    assert log.high_watermark <= log.log_end_offset
    assert all(entry.start_offset < log.log_end_offset for entry in log.epochs.entries())
    append(log, 2, epoch=9, at_ms=NOW_MS + 5000)
    end = log.log_end_offset
    found = lookups.offset_for_timestamp(log, NOW_MS + 5000)
    assert found is not None
    assert found.offset == end - 2
    log.close()
    again = open_log(tmp_path)
    assert (again.log_end_offset, len(_records(again))) == (end, len(kept) + 2)
