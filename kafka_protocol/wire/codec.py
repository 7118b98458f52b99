"""Messages by name or api key, each with all its versions.

    produce = request(ApiKey.PRODUCE)
    value, end = produce.decode(frame, 13, header.body_offset)
    answer = response(ApiKey.PRODUCE)
    parts = answer.encode_parts(answer.cls(responses=[...]), 13)

A message's schema is parsed at the first request for the message. It is compiled to functions when
a version is first decoded or encoded (about 1 ms each). So a start pays only for its messages.

Null for a field that is not nullable in a version is a mistake of the caller and fails as such.
Fields that a version lacks are not written, and read as their default.
"""

from collections.abc import Callable, Generator
from functools import cache
from struct import error as struct_error
from typing import Any

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey, schemas_of
from kafka_protocol.wire.decoding import compile_decoder, smallest_element
from kafka_protocol.wire.encoding import (
    EncodedArray,
    Gather,
    LongArray,
    compile_encoder,
    compile_step_encoder,
)
from kafka_protocol.wire.messages import FAMILIES
from kafka_protocol.wire.primitives import Buffer
from kafka_protocol.wire.schema import ArrayType, StructType, parse_schema
from kafka_protocol.wire.structs import make_class

__all__ = [
    "EncodedArray",
    "Gather",
    "LongArray",
    "Message",
    "message",
    "parse",
    "request",
    "response",
]


class Message:
    """One message (or record, or header) in all its versions.

    Attributes:
        name: As in Kafka: `ProduceRequest`, `TopicRecord`.
        api_key: The API's or the record's number; None if it has none.
        min_version: Lowest version that has a schema.
        max_version: Highest one.
        flexible_from: First flexible version (KIP-482), None if none is.
        all_elements_max: Bound of the elements of all its arrays together (inclusive).
        cls: The value's class; keyword constructor, attributes in Python's case.
    """

    def __init__(self, schema_line: str) -> None:
        schema = parse_schema(schema_line)
        self.name = schema.name
        self.api_key = schema.api_key
        self.min_version, self.max_version = schema.versions
        self.flexible_from = schema.flexible_from
        self.all_elements_max = schema.elements_max
        self.struct = schema.struct
        # Any: attributes of the class follow from the schema, which mypy does not read.
        self.cls: Any = make_class(schema.struct)
        self._decoders: dict[int, Any] = {}
        self._encoders: dict[int, Any] = {}
        self._step_encoders: dict[int, Any] = {}
        self._element_encoders: dict[tuple[str, int], Any] = {}

    def __repr__(self) -> str:
        return f"<{self.name} {self.min_version}-{self.max_version}>"

    def is_flexible(self, version: int) -> bool:
        """True if the version has compact lengths and tagged sections."""
        return self.flexible_from is not None and version >= self.flexible_from

    def decode(self, buf: Buffer, version: int, offset: int = 0) -> tuple[Any, int]:
        """Decode the value that begins at `offset`.

        Record data becomes a memoryview into `buf`; all else is copied.

        Returns:
            The value, and the position after it; bytes after it are not checked.

        Raises:
            MalformedMessageError: The bytes are no such message, or the version is unknown.
        """
        decoder = self._decoders.get(version)
        if decoder is None:
            decoder = self._decoder(version)
        try:
            return decoder(buf, offset)  # type: ignore[no-any-return]
        except (struct_error, IndexError, UnicodeDecodeError) as cause:
            raise MalformedMessageError(f"{self.name} {version}: {cause}") from cause

    def elements_max(self, size_bytes: int, version: int) -> int:
        """Maximum number of structs in the innermost arrays of a message of so many bytes."""
        smallest = smallest_element(self.struct, version, self.is_flexible(version))
        return min(self.all_elements_max, size_bytes // smallest)

    def encode(self, value: Any, version: int) -> bytes:
        """Encode to one piece of bytes.

        Raises:
            ValueError: No such version.
            TypeError: The value holds record data that is not in memory.
        """
        parts = self.encode_parts(value, version)
        return b"".join(parts)

    def encode_parts(self, value: Any, version: int) -> list[Any]:
        """Encode to a gather list: record data stays where it is, parts of a Gather as they are.

        Raises:
            ValueError: No such version.
        """
        encoder = self._encoders.get(version)
        if encoder is None:
            encoder = self._encoder_of(version, compile_encoder, self._encoders)
        parts: list[Any] = []
        tail = encoder(value, bytearray(), parts)
        if tail or not parts:
            parts.append(tail)
        return parts

    def encode_steps(self, value: Any, version: int) -> Generator[None, None, list[Any]]:
        """Do `encode_parts` in steps, for messages that may be long.

        Raises:
            ValueError: No such version.
        """
        encoder = self._step_encoders.get(version)
        if encoder is None:
            encoder = self._encoder_of(version, compile_step_encoder, self._step_encoders)
        parts: list[Any] = []
        tail = yield from encoder(value, bytearray(), parts)
        if tail or not parts:
            parts.append(tail)
        return parts

    def encode_element(self, array: str, element: Any, version: int) -> bytes:
        """Encode one struct of an array of the message, for an `EncodedArray`.

        Args:
            array: The attribute that holds the array, of an inner one behind that of the outer
                one: `topics.partitions`.
            element: Without record data.
            version: Of the message.
        """
        encoder = self._element_encoders.get((array, version))
        if encoder is None:
            struct, cls = self.struct, self.cls
            for attribute in array.split("."):
                (kind,) = (one.type for one in struct.fields if one.attribute == attribute)
                assert isinstance(kind, ArrayType)
                assert isinstance(kind.element, StructType)
                struct = kind.element
                cls = getattr(cls, struct.class_name)
            encoder = compile_encoder(struct, cls, version, self.is_flexible(version))
            self._element_encoders[array, version] = encoder
        return bytes(encoder(element, bytearray(), []))

    def _decoder(self, version: int) -> Any:
        if not self.min_version <= version <= self.max_version:
            raise MalformedMessageError(f"{self.name} has no version {version}")
        made = compile_decoder(
            self.struct,
            self.cls,
            version,
            self.is_flexible(version),
            name=self.name,
            cap=self.all_elements_max,
        )
        return self._decoders.setdefault(version, made)

    def _encoder_of(self, version: int, compiler: Callable[..., Any], known: dict[int, Any]) -> Any:
        if not self.min_version <= version <= self.max_version:
            raise ValueError(f"{self.name} has no version {version}")
        made = compiler(self.struct, self.cls, version, self.is_flexible(version))
        return known.setdefault(version, made)


@cache
def message(name: str) -> Message:
    """The message, record or header of this name.

    Raises:
        KeyError: There is no schema of it.
    """
    family = FAMILIES.get(name)
    if family is not None:
        return Message(_record_line(family, name))
    for suffix, find in (("Request", request), ("Response", response)):
        if name.endswith(suffix):
            api_key = _API_KEYS.get(name.removesuffix(suffix))
            if api_key is not None:
                return find(api_key)
    raise KeyError(name)


@cache
def request(api_key: int) -> Message:
    """The request of an API.

    Raises:
        ValueError: No such API.
    """
    return Message(schemas_of(ApiKey(api_key).name).REQUEST)


@cache
def response(api_key: int) -> Message:
    """The response of an API.

    Raises:
        ValueError: No such API.
    """
    return Message(schemas_of(ApiKey(api_key).name).RESPONSE)


def parse(line: str) -> Message:
    """Make a message from any schema line (grammar: `kafka_protocol.wire.schema`)."""
    return Message(line)


def family_records(family: str) -> dict[int, str]:
    """Names of a family's records by the number in front of their schema."""
    heads = [line.split(None, 2) for line in schemas_of(family).RECORDS]
    return {int(key): name for key, name, _ in heads if key != "-"}


_API_KEYS = {"".join(word.capitalize() for word in key.name.split("_")): key for key in ApiKey}


def _record_line(family: str, name: str) -> str:
    for line in schemas_of(family).RECORDS:
        if line.split(None, 2)[1] == name:
            return str(line)
    raise KeyError(name)
