"""Reading a segment in a tight loop, against a twin that takes one batch at a time.

What the loop takes for granted (an ordinary batch) the twin looks at by every rule, so whatever a
segment holds, and wherever it is damaged, both must say the same of it.
"""

from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_protocol.records.batch import patch_offset_and_epoch, write_crc
from kafka_protocol.records.control import ControlType, end_transaction_batch
from kafka_protocol.records.records import build_batch
from local_log.producers.snapshots import ProducerSnapshots
from local_log.producers.state import ProducerStates
from local_log.segment import reading as segment_reading
from local_log.segment.reading import SegmentReading, filler, read_segment
from local_log.segment.recovery import build_producers, write_indexes
from local_log.segment.segment import LogSegment
from runtime.disk import Disk
from tests.support.worlds.local_log import NOW_MS

BASE = 100
INDEX_BYTES = 96  # full after a few entries


@dataclass(frozen=True)
class Step:
    """One batch; `skipped` offsets are missing before it, `lost` records inside it."""

    records: int = 1
    skipped: int = 0
    lost: int = 0
    epoch: int = 0
    producer: int = -1
    producer_epoch: int = 0
    size: int = 10
    at: int = 0
    kind: str = "data"


STEPS = st.builds(
    Step,
    records=st.integers(1, 3),
    skipped=st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, -1]),
    lost=st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1]),
    epoch=st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1, 2]),
    producer=st.sampled_from([-1, -1, 7, 7, 7, 8, 9]),
    producer_epoch=st.sampled_from([0, 0, 0, 1]),
    size=st.sampled_from([10, 10, 60, 700]),
    at=st.integers(-5, 50),
    kind=st.sampled_from(["data"] * 9 + ["filler", "transactional", "marker"]),
)
ORDINARY = st.builds(
    Step,
    records=st.integers(1, 3),
    producer=st.sampled_from([-1, 7, 8]),
    producer_epoch=st.sampled_from([0, 0, 0, 0, 1, 2]),
    at=st.integers(0, 50),
)
LOGS = st.lists(ORDINARY, max_size=40) | st.lists(STEPS, max_size=25)


def batch_of(step: Step, offset: int) -> bytearray:
    if step.kind == "filler":
        return bytearray(filler(offset, offset + step.records))
    if step.kind == "marker" and step.producer >= 0:
        batch = end_transaction_batch(
            ControlType.ABORT if step.at % 2 else ControlType.COMMIT,
            base_offset=0,
            leader_epoch=0,
            producer_id=step.producer,
            producer_epoch=step.producer_epoch,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
        )
    else:
        has_id = step.producer >= 0
        batch = build_batch(
            [(NOW_MS + step.at, None, bytes(step.size), [])] * step.records,
            producer_id=step.producer,
            producer_epoch=step.producer_epoch if has_id else -1,
            base_sequence=offset if has_id else -1,
            is_transactional=step.kind == "transactional" and has_id,
        )
    if step.lost:
        batch[57:61] = (step.records - step.lost).to_bytes(4, "big")
        write_crc(batch, 0, len(batch))
    patch_offset_and_epoch(batch, 0, offset, step.epoch)
    return batch


def bytes_of(steps: list[Step]) -> bytearray:
    data, offset = bytearray(), BASE
    for step in steps:
        offset += step.skipped
        batch = batch_of(step, offset)
        data += batch
        offset += int.from_bytes(batch[23:27], "big") + 1
    return data


def read(directory: Path, data: bytes, **known: int) -> tuple[LogSegment, SegmentReading]:
    directory.mkdir(exist_ok=True)
    segment = LogSegment(Disk(), directory, BASE, len(data))
    segment.index_interval_bytes = 150
    segment.path(".log").write_bytes(data)
    return segment, read_segment(Disk(), segment, index_bytes=INDEX_BYTES, **known)


def shown(reading: SegmentReading) -> dict[str, object]:
    """All that a reading says, in values that can be compared."""
    says = {one.name: getattr(reading, one.name) for one in fields(reading)}
    built = says.pop("indexes")
    attributes = ("size_bytes", "max_timestamp", "offset_of_max_timestamp", "bytes_since_entry")
    says |= {name: getattr(built, name) for name in attributes}
    says["first_timestamp"] = built.first_timestamp
    return says | {"offsets": built.offset_entries(), "times": built.time_entries()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=LOGS,
    window=st.sampled_from([100, 250, 1 << 20]),
    flips=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 255)), max_size=1),
    cut=st.just(0) | st.integers(0, 80),
    next_base=st.none() | st.none() | st.integers(BASE, BASE + 60),
    stop=st.none() | st.none() | st.integers(0, 5_000),
)
def test_ordinary_batches_are_read_as_one_at_a_time(
    tmp_path: Path,
    steps: list[Step],
    window: int,
    flips: list[tuple[int, int]],
    cut: int,
    next_base: int | None,
    stop: int | None,
) -> None:
    data = bytes_of(steps)
    for place, bits in flips:
        if data:
            data[place % len(data)] ^= bits
    data = data[: max(len(data) - cut, 0)]
    known = {"next_base": next_base, "stop": None if stop is None else min(stop, len(data))}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment_reading, "_WINDOW_BYTES", window)
        _, fast = read(tmp_path, data, **known)  # type: ignore[arg-type]
        patched.setattr(segment_reading._Reader, "_take_ordinary", lambda _: None)
        _, twin = read(tmp_path, data, **known)  # type: ignore[arg-type]
    assert shown(fast) == shown(twin)


def state(producers: ProducerStates) -> object:
    return (
        producers.end_offset,
        producers.highest_id,
        producers.first_unstable_offset(),
        {
            at: (
                entry.epoch,
                list(entry.batches),
                entry.timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
            for at, entry in producers.producers.items()
        },
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=LOGS, snapshot_after=st.integers(0, 40), forgets=st.booleans())
def test_producers_of_a_segment_that_was_read_are_those_of_its_batches(
    tmp_path: Path, steps: list[Step], snapshot_after: int, forgets: bool
) -> None:
    steps = [step for step in steps if step.skipped >= 0 and step.epoch == 0 and not step.lost]
    segment, reading = read(tmp_path, bytes_of(steps))
    assert reading.whole_bytes == segment.size_bytes
    write_indexes(Disk(), segment, reading.indexes)
    end = reading.end_offset
    before = len(bytes_of(steps[:snapshot_after]))
    middle = next((h.base_offset for at, h in segment.batches(before)), end)
    snapshots = ProducerSnapshots(Disk(), tmp_path, [])
    if not forgets and middle > BASE:
        part = build_producers([segment], snapshots, start=BASE, end=middle)
        snapshots.write(middle, part.dump())
    walked = build_producers([segment], snapshots, start=BASE, end=end)
    seen = {} if reading.recent is None else {BASE: reading.recent}
    told = build_producers([segment], snapshots, start=BASE, end=end, recent=seen)
    snapshots.remove(snapshots.offsets)
    assert state(told) == state(walked)
    kinds = {step.kind for step in steps if step.producer >= 0}
    assert (reading.recent is None) == bool(kinds & {"transactional", "marker"})


def test_producers_beyond_a_number_are_told_by_a_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reading, "_PRODUCERS_MAX", 2)
    steps = [Step(producer=number % 3) for number in range(12)]
    _, reading = read(tmp_path, bytes_of(steps))
    assert reading.has_producers
    assert reading.recent is None
    assert reading.end_offset == BASE + 12


def test_a_reading_ends_where_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reading, "_WINDOW_BYTES", 1_000)
    data = bytes_of([Step(size=60)] * 200)
    segment = LogSegment(Disk(), tmp_path, BASE, len(data))
    segment.path(".log").write_bytes(data)
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        read_segment(Disk(), segment, index_bytes=INDEX_BYTES, check_stop=check)
