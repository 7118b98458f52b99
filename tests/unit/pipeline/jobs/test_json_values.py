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
        ("y", pa.float32()),
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
        b' "tags": [{"name": "a"}, null], "ok": true, "x": 1, "y": 0.5, "more": {}}'
    )
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    row = {
        "id": 7, "price": decimal.Decimal("1.25"), "at": at, "day": datetime.date(2026, 1, 2),
        "tags": [{"name": "a"}, None], "ok": True, "x": 1.0, "y": 0.5,
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
        b'{"at": "0001-01-01T00:00:00+23:00"}', b'{"at": "9999-12-31T23:59:59-00:01"}',
        b'{"y": 1e300}', b'{"y": -3.4028236e38}', b'{"x": 1e400}',
        b'{"more": ' + b"[" * 1_200 + b"]" * 1_200 + b"}",
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


@pytest.mark.parametrize(
    "price",
    [
        "1E-10000000", "1E+10000000", "-1E+999999999999999999", "1.005", "1000", '"NaN"',
        '"sNaN"', '"-Infinity"', "1" * 100, "0." + "0" * 100 + "1",
    ],
)  # fmt: skip
def test_a_decimal_that_does_not_fit_keeps_its_bytes(price: str) -> None:
    """Arrow itself ends the process at an exponent of some millions."""
    bad = b'{"price": %s}' % price.encode()
    assert decoded(bad, b'{"price": 1.5}')[0] == (None, bad)


@pytest.mark.parametrize(
    ("price", "wanted"),
    [
        ("0E-10000000", "0.00"), ("0E+10000000", "0.00"), ("1.50" + "0" * 100, "1.50"),
        ("1E+2", "100.00"), ("-999.99", "-999.99"), ('"1e-2"', "0.01"),
    ],
)  # fmt: skip
def test_a_decimal_that_fits_is_kept_however_it_is_written(price: str, wanted: str) -> None:
    ((value, raw),) = decoded(b'{"price": %s}' % price.encode())
    assert isinstance(value, dict)
    assert (value["price"], raw) == (decimal.Decimal(wanted), None)


def test_floats_round_as_readers_of_json_do() -> None:
    text = b'{"x": 9007199254740993, "y": 3.4028235677973362e38}'  # just below what is infinite
    ((value, raw),) = decoded(text)
    assert isinstance(value, dict)
    assert (value["x"], value["y"], raw) == (9007199254740992.0, 3.4028234663852886e38, None)


def test_decimals_within_lists_are_looked_at() -> None:
    kind = pa.struct([("prices", pa.list_(pa.struct([("price", pa.decimal128(5, 2))])))])
    texts = [b'{"prices": [null, {"price": 1}, {"price": 1E-10000000}]}', b'{"prices": [{}]}']
    batch = JsonValues(kind)(pa.record_batch({"value": pa.array(texts)}))
    assert batch.column(0).to_pylist() == [None, {"prices": [{"price": None}]}]


def test_a_type_without_a_form_in_json_is_refused() -> None:
    with pytest.raises(OptionError, match=r"value\.m of the JSON schema is of type map"):
        JsonValues(pa.struct([("m", pa.map_(pa.string(), pa.string()))]))
