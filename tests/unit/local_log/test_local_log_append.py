"""Appends: offsets, refusals, stamps, rolls."""

import os
import struct

import pytest

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.records.batch import read_header, write_crc
from kafka_protocol.records.records import build_batch, iter_records
from local_log.errors import InvalidRecord
from local_log.log import lookups
from local_log.log.truncation import truncate_to
from tests.support.worlds.local_log import (
    NOW_MS,
    SMALL,
    append,
    batch_of,
    open_log,
    read_bytes,
    with_config,
)


def _patched(batch: bytearray, at: int, fmt: str, value: int, *, crc: bool = True) -> bytearray:
    struct.pack_into(fmt, batch, at, value)
    if crc:
        write_crc(batch, 0, len(batch))
    return batch


def _corrupt_crc() -> bytearray:
    batch = batch_of()
    batch[-1] ^= 1
    return batch


BAD = {
    "crc": (_corrupt_crc, ErrorCode.CORRUPT_MESSAGE),
    "crc-0": (
        lambda: _patched(batch_of(), 17, ">i", 0, crc=False),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "length-larger": (
        lambda: _patched(batch_of(), 8, ">i", 10_000, crc=False),
        ErrorCode.INVALID_RECORD,
    ),
    "length-smaller": (
        lambda: _patched(batch_of(), 8, ">i", 60, crc=False),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "length-tiny": (
        lambda: _patched(batch_of(), 8, ">i", 5, crc=False),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "length-negative": (
        lambda: _patched(batch_of(), 8, ">i", -1, crc=False),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "empty": (bytearray, ErrorCode.INVALID_RECORD),
    "cut-header": (lambda: batch_of()[:40], ErrorCode.INVALID_RECORD),
    "magic-0": (lambda: _patched(batch_of(), 16, ">b", 0, crc=False), ErrorCode.INVALID_RECORD),
    "magic-1": (lambda: _patched(batch_of(), 16, ">b", 1, crc=False), ErrorCode.INVALID_RECORD),
    "magic-3": (lambda: _patched(batch_of(), 16, ">b", 3, crc=False), ErrorCode.CORRUPT_MESSAGE),
    "magic-negative": (
        lambda: _patched(batch_of(), 16, ">b", -1, crc=False),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "two-batches": (lambda: batch_of() + batch_of(), ErrorCode.INVALID_RECORD),
    "count-0": (lambda: _patched(batch_of(), 57, ">i", 0), ErrorCode.INVALID_RECORD),
    "count-negative": (lambda: _patched(batch_of(), 57, ">i", -1), ErrorCode.INVALID_RECORD),
    "last-offset-delta": (lambda: _patched(batch_of(3), 23, ">i", 7), ErrorCode.INVALID_RECORD),
    "control": (lambda: batch_of(is_control=True), ErrorCode.INVALID_RECORD),
    "too-large": (lambda: batch_of(size=5000), ErrorCode.MESSAGE_TOO_LARGE),
    "timestamp-after": (lambda: batch_of(at_ms=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
    "timestamp-negative": (lambda: batch_of(at_ms=-5), ErrorCode.INVALID_TIMESTAMP),
    "timestamp-type": (
        lambda: build_batch([(NOW_MS, b"k", b"v", [])], log_append_time_ms=NOW_MS),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "base-offset": (lambda: batch_of(base_offset=4), ErrorCode.INVALID_RECORD),
    "no-sequence": (
        lambda: batch_of(producer_id=3, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "codec-5": (lambda: _patched(batch_of(), 21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec-7": (lambda: _patched(batch_of(), 21, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "lz4-garbage": (lambda: _patched(batch_of(), 21, ">h", 3), ErrorCode.INVALID_RECORD),
    "gzip-garbage": (lambda: _patched(batch_of(), 21, ">h", 1), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("row", BAD)
def test_bad_input(row, tmp_path):
    make, code = BAD[row]
    log = open_log(tmp_path, config=with_config(max_message_bytes=1500))
    append(log)
    size = log.size_bytes
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(make(), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code == code
    assert (log.log_end_offset, log.size_bytes) == (1, size)
    assert append(log).first_offset == 1  # and the log continues


def test_batch_larger_than_a_segment_is_refused(tmp_path):
    log = open_log(tmp_path, config=with_config(segment_bytes=300))
    with pytest.raises(KafkaError) as refused:
        append(log, size=400)
    assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_compacted_topic_names_the_records_without_a_key(tmp_path):
    log = open_log(tmp_path, config=with_config(cleanup_policy=frozenset({"compact"})))
    records = [(NOW_MS, b"k", b"v", []), (NOW_MS, None, b"v", []), (NOW_MS, None, b"v", [])]
    with pytest.raises(InvalidRecord) as refused:
        log.append_as_leader(build_batch(records), leader_epoch=0, now_ms=NOW_MS)
    assert [index for index, _ in refused.value.record_errors] == [1, 2]
    assert log.log_end_offset == 0


def test_compacted_topic_refuses_a_count_that_does_not_fit(tmp_path):
    log = open_log(tmp_path, config=with_config(cleanup_policy=frozenset({"compact"})))
    batch = _patched(_patched(batch_of(3), 57, ">i", 10), 23, ">i", 9)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_timestamp_before_the_limit_is_found_inside_the_batch(tmp_path):
    log = open_log(tmp_path, config=with_config(message_timestamp_before_max_ms=1000))
    records = [(NOW_MS, b"k", b"v", []), (NOW_MS - 1001, b"k", b"v", [])]
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(build_batch(records), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code == ErrorCode.INVALID_TIMESTAMP
    append(log, at_ms=NOW_MS - 1000)


def test_records_without_timestamps_are_taken(tmp_path):
    log = open_log(tmp_path)
    batch = build_batch([(-1, b"k", b"v", [])])
    assert log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS).first_offset == 0
    assert lookups.max_timestamp(log) is None


def test_batch_gets_its_place_and_keeps_its_bytes(tmp_path):
    log = open_log(tmp_path)
    append(log, 3)
    sent = batch_of(2, size=80)
    payload = bytes(sent[21:])
    info = log.append_as_leader(memoryview(sent), leader_epoch=7, now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset, info.log_append_time_ms) == (3, 4, -1)
    stored = read_bytes(log, 3, 10_000)
    header = read_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 7)
    assert stored[21:] == payload
    assert [(e.epoch, e.start_offset) for e in log.epochs.entries()] == [(0, 0), (7, 3)]


def test_append_time_is_stamped_and_checksummed(tmp_path):
    log = open_log(tmp_path, config=with_config(message_timestamp_type="LogAppendTime"))
    info = append(log, 2, at_ms=5, now_ms=NOW_MS + 9)
    assert info.log_append_time_ms == NOW_MS + 9
    assert {r.timestamp for r in iter_records(read_bytes(log, 0, 10_000))} == {NOW_MS + 9}
    log.close(clean=False)
    assert open_log(tmp_path, clean=False).log_end_offset == 2


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_topic_with_its_own_codec_stores_every_batch_in_it(codec, tmp_path):
    log = open_log(tmp_path, config=with_config(compression_type=codec))
    sent = batch_of(
        5, codec=1 if codec != "gzip" else 4, producer_id=9, producer_epoch=2, base_sequence=0
    )
    log.append_as_leader(sent, leader_epoch=3, now_ms=NOW_MS)
    stored = read_bytes(log, 0, 10_000)
    header = read_header(stored)
    names = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
    assert header.codec == names.index(codec)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 0)
    assert [r.value for r in iter_records(stored)] == [b"v" * 50] * 5


def test_segment_rolls_before_it_gets_too_large(tmp_path):
    log = open_log(tmp_path)
    for _ in range(60):
        append(log)
    assert len(log.segments.all) > 2
    assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments.all)
    assert sum(segment.size_bytes for segment in log.segments.all) == log.size_bytes
    bases = [segment.base_offset for segment in log.segments.all]
    assert all((tmp_path / f"{base:020d}.snapshot").exists() for base in bases[1:])


def test_segment_rolls_when_records_are_a_week_apart(tmp_path):
    log = open_log(tmp_path, config=with_config(segment_ms=1000))
    append(log, at_ms=NOW_MS - 5000)
    append(log, at_ms=NOW_MS - 4000)
    assert len(log.segments.all) == 1
    append(log, at_ms=NOW_MS - 3999)
    assert len(log.segments.all) == 2


def test_segment_rolls_when_an_index_is_full(tmp_path):
    log = open_log(tmp_path, config=with_config(segment_bytes=1 << 30, segment_index_bytes=36))
    for i in range(40):
        append(log, at_ms=NOW_MS + i)
    assert len(log.segments.all) > 3
    log.close()
    assert open_log(tmp_path).log_end_offset == 40


def _with_a_full_index(directory, config):
    log = open_log(directory, config=config)
    while not log.segments.all[-1].offset_index.is_full:
        append(log)
    return log


def test_a_segment_whose_index_was_full_at_the_start_rolls(tmp_path):
    config = with_config(segment_bytes=1 << 30, segment_index_bytes=36)
    _with_a_full_index(tmp_path, config).close()
    log = open_log(tmp_path, config=config)
    append(log)
    assert len(log.segments.all) == 2


def test_a_full_index_has_room_again_after_a_truncation(tmp_path):
    log = _with_a_full_index(tmp_path, with_config(segment_bytes=1 << 30, segment_index_bytes=36))
    truncate_to(log, 1)
    append(log)
    assert len(log.segments.all) == 1
    append(log)
    assert len(log.segments.all) == 1


def test_idle_active_segment_rolls_when_its_time_is_up(tmp_path):
    log = open_log(tmp_path, config=with_config(segment_ms=1000))
    assert not log.roll_if_due(NOW_MS + 10_000)  # empty: nothing to close
    append(log)
    assert not log.roll_if_due(NOW_MS + 1000)
    assert log.roll_if_due(NOW_MS + 1001)
    assert not log.roll_if_due(NOW_MS + 5000)
    assert (len(log.segments.all), log.log_end_offset) == (2, 1)


def test_old_record_timestamps_do_not_roll_an_idle_segment_early(tmp_path):
    log = open_log(tmp_path, config=with_config(segment_ms=1000))
    append(log, at_ms=NOW_MS - 10 * 86_400_000)
    assert not log.roll_if_due(NOW_MS + 1000)
    assert log.roll_if_due(NOW_MS + 1001)


def test_restarts_do_not_keep_an_idle_segment_open(tmp_path):
    log = open_log(tmp_path, config=with_config(segment_ms=1000))
    append(log)
    log.close()
    written_s = NOW_MS / 1000 - 30
    os.utime(tmp_path / f"{0:020d}.log", (written_s, written_s))
    log = open_log(tmp_path, config=with_config(segment_ms=1000))
    assert log.roll_if_due(NOW_MS)
    assert len(log.segments.all) == 2


def test_an_empty_segment_does_not_age(tmp_path):
    log = open_log(tmp_path, config=with_config(segment_ms=1000))
    append(log, now_ms=NOW_MS + 60_000)
    assert not log.roll_if_due(NOW_MS + 61_000)
    assert log.roll_if_due(NOW_MS + 61_001)


def test_active_indexes_are_preallocated_and_trimmed_when_closed(tmp_path):
    log = open_log(tmp_path)
    for i in range(10):
        append(log, at_ms=NOW_MS + i)
    assert (tmp_path / f"{0:020d}.index").stat().st_size == 8192
    assert (tmp_path / f"{0:020d}.timeindex").stat().st_size == 8184
    log.close()
    offsets = (tmp_path / f"{0:020d}.index").read_bytes()
    times = (tmp_path / f"{0:020d}.timeindex").read_bytes()
    assert 0 < len(offsets) < 100
    assert len(times) == len(offsets) // 8 * 12 + 12  # the close forces one more entry


def test_given_offsets_must_continue_the_log(tmp_path):
    log = open_log(tmp_path)
    two = batch_of(2, base_offset=5, leader_epoch=3) + batch_of(1, base_offset=9, leader_epoch=4)
    info = log.append_batches(two, now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (5, 9, 10)
    assert [(e.epoch, e.start_offset) for e in log.epochs.entries()] == [(3, 5), (4, 9)]
    with pytest.raises(KafkaError):
        log.append_batches(batch_of(1, base_offset=9, leader_epoch=4), now_ms=NOW_MS)
    with pytest.raises(KafkaError):
        log.append_batches(two[:-3], now_ms=NOW_MS)
    assert log.log_end_offset == 10
