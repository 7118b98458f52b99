"""The schema that Spark sees, and the columns that a user's own schema asks for."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.errors import OptionError

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
"""Those of `pipeline.columns` as Spark calls them."""


def schema_of(columns: Sequence[str] | None, *, include_headers: bool) -> StructType:
    """The schema of these columns; None: those of Spark's Kafka source.

    Raises:
        OptionError: there is no such column, or one is named twice.
    """
    if columns is None:
        columns = [name for name in TYPES if include_headers or name != "headers"]
    for name in columns:
        if name not in TYPES:
            raise OptionError(f"option columns: {_no_column(name)}")
    if len(set(columns)) != len(columns):
        raise OptionError(f"option columns={','.join(columns)}: a column is named twice")
    return StructType([StructField(name, TYPES[name]) for name in columns])


def columns_of(schema: StructType, named: tuple[str, ...] | None) -> tuple[str, ...]:
    """The columns that a schema asks for, in its order.

    Args:
        schema: the user's, or the one that `schema_of` made.
        named: by the option `columns`.

    Raises:
        OptionError: one is not there, has another type, or may not be null, or the option names
            others; names it.
    """
    names: list[str] = []
    for one in schema.fields:
        if one.name not in TYPES:
            raise OptionError(f"the schema is wrong: {_no_column(one.name)}")
        wanted, given = TYPES[one.name].simpleString(), one.dataType.simpleString()
        if wanted != given:
            raise OptionError(
                f"the schema is wrong: column {one.name} is {wanted}, not {given}; cast it after"
                " reading"
            )
        if one.name in names:
            raise OptionError(f"the schema is wrong: column {one.name} is named twice")
        if not one.nullable:
            raise OptionError(
                f"the schema is wrong: column {one.name} is not null there; leave NOT NULL out"
            )
        names.append(one.name)
    if not names:
        raise OptionError(f"the schema names no column: allowed are {', '.join(TYPES)}")
    if named is not None and named != tuple(names):
        raise OptionError(
            f"option columns={','.join(named)}: the schema names {', '.join(names)}; give one of"
            " the two"
        )
    return tuple(names)


def _no_column(name: str) -> str:
    near = get_close_matches(name.lower(), [one.lower() for one in TYPES], 1, 0.6)
    hint = [one for one in TYPES if near and one.lower() == near[0]]
    suffix = f"; did you mean {hint[0]}?" if hint else ""
    return f"there is no column {name[:100]!r}: allowed are {', '.join(TYPES)}{suffix}"
