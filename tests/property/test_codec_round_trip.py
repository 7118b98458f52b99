"""Every message in every version: what is encoded decodes to the same; what is cut is refused."""

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import Message, message, request, response
from kafka_protocol.wire.messages import FAMILIES
from kafka_protocol.wire.schema import ArrayType, Field, FieldType, StructType
from tests.support.rounds import rounds

MESSAGES = [name for key in ApiKey for name in (request(key).name, response(key).name)]
MESSAGES += list(FAMILIES)

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


def some(name: str, data: st.DataObject) -> tuple[Message, int, Any]:
    version, value = data.draw(versions_and_values(name))
    return message(name), version, value


QUICK = settings(
    max_examples=rounds("TIDEMARK_CODEC_EXAMPLES", quick=3, full=8),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.rounds(seconds=0.1)
@QUICK
@given(data=st.data())
def test_a_value_decodes_to_itself_and_encodes_to_the_same_bytes(
    name: str, data: st.DataObject
) -> None:
    schema, version, value = some(name, data)
    encoded = schema.encode(value, version)
    for buffer in (encoded, bytearray(encoded), memoryview(encoded)):
        decoded, end = schema.decode(buffer, version)
        assert decoded == value
        assert end == len(encoded)
    assert schema.encode(decoded, version) == encoded
    assert b"".join(schema.encode_parts(value, version)) == encoded
    # Behind an offset, and with bytes of someone else after it.
    decoded, end = schema.decode(b"abc" + encoded + b"surplus", version, 3)
    assert (decoded, end) == (value, 3 + len(encoded))


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.rounds(seconds=0.1)
@QUICK
@given(data=st.data())
def test_bytes_cut_anywhere_are_malformed(name: str, data: st.DataObject) -> None:
    schema, version, value = some(name, data)
    encoded = schema.encode(value, version)
    for size in range(len(encoded)):
        with pytest.raises(MalformedMessageError):
            schema.decode(encoded[:size], version)


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.rounds(seconds=0.1)
@QUICK
@given(data=st.data(), noise=st.binary(max_size=300))
def test_any_bytes_decode_or_are_malformed(name: str, data: st.DataObject, noise: bytes) -> None:
    schema, version, value = some(name, data)
    encoded = bytearray(schema.encode(value, version))
    if encoded:
        place = data.draw(st.integers(0, len(encoded) - 1))
        encoded[place] = data.draw(st.integers(0, 255))
    for buffer in (noise, encoded):
        try:
            decoded, end = schema.decode(buffer, version)
        except MalformedMessageError:
            continue
        assert end <= len(buffer)
        assert isinstance(decoded, schema.cls)
