"""Passes of the cleaner beside a twin that thinks in whole lists of records, pass after pass."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, note, settings
from hypothesis import strategies as st

from kafka_protocol.records.batch import BatchHeader
from kafka_protocol.records.records import iter_records
from local_log.log.partition_log import PartitionLog
from tests.support.worlds.cleaned_logs import (
    COMPACTED,
    batches_of,
    clean,
    commit,
    end_transaction,
    open_compacted,
    put,
    records_of,
    table_of,
)
from tests.support.worlds.local_log import NOW_MS

KEYS = ("a", "b", "c", "d")
RETENTION_MS = COMPACTED.delete_retention_ms


@dataclass
class TwinBatch:
    """What matters of a batch.

    Attributes:
        records: offset, key, value.
        horizon: when its tombstones, or its marker, may go.
    """

    header: BatchHeader
    records: list[tuple[int, bytes | None, bytes | None]] = field(default_factory=list)
    horizon: int | None = None


def twin_of(log: PartitionLog) -> list[TwinBatch]:
    return [
        TwinBatch(
            header,
            [(record.offset, record.key, record.value) for record in iter_records(batch)],
            header.base_timestamp if header.has_delete_horizon else None,
        )
        for header, batch in batches_of(log)
    ]


def is_abort(batch: TwinBatch) -> bool:
    return bool(batch.records) and (batch.records[0][1] or b"")[3] == 0


def data_of(batches: list[TwinBatch], marker: int) -> list[int]:
    """Numbers of the batches whose transaction the marker at this number ends."""
    found = []
    for number in reversed(range(marker)):
        header = batches[number].header
        if header.producer_id != batches[marker].header.producer_id:
            continue
        if header.is_control and batches[number].records:
            break
        if header.is_transactional and not header.is_control:
            found.append(number)
    return found


def cleaned(
    batches: list[TwinBatch],
    ends: tuple[int, int, int],
    now_ms: int,
    last: dict[int, tuple[int, int]],
) -> list[TwinBatch]:
    """What a pass leaves.

    Args:
        batches: all of the log.
        ends: of what can be cleaned; of the segments that are written again, which are fewer where
            the map is full; of the offsets whose keys are known. Each exclusive.
        now_ms: wall clock.
        last: newest offset, and epoch, of each producer.
    """
    end, written_end, mapped_end = ends
    inside = [b for b in batches if b.header.base_offset < written_end]
    # The marker may lie behind what is cleaned: its transaction is decided all the same.
    markers = [n for n, b in enumerate(batches) if b.header.is_control and b.records]
    aborted = {n for m in markers if is_abort(batches[m]) for n in data_of(batches, m)}
    newest: dict[bytes, int] = {}
    for number, batch in enumerate(inside):
        if number not in aborted and not batch.header.is_control:
            newest |= {k: o for o, k, _ in batch.records if k is not None and o < mapped_end}
    left = []
    for number, batch in enumerate(inside):
        header, horizon = batch.header, batch.horizon
        is_over = horizon is not None and horizon <= now_ms
        if header.is_control:
            is_needless = number in markers and not data_of(inside, number)
            records = [] if is_needless and is_over else batch.records
            if is_needless and horizon is None:
                horizon = now_ms + RETENTION_MS
        else:
            records = [
                (offset, key, value)
                for offset, key, value in batch.records
                if number not in aborted
                and (key is not None or offset >= mapped_end)
                and (offset >= mapped_end or offset >= newest.get(key, -1))
                and (offset >= mapped_end or value is not None or not is_over)
            ]
            if horizon is None and any(value is None for _, _, value in records):
                horizon = now_ms + RETENTION_MS
        offset, epoch = last.get(header.producer_id, (-2, -2))
        tells = header.last_offset == offset or (
            offset == -1 and header.is_control and header.producer_epoch == epoch
        )
        if records or tells or header.next_offset == end:
            left.append(TwinBatch(header, records, horizon if records else None))
    return left + batches[len(inside) :]


PUT = st.tuples(
    st.just("put"),
    st.lists(
        st.tuples(st.sampled_from(KEYS), st.sampled_from([None, "x", "y" * 40])),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([0, 0, 1, 2, 3, 4]),
    st.sampled_from([-1, 1, 2, 3]),  # producer: 2 and 3 are transactional
)
END = st.tuples(st.just("end"), st.sampled_from([2, 3]), st.booleans())
ROUND = st.tuples(
    st.lists(st.one_of(PUT, PUT, END, END, st.tuples(st.just("roll"))), min_size=1, max_size=8),
    st.booleans(),  # all transactions end
    st.sampled_from([0, RETENTION_MS // 2, RETENTION_MS, 2 * RETENTION_MS]),
    st.sampled_from([400, 1 << 20, 1 << 20]),  # memory for keys
    st.booleans(),  # closed and opened again
)
ROUNDS = st.lists(ROUND, min_size=2, max_size=7)


@settings(deadline=None)
@given(ROUNDS)
def test_what_stays_is_what_the_rules_say_and_readers_see_the_same(rounds: list[tuple]) -> None:
    steps: list[tuple] = []
    for writes, all_end, later_ms, map_bytes, is_reopened in rounds:
        steps += writes
        steps += [("end", producer, True) for producer in (2, 3) if all_end]
        steps += [("roll",), ("clean", later_ms, map_bytes)]
        steps += [("reopen",)] * is_reopened
    with tempfile.TemporaryDirectory() as path:
        _walk(Path(path), steps)


def _walk(path: Path, steps: list[tuple]) -> None:
    log, now_ms = open_compacted(path), NOW_MS
    cleaned_to: int | None = None
    sequences = dict.fromkeys((1, 2, 3), 0)
    in_transaction: set[int] = set()
    for step in steps:
        match step:
            case ("put", pairs, codec, producer):
                given_to = {}
                if producer > 0:
                    given_to = {
                        "producer_id": producer,
                        "producer_epoch": 0,
                        "base_sequence": sequences[producer],
                        "is_transactional": producer > 1,
                    }
                    sequences[producer] += len(pairs)
                if producer > 1:
                    in_transaction.add(producer)
                put(log, *pairs, at_ms=now_ms, codec=codec, **given_to)
            case ("end", producer, commits) if producer in in_transaction:
                end_transaction(log, producer, commits=commits, at_ms=now_ms)
                in_transaction.discard(producer)
            case ("roll",):
                log.roll(now_ms)
            case ("reopen",):
                log.close()
                log = open_compacted(
                    path, recovery_point=log.log_end_offset, high_watermark=log.log_end_offset
                )
            case ("clean", later_ms, map_bytes):
                now_ms += later_ms
                commit(log)
                cleaned_to = _clean(log, cleaned_to, now_ms, map_bytes)
    log.close()


def _clean(log: PartitionLog, cleaned_to: int | None, now_ms: int, map_bytes: int) -> int | None:
    unstable = log.last_stable_offset
    ends = [segment.base_offset for segment in log.segments.all[1:]]
    end = max((end for end in ends if end <= unstable), default=0)
    dirty = [b for b in twin_of(log) if (cleaned_to or 0) <= b.header.last_offset < end]
    if not dirty:
        return cleaned_to
    before, twin = table_of(log), twin_of(log)
    last = {
        producer_id: (state.batches[-1][1] if state.batches else -1, state.epoch)
        for producer_id, state in log.producers.states.producers.items()
    }
    done = clean(log, cleaned_to, now_ms=now_ms, map_bytes=map_bytes)
    note(f"{done} of {cleaned_to} up to {end}")
    assert (cleaned_to or 0) < done.cleaned_to <= end
    assert done.keys_left or done.cleaned_to == end
    assert table_of(log) == before
    written_end = min(each for each in ends if each >= done.cleaned_to)
    wanted = cleaned(twin, (end, written_end, done.cleaned_to), now_ms, last)
    found = twin_of(log)
    assert [(b.header.base_offset, b.header.last_offset) for b in found] == [
        (b.header.base_offset, b.header.last_offset) for b in wanted
    ]
    assert [(b.records, b.horizon) for b in found] == [(b.records, b.horizon) for b in wanted]
    _check_headers(log, twin)
    return done.cleaned_to


def _check_headers(log: PartitionLog, before: list[TwinBatch]) -> None:
    """What a producer or a reader goes by is as it was; times of records, too."""
    old = {batch.header.base_offset: batch.header for batch in before}
    for header, _ in batches_of(log):
        was = old[header.base_offset]
        assert header.last_offset_delta == was.last_offset_delta
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
            was.producer_id,
            was.producer_epoch,
            was.base_sequence,
        )
        assert (header.attributes ^ was.attributes) & 0x38 == 0
    for record in records_of(log):
        assert record.timestamp >= NOW_MS
