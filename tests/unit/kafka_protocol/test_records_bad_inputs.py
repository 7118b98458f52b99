"""Hostile and broken records: refused with the code a client can act on, memory flat."""

import tracemalloc
import zlib
from struct import pack

import cramjam
import pytest

from kafka_protocol.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from kafka_protocol.records.batch import HEADER_SIZE, Codec, pack_header, read_header, write_crc
from kafka_protocol.records.compression import compress, decompress
from kafka_protocol.records.records import Record, build_batch, iter_records
from kafka_protocol.records.walk import glimpse_records
from kafka_protocol.wire.primitives import encode_zigzag as zz
from tests.support.samples import protocol_vectors as vectors

TS = 1_700_000_000_000
MIB = 1 << 20


def batch_of(body: bytes, count: int = 1, codec: int = 0) -> bytes:
    """A batch whose header is in order around any record bytes."""
    header = read_header(build_batch([(TS, None, b"v", ())]))
    header = header._replace(
        batch_length=HEADER_SIZE - 12 + len(body),
        record_count=count,
        last_offset_delta=max(count - 1, 0),
        attributes=codec,
    )
    batch = bytearray(pack_header(header)) + body
    write_crc(batch, 0, len(batch))
    return bytes(batch)


def record_of(fields: bytes) -> bytes:
    return zz(len(fields)) + fields


START = b"\0" + zz(0) + zz(0)  # attributes, timestamp delta, offset delta
GOOD = record_of(START + zz(1) + b"k" + zz(1) + b"v" + zz(0))


def refuse(body: bytes, count: int = 1) -> None:
    """Refused by who reads records whole, and by who only glimpses at them, as an append does."""
    for read in (iter_records, glimpse_records):
        with pytest.raises(InvalidRecordError):
            list(read(batch_of(body, count)))


def test_the_sample_record_is_fine() -> None:
    assert list(iter_records(batch_of(GOOD))) == [Record(0, TS, b"k", b"v", [])]


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_another_magic_is_no_batch_of_records(magic: int) -> None:
    batch = bytearray(batch_of(GOOD))
    batch[16] = magic
    with pytest.raises(InvalidRecordError):
        list(iter_records(batch))


def test_a_key_size_of_six_bytes_is_invalid() -> None:
    refuse(record_of(START + b"\x80\x80\x80\x80\x80\x01" + b"k" + zz(1) + b"v" + zz(0)))


def test_a_batch_longer_than_its_bytes_is_invalid() -> None:
    with pytest.raises(InvalidRecordError):
        list(iter_records(batch_of(GOOD)[:-1]))


@pytest.mark.parametrize("count", [-1, 0, 2, 10, 0x7FFFFFFF])
def test_a_count_that_is_not_that_of_the_records_is_invalid(count: int) -> None:
    refuse(GOOD, count)
    tracemalloc.start()
    with pytest.raises(InvalidRecordError):
        list(iter_records(batch_of(GOOD, count)))
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


@pytest.mark.parametrize("change", [-3, -1, 1, 3, 1000])
def test_a_record_whose_length_is_not_that_of_its_fields_is_invalid(change: int) -> None:
    fields = START + zz(1) + b"k" + zz(1) + b"v" + zz(0)
    refuse(zz(len(fields) + change) + fields)
    refuse(zz(len(fields) + change) + fields + GOOD, 2)


def test_a_negative_record_length_is_invalid() -> None:
    refuse(zz(-5) + START + zz(1) + b"k" + zz(1) + b"v" + zz(0))


@pytest.mark.parametrize("count", [-1, -(2**31), 1, 1000, 2**31 - 1])
def test_header_counts_that_cannot_be_are_invalid(count: int) -> None:
    refuse(record_of(START + zz(1) + b"k" + zz(1) + b"v" + zz(count)))


def test_header_names_are_never_null_and_values_may_be() -> None:
    prefix = START + zz(-1) + zz(-1) + zz(1)
    refuse(record_of(prefix + zz(-1) + zz(0)))
    with pytest.raises(InvalidRecordError):  # no UTF-8
        list(iter_records(batch_of(record_of(prefix + zz(1) + b"\xff" + zz(0)))))
    refuse(record_of(prefix + zz(50) + b"h" + zz(0)))
    refuse(record_of(prefix + zz(1) + b"h" + zz(50)))
    (record,) = iter_records(batch_of(record_of(prefix + zz(1) + b"h" + zz(-7))))
    assert record.headers == [("h", None)]


def test_any_negative_key_size_is_a_null_key() -> None:
    batch = batch_of(record_of(START + zz(-5) + zz(-9) + zz(0)))
    (record,) = iter_records(batch)
    assert (record.key, record.value) == (None, None)
    assert list(glimpse_records(batch)) == [(0, TS, False)]


def test_bytes_after_the_last_record_are_invalid() -> None:
    refuse(GOOD + b"\0")
    refuse(GOOD + GOOD)


def test_records_cut_anywhere_are_invalid() -> None:
    body = GOOD + record_of(START + zz(1) + b"k" + zz(-1) + zz(1) + zz(1) + b"h" + zz(0))
    assert len(list(iter_records(batch_of(body, 2)))) == 2
    for size in range(len(body)):
        refuse(body[:size], 2)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_inflates_past_the_cap_is_too_large(codec: Codec) -> None:
    data = compress(codec, bytes(4 * MIB))
    assert decompress(codec, data, max_bytes=4 * MIB) == bytes(4 * MIB)
    with pytest.raises(InflatedTooLargeError):
        decompress(codec, data, max_bytes=4 * MIB - 1)


def test_a_gzip_bomb_is_stopped_at_the_cap() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    chunk = bytes(MIB)
    data = b"".join(packer.compress(chunk) for _ in range(256)) + packer.flush()
    tracemalloc.start()
    with pytest.raises(InflatedTooLargeError):
        decompress(Codec.GZIP, data, max_bytes=MIB)
    assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    tracemalloc.stop()


def test_a_zstd_bomb_is_stopped_at_the_cap() -> None:
    data = bytes(cramjam.zstd.compress(bytes(64 * MIB)))
    assert len(data) < 8192
    with pytest.raises(InflatedTooLargeError):
        decompress(Codec.ZSTD, data, max_bytes=MIB)


@pytest.mark.parametrize("descriptor", [0xE0, 0xC0, 0xA0], ids=["u64", "window", "u32"])
def test_a_zstd_header_that_claims_too_much_is_too_large(descriptor: int) -> None:
    window = b"" if descriptor & 0x20 else b"\x58"
    size = (1 << 31).to_bytes(8 if descriptor >> 6 == 3 else 4, "little")
    frame = b"\x28\xb5\x2f\xfd" + bytes((descriptor,)) + window + size + bytes(20)
    with pytest.raises(InflatedTooLargeError):
        decompress(Codec.ZSTD, frame)


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"])
def test_a_snappy_block_that_claims_two_gib_is_invalid(claim: bytes) -> None:
    tracemalloc.start()
    for block in (claim + b"abc", claim):
        with pytest.raises(InvalidRecordError):
            decompress(Codec.SNAPPY, block)
        xerial = b"\x82SNAPPY\0" + pack(">ii", 1, 1) + pack(">i", len(block)) + block
        with pytest.raises(InvalidRecordError):
            decompress(Codec.SNAPPY, xerial)
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()


@pytest.mark.parametrize("size", [-1, 0x7FFFFFFF, 10])
def test_a_xerial_block_that_is_not_there_is_invalid(size: int) -> None:
    with pytest.raises(InvalidRecordError):
        decompress(Codec.SNAPPY, b"\x82SNAPPY\0" + pack(">ii", 1, 1) + pack(">i", size) + b"abc")


INCOMPRESSIBLE = bytes((n * n * 31 + n // 7) & 0xFF for n in range(100_000))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("part", [0.0, 0.001, 0.3, 0.5, 0.9, 0.9999])
def test_a_cut_stream_is_invalid(codec: Codec, part: float) -> None:
    data = compress(codec, INCOMPRESSIBLE)
    cut = data[: int(len(data) * part)]
    with pytest.raises(InvalidRecordError):
        list(iter_records(batch_of(cut, 3, codec)))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_noise_instead_of_a_stream_is_invalid(codec: Codec) -> None:
    with pytest.raises(InvalidRecordError):
        decompress(codec, b"\x17noise that no codec wrote" * 20)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codec_bits_without_meaning_are_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedCodecError):
        list(iter_records(batch_of(GOOD, 1, codec)))


def test_lz4_frames_that_java_refuses_are_invalid() -> None:
    linked = bytes(cramjam.lz4.compress(bytes(200_000)))
    assert not linked[4] & 0x20
    with pytest.raises(InvalidRecordError):
        decompress(Codec.LZ4, linked)


def test_googles_snappy_framing_is_invalid() -> None:
    with pytest.raises(InvalidRecordError):
        decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress(b"hello kafka" * 100)))


def test_gzip_members_in_a_row_are_one_stream_and_junk_behind_them_is_left() -> None:
    one, two = compress(Codec.GZIP, b"one"), compress(Codec.GZIP, b"two")
    assert decompress(Codec.GZIP, one + two) == b"onetwo"
    assert decompress(Codec.GZIP, one + b"junk") == b"one"


def test_a_gzip_stream_of_endless_tiny_members_is_invalid() -> None:
    with pytest.raises(InvalidRecordError):
        decompress(Codec.GZIP, compress(Codec.GZIP, b"") * 50_000)


def test_xerial_streams_in_a_row_and_bare_blocks_are_read() -> None:
    stream = compress(Codec.SNAPPY, b"one" * 30_000)
    assert decompress(Codec.SNAPPY, stream + stream) == b"one" * 60_000
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"bare"))) == b"bare"


def test_codecs_have_the_names_of_configurations() -> None:
    assert Codec.named("zstd") is Codec.ZSTD
    assert Codec.named("uncompressed") is Codec.NONE
    with pytest.raises(ValueError, match="brotli"):
        Codec.named("brotli")


def test_levels_reach_the_codec() -> None:
    data = b"abcdefgh" * 10_000 + INCOMPRESSIBLE
    for codec in (Codec.GZIP, Codec.ZSTD):
        small, quick = compress(codec, data, level=9), compress(codec, data, level=1)
        assert decompress(codec, small) == decompress(codec, quick) == data


def test_kafkas_own_batches_are_not_bad_inputs() -> None:
    assert len(list(iter_records(vectors.TRANSACTIONAL))) == 3
