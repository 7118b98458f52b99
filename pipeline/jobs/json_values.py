"""Values as JSON of a given schema, decoded while they are exported.

A value that does not parse costs nothing but itself: the decoded value is null and the bytes are
kept in the column `value_raw`, so the export of months neither stops at one bad record nor loses
it. `value_raw` is null where the value was decoded, and where there was none (a tombstone).
"""

import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, TypedDict

import msgspec
import pyarrow as pa

from pipeline.errors import OptionError
from pipeline.jobs.day_files import RAW_VALUE
from pipeline.jobs.json_fits import fit_of

_INTEGERS: Final = {
    pa.int8(): 7,
    pa.int16(): 15,
    pa.int32(): 31,
    pa.int64(): 63,
}

_UNPARSED: Final = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    RecursionError,  # nested a thousand deep
    ArithmeticError,  # it does not fit
)

_typed_dict: Any = TypedDict  # made from a schema, which mypy cannot follow


class JsonValues:
    """Replaces the column `value` of batches by the decoded one, and adds `value_raw`."""

    def __init__(self, kind: pa.StructType) -> None:
        """Take the schema.

        Raises:
            OptionError: a type of it has no form in JSON that is decoded here.
        """
        self._kind = kind
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(
            _python_type(kind, "value")
        ).decode
        self._fit = fit_of(kind)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Decode the values of a batch."""
        at = batch.schema.get_field_index("value")
        stored = batch.column(at).to_pylist()
        decoded, raw = self._decoded(stored)
        parts = list(self._arrays(decoded, raw, stored))
        values = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        columns = [
            *batch.columns[:at],
            values,
            pa.array(raw, pa.binary()),
            *batch.columns[at + 1 :],
        ]
        names = batch.schema.names
        names = [*names[: at + 1], RAW_VALUE, *names[at + 1 :]]
        return pa.RecordBatch.from_arrays(columns, names)

    def _decoded(self, stored: list[bytes | None]) -> tuple[list[Any], list[bytes | None]]:
        decode, fit = self._decode, self._fit
        decoded: list[Any] = [None] * len(stored)
        raw: list[bytes | None] = [None] * len(stored)
        for place, value in enumerate(stored):
            if value is not None:
                try:
                    read = decode(value)
                    decoded[place] = read if fit is None else fit(read)
                except _UNPARSED:
                    raw[place] = value
        return decoded, raw

    def _arrays(
        self, decoded: list[Any], raw: list[bytes | None], stored: list[bytes | None]
    ) -> Iterator[pa.Array]:
        """Arrays that make up the column; what does not fit is null there and kept in `raw`.

        The rows are halved until those that do not fit stand alone: a decimal with more digits
        than its type, say.
        """
        spans = [(0, len(decoded))]
        while spans:
            start, end = spans.pop()
            try:
                yield pa.array(decoded[start:end], self._kind)
            except pa.ArrowInvalid:
                if end - start == 1:
                    raw[start] = stored[start]
                    yield pa.nulls(1, self._kind)
                else:
                    middle = (start + end) // 2
                    spans += [(middle, end), (start, middle)]


def _python_type(kind: pa.DataType, name: str) -> Any:
    """The Arrow type that JSON of that type is read as; every value may be null."""
    if pa.types.is_struct(kind):
        fields = {one.name: _python_type(one.type, f"{name}.{one.name}") | None for one in kind}
        return _typed_dict(name.replace(".", "_"), fields, total=False)
    if pa.types.is_list(kind):
        return list[_python_type(kind.value_type, name) | None]  # type: ignore[misc]
    if kind in _INTEGERS:
        bits = _INTEGERS[kind]
        return Annotated[int, msgspec.Meta(ge=-(1 << bits), le=(1 << bits) - 1)]
    if pa.types.is_timestamp(kind):
        return Annotated[datetime.datetime, msgspec.Meta(tz=kind.tz is not None)]
    simple: list[tuple[Callable[[pa.DataType], bool], Any]] = [
        (pa.types.is_boolean, bool),
        (pa.types.is_floating, float),
        (pa.types.is_string, str),
        (pa.types.is_binary, bytes),
        (pa.types.is_date, datetime.date),
        (pa.types.is_decimal, decimal.Decimal),
    ]
    for is_kind, python in simple:
        if is_kind(kind):
            return python
    raise OptionError(
        f"{name} of the JSON schema is of type {kind}: allowed are booleans, integers, floats,"
        " decimals, strings, binary (base64), dates, timestamps, arrays and structs"
    )
