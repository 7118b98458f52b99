import json
from typing import Any

import pytest

from tidemark.records.formats import HEX, JSON, RAW, Consumed, Form, line_maker


def record(value: bytes | None, key: bytes | None = b"k", **changes: Any) -> Consumed:
    given = {"timestamp_ms": 1_700_000_000_123, "headers": []} | changes
    return Consumed("orders", 2, 17, given["timestamp_ms"], key, value, given["headers"])


def as_json(form: Form, given: Consumed) -> dict[str, Any]:
    line = line_maker(form)(given)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found: dict[str, Any] = json.loads(line)
    return found


def test_an_object_has_place_time_key_value_and_headers() -> None:
    headers = [("trace", b"7"), ("trace", None), ("bytes", b"\xff")]
    assert as_json(Form(JSON), record(b'{"a": 1}', headers=headers)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 17,
        "timestamp": "2023-11-14T22:13:20.123Z",
        "key": "k",
        "value": '{"a": 1}',
        "headers": [
            {"key": "trace", "value": "7"},
            {"key": "trace", "value": None},
            {"key": "bytes", "value_base64": "/w=="},
        ],
    }


def test_null_stays_null_and_bytes_that_are_no_text_are_base64() -> None:
    found = as_json(Form(JSON), record(None, b"\x00\xff", timestamp_ms=None))
    assert found["value"] is None
    assert found["timestamp"] is None
    assert found["key_base64"] == "AP8="
    assert "key" not in found


def test_a_json_value_is_part_of_the_object_digit_by_digit() -> None:
    value = b'{\n "price": 1.50,\r\n "n": 123456789012345678901234567890}'
    line = line_maker(Form(JSON, is_value_json=True))(record(value))
    assert b'"value":{"price":1.50,"n":123456789012345678901234567890}' in line
    assert as_json(Form(JSON, is_value_json=True), record(b"17"))["value"] == 17


@pytest.mark.parametrize("value", [b"", b'{"x":', b"NaN", b'"\xff"', b"[" * 100_000])
def test_a_value_that_does_not_parse_is_null_and_keeps_its_bytes(value: bytes) -> None:
    found = as_json(Form(JSON, is_value_json=True), record(value))
    assert found["value"] is None
    assert found.keys() & {"value_raw", "value_raw_base64"}


def test_a_null_value_and_the_json_null_have_no_raw_value() -> None:
    for value in (None, b"null"):
        found = as_json(Form(JSON, is_value_json=True), record(value))
        assert found["value"] is None
        assert "value_raw" not in found


@pytest.mark.parametrize(
    ("form", "value", "line"),
    [
        (Form(RAW), b"a\xff\tb", b"a\xff\tb\n"),
        (Form(RAW), None, b"null\n"),
        (Form(RAW), b"", b"\n"),
        (Form(RAW, key_separator=b": "), b"v", b"k: v\n"),
        (Form(HEX), b"a\xff", b"61ff\n"),
        (Form(HEX, key_separator=b"\t"), b"v", b"6b\t76\n"),
        (Form(HEX), None, b"null\n"),
    ],
)
def test_lines_are_the_bytes_or_their_digits(form: Form, value: bytes | None, line: bytes) -> None:
    assert line_maker(form)(record(value)) == line


def test_a_null_key_is_the_word() -> None:
    assert line_maker(Form(RAW, key_separator=b":"))(record(b"v", None)) == b"null:v\n"
