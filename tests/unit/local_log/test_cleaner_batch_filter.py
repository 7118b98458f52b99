"""What stays of a batch, one rule at a time; the rest: `test_cleaner_against_twin.py`.

Batches that inflate to much are cleaned in chunks: the same stays, and memory stays low.
"""

import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from kafka_protocol.errors import InflatedTooLargeError, InvalidRecordError
from kafka_protocol.records.batch import HEADER_SIZE, BatchHeader, Codec, read_header, write_crc
from kafka_protocol.records.compression import PIECE_BYTES, decompress, deflated
from kafka_protocol.records.control import ControlType
from kafka_protocol.records.records import Record, build_batch, encode_records, iter_records
from local_log.cleaner.batch_filter import BatchFilter, LastBatch, Transactions, Written
from local_log.cleaner.log_pass import _note
from local_log.cleaner.offset_map import (
    CHUNK_BYTES,
    RECORD_BYTES_MAX,
    OffsetMap,
    whole_records,
)
from local_log.config import LONG_MAX
from tests.support.brokers.bad_input import with_records
from tests.support.worlds.local_log import NOW_MS

HOUR_MS = 3_600_000
HORIZON_MS = NOW_MS + HOUR_MS
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1 << 20


def cleaned(batch: bytes | bytearray, newest: OffsetMap, **facts: object) -> Written | None:
    given = {"now_ms": NOW_MS, "delete_retention_ms": HOUR_MS, "round_end": -1} | facts
    rules = BatchFilter(newest, Transactions([]), **given)  # type: ignore[arg-type]
    return rules.written(read_header(batch), memoryview(batch))


def filtered(
    batch: bytes | bytearray, newest: dict[bytes, int], *, latest: int = 1000, **facts: object
) -> Written | None:
    offsets = OffsetMap(1 << 20)
    offsets.offsets, offsets.latest_offset = newest, latest
    given = {"now_ms": NOW_MS, "delete_retention_ms": HOUR_MS, "round_end": -1} | facts
    rules = BatchFilter(offsets, Transactions([]), **given)  # type: ignore[arg-type]
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


def test_a_tombstone_beyond_the_map_stays_after_its_horizon() -> None:
    """An earlier pass gave it one; what it deletes may lie between the map's end and it."""
    first = filtered(batch_of((b"a", None), base_offset=10), {b"a": 10})
    assert first is not None
    late = filtered(bytes(first.data), {}, latest=9, now_ms=HORIZON_MS)
    assert [offset for offset, *_ in records(late)] == [10]
    assert filtered(bytes(first.data), {}, latest=10, now_ms=HORIZON_MS) is None


def test_tombstones_may_be_kept_for_as_long_as_can_be_said() -> None:
    batch = batch_of((b"a", None), (b"b", b"2"))
    kept = filtered(batch, {b"a": 0, b"b": 1}, delete_retention_ms=LONG_MAX)
    assert [time for _, time, _, _ in records(kept)] == [NOW_MS, NOW_MS + 100]
    assert kept is not None
    assert kept.header.base_timestamp == LONG_MAX


def test_records_without_a_key_go_but_not_the_last_batch_of_the_round() -> None:
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


def test_what_the_map_knows_nothing_of_stays() -> None:
    batch = batch_of((b"a", b"1"), (b"a", None), base_offset=10)
    assert [r[0] for r in records(filtered(batch, {b"a": 10}, latest=10))] == [10, 11]
    assert [r[0] for r in records(filtered(batch, {}, latest=1000))] == [10, 11]


def test_an_emptied_marker_ends_its_transaction_as_well() -> None:
    """Else the next abort of that producer would end what was committed long ago: damage."""
    known = Transactions([])
    fields = {"producer_id": 3, "producer_epoch": 0, "base_sequence": 0}
    data = batch_of((b"a", b"1"), is_transactional=True, **fields)
    assert known.data(read_header(data)) is False
    assert known.marker(read_header(data), None)
    assert known.marker(read_header(data)._replace(base_offset=5), ControlType.ABORT)


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


def mapped(batch: bytes | bytearray) -> OffsetMap:
    """The newest offsets of the batch's keys, of which there may be very many."""
    newest = OffsetMap(1 << 28)
    assert _note(newest, Transactions([]), read_header(batch), memoryview(batch), 0)
    return newest


def of_seed(seed: int, codec: Codec, keys: int) -> bytearray:
    """A batch of some 4 MiB; records of all sizes, some beyond a piece, some tombstones."""
    rng, given = random.Random(seed), []
    noise = rng.randbytes(CHUNK_BYTES)
    for _ in range(400):
        size = rng.choice((0, 9, 500, 5_000, PIECE_BYTES if rng.random() < 0.05 else 70))
        value = None if rng.random() < 0.1 else noise[:size]
        given.append((NOW_MS + rng.randrange(-50, 50), b"k%d" % rng.randrange(keys), value, []))
    given.insert(200, (NOW_MS, b"long", noise, [("h", b"v")]))
    return build_batch(given, codec=codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("seed", "keys"), [(1, 20), (2, 2_000), (3, 1)])
def test_the_same_stays_as_of_the_batch_in_one_piece(codec: Codec, seed: int, keys: int) -> None:
    plain, packed = of_seed(seed, Codec.NONE, keys), of_seed(seed, codec, keys)
    newest = mapped(packed)
    assert (newest.offsets, newest.latest_offset) == (mapped(plain).offsets, 400)
    expected, found = cleaned(plain, newest), cleaned(packed, newest)
    assert expected is not None
    assert found is not None
    assert list(iter_records(found.data)) == list(iter_records(expected.data))
    assert 0 < found.header.record_count < 401

    def facts(header: BatchHeader) -> BatchHeader:
        return header._replace(batch_length=0, crc=0, attributes=header.attributes & ~7)

    assert facts(found.header) == facts(expected.header)
    assert found.header.codec == codec


@pytest.mark.parametrize(("count", "codec"), [(2, Codec.GZIP), (400, Codec.ZSTD)])
def test_a_batch_of_which_all_stays_is_the_very_bytes(count: int, codec: Codec) -> None:
    """Also one that is cleaned in chunks."""
    batch = build_batch([(NOW_MS, b"k%d" % n, bytes(9_000), []) for n in range(count)], codec=codec)
    written = cleaned(batch, mapped(batch))
    assert written is not None
    assert bytes(written.data) == batch


def inflating_to(codec: Codec, size_bytes: int, record_bytes: int) -> bytes:
    """Records of two keys by turns, all of them at offset 0."""
    pair = [Record(0, NOW_MS, key, bytes(record_bytes), []) for key in (b"k", b"l")]
    count = size_bytes // (2 * record_bytes) or 1
    pieces = [encode_records(pair, 0, NOW_MS)] * count
    packed = b"".join(deflated(codec, pieces, level=None, size_bytes=None))
    return with_records(codec, packed, 2 * count)


def peak_of(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_held_does_not_depend_on_what_comes_out(codec: Codec) -> None:
    batch = inflating_to(codec, 60 * MIB, 40_000)
    assert peak_of(lambda: mapped(batch)) < 16 * MIB
    newest = OffsetMap(1 << 20)
    newest.latest_offset = 1
    for offsets in ({}, {b"k": 1}, {b"k": 1, b"l": 1}):  # all, the half, and nothing stays
        newest.offsets = offsets
        assert peak_of(lambda: cleaned(batch, newest)) < 16 * MIB


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("record_bytes", [50_000, RECORD_BYTES_MAX + 1])
def test_a_batch_that_inflates_to_more_than_may_be_is_damage(
    codec: Codec, record_bytes: int
) -> None:
    batch = inflating_to(codec, 105 * MIB, record_bytes)
    with pytest.raises(InflatedTooLargeError):
        mapped(batch)


@pytest.mark.parametrize(("cut", "count"), [(0, 400), (0, 402), (1, 401), (PIECE_BYTES, 401)])
def test_chunks_that_are_not_the_records_claimed_are_invalid(cut: int, count: int) -> None:
    data = decompress(Codec.LZ4, of_seed(4, Codec.LZ4, 9)[HEADER_SIZE:])

    def counted(size: int, count: int) -> int:
        pieces = (data[at : min(at + PIECE_BYTES, size)] for at in range(0, size, PIECE_BYTES))
        return sum(number for _, number in whole_records(pieces, count))

    assert counted(len(data), 401) == 401
    with pytest.raises(InvalidRecordError):
        counted(len(data) - cut, count)
