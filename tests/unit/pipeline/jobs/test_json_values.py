"""Values decoded from JSON; what does not parse keeps its bytes."""

import datetime
import decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pipeline.errors import OptionError
from pipeline.jobs.json_values import JsonValues

KIND = pa.struct(
    [
        ("id", pa.int32()),
        ("price", pa.decimal128(5, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.struct([("name", pa.string())]))),
        ("ok", pa.bool_()),
        ("x", pa.float64()),
    ]
)


def decoded(*values: bytes | None) -> list[tuple[Any, bytes | None]]:
    stored = pa.record_batch(
        {"value": pa.array(values, pa.binary()), "offset": list(range(len(values)))}
    )
    batch = JsonValues(KIND)(stored)
    assert batch.schema.names == ["value", "value_raw", "offset"]
    assert batch.schema.field("value").type == KIND
    pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    return list(pairs)


def test_every_type_is_read() -> None:
    text = (
        b'{"id": 7, "price": "1.25", "at": "2026-01-01T01:00:00+01:00", "day": "2026-01-02",'
        b' "tags": [{"name": "a"}, null], "ok": true, "x": 1, "more": {}}'
    )
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    row = {
        "id": 7, "price": decimal.Decimal("1.25"), "at": at, "day": datetime.date(2026, 1, 2),
        "tags": [{"name": "a"}, None], "ok": True, "x": 1.0,
    }  # fmt: skip
    assert decoded(text) == [(row, None)]


def test_a_missing_field_is_null_and_a_tombstone_stays_one() -> None:
    nothing = dict.fromkeys(KIND.names)
    assert decoded(b"{}", None) == [(nothing, None), (None, None)]


@pytest.mark.parametrize(
    "value",
    [
        b"", b"null", b"[1]", b"{", b'{"id": 1} {"id": 2}', b'{"id": 1}\n{"id": 2}',
        b'{"id": 2147483648}', b'{"id": "7"}', b'{"id": 1.5}', b'{"at": "2026-01-01T00:00:00"}',
        b'{"price": "123456.123"}', b'{"ok": 1}', b"\xff\xfe", b'{"tags": [{"name": "\xff"}]}',
    ],
)  # fmt: skip
def test_a_value_that_does_not_parse_costs_itself_alone(value: bytes) -> None:
    good = b'{"id": 1}'
    first, bad, last = decoded(good, value, good)
    assert bad == (None, value)
    assert first == last
    assert first[0] is not None


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many values each call of `pa.array` took."""
    found: list[int] = []
    real = pa.array

    def counting(values: Any, *args: Any) -> Any:
        found.append(len(values))
        return real(values, *args)

    monkeypatch.setattr(pa, "array", counting)
    return found


@pytest.mark.parametrize("at", [0, 511, 700, 1023])
def test_a_value_that_does_not_fit_does_not_make_a_batch_go_row_by_row(
    converted: list[int], at: int
) -> None:
    values: list[bytes | None] = [b'{"id": 1}'] * 1024
    values[at] = b'{"price": "123456.123"}'
    found = decoded(*values)
    assert [place for place, (_, raw) in enumerate(found) if raw is not None] == [at]
    assert [place for place, (value, _) in enumerate(found) if value is None] == [at]
    assert len(converted) < 30


@pytest.mark.parametrize("seed", range(5))
def test_wherever_values_do_not_fit_the_others_stay_where_they_are(seed: int) -> None:
    random = Random(seed)
    choices = [b'{"price": "123456.123"}', b'{"id": %d}', b"{", None]
    values = [random.choice(choices) for _ in range(random.randint(0, 40))]
    values = [one % place if one and b"%" in one else one for place, one in enumerate(values)]
    for place, (value, (row, raw)) in enumerate(zip(values, decoded(*values), strict=True)):
        is_good = value is not None and b"id" in value
        assert (row or {}).get("id") == (place if is_good else None)
        assert raw == (None if is_good else value)


def test_a_type_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(OptionError, match=r"value\.m of the JSON schema is of type map"):
        JsonValues(pa.struct([("m", pa.map_(pa.string(), pa.string()))]))
