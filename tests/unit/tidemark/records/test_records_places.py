from datetime import UTC, datetime

import pytest

from tidemark.records.places import (
    AtTime,
    Bounds,
    FromEnd,
    Place,
    PlaceError,
    Word,
    datetime_of,
    describe,
    parse_duration_ms,
    parse_place,
    parse_time_ms,
    starts,
)

NOW_MS = 1_800_000_000_000
NOON_MS = 1_769_860_800_000
HELD = {0: Bounds(5, 20), 1: Bounds(0, 3), 2: Bounds(7, 7)}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Word.EARLIEST),
        ("beginning", Word.EARLIEST),
        ("latest", Word.LATEST),
        ("end", Word.LATEST),
        ("0", 0),
        ("103990", 103_990),
        ("end-10", FromEnd(10)),
        ("latest-10", FromEnd(10)),
        ("-10", FromEnd(10)),
        ("2026-01-31T12:00:00Z", AtTime(NOON_MS)),
        ("2026-01-31T13:00:00+01:00", AtTime(NOON_MS)),
        ("2026-01-31T12:00:00.0001Z", AtTime(NOON_MS + 1)),
        ("-2h", AtTime(NOW_MS - 7_200_000)),
        ("-30m", AtTime(NOW_MS - 1_800_000)),
        ("2h", AtTime(NOW_MS - 7_200_000)),
        ("PT2H", AtTime(NOW_MS - 7_200_000)),
        ("-5ms", AtTime(NOW_MS - 5)),
        ("-999999999d", AtTime(0)),
        ("s@1769860800000", AtTime(NOON_MS)),
    ],
)
def test_a_place_is_read(text: str, place: Place) -> None:
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize(
    "text", ["", "yesterday", "end-", "end+1", "-", "-1y", "+5", "٣", "9" * 19, "1e3", "s@"]
)
def test_what_is_no_place_is_told_what_is_allowed(text: str) -> None:
    with pytest.raises(PlaceError, match="allowed is earliest, latest, end-10"):
        parse_place(text, NOW_MS)


def test_times_without_a_zone_are_utc_as_with_kafka() -> None:
    assert parse_place("2026-01-31T12:00:00", NOW_MS) == AtTime(NOON_MS)
    assert parse_time_ms("1970-01-01T00:01:00.500") == 60_500
    assert parse_time_ms("1970-01-01T01:01:00+01:00") == parse_time_ms("1970-01-01T00:01:00Z")
    with pytest.raises(PlaceError, match="must be a time such as"):
        parse_time_ms("yesterday")


@pytest.mark.parametrize(
    ("text", "ms"),
    [("P1DT2H3M4S", 93_784_000), ("PT0S", 0), ("2h", 7_200_000), ("-2h", 7_200_000)],
)
def test_a_duration_is_short_or_that_of_iso_8601(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["P", "PT", "2", "-2", "P1H", "", "+2h"])
def test_what_is_no_duration_is_told_what_is_one(text: str) -> None:
    with pytest.raises(PlaceError, match="must be a duration such as 2h or P7D"):
        parse_duration_ms(text)


def test_a_time_is_a_date_where_calendars_have_it() -> None:
    assert datetime_of(AtTime(NOON_MS)) == datetime(2026, 1, 31, 12, tzinfo=UTC)
    with pytest.raises(PlaceError, match="no time of a calendar"):
        datetime_of(AtTime(10**17))


@pytest.mark.parametrize(
    ("place", "offsets"),
    [
        (Word.EARLIEST, {0: 5, 1: 0, 2: 7}),
        (Word.LATEST, {0: 20, 1: 3, 2: 7}),
        (FromEnd(2), {0: 18, 1: 1, 2: 7}),
        (FromEnd(10), {0: 10, 1: 0, 2: 7}),
        (FromEnd(16), {0: 5, 1: 0, 2: 7}),
        (AtTime(1), {0: 6, 1: 3, 2: 7}),
    ],
)
def test_each_partition_has_a_word_a_distance_and_a_time(
    place: Place, offsets: dict[int, int]
) -> None:
    found = starts("orders", place, HELD, {0: 6})
    assert found.offsets == offsets
    assert found.excluded == {}


def test_a_time_before_deleted_records_begins_with_those_that_are_left() -> None:
    assert starts("orders", AtTime(1), HELD, {0: 2}).offsets[0] == 5


def test_an_offset_is_read_where_it_is_held_and_its_end_is() -> None:
    found = starts("orders", 3, HELD, {})
    assert found.offsets == {1: 3}
    assert found.excluded == {0: Bounds(5, 20), 2: Bounds(7, 7)}
    assert starts("orders", 7, HELD, {}).offsets == {0: 7, 2: 7}


@pytest.mark.parametrize("offset", [4, 21])
def test_an_offset_that_no_partition_holds_is_out_of_range(offset: int) -> None:
    held = {0: Bounds(5, 20), 2: Bounds(7, 7)}
    said = f"offset {offset} is out of range: orders-0 holds 5 to 19, orders-2 is empty at offset 7"
    with pytest.raises(PlaceError, match=said):
        starts("orders", offset, held, {})


def test_of_many_partitions_a_few_are_named() -> None:
    held = {number: Bounds(0, number + 1) for number in range(40)}
    assert describe("orders", held).endswith("orders-4 holds 0 to 4, and 35 more")
