"""Records that are inflated, walked over and deflated in pieces: as if they were in one."""

import random
import tracemalloc

import pytest

from kafka_protocol.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    TooManyHeadersError,
)
from kafka_protocol.records.batch import Codec
from kafka_protocol.records.compression import PIECE_BYTES, compress, deflated, inflated
from kafka_protocol.records.records import Record, build_batch, encode_records, iter_records
from kafka_protocol.records.walk import HEADERS_MAX, glimpse_records
from tests.support.brokers.bad_input import with_records

TS = 1_700_000_000_000
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1 << 20


def sizes(total, rng):
    """Sizes that sum up to about `total`: many small ones, some beyond a piece."""
    left = total
    while left > 0:
        size = rng.choice((0, 1, 30, 300, 5000, 70_000, PIECE_BYTES, 3 * PIECE_BYTES))
        left -= size + 10
        yield size


def records_of(seed):
    rng = random.Random(seed)
    value = rng.randbytes(64) * (4 * PIECE_BYTES // 64)
    for size in sizes(6 * MIB, rng):
        key = rng.choice((None, b"", b"key", value[: size // 2]))
        headers = [
            ("name" * rng.randrange(4), rng.choice((None, b"", value[: size // 3])))
        ] * rng.randrange(3)
        yield TS + rng.randrange(-500, 500), key, rng.choice((None, value[:size])), headers


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
@pytest.mark.parametrize("seed", range(3))
def test_walked_over_in_pieces_they_are_what_was_written(codec, seed):
    written = list(records_of(seed))
    batch = build_batch(written, codec=codec, base_offset=1000)
    read = list(iter_records(batch))
    assert [record[1:] for record in read] == written
    assert list(glimpse_records(batch)) == [
        (record.offset, record.timestamp, record.key is not None) for record in read
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, *CODECS])
def test_pieces_are_neither_empty_nor_too_many(codec):
    data = random.Random(3).randbytes(1000) * 5000
    pieces = list(inflated(codec, compress(codec, data)))
    assert b"".join(pieces) == data
    assert all(PIECE_BYTES <= len(piece) <= 5 * MIB for piece in pieces[:-1])
    assert pieces[-1]


@pytest.mark.parametrize("codec", CODECS)
def test_how_records_are_cut_changes_nothing_in_what_they_are_deflated_to(codec):
    data = random.Random(4).randbytes(1000) * 3000
    rng, pieces, at = random.Random(5), [], 0
    while at < len(data):
        size = rng.choice((1, 100, 32_768, 65_536, 300_000))
        pieces.append(data[at : at + size])
        at += size
    assert b"".join(deflated(codec, pieces, level=None, size_bytes=len(data))) == compress(
        codec, data
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("record_bytes", [40 * MIB, 5000])
def test_what_is_held_does_not_depend_on_what_comes_out(codec, record_bytes):
    record = encode_records([Record(0, TS, b"k", bytes(record_bytes), [])], 0, TS)
    count = 40 * MIB // record_bytes
    body = b"".join(deflated(codec, [record] * count, level=None, size_bytes=None))
    batch = with_records(codec, body, count)
    tracemalloc.start()
    assert sum(1 for _ in glimpse_records(batch)) == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * MIB


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])  # in one piece, and in several
def test_a_record_with_too_many_headers_is_refused_before_reading_them(codec):
    fits = build_batch([(TS, b"k", None, [("", None)] * (HEADERS_MAX // 2))] * 2, codec=codec)
    assert sum(1 for _ in glimpse_records(fits)) == 2
    more = build_batch([(TS, b"k", None, [("", None)] * (HEADERS_MAX // 2 + 1))] * 2, codec=codec)
    with pytest.raises(TooManyHeadersError):
        list(glimpse_records(more))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("cut", [1, 2, 3, 7, 100, PIECE_BYTES, 2 * PIECE_BYTES + 11])
def test_records_that_end_too_early_or_too_late_are_invalid(codec, cut):
    records = [Record(n, TS, b"k", bytes(3 * PIECE_BYTES), [("h", b"v")]) for n in range(3)]
    data = encode_records(records, 0, TS)
    for wrong in (data[:-cut], data + bytes(cut)):
        batch = with_records(codec, compress(codec, wrong), 3)
        for read in (iter_records, glimpse_records):
            with pytest.raises(InvalidRecordError):
                list(read(batch))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("read", [iter_records, glimpse_records])
def test_a_bomb_without_records_is_too_large_rather_than_invalid(codec, read):
    batch = with_records(codec, compress(codec, bytes(4 * MIB)))
    with pytest.raises(InflatedTooLargeError):
        list(read(batch, max_inflated_bytes=4 * MIB - 1))
    with pytest.raises(InvalidRecordError):
        list(read(batch, max_inflated_bytes=4 * MIB))
