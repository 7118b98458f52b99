"""What a pass does with batches, one rule at a time; the rest: `test_cleaner_against_twin.py`."""

import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_protocol.records.batch import BatchHeader, read_header, write_crc
from kafka_protocol.records.errors import InvalidRecordError
from kafka_protocol.records.records import build_batch, iter_records
from local_log.cleaner.batch_filter import BatchFilter, FilterFacts, LastBatch, Written
from local_log.cleaner.offset_map import ENTRY_BYTES, OffsetMap
from local_log.cleaner.transactions import ABORT, Transactions
from local_log.file_names import LOG
from tests.support.worlds.cleaned_logs import (
    batches_of,
    clean,
    commit,
    end_transaction,
    open_compacted,
    put,
    records_of,
    table_of,
)
from tests.support.worlds.local_log import GOLDEN, NOW_MS

HOUR_MS = 3_600_000
HORIZON_MS = NOW_MS + HOUR_MS


def filtered(
    batch: bytes | bytearray, newest: dict[bytes, int], *, latest: int = 1000, **facts: object
) -> Written | None:
    offsets = OffsetMap(1 << 20)
    offsets.offsets, offsets.latest_offset = newest, latest
    given = {"now_ms": NOW_MS, "delete_retention_ms": HOUR_MS, "round_end": -1} | facts
    rules = BatchFilter(FilterFacts(**given), offsets, Transactions([]))  # type: ignore[arg-type]
    return rules.written(read_header(batch), memoryview(batch))


def records(written: Written | None) -> list[tuple[int, int, bytes | None, bytes | None]]:
    assert written is not None
    data = bytes(written.data)
    assert read_header(data) == written.header
    copy = bytearray(data)
    assert write_crc(copy, 0, len(copy)) == written.header.crc
    return [(r.offset, r.timestamp, r.key, r.value) for r in iter_records(data)]


def batch_of(*pairs: tuple[bytes | None, bytes | None], **fields: object) -> bytearray:
    given = [
        (NOW_MS + 100 * at, key, value, [("h", b"1")]) for at, (key, value) in enumerate(pairs)
    ]
    return build_batch(given, **fields)  # type: ignore[arg-type]


def test_a_batch_that_stays_whole_is_the_very_bytes() -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"2"), codec=1)
    view = filtered(batch, {b"a": 0, b"b": 1})
    assert view is not None
    assert bytes(view.data) == bytes(batch)


@pytest.mark.parametrize("codec", range(5))
def test_a_thinned_batch_keeps_offsets_times_headers_and_codec(codec: int) -> None:
    batch = batch_of(
        (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), base_offset=50, codec=codec
    )
    written = filtered(batch, {b"a": 52, b"b": 51, b"c": 90})
    assert records(written) == [(51, NOW_MS + 100, b"b", b"2"), (52, NOW_MS + 200, b"a", b"3")]
    assert written is not None
    header = written.header
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (50, 3, 2)
    assert header.max_timestamp == NOW_MS + 200
    assert header.codec == codec
    assert [r.headers for r in iter_records(bytes(written.data))] == [[("h", b"1")]] * 2


def test_append_time_stays() -> None:
    batch = batch_of((b"a", b"1"), (b"b", None), (b"c", b"2"), log_append_time_ms=NOW_MS + 7)
    written = filtered(batch, {b"a": 9, b"b": 1, b"c": 2})
    assert [(offset, time) for offset, time, _, _ in records(written)] == [
        (1, NOW_MS + 7),
        (2, NOW_MS + 7),
    ]
    assert written is not None
    assert written.header.is_log_append_time
    assert written.header.has_delete_horizon


def test_a_tombstone_gets_a_horizon_once_and_goes_when_it_has_passed() -> None:
    batch = batch_of((b"a", None), (b"b", b"2"))
    newest = {b"a": 0, b"b": 1}
    first = filtered(batch, newest)
    assert first is not None
    assert (first.header.has_delete_horizon, first.header.base_timestamp) == (True, HORIZON_MS)
    assert [time for _, time, _, _ in records(first)] == [NOW_MS, NOW_MS + 100]
    again = filtered(bytes(first.data), newest, now_ms=HORIZON_MS - 1)
    assert again is not None
    assert bytes(again.data) == bytes(first.data)
    last = filtered(bytes(first.data), newest, now_ms=HORIZON_MS)
    assert records(last) == [(1, NOW_MS + 100, b"b", b"2")]


def test_a_tombstone_that_the_map_did_not_reach_stays_whatever_its_horizon_says() -> None:
    """An earlier pass gave it one; what it deletes may lie between the map's end and it."""
    first = filtered(batch_of((b"a", None), base_offset=10), {b"a": 10})
    assert first is not None
    late = filtered(bytes(first.data), {}, latest=9, now_ms=HORIZON_MS)
    assert [offset for offset, *_ in records(late)] == [10]
    assert filtered(bytes(first.data), {}, latest=10, now_ms=HORIZON_MS) is None


def test_records_without_a_key_go_but_not_the_batch_at_the_end_of_the_round() -> None:
    batch = batch_of((None, b"1"), (None, b"2"), base_offset=10)
    assert filtered(batch, {}) is None
    assert records(filtered(batch, {}, latest=10)) == [(11, NOW_MS + 100, None, b"2")]
    empty = filtered(batch, {}, round_end=12)
    assert records(empty) == []
    assert empty is not None
    assert (empty.header.base_offset, empty.header.next_offset) == (10, 12)


def test_the_last_batch_of_a_producer_is_kept_without_records() -> None:
    fields = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 20, "base_offset": 5}
    batch = batch_of((b"a", b"1"), (b"b", b"2"), codec=4, **fields)
    newest = {b"a": 99, b"b": 99}
    assert filtered(batch, newest) is None
    assert filtered(batch, newest, producers={7: LastBatch(8, 3)}) is None
    empty = filtered(batch, newest, producers={7: LastBatch(6, 3)})
    assert records(empty) == []
    assert empty is not None
    header: BatchHeader = empty.header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 20)
    assert (header.codec, header.base_timestamp, header.last_offset) == (0, -1, 6)
    again = filtered(bytes(empty.data), {}, producers={7: LastBatch(6, 3)})
    assert again == empty
    assert filtered(bytes(empty.data), {}, producers={7: LastBatch(60, 3)}) is None


def test_keys_of_an_aborted_transaction_replace_nothing(tmp_path: Path) -> None:
    log = open_compacted(tmp_path)
    put(log, ("a", "kept"))
    put(log, ("a", "gone"), producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 3, commits=False)
    log.roll(NOW_MS)
    commit(log)
    clean(log)
    assert table_of(log) == {b"a": b"kept"}
    assert [record.value for record in records_of(log)] == [b"kept"]


def test_small_segments_become_one_also_where_all_of_their_records_stay(tmp_path: Path) -> None:
    log = open_compacted(tmp_path)
    for number in range(3):
        put(log, (f"k{number}", "v"))
        log.roll(NOW_MS)
    commit(log)
    before = records_of(log)
    clean(log)
    assert [segment.base_offset for segment in log.segments.all] == [0, 3]
    assert records_of(log) == before


def test_records_without_timestamps_are_no_younger_after_a_pass(tmp_path: Path) -> None:
    log = open_compacted(tmp_path)
    for value in "12":
        put(log, ("a", value), at_ms=-1)
    log.roll(NOW_MS)
    commit(log)
    log.disk.set_modified_ms(log.segments.all[0].path(LOG), NOW_MS - HOUR_MS)
    clean(log)
    assert len(records_of(log)) == 1
    assert log.segments.all[0].modified_ms() == NOW_MS - HOUR_MS


def test_a_walk_ends_where_the_map_is_full(tmp_path: Path) -> None:
    """What lies behind is not known: there a tombstone may have something to delete yet."""
    log = open_compacted(tmp_path)
    for number in range(6):
        put(log, (f"k{number}", "v"))
    put(log, ("k0", "a key that the map has"))
    log.roll(NOW_MS)
    commit(log)
    done = clean(log, map_bytes=3 * (ENTRY_BYTES + 2))
    assert (done.keys_left, done.cleaned_to) == (True, 3)


def test_an_emptied_marker_ends_its_transaction_as_well() -> None:
    """Else the next abort of that producer would end what was committed long ago: damage."""
    known = Transactions([])
    fields = {"producer_id": 3, "producer_epoch": 0, "base_sequence": 0}
    data = batch_of((b"a", b"1"), is_transactional=True, **fields)
    assert known.data(read_header(data)) is False
    assert known.marker(read_header(data), None)
    assert known.marker(read_header(data)._replace(base_offset=5), ABORT)


def test_what_the_map_knows_nothing_of_stays() -> None:
    batch = batch_of((b"a", b"1"), (b"a", None), base_offset=10)
    assert [r[0] for r in records(filtered(batch, {b"a": 10}, latest=10))] == [10, 11]
    assert [r[0] for r in records(filtered(batch, {}, latest=1000))] == [10, 11]


@pytest.mark.parametrize("at", [61, 62, 64, 65, 70, 80])
def test_malformed_records_are_refused_or_harmless(at: int) -> None:
    """Each walk ends, with an error of its own or with records, whatever a byte says."""
    for value in (0, 1, 127, 128, 255):
        batch = batch_of((b"key", b"value"), (b"other", None))
        batch[at] = value
        offsets = OffsetMap(1 << 20)
        for walk in (
            lambda batch=batch: filtered(batch, {}),
            lambda batch=batch, offsets=offsets: offsets.add_records(bytes(batch[61:]), 2, 0, 0),
        ):
            with suppress(InvalidRecordError):
                walk()


def test_the_map_stays_within_its_memory() -> None:
    bytes_max = 4 << 20
    offsets = OffsetMap(bytes_max)
    keys = [b"some-key-%09d" % number for number in range(30_000)]
    batches = [
        bytes(build_batch([(NOW_MS, key, b"", []) for key in keys[at : at + 500]]))[61:]
        for at in range(0, len(keys), 500)
    ]
    tracemalloc.start()
    try:
        fits = [offsets.add_records(data, 500, at * 500, 0) for at, data in enumerate(batches)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fits[0]
    assert not fits[-1]
    assert bytes_max / 4 < peak < bytes_max
    assert offsets.utilization > 0.99


def test_one_key_fits_however_small_the_memory_is() -> None:
    offsets = OffsetMap(1)
    data = bytes(build_batch([(0, b"k" * 500, b"", []), (0, b"l", b"", [])]))[61:]
    assert not offsets.add_records(data, 2, 10, 0)
    assert (offsets.latest_offset, len(offsets.offsets)) == (10, 1)


@pytest.mark.parametrize(("name", "end"), [("compacted-0", 240), ("compacted-txn-0", 260)])
def test_what_kafka_has_cleaned_stays_as_it_is(tmp_path: Path, name: str, end: int) -> None:
    """Its horizons have not passed, and its keys are there once: nothing is left to do."""
    for path in (GOLDEN / "clean" / name).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    log = open_compacted(tmp_path, was_compacted=True, recovery_point=None)
    commit(log)
    before = [(header, batch) for header, batch in batches_of(log) if header.base_offset < end]
    horizons = [h.base_timestamp for h, _ in before if h.has_delete_horizon]
    log.roll(NOW_MS)
    put(log, ("zzz", "1"), at_ms=NOW_MS)
    commit(log)
    clean(log, now_ms=min(horizons, default=NOW_MS) - 1)
    after = [(header, batch) for header, batch in batches_of(log) if header.base_offset < end]
    assert [h.base_offset for h, _ in after] == [h.base_offset for h, _ in before]
    for (old, was), (new, now) in zip(before, after, strict=True):
        # Markers whose last records Kafka's pass has removed get their horizon in the next one.
        is_marked = new.has_delete_horizon and not old.has_delete_horizon
        assert now == was or (old.is_control and is_marked), new
        assert [*iter_records(now)] == [*iter_records(was)]


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_partition_of_kafkas_consumer_offsets_is_cleaned(tmp_path: Path, number: int) -> None:
    """Keys of whatever kind, known here or not, and markers of transactional commits."""
    source = GOLDEN.parent / "consumer-offsets" / f"__consumer_offsets-{number}"
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    log = open_compacted(tmp_path, recovery_point=None)
    commit(log)
    # Closed as it is, with a record after it that replaces none of Kafka's.
    log.roll(NOW_MS)
    put(log, ("no key of Kafka's", "1"))
    commit(log)
    before, count = table_of(log), len(records_of(log))
    clean(log)
    assert table_of(log) == before
    assert len(records_of(log)) < count
    end = log.segments.all[-1].base_offset
    keys = [record.key for record in records_of(log) if record.offset < end]
    assert len(keys) == len(set(keys))
