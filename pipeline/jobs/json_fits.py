"""Sees that decoded JSON values fit their Arrow type, before Arrow is given them.

Arrow is not asked: a decimal with millions of digits ends its process, a large number becomes an
infinite float. A value that does not fit raises ArithmeticError. Must not know: bytes, batches.
"""

import datetime
import decimal
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

_FLOAT_END: Final = (2 - 2**-24) * 2.0**127
"""The least number (exclusive end) that becomes infinite in 32 bits."""

Fit = Callable[[Any], Any]
"""Gives the value as Arrow shall have it; structs and lists are changed in place."""


def fit_of(kind: pa.DataType) -> Fit | None:
    """The function that makes values of that type fit; None where the decoder has seen to it."""
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind):
        return _list(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_float32(kind):
        return _float32
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _in_utc
    return None


def _struct(kind: pa.StructType) -> Fit | None:
    fits = [(one.name, fit) for one in kind if (fit := fit_of(one.type)) is not None]
    if not fits:
        return None

    def struct(value: dict[str, Any]) -> dict[str, Any]:
        for name, fit in fits:
            held = value.get(name)
            if held is not None:
                value[name] = fit(held)
        return value

    return struct


def _list(kind: pa.ListType) -> Fit | None:
    fit = fit_of(kind.value_type)
    if fit is None:
        return None

    def items(value: list[Any]) -> list[Any]:
        for place, held in enumerate(value):
            if held is not None:
                value[place] = fit(held)
        return value

    return items


def _decimal(precision: int, scale: int) -> Fit:
    """With exactly `scale` digits behind the point: no digit is lost, and none is made up."""
    unit = decimal.Decimal(1).scaleb(-scale)
    context = decimal.Context(prec=precision, traps=[decimal.InvalidOperation, decimal.Inexact])

    def fixed(value: decimal.Decimal) -> decimal.Decimal:
        if not value.is_finite():
            raise decimal.InvalidOperation
        return value.quantize(unit, context=context)

    return fixed


def _float32(value: float) -> float:
    if abs(value) >= _FLOAT_END:
        raise OverflowError
    return value


def _in_utc(value: datetime.datetime) -> datetime.datetime:
    """Years are 1 to 9999 in UTC, too, not in the value's zone alone."""
    return value.astimezone(datetime.UTC)
