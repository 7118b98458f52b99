"""Record batches and codecs under random records, cuts and noise."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_protocol.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from kafka_protocol.records.batch import (
    Codec,
    has_valid_crc,
    patch_offset_and_epoch,
    read_header,
    write_crc,
)
from kafka_protocol.records.compression import compress, decompress
from kafka_protocol.records.records import Record, build_batch, iter_records
from kafka_protocol.wire.primitives import (
    encode_uvarint,
    encode_zigzag,
    read_uvarint,
    read_zigzag,
    uuid_from_text,
    uuid_to_text,
)

REFUSED = (InvalidRecordError, InflatedTooLargeError, UnsupportedCodecError)

nullable = st.none() | st.binary(max_size=300)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
records = st.lists(
    st.tuples(
        st.integers(-1, 1 << 45),
        nullable,
        nullable,
        st.lists(st.tuples(names, nullable), max_size=4),
    ),
    max_size=12,
)
codecs = st.sampled_from(Codec)


@given(records, codecs, st.integers(0, 1 << 62), st.integers(-1, 1 << 30))
@settings(deadline=None)
def test_records_come_out_as_they_went_in(
    given_records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    base_offset: int,
    epoch: int,
) -> None:
    batch = build_batch(given_records, codec=codec)
    patch_offset_and_epoch(batch, 0, base_offset, epoch)
    header = read_header(batch)
    assert has_valid_crc(batch, 0, header)
    assert header.size_bytes == len(batch)
    expected = [Record(base_offset + n, *record) for n, record in enumerate(given_records)]
    assert list(iter_records(b"xy" + batch, 2)) == expected


@given(records, codecs, st.data())
@settings(deadline=None)
def test_a_changed_batch_is_read_or_refused_and_nothing_else(
    given_records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    data: st.DataObject,
) -> None:
    batch = build_batch(given_records, codec=codec)
    for _ in range(3):
        place = data.draw(st.integers(12, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    write_crc(batch, 0, len(batch))
    with suppress(*REFUSED):
        found = list(iter_records(batch, max_inflated_bytes=1 << 20))
        assert len(found) == read_header(batch).record_count


@given(codecs, st.binary(max_size=5000), st.integers(1, 50))
@settings(deadline=None)
def test_compression_is_undone_and_capped(codec: Codec, data: bytes, times: int) -> None:
    packed = compress(codec, data * times)
    assert decompress(codec, packed, max_bytes=len(data) * times) == data * times
    if codec is not Codec.NONE and data:
        with pytest.raises(InflatedTooLargeError):
            decompress(codec, packed, max_bytes=len(data) * times - 1)


@given(codecs, st.binary(max_size=500), st.data())
@settings(deadline=None)
def test_damaged_streams_inflate_or_are_refused(
    codec: Codec, original: bytes, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, original))
    cut = data.draw(st.integers(0, len(packed)))
    del packed[cut:]
    if packed:
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(0, 255))
    with suppress(*REFUSED):
        assert len(decompress(codec, packed, max_bytes=1 << 20)) <= 1 << 20


@given(st.integers(0, (1 << 35) - 1))
def test_varints_come_out_as_they_went_in(value: int) -> None:
    encoded = encode_uvarint(value)
    assert read_uvarint(b"\xff" + encoded, 1) == (value, 1 + len(encoded))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varlongs_come_out_as_they_went_in(value: int) -> None:
    encoded = encode_zigzag(value)
    assert len(encoded) <= 10
    assert read_zigzag(encoded, 0, 10) == (value, len(encoded))


@given(st.binary(min_size=16, max_size=16))
def test_uuids_come_out_as_they_went_in(value: bytes) -> None:
    text = uuid_to_text(value)
    assert len(text) == 22
    assert uuid_from_text(text) == value
