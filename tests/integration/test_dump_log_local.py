"""Kafka's own dump tool reads what the local log writes, without complaint."""

from pathlib import Path

import pytest

from kafka_protocol.records.control import ControlType, end_transaction_batch
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.log.partition_log import PartitionLog
from local_log.recovery.survey import OpenRequest
from runtime.disk import Disk
from tests.support.kafka.tools import kafka_tool, require_kafka_tools

pytestmark = pytest.mark.jvm
NOW_MS = 1_700_000_000_000
COMPLAINTS = (
    "isvalid: false",
    "Mismatches",
    "mismatch",
    "Exception",
    "not ending",
    "Found timestamp",
)
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500, segment_index_bytes=8192)


def _open(directory: Path, *, clean: bool) -> PartitionLog:
    return PartitionLog.open(
        OpenRequest(TopicPartition("orders", 0), directory, CONFIG, NOW_MS, is_clean=clean),
        topic_id=bytes(16),
        disk=Disk(),
    )


def _write(log: PartitionLog, first_sequence: int, *, first_epoch: int = 0) -> int:
    """Data of every codec, and transactions that commit and abort; the next free sequence."""
    sequence = first_sequence
    for i in range(300):
        records = [(NOW_MS + 5 * i - j, b"k%d" % i, b"v" * (i % 90), []) for j in range(1 + i % 3)]
        batch = build_batch(
            records,
            codec=i % 5,
            producer_id=77,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        log.append_as_leader(batch, leader_epoch=first_epoch + i // 100, now_ms=NOW_MS)
        sequence += len(records)
        if i % 7 == 6:
            marker = end_transaction_batch(
                ControlType.ABORT if i % 2 else ControlType.COMMIT,
                base_offset=0,
                leader_epoch=0,
                timestamp_ms=NOW_MS,
                producer_id=77,
                producer_epoch=0,
                coordinator_epoch=1,
            )
            log.append_as_leader(
                marker, leader_epoch=first_epoch + i // 100, now_ms=NOW_MS, from_client=False
            )
    return sequence


def _dump(directory: Path) -> str:
    suffixes = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    files = sorted(str(path) for path in directory.iterdir() if path.suffix in suffixes)
    return kafka_tool("dump-log", "--deep-iteration", "--files", ",".join(files))


def test_clean_reopened_and_recovered_logs_are_read_without_complaint(tmp_path):
    require_kafka_tools()
    directory = tmp_path / "orders-0"
    directory.mkdir()
    log = _open(directory, clean=True)
    sequence = _write(log, 0)
    log.close()
    log = _open(directory, clean=True)
    _write(log, sequence, first_epoch=2)
    end = log.log_end_offset
    log.close(clean=False)
    for index in list(directory.glob("*.*index"))[::2]:
        index.unlink()
    log = _open(directory, clean=False)
    assert log.log_end_offset == end
    log.close()
    shown = _dump(directory)
    for complaint in COMPLAINTS:
        assert complaint not in shown, shown[:3000]
    assert f"lastOffset: {end - 1} " in shown
    assert "endTxnMarker: ABORT" in shown
    assert shown.count("Dumping") >= 20
