"""Batches that inflate to much are cleaned in chunks: the same stays, and memory stays low."""

import random
import tracemalloc
from collections.abc import Callable

import pytest

from kafka_protocol.errors import InflatedTooLargeError, InvalidRecordError
from kafka_protocol.records.batch import HEADER_SIZE, BatchHeader, Codec, read_header
from kafka_protocol.records.compression import PIECE_BYTES, decompress, deflated
from kafka_protocol.records.records import Record, build_batch, encode_records, iter_records
from local_log.cleaner.batch_filter import BatchFilter, FilterFacts, Written
from local_log.cleaner.log_pass import _note
from local_log.cleaner.offset_map import OffsetMap
from local_log.cleaner.record_walk import CHUNK_BYTES, RECORD_BYTES_MAX, whole_records
from local_log.cleaner.transactions import Transactions
from tests.support.brokers.bad_input import with_records
from tests.support.worlds.local_log import NOW_MS

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1 << 20
FACTS = FilterFacts(now_ms=NOW_MS, delete_retention_ms=1000, round_end=-1)


def mapped(batch: bytes | bytearray) -> OffsetMap:
    """The newest offsets of the batch's keys, of which there may be very many."""
    newest = OffsetMap(1 << 28)
    assert _note(newest, Transactions([]), read_header(batch), memoryview(batch), 0)
    return newest


def cleaned(batch: bytes | bytearray, newest: OffsetMap) -> Written | None:
    rules = BatchFilter(FACTS, newest, Transactions([]))
    return rules.written(read_header(batch), memoryview(batch))


def of_seed(seed: int, codec: Codec, keys: int) -> bytearray:
    """A batch of some 4 MiB; records of all sizes, some beyond a piece, some tombstones."""
    dice, given = random.Random(seed), []
    noise = dice.randbytes(CHUNK_BYTES)
    for _ in range(400):
        size = dice.choice((0, 9, 500, 5_000, PIECE_BYTES if dice.random() < 0.05 else 70))
        value = None if dice.random() < 0.1 else noise[:size]
        given.append((NOW_MS + dice.randrange(-50, 50), b"k%d" % dice.randrange(keys), value, []))
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


def test_a_large_batch_of_which_all_stays_is_the_very_bytes() -> None:
    given = [(NOW_MS, b"k%d" % n, bytes(9_000), []) for n in range(400)]
    batch = build_batch(given, codec=Codec.ZSTD)
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
