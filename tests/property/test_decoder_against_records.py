"""The columnar decoder gives the rows of `iter_records`, and refuses what that refuses.

Where it is stricter (offsets outside the batch or not rising, lengths below -1, timestamps that
have no microseconds), this says so by hand.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kafka_protocol.errors import (
    InflatedTooLargeError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from kafka_protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    iter_batches,
    pack_header,
    read_header,
    write_crc,
)
from kafka_protocol.records.compression import compress
from kafka_protocol.records.records import Record, build_batch, iter_records
from kafka_protocol.wire.primitives import encode_zigzag
from pipeline.aborted import AbortedRange, AbortedRanges
from pipeline.columns import TYPES
from pipeline.decode import fields, lanes, rows
from pipeline.decode.asked import AbortedLookup
from pipeline.decode.group import Keep, Origin, decode_group, whole_batches
from pipeline.errors import DamagedDataError

pytestmark = [pytest.mark.lasts(seconds=12), pytest.mark.lasts(seconds=20)]

ORIGIN = Origin("orders", 7, "some object", 1000)
NOTHING = AbortedRanges()
MS_MAX = (2**63 - 1) // 1000
NOT_IN_RECORDS = ("of a length below -1", "a header's value of a length below -1")


class Refused(Exception):  # what the twin finds wrong
    pass


def rows_of_batch(data: bytes, position: int) -> list[dict[str, Any]]:
    header = read_header(data, position)
    found: list[dict[str, Any]] = []
    previous = header.base_offset - 1
    try:
        records = list(iter_records(data, position))
    except (InvalidRecordError, InflatedTooLargeError, UnsupportedCodecError) as error:
        raise Refused(str(error)) from error
    for record in records:
        if not previous < record.offset <= header.last_offset:
            raise Refused("offsets")
        previous = record.offset
        found.append(
            {
                "key": record.key,
                "value": record.value,
                "topic": ORIGIN.topic,
                "partition": ORIGIN.partition,
                "offset": record.offset,
                "timestamp": record.timestamp * 1000,
                "timestampType": int(header.is_log_append_time),
                "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
            }
        )
    return found


def is_beyond(found: list[dict[str, Any]], header: BatchHeader) -> bool:
    """Whether a time has no microseconds; a delta or a base that has none is enough."""
    parts = [row["timestamp"] // 1000 for row in found]
    if found and not header.is_log_append_time:
        parts += [header.base_timestamp, *(time - header.base_timestamp for time in parts)]
    return any(abs(part) > MS_MAX for part in parts)


def is_aborted(header: BatchHeader, aborted: AbortedRanges) -> bool:
    return header.is_transactional and any(
        one.producer_id == header.producer_id
        and one.first_offset <= header.last_offset
        and header.base_offset <= one.last_offset
        for one in aborted
    )


def rows_by_twin(data: bytes, keep: Keep, aborted: AbortedRanges = NOTHING) -> list[dict[str, Any]]:
    """Rows of whole batches whose headers are fine, one by one."""
    found: list[dict[str, Any]] = []
    for position, header in iter_batches(data):
        outside = header.last_offset < keep.first or header.base_offset > keep.last
        if header.is_control or outside or is_aborted(header, aborted):
            continue
        every = rows_of_batch(data, position)
        kept = [row for row in every if keep.first <= row["offset"] <= keep.last]
        if is_beyond(kept, header):
            raise Refused("timestamp")
        found += kept
    return found


def rows_by_decoder(
    data: bytes, keep: Keep, columns: tuple[str, ...] = tuple(TYPES), batch_bytes: int = 8 << 20
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for batch in decode_group(data, ORIGIN, keep, columns, batch_bytes=batch_bytes):
        batch.validate(full=True)
        assert batch.num_rows > 0
        assert batch.schema.names == list(columns)
        if "timestamp" in columns:
            index = columns.index("timestamp")
            numbers = batch.column(index).cast("int64")
            batch = batch.set_column(index, "timestamp", numbers)
        found += batch.to_pylist()
    return found


@dataclass
class Drawn:
    """Batches one behind the other, and where each begins."""

    data: bytearray = field(default_factory=bytearray)
    positions: list[int] = field(default_factory=list)

    def add(self, batch: bytearray) -> None:
        self.positions.append(len(self.data))
        self.data += batch


nullable = st.none() | st.binary(max_size=8) | st.sampled_from([b"x" * 70, b"y" * 9000])
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
headers = st.lists(st.tuples(names, nullable), max_size=3)
gaps = st.sampled_from([1, 1, 1, 1, 2, 100, 10_000])
common_times = st.sampled_from([1_700_000_000_000, 1_700_000_000_001, 1_700_000_009_999, -1, 0])
extreme_times = st.sampled_from([1 << 45, MS_MAX, MS_MAX + 1, -MS_MAX, -(1 << 63)])
times = st.one_of(*[common_times] * 30, extreme_times)
patterns = st.lists(st.tuples(gaps, times, nullable, nullable, headers), max_size=5)
codecs = st.sampled_from(Codec)


@st.composite
def good_batches(draw: st.DrawFn) -> Drawn:
    drawn = Drawn()
    offset = draw(st.sampled_from([0, 5, 1 << 40]))
    for _ in range(draw(st.integers(0, 6))):
        placed: list[Record] = []
        base = offset
        for gap, *record in draw(patterns) * draw(st.sampled_from([1, 1, 1, 40])):
            placed.append(Record(offset, *record))
            offset += gap
        drawn.add(
            build_batch(
                placed,
                base_offset=base,
                leader_epoch=4,
                codec=draw(codecs),
                producer_id=draw(st.sampled_from([-1, 1, 2])),
                is_transactional=draw(st.booleans()),
                is_control=draw(st.sampled_from([False, False, False, True])),
                log_append_time_ms=draw(st.none() | times),
            )
        )
        offset = max(offset, base + 1)
    return drawn


@st.composite
def keeps(draw: st.DrawFn) -> Keep:
    first = draw(st.sampled_from([0, 0, 3, 30, 5000]))
    last = draw(st.sampled_from([10, 100, 20_000, 1 << 62, 1 << 62]))
    return Keep(first, last)


@st.composite
def aborted_ones(draw: st.DrawFn) -> AbortedRanges:
    told = draw(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 40), gaps), max_size=3))
    return AbortedRanges.of(AbortedRange(who, first, first + size) for who, first, size in told)


def check(
    data: bytes, keep: Keep, batch_bytes: int = 8 << 20, aborted: AbortedRanges = NOTHING
) -> None:
    """Both say the same of batches whose headers are fine."""
    keep = replace(keep, aborted=AbortedLookup(aborted))
    try:
        wanted = rows_by_twin(data, keep, aborted)
    except Refused as refused:
        event("refused")
        if isinstance(getattr(refused.__cause__, "__cause__", None), UnicodeDecodeError):
            return  # such names are replaced here; the text of them has a test of its own
        with pytest.raises(DamagedDataError, match="some object"):
            rows_by_decoder(data, keep, batch_bytes=batch_bytes)
        return
    refusal = None
    try:
        found = rows_by_decoder(data, keep, batch_bytes=batch_bytes)
    except DamagedDataError as error:
        refusal = str(error)
    if refusal is not None:
        event("stricter")
        assert any(one in refusal for one in NOT_IN_RECORDS), refusal
        return
    event("taken")
    assert found == wanted


@given(good_batches(), keeps(), aborted_ones(), st.sampled_from([1, 200, 8 << 20]))
@settings(deadline=None)
def test_rows_are_those_of_the_records(
    drawn: Drawn, keep: Keep, aborted: AbortedRanges, batch_bytes: int
) -> None:
    check(bytes(drawn.data), keep, batch_bytes, aborted)


@given(good_batches(), st.integers(1, 4), st.integers(1, 9))
@settings(deadline=None)
def test_rows_do_not_depend_on_the_length_of_vectors(
    drawn: Drawn, chunk_rows: int, rows_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fields, "CHUNK_ROWS", chunk_rows)
        patch.setattr(rows, "ROWS_MAX", rows_max)
        patch.setattr(lanes, "ROWS_MIN", chunk_rows)
        check(bytes(drawn.data), Keep(0, 1 << 62))


@given(good_batches(), keeps(), st.lists(st.sampled_from(tuple(TYPES)), unique=True, min_size=1))
@settings(deadline=None)
def test_fewer_columns_are_the_same_rows(drawn: Drawn, keep: Keep, columns: list[str]) -> None:
    data = bytes(drawn.data)
    try:
        wanted = rows_by_twin(data, keep)
    except Refused:
        return
    found = rows_by_decoder(data, keep, tuple(columns))
    assert found == [{name: row[name] for name in columns} for row in wanted]


@given(good_batches(), st.data())
@settings(deadline=None)
def test_bytes_that_changed_under_a_right_checksum(drawn: Drawn, data: st.DataObject) -> None:
    """Behind the checksum anything may stand: the headers' own fields are left as they are."""
    stored = drawn.data
    for position, header in list(iter_batches(bytes(stored))):
        for _ in range(data.draw(st.integers(0, 2))):
            if header.size_bytes > HEADER_SIZE:
                at = data.draw(
                    st.integers(position + HEADER_SIZE, position + header.size_bytes - 1)
                )
                stored[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | byte)
        write_crc(memoryview(stored)[position:], 0, header.size_bytes)
    check(bytes(stored), Keep(0, 1 << 62))


@given(good_batches(), st.data())
@settings(deadline=None)
def test_headers_that_changed_under_a_right_checksum_never_give_other_rows(
    drawn: Drawn, data: st.DataObject
) -> None:
    stored = drawn.data
    for position, header in list(iter_batches(bytes(stored))):
        if data.draw(st.booleans()):
            at = position + data.draw(st.integers(16, HEADER_SIZE - 1) | st.just(HEADER_SIZE - 1))
            stored[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | byte)
        write_crc(memoryview(stored)[position:], 0, header.size_bytes)
    keep = Keep(0, 1 << 62)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "ROWS_MIN", 1)
        try:
            found = rows_by_decoder(bytes(stored), keep)
        except DamagedDataError:
            return
    cause, wanted = None, None
    try:
        wanted = rows_by_twin(bytes(stored), keep)
    except Refused as refused:
        cause = getattr(refused.__cause__, "__cause__", None)
    # names that are no text are replaced here, and have a test of their own
    assert found == wanted or isinstance(cause, UnicodeDecodeError)


byte = st.integers(0, 255)
small = st.integers(-3, 12)
odd = small | st.sampled_from([63, 64, 8191, 8192, 1 << 31, (1 << 34) - 1, -(1 << 34)])


@st.composite
def varints(draw: st.DrawFn, value: int) -> bytes:
    """A zigzag varint, at times longer than it must be."""
    encoded = bytearray(encode_zigzag(value))
    if draw(st.integers(0, 9)) == 0:
        for _ in range(draw(st.integers(1, 5))):
            encoded[-1] |= 0x80
            encoded.append(0)
    return bytes(encoded)


@st.composite
def byte_strings(draw: st.DrawFn) -> bytes:
    content = draw(st.none() | st.binary(max_size=70))
    length = -1 if content is None else len(content)
    if draw(st.integers(0, 49)) == 0:
        length = draw(odd)
    return draw(varints(length)) + (content or b"")


@st.composite
def odd_records(draw: st.DrawFn, offset_delta: int) -> bytes:
    """A record by hand: most numbers fit, a few do not."""
    if draw(st.integers(0, 49)) == 0:
        offset_delta = draw(odd)
    time_delta = draw(small)
    if draw(st.integers(0, 49)) == 0:
        time_delta = draw(st.sampled_from([1 << 62, -(1 << 63), (1 << 69) - 1, MS_MAX]))
    body = bytes([draw(byte)]) + draw(varints(time_delta)) + draw(varints(offset_delta))
    body += draw(byte_strings()) + draw(byte_strings())
    count = draw(st.sampled_from([0, 0, 0, 1, 2]))
    claimed = draw(odd) if draw(st.integers(0, 49)) == 0 else count
    body += draw(varints(claimed))
    for _ in range(count):
        name = draw(names).encode()
        body += draw(varints(len(name))) + name + draw(byte_strings())
    length = len(body)
    if draw(st.integers(0, 49)) == 0:
        length += draw(st.integers(-2, 2))
    return draw(varints(length)) + body


@st.composite
def odd_batches(draw: st.DrawFn) -> bytes:
    found = bytearray()
    offset = 0
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(0, 5))
        body = b"".join(draw(odd_records(index)) for index in range(count))
        claimed = count
        if draw(st.integers(0, 9)) == 0:
            body += draw(st.binary(max_size=3))
            claimed = draw(st.sampled_from([count, max(count - 1, 0), count + 1, 1 << 30]))
        codec = draw(codecs)
        packed = compress(codec, body)
        last = draw(st.sampled_from([count, count, count, 9000]))
        header = BatchHeader(
            base_offset=offset,
            batch_length=HEADER_SIZE - 12 + len(packed),
            partition_leader_epoch=0,
            magic=2,
            crc=0,
            attributes=codec | draw(st.sampled_from([0, 8])),
            last_offset_delta=last,
            base_timestamp=draw(times),
            max_timestamp=draw(times),
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=claimed,
        )
        batch = bytearray(pack_header(header) + packed)
        write_crc(batch, 0, len(batch))
        found += batch
        offset += last + 1
    return bytes(found)


@given(odd_batches())
@settings(deadline=None, max_examples=200)
def test_odd_records_are_taken_and_refused_alike(data: bytes) -> None:
    check(data, Keep(0, 1 << 62))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "ROWS_MIN", 1)
        check(data, Keep(0, 1 << 62))


@given(good_batches(), st.data())
@settings(deadline=None)
def test_noise_without_a_right_checksum_is_always_seen(drawn: Drawn, data: st.DataObject) -> None:
    if not drawn.positions:
        return
    stored = bytearray(drawn.data)
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    start = max(position for position in drawn.positions if position <= at)
    epoch_or_offset = at - start < 8 or 12 <= at - start < 16
    refusal = None
    try:
        rows_by_decoder(bytes(stored), Keep(0, 1 << 62))
    except DamagedDataError as error:
        refusal = str(error)
    assert epoch_or_offset or f"byte {1000 + start} " in str(refusal)


@given(good_batches(), st.data())
@settings(deadline=None)
def test_a_cut_is_found_and_the_batches_before_it_are_read(
    drawn: Drawn, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(drawn.data)))
    stored = bytes(drawn.data[:cut])
    whole = whole_batches(stored)
    assert whole == max(
        (one for one in (*drawn.positions, len(drawn.data)) if one <= cut), default=0
    )
    check(stored[:whole], Keep(0, 1 << 62))
    if whole < cut:
        with pytest.raises(DamagedDataError, match=f"byte {1000 + whole} "):
            rows_by_decoder(stored, Keep(0, 1 << 62))
