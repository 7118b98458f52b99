"""Compacted logs, written and cleaned in this process, and what a reader makes of them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kafka_protocol.records.batch import BatchHeader, has_valid_crc
from kafka_protocol.records.control import ControlType, end_transaction_batch
from kafka_protocol.records.records import Record, build_batch, iter_records
from local_log.cleaner.cleaner import NotedLog
from local_log.cleaner.log_pass import CleanerSettings, Done, Group, Job, LogPass
from local_log.config import LogConfig
from local_log.log.partition_log import PartitionLog
from local_log.producers.last_batches import LastBatches
from tests.support.worlds.local_log import NOW_MS, SMALL, open_log

COMPACTED: LogConfig = replace(
    SMALL,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)


def open_compacted(directory: Path, **known: object) -> PartitionLog:
    config = known.pop("config", COMPACTED)
    return open_log(directory, config=config, **known)  # type: ignore[arg-type]


def put(
    log: PartitionLog,
    *pairs: tuple[str, str | None],
    at_ms: int = NOW_MS,
    **kwargs: object,
) -> None:
    """Append one batch of keys and values; None: a tombstone; kwargs: see `build_batch`."""
    records = [
        (at_ms + index, key.encode(), None if value is None else value.encode(), [])
        for index, (key, value) in enumerate(pairs)
    ]
    batch = build_batch(records, **kwargs)  # type: ignore[arg-type]
    log.append_as_leader(batch, leader_epoch=0, now_ms=at_ms, from_client=False)


def end_transaction(
    log: PartitionLog, producer_id: int, *, commits: bool, epoch: int = 0, at_ms: int = NOW_MS
) -> None:
    marker = end_transaction_batch(
        ControlType.COMMIT if commits else ControlType.ABORT,
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=at_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=0,
    )
    log.append_as_leader(marker, leader_epoch=0, now_ms=at_ms, from_client=False)


def commit(log: PartitionLog) -> None:
    log.update_high_watermark(log.log_end_offset)


def clean(
    log: PartitionLog,
    cleaned_to: int | None = None,
    *,
    now_ms: int = NOW_MS,
    map_bytes: int = 1 << 20,
    token: str = "t",
) -> Done:
    """One pass as the broker makes it, every new segment put in its place at once."""
    log.cleaning.begin()
    settings = CleanerSettings(map_bytes=map_bytes, buffer_bytes=1000)
    job = job_of(log, cleaned_to, settings, now_ms=now_ms, token=token)
    for answer in LogPass(job, log.disk, lambda _: None).run():
        if isinstance(answer, Done):
            log.cleaning.end()
            return answer
        if answer.is_changed:
            make_ready_and_take(log, answer, token)
            log.cleaning.put_in_place()
            log.delete_later(log.cleaning.settle())
    raise AssertionError("a pass ends with Done")


def job_of(
    log: PartitionLog,
    cleaned_to: int | None = None,
    settings: CleanerSettings | None = None,
    *,
    now_ms: int = NOW_MS,
    number: int = 1,
    token: str = "t",
) -> Job:
    noted = NotedLog.of(log, cleaned_to)
    found = noted.range(now_ms)
    assert found.cleanable_bytes, found
    last = LastBatches(
        log.producers.states, log.segments.all[0].base_offset, found.first_uncleanable
    )
    while last.take(2):
        pass
    settings = settings or CleanerSettings()
    return noted.job(found, bytes(last.packed), settings, number=number, token=token, now_ms=now_ms)


def first_group(log: PartitionLog, job: Job) -> Group:
    group = next(LogPass(job, log.disk, lambda _: None).run())
    assert isinstance(group, Group)
    return group


def make_ready_and_take(log: PartitionLog, group: Group, token: str = "t") -> None:
    log.cleaning.make_ready(group.old[0], token)
    log.cleaning.take(group.old, group.old_bytes, group.segment(log.disk, log.directory))


def batches_of(log: PartitionLog) -> Iterator[tuple[BatchHeader, bytes]]:
    for segment in log.segments.all:
        for position, header in segment.batches(0):
            batch = segment.read_bytes(position, header.size_bytes)
            assert has_valid_crc(batch, 0, header)
            yield header, batch


def records_of(log: PartitionLog) -> list[Record]:
    """All records but those of markers."""
    return [
        record
        for header, batch in batches_of(log)
        if not header.is_control
        for record in iter_records(batch)
    ]


def table_of(log: PartitionLog) -> dict[bytes, bytes]:
    """What a read_committed reader from the log start has in the end: key to value."""
    table: dict[bytes, bytes] = {}
    for key, value in committed(log):
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


def committed(log: PartitionLog) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and values as a consumer filters them: by the aborted transactions of the log."""
    end = log.last_stable_offset
    aborted = sorted(log.aborted_transactions(log.log_start_offset, end), key=lambda e: e[1])
    open_ones: set[int] = set()
    for header, batch in batches_of(log):
        while aborted and aborted[0][1] <= header.last_offset:
            open_ones.add(aborted.pop(0)[0])
        if header.is_control:
            open_ones.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_ones):
            for record in iter_records(batch):
                if record.offset < end:
                    assert record.key is not None
                    yield record.key, record.value
