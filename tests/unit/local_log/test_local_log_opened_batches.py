"""Batches that must be opened on append: what would hold the loop for too long is refused."""

import struct

import pytest
from local_log_kit import NOW_MS, append, batch_of, open_log, with_config

from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.records.batch import write_crc
from kafka_protocol.records.records import build_batch
from local_log.append_check import INFLATED_BYTES_MAX, OPENED_RECORDS_MAX
from local_log.config import LogConfig

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
