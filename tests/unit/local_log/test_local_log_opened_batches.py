"""Batches that must be opened on append: who opens them, and what is refused as too much."""

import struct

import pytest

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.records.batch import read_header, write_crc
from kafka_protocol.records.records import Record, build_batch
from local_log.config import LogConfig
from local_log.errors import MustBeOpened
from local_log.log.append_check import INFLATED_BYTES_MAX, OPENED_RECORDS_MAX
from local_log.log.opened_batches import (
    SHORT_BYTES,
    SHORT_INFLATED_BYTES,
    SHORT_RECORDS,
    Opening,
    opened,
)
from tests.support.worlds.local_log import NOW_MS, append, batch_of, open_log, with_config

ROOMY = LogConfig()
COMPACT = with_config(ROOMY, cleanup_policy=frozenset({"compact"}))
RECOMPRESS = with_config(ROOMY, compression_type="lz4")


def _claiming(count):
    batch = batch_of(codec=4)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch, 0, len(batch))
    return batch


def _bomb():
    return build_batch([(NOW_MS, b"k", bytes(INFLATED_BYTES_MAX + 1), [])], codec=4)


@pytest.mark.parametrize("config", [COMPACT, RECOMPRESS])
@pytest.mark.parametrize("make", [lambda: _claiming(OPENED_RECORDS_MAX + 1), _bomb])
def test_batch_with_too_much_inside_is_refused_before_it_is_walked(tmp_path, config, make):
    log = open_log(tmp_path, config=config)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(make(), leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE  # producers split and send again
    assert log.log_end_offset == 0
    append(log)


def test_batches_that_are_not_opened_may_hold_as_much_as_they_like(tmp_path):
    log = open_log(tmp_path, config=ROOMY)
    assert log.append_as_leader(_bomb(), leader_epoch=0, now_ms=NOW_MS).first_offset == 0


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ({"max_message_bytes": 5000}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"segment_bytes": 5000}, ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_batch_that_grows_by_being_compressed_anew_is_measured_again(tmp_path, limit, code):
    config = with_config(ROOMY, compression_type="uncompressed", **limit)
    log = open_log(tmp_path, config=config)
    batch = build_batch([(NOW_MS, b"k", bytes(9000), [])], codec=4)
    assert len(batch) < 500
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code == code
    assert log.log_end_offset == 0


def _of_size(count, value_bytes, **options):
    return build_batch([(NOW_MS, b"k", bytes(value_bytes), [])] * count, **options)


@pytest.mark.parametrize("config", [COMPACT, RECOMPRESS])
@pytest.mark.parametrize(
    "batch", [_of_size(1, SHORT_BYTES), _of_size(SHORT_RECORDS + 1, 0, codec=4)]
)
def test_a_long_batch_is_opened_by_a_thread_and_its_result_is_appended(tmp_path, config, batch):
    log = open_log(tmp_path, config=config)
    with pytest.raises(MustBeOpened):
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, opening=Opening.IF_SHORT)
    assert log.log_end_offset == 0
    ready = opened(batch, read_header(batch), config, NOW_MS)
    log.append_as_leader(ready, leader_epoch=0, now_ms=NOW_MS, opening=Opening.DONE)
    header = read_header((tmp_path / f"{0:020}.log").read_bytes())
    assert header.codec == (read_header(batch).codec if config is COMPACT else 3)
    assert log.log_end_offset == header.record_count


@pytest.mark.parametrize("config", [COMPACT, RECOMPRESS])
def test_a_short_batch_is_opened_at_once(tmp_path, config):
    log = open_log(tmp_path, config=config)
    batch = _of_size(3, 10)
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, opening=Opening.IF_SHORT)
    assert log.log_end_offset == 3


def test_a_long_batch_that_is_in_the_log_already_is_not_opened_again(tmp_path):
    log = open_log(tmp_path, config=RECOMPRESS)
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    for opening in (Opening.AT_ONCE, Opening.IF_SHORT):
        batch = _of_size(1, SHORT_BYTES, **options)
        said = log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, opening=opening)
    assert said.is_duplicate
    assert log.log_end_offset == 1


def test_a_small_batch_that_inflates_to_much_is_left_to_a_thread(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    batch = _of_size(1, SHORT_INFLATED_BYTES, codec=4)
    assert len(batch) < SHORT_BYTES
    with pytest.raises(MustBeOpened):
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, opening=Opening.IF_SHORT)
    assert log.log_end_offset == 0
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 1


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("config", [COMPACT, RECOMPRESS])
@pytest.mark.parametrize("offsets", [(0, 2), (1, 2), (0, 0), (1, 0), (0, -1)])
def test_batch_whose_records_do_not_follow_each_other_is_refused(tmp_path, codec, config, offsets):
    """A reader would continue behind the highest: at offsets that others are given later."""
    log = open_log(tmp_path, config=config)
    records = [Record(offset, NOW_MS, b"k", b"v", []) for offset in offsets]
    batch = build_batch(records, codec=codec)
    struct.pack_into(">i", batch, 23, 1)
    write_crc(batch, 0, len(batch))
    with pytest.raises(KafkaError, match="offset delta") as refused:
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    assert refused.value.code == ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0
