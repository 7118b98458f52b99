"""Values out of batches of the metadata topic, against `iter_records`."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_client.blocking import ClusterError
from kafka_protocol.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from kafka_protocol.records.batch import CODEC_MASK, read_header
from kafka_protocol.records.records import build_batch, iter_records
from pipeline.truth.metadata_topic import values_of

VALUES = (
    st.none()
    | st.binary(max_size=200)
    | st.integers(50, 70).map(bytes)
    | st.integers(8_150, 8_250).map(bytes)
)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 1_000),
        st.none() | st.binary(max_size=3),
        VALUES,
        st.lists(st.tuples(st.just("h"), st.none() | st.just(b"v")), max_size=1),
    ),
    min_size=1,
    max_size=3,
)


@given(RECORDS, st.integers(0, 4), st.binary(max_size=70))
def test_values_are_those_of_all_records(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: int,
    before: bytes,
) -> None:
    data = before + bytes(build_batch(records, base_offset=77, codec=codec))
    header = read_header(data, len(before))
    found = list(values_of(0, memoryview(data), len(before), header))
    assert found == [(77 + n, value) for n, (_, _, value, _) in enumerate(records)]


@given(st.binary(min_size=1, max_size=150), st.data())
def test_a_sole_record_with_changed_bytes_is_read_as_any(value: bytes, data: st.DataObject) -> None:
    batch = build_batch([(1, None, value, [])], base_offset=5)
    place = data.draw(st.integers(61, len(batch) - 1))
    batch[place] = data.draw(st.integers(0, 255))
    header = read_header(batch)
    assert not header.attributes & CODEC_MASK
    try:
        expected = [(record.offset, record.value) for record in iter_records(batch)]
    except (InvalidRecordError, InflatedTooLargeError, UnsupportedCodecError):
        expected = None
    try:
        found = list(values_of(0, batch, 0, header))
    except ClusterError:
        found = None
    assert found == expected
