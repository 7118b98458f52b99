import json
from typing import Any

import pyarrow as pa

from pipeline.columns import TYPES, schema_of
from pipeline.dump.jsonl import lines_of


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {name: [value] for name, value in columns.items()}, schema=schema_of(tuple(columns))
    )


def line(**columns: Any) -> dict[str, Any]:
    data = lines_of(batch(**columns))
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    found: dict[str, Any] = json.loads(data)
    return found


def test_text_is_text_and_other_bytes_have_another_name() -> None:
    assert line(key="schlüssel\n".encode(), value=b"\xff\x00") == {
        "key": "schlüssel\n",
        "value_base64": "/wA=",
    }
    assert line(key=None, value=b"") == {"key": None, "value": ""}


def test_times_have_milliseconds_and_a_zone() -> None:
    assert line(timestamp=1_700_000_000_123_000) == {"timestamp": "2023-11-14T22:13:20.123Z"}
    assert line(timestamp=-1_000) == {"timestamp": "1969-12-31T23:59:59.999Z"}
    assert line(timestamp=None) == {"timestamp": None}


def test_a_time_behind_the_last_year_is_a_number_of_milliseconds() -> None:
    assert line(timestamp=(1 << 62) // 1_000 * 1_000) == {"timestamp_ms": (1 << 62) // 1_000}


def test_headers_may_repeat_and_hold_any_bytes() -> None:
    headers = [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": None},
        {"key": "b", "value": b"\xfe"},
    ]
    assert line(headers=headers)["headers"] == [
        {"key": "a", "value": "1"},
        {"key": "a", "value": None},
        {"key": "b", "value_base64": "/g=="},
    ]
    assert line(headers=None) == {"headers": None}


def test_every_column_can_be_written_in_any_order() -> None:
    names = tuple(reversed(TYPES))
    empty = pa.RecordBatch.from_pydict({name: [None] for name in names}, schema=schema_of(names))
    assert list(json.loads(lines_of(empty))) == list(names)
    assert lines_of(empty.slice(0, 0)) == b""
