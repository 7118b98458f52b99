"""What the tests of this folder share."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.errors import LogRefused
from local_log.log import retention
from local_log.log.partition_log import PartitionLog
from local_log.log.results import Expiry, LogHooks
from local_log.log.retention_policy import Reason
from local_log.recovery.acceptance import read_accepted, write_accepted
from local_log.recovery.survey import OpenRequest
from local_log.refusal import RefusalFacts
from local_log.small_files import SmallFiles
from runtime.disk import Disk

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200, segment_index_bytes=8192)
GOLDEN = Path(__file__).parents[2] / "golden" / "partitions"


def open_log(
    directory: Path,
    *,
    config: LogConfig = SMALL,
    disk: Disk | None = None,
    topic: str = "orders",
    clean: bool = True,
    hooks: LogHooks | None = None,
    files: SmallFiles | None = None,
    **known: object,
) -> PartitionLog:
    directory.mkdir(parents=True, exist_ok=True)
    return PartitionLog.open(
        OpenRequest(TopicPartition(topic, 0), directory, config, NOW_MS, is_clean=clean, **known),
        topic_id=TOPIC_ID,
        disk=disk or Disk(),
        hooks=hooks,
        files=files,
    )


def retain(log: PartitionLog, now_ms: int) -> tuple[tuple[int, Reason], ...]:
    """Drop what has expired; nobody keeps a checkpoint of log starts."""
    expiry = retention.expire(log, now_ms)
    return () if expiry is None else drop(log, expiry)


def drop(log: PartitionLog, expiry: Expiry) -> tuple[tuple[int, Reason], ...]:
    gone = retention.take_out(log, expiry)
    log.delete_later(retention.rename_leaving(log))
    return gone


def read_bytes(
    log: PartitionLog, offset: int, max_bytes: int, *, end_offset: int | None = None
) -> bytes:
    """The batches from `offset` on, at least one."""
    found = log.read(offset, max_bytes, end_offset=end_offset, min_one_batch=True)
    regions = [(each.file, each.position, each.size_bytes) for each in found.regions]
    return b"".join(log.disk.read_at(*region) for region in regions)


def batch_of(count: int = 1, *, at_ms: int = NOW_MS, size: int = 50, **kwargs: object) -> bytearray:
    records = [(at_ms + i, b"key", b"v" * size, []) for i in range(count)]
    return build_batch(records, **kwargs)  # type: ignore[arg-type]


def append(log: PartitionLog, count: int = 1, *, epoch: int = 0, now_ms: int = NOW_MS, **kwargs):
    return log.append_as_leader(batch_of(count, **kwargs), leader_epoch=epoch, now_ms=now_ms)


def filled(directory: Path, batches: int = 60, *, commit: bool = True, **kwargs) -> PartitionLog:
    log = open_log(directory, **kwargs)
    for i in range(batches):
        append(log, 1 + i % 3, at_ms=NOW_MS + 10 * i)
    if commit:
        log.update_high_watermark(log.log_end_offset)
    return log


def with_config(config: LogConfig = SMALL, **changes: object) -> LogConfig:
    return replace(config, **changes)  # type: ignore[arg-type]


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def refused(directory: Path, **known: object) -> RefusalFacts:
    """Why the log is refused; nothing on disk may have changed then."""
    before = files_of(directory)
    with pytest.raises(LogRefused) as error:
        open_log(directory, **known)
    assert files_of(directory) == before
    assert "tidemark log accept orders 0" in error.value.remedy
    return error.value.facts


def accept(directory: Path, facts: RefusalFacts) -> None:
    """Take a log as it is, as a person does."""
    known = read_accepted(Disk(), directory)
    write_accepted(Disk(), directory, replace(known, validation=facts))
