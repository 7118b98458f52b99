"""Frames: the request header in front of a body, and the answer's size and header.

A frame is `int32 size` and that many bytes. The network layer checks the size and hands whole
frames here. The client id keeps its old 2-byte length also in the flexible header (KIP-482).
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import Any, NamedTuple

from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey, request_header_version
from kafka_protocol.wire.primitives import Buffer, skip_tags

_FIXED = Struct(">hhih")
_V0 = Struct(">ii")
_V1 = Struct(">iix")

_API_VERSIONS_MAX = 4

_MERGE_BYTES = 16 * 1024
"""A first part up to this size is copied behind the prefix: small answers are one buffer."""


class RequestHeader(NamedTuple):
    """The header of every request.

    Attributes:
        client_id: None when the client sent null.
        body_offset: Position of the body in the frame.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a request frame (without its size field).

    Unknown api keys and versions pass: the caller decides. Of an ApiVersions request with a newer
    version only the fields before the tagged section are read. As in Kafka, any negative length of
    the client id means null, and bytes that are no UTF-8 are replaced, since it is only a label.

    Raises:
        MalformedMessageError: The header is cut short.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame, 0)
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise MalformedMessageError("client id is longer than the frame")
            client_id = str(frame[10:position], "utf-8", "replace")
        if api_key == ApiKey.API_VERSIONS and api_version > _API_VERSIONS_MAX:
            pass  # answered in any case, so that the client learns our versions
        elif request_header_version(api_key, api_version) == 2:
            if frame[position] == 0:
                position += 1
            else:
                position = skip_tags(frame, position)
    except (error, IndexError) as cause:
        raise MalformedMessageError(f"request header: {cause}") from cause
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def part_size(part: Any) -> int:
    """Size in bytes of one part of a gather list: bytes-like, or anything with `size_bytes`."""
    # Any: a part may be a file region of a package this one must not know.
    size = getattr(part, "size_bytes", None)
    return len(part) if size is None else int(size)


def response_parts(
    correlation_id: int, header_version: int, body_parts: Sequence[object]
) -> tuple[list[object], int]:
    """Put the frame's size and the response header in front of an encoded body.

    Args:
        correlation_id: The request's.
        header_version: 0, or 1 with an empty tagged section.
        body_parts: Result of `Message.encode_parts`.

    Returns:
        The parts to send, size prefix first, and their total size in bytes.
    """
    if len(body_parts) == 1 and type(body_parts[0]) is bytes:
        body_bytes = len(body_parts[0])
    else:
        body_bytes = sum(map(part_size, body_parts))
    if header_version == 0:
        prefix = _V0.pack(body_bytes + 4, correlation_id)
    else:
        prefix = _V1.pack(body_bytes + 5, correlation_id)
    total_bytes = body_bytes + len(prefix)
    if body_parts:
        first = body_parts[0]
        if isinstance(first, bytes | bytearray) and len(first) <= _MERGE_BYTES:
            return [prefix + first, *body_parts[1:]], total_bytes
    return [prefix, *body_parts], total_bytes
