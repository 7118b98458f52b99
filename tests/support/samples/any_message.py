"""Any value of any message in any version, for Hypothesis."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from kafka_protocol.wire.codec import message
from kafka_protocol.wire.schema import ArrayType, Field, FieldType, StructType

SIGNED = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
UNSIGNED = {"u16": 16, "u32": 32}


def value_of(kind: FieldType, cls: Any, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if isinstance(kind, ArrayType):
        return st.lists(value_of(kind.element, cls, version, flexible), max_size=2)
    if isinstance(kind, StructType):
        return struct_of(kind, getattr(cls, kind.class_name), version, flexible)
    if kind in SIGNED:
        half = 1 << (SIGNED[kind] - 1)
        return st.integers(-half, half - 1)
    if kind in UNSIGNED:
        return st.integers(0, (1 << UNSIGNED[kind]) - 1)
    if kind == "f64":
        return st.floats(allow_nan=False)
    if kind == "bool":
        return st.booleans()
    if kind == "uuid":
        return st.binary(min_size=16, max_size=16)
    if kind == "str":
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
    return st.binary(max_size=200)


def field_of(field: Field, cls: Any, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    values = value_of(field.type, cls, version, flexible)
    return st.none() | values if version in field.nullable else values


def struct_of(struct: StructType, cls: Any, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    fields = {
        field.attribute: field_of(field, cls, version, flexible)
        for field in struct.fields
        if version in field.versions and (field.tag is None or flexible)
    }
    return (
        st.fixed_dictionaries({}, optional=fields)
        .map(lambda given: cls(**given))
        .map(lambda value: fill(struct, value, version))
    )


def fill(struct: StructType, value: Any, version: int) -> Any:
    """A field without default null must not be left null where it may not be."""
    for field in struct.fields:
        required = version in field.versions and version not in field.nullable
        if required and getattr(value, field.attribute) is None:
            setattr(value, field.attribute, "" if field.type == "str" else b"")
    return value


@cache
def versions_and_values(name: str) -> st.SearchStrategy[tuple[int, Any]]:
    schema = message(name)

    def values(version: int) -> st.SearchStrategy[tuple[int, Any]]:
        made = struct_of(schema.struct, schema.cls, version, schema.is_flexible(version))
        return st.tuples(st.just(version), made)

    return st.integers(schema.min_version, schema.max_version).flatmap(values)
