"""Values with something other than the default in every field."""

from typing import Any

from kafka_protocol.wire.codec import Message
from kafka_protocol.wire.schema import ArrayType, FieldType, StructType

TOPIC_ID = bytes(range(1, 17))


def sample(kind: FieldType, cls: Any, version: int) -> Any:
    """A value that is no default, in every field."""
    if isinstance(kind, ArrayType):
        return [sample(kind.element, cls, version)] * 2
    if isinstance(kind, StructType):
        inner = getattr(cls, kind.class_name)
        values = {
            field.attribute: sample(field.type, inner, version)
            for field in kind.fields
            if version in field.versions
        }
        return inner(**values)
    plain: dict[str, Any] = {"str": "text", "bool": True, "f64": 1.5, "uuid": TOPIC_ID}
    return plain.get(kind, b"data" if kind in ("bytes", "rec") else 7)


def whole(schema: Message, version: int) -> Any:
    """A message with all its fields set."""
    values = {
        field.attribute: sample(field.type, schema.cls, version)
        for field in schema.struct.fields
        if version in field.versions
    }
    return schema.cls(**values)
