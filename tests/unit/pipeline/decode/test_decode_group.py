"""What a reader of groups relies on, case by case; random ones are in tests/property."""

from functools import partial

import pyarrow as pa
import pytest

from kafka_protocol.records.batch import write_crc
from kafka_protocol.records.control import ControlType, end_transaction_batch
from kafka_protocol.records.records import Record, build_batch
from kafka_protocol.types import EpochEntry
from pipeline.aborted import AbortedRange, AbortedRanges
from pipeline.columns import DEFAULT_COLUMNS, TYPES
from pipeline.decode import pieces
from pipeline.decode.asked import AbortedLookup
from pipeline.decode.group import Keep, Origin, decode_group, whole_batches
from pipeline.errors import DamagedDataError, OptionError

ORIGIN = Origin("orders", 3, "orders-3/segment.log", 4096)
ALL = Keep(0, 1 << 62)
TIME = 1_700_000_000_000


def batch_of(count: int, base: int = 0, value: bytes = b"value", **options: object) -> bytes:
    made = [(TIME + index, b"key", value, ()) for index in range(count)]
    return bytes(build_batch(made, base_offset=base, **options))  # type: ignore[arg-type]


def table_of(data: bytes, keep: Keep = ALL, columns: tuple[str, ...] = DEFAULT_COLUMNS) -> pa.Table:
    return pa.Table.from_batches(decode_group(data, ORIGIN, keep, columns))


def offsets_of(data: bytes, keep: Keep = ALL) -> list[int]:
    found = decode_group(data, ORIGIN, keep, ["offset"])
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def refusal_of(data: bytes, keep: Keep = ALL, columns: tuple[str, ...] = ("offset",)) -> str:
    with pytest.raises(DamagedDataError) as caught:
        list(decode_group(data, ORIGIN, keep, columns))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_columns_have_exactly_the_types_of_sparks_source() -> None:
    table = table_of(batch_of(2), columns=tuple(TYPES))
    assert {field.name: field.type for field in table.schema} == TYPES
    assert table.column("headers").to_pylist() == [None, None]
    assert table.column("timestamp").cast("int64").to_pylist() == [TIME * 1000, TIME * 1000 + 1000]


def test_nothing_gives_no_batch_of_rows() -> None:
    assert list(decode_group(b"", ORIGIN, ALL, ["offset"])) == []
    assert list(decode_group(batch_of(3), ORIGIN, Keep(3, 9), ["value"])) == []


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(OptionError, match="there is no column 'vlaue'"):
        list(decode_group(b"", ORIGIN, ALL, ["vlaue"]))


def test_rows_at_the_edges_are_cut_off() -> None:
    data = batch_of(5) + batch_of(5, 5) + batch_of(5, 10)
    assert offsets_of(data, Keep(3, 11)) == list(range(3, 12))


def test_markers_and_aborted_transactions_leave_gaps() -> None:
    marker = end_transaction_batch(
        ControlType.ABORT,
        base_offset=6,
        leader_epoch=0,
        timestamp_ms=TIME,
        producer_id=9,
        producer_epoch=0,
        coordinator_epoch=0,
    )
    data = batch_of(2) + batch_of(2, 2, producer_id=9, is_transactional=True)
    data += batch_of(2, 4, producer_id=8, is_transactional=True) + bytes(marker)
    data += batch_of(1, 7, producer_id=9, is_transactional=True)
    aborted = AbortedLookup(AbortedRanges.of([AbortedRange(9, 2, 6)]))
    assert offsets_of(data) == [0, 1, 2, 3, 4, 5, 7]
    assert offsets_of(data, Keep(0, 99, aborted)) == [0, 1, 4, 5, 7]


def test_a_batch_that_compaction_emptied_is_no_damage() -> None:
    assert offsets_of(batch_of(0) + batch_of(2, 1)) == [1, 2]


def test_holes_of_compaction_stay_holes() -> None:
    made = [Record(offset, TIME, None, b"v", []) for offset in (10, 13, 90)]
    assert offsets_of(bytes(build_batch(made, base_offset=10))) == [10, 13, 90]


def test_the_brokers_time_holds_for_all_records() -> None:
    table = table_of(batch_of(2, log_append_time_ms=5) + batch_of(1, 2))
    assert table.column("timestampType").to_pylist() == [1, 1, 0]
    assert table.column("timestamp").cast("int64").to_pylist() == [5000, 5000, TIME * 1000]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_what_inflates_hugely_comes_in_bounded_pieces(codec: int) -> None:
    data = b"".join(batch_of(10, 10 * n, b"\0" * 10_000, codec=codec) for n in range(20))
    found = list(decode_group(data, ORIGIN, ALL, ["value"], batch_bytes=250_000))
    assert [one.num_rows for one in found] == [20] * 10
    assert max(one.nbytes for one in found) < 250_000


def test_header_names_that_are_no_text_look_as_in_javas_client() -> None:
    made = bytes(build_batch([(TIME, None, None, [("name??", b"x"), ("fine", None)])]))
    for stored, text in (
        (b"name\xff\xfe", "name\ufffd\ufffd"),
        (b"na\xed\xa0\x80\xed", "na\ufffd\ufffd"),  # a surrogate is one character there
        (b"\xe2\x82\xac\xe2\x82a", "€\ufffda"),
    ):
        data = bytearray(made.replace(b"name??", stored))
        write_crc(data, 0, len(data))
        table = table_of(bytes(data), columns=("headers",))
        assert table.column("headers").to_pylist() == [
            [{"key": text, "value": b"x"}, {"key": "fine", "value": None}]
        ]


def test_a_record_of_very_many_headers_is_read_like_any_other() -> None:
    headers = [(f"n{index}", None if index % 3 else b"v" * index) for index in range(300)]
    made = [(TIME, None, b"a", headers), (TIME, None, b"b", []), (TIME, None, b"c", headers[:70])]
    table = table_of(bytes(build_batch(made)), columns=("headers", "value"))
    wanted = [[{"key": name, "value": value} for name, value in one[3]] or None for one in made]
    assert table.column("headers").to_pylist() == wanted


def test_a_claimed_number_of_headers_takes_no_memory() -> None:
    data = bytearray(build_batch([(TIME, None, None, [("a", b"b")])]))
    data[-5] = 0x7E  # 63 headers
    write_crc(data, 0, len(data))
    assert "63 headers do not fit in 4 bytes" in refusal_of(bytes(data))


def test_a_claimed_number_of_records_takes_no_memory() -> None:
    data = bytearray(batch_of(1))
    data[57:61] = b"\x7f\xff\xff\xff"
    write_crc(data, 0, len(data))
    assert "a record is cut or malformed" in refusal_of(bytes(data))


def test_damage_names_object_position_offset_and_reason() -> None:
    good, bad = batch_of(4), bytearray(batch_of(4, 4))
    bad[-1] ^= 1
    said = refusal_of(good + bytes(bad))
    assert f"orders-3/segment.log: the batch at byte {4096 + len(good)} with base offset 4" in said
    assert "of orders-3 is damaged: its CRC-32C is 0x" in said


def test_damage_under_a_right_checksum_is_reported_as_by_the_exact_decoder() -> None:
    good, bad = batch_of(4), bytearray(batch_of(4, 4))
    bad[61] += 2  # the first record's length
    write_crc(bad, 0, len(bad))
    said = refusal_of(good + bytes(bad) + batch_of(1, 8))
    assert f"byte {4096 + len(good)} with base offset 4" in said
    assert "a record's length is not that of its fields" in said


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (8, b"\x00\x00\x00\x01", "its length is 1 bytes"),
        (8, b"\x7f\xff\xff\xff", "its length is 2147483647 bytes"),
        (16, b"\x01", "its magic is 1, not 2"),
        (0, b"\xff" * 8, "its offsets are -1 to 0"),
        (0, b"\x7f" + b"\xff" * 7, "its offsets are 9223372036854775807 to"),
        (0, bytes(8), "it follows a batch that ends at offset 1"),
        (12, b"\x00\x00\x00\x05", "it is of leader epoch 5, the log's is 7 there"),
    ],
)
def test_a_header_that_cannot_be_is_damage(place: int, value: bytes, reason: str) -> None:
    bad = bytearray(batch_of(2, 2, leader_epoch=7))
    bad[place : place + len(value)] = value
    write_crc(bad, 0, len(bad))
    keep = Keep(0, 99, epochs=(EpochEntry(6, 0), EpochEntry(7, 2)))
    assert reason in refusal_of(batch_of(2, leader_epoch=6) + bytes(bad), keep)


def test_an_offset_outside_its_batch_is_damage() -> None:
    data = bytearray(batch_of(3))
    data[23:27] = bytes(4)  # the last offset delta
    write_crc(data, 0, len(data))
    assert "an offset outside the batch's own range" in refusal_of(bytes(data))


def test_offsets_that_do_not_rise_are_damage() -> None:
    made = [Record(offset, TIME, None, None, []) for offset in (1, 0)]
    data = bytearray(build_batch(made))
    data[23:27] = (1).to_bytes(4, "big")
    write_crc(data, 0, len(data))
    assert "offsets that do not rise" in refusal_of(bytes(data))


def test_a_time_without_microseconds_is_refused_by_whoever_asks_for_it() -> None:
    data = bytes(build_batch([(1 << 60, None, b"v", ())]))
    assert "without the column `timestamp`" in refusal_of(data, columns=("timestamp",))
    assert offsets_of(data) == [0]


def test_damage_outside_the_wanted_offsets_is_found_by_the_checksum() -> None:
    bad = bytearray(batch_of(4))
    bad[-1] ^= 1
    assert "CRC-32C" in refusal_of(bytes(bad) + batch_of(1, 4), Keep(4, 4))


def test_records_that_do_not_inflate_are_damage() -> None:
    data = bytearray(batch_of(4, codec=4))
    data[-4:] = b"\xff" * 4
    write_crc(data, 0, len(data))
    assert "zstd" in refusal_of(bytes(data))
    unknown = bytearray(batch_of(1))
    unknown[22] |= 6
    write_crc(unknown, 0, len(unknown))
    assert "unknown compression codec 6" in refusal_of(bytes(unknown))


def test_a_batch_that_inflates_to_too_much_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "decompress", partial(pieces.decompress, max_bytes=9_000))
    data = batch_of(4, 0, b"\0" * 2_000, codec=4)
    assert offsets_of(data) == [0, 1, 2, 3]
    assert "9000" in refusal_of(data + batch_of(5, 4, b"\0" * 2_000, codec=4))


def test_whole_batches_end_where_the_next_one_is_cut() -> None:
    first, second = batch_of(2), batch_of(3, 2)
    data = first + second
    assert whole_batches(data) == len(data)
    assert whole_batches(data[:-1]) == len(first)
    assert whole_batches(data[: len(first) + 60]) == len(first)
    assert whole_batches(first[:-1]) == 0


def test_a_length_that_no_batch_has_is_left_to_the_decoder() -> None:
    hostile = bytearray(batch_of(3, 2))
    hostile[8:12] = bytes(4)
    data = batch_of(2) + bytes(hostile)
    assert whole_batches(data) == len(data)
    assert "its length is 0 bytes" in refusal_of(data)
