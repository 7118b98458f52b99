"""Variable-length integers, tagged sections and uuids: the primitives of schemas.

All readers check before they allocate, and raise `MalformedMessageError`. At the end of the buffer
they may raise IndexError, which the outer layers (codec, framing) turn into it.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from kafka_protocol.errors import MalformedMessageError

Buffer = bytes | bytearray | memoryview

UUID_SIZE = 16

MAX_TAGS = 250_000
"""Bound of tagged fields in one section: to skip them costs time, and no schema has a dozen."""


def encode_uvarint(value: int) -> bytes:
    """Write an unsigned varint (LEB128) of up to 32 bits."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL_UVARINTS: tuple[bytes, ...] = tuple(encode_uvarint(value) for value in range(2048))
"""Short varints, encoded in advance, so that writing a length is a lookup."""


def read_uvarint(buf: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 5 bytes.

    Returns:
        The value and the position after it.

    Raises:
        MalformedMessageError: It continues past 5 bytes.
        IndexError: The buffer ends inside it.
    """
    value = buf[position]
    if value < 0x80:
        return value, position + 1
    return continue_uvarint(buf, position + 1, value)


def continue_uvarint(buf: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read on after a first byte whose high bit is set; as `read_uvarint`."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[position]
        position += 1
        if byte < 0x80:
            return value | byte << shift, position
        value |= (byte & 0x7F) << shift
    raise MalformedMessageError("varint continues past 5 bytes")


def skip_tags(buf: Buffer, position: int) -> int:
    """Skip a whole tagged section of any content; returns the position after it."""
    count, position = read_uvarint(buf, position)
    if count > MAX_TAGS:
        raise MalformedMessageError(f"{count} tagged fields in one section")
    size = len(buf)
    for _ in range(count):
        _, position = read_uvarint(buf, position)
        length, position = read_uvarint(buf, position)
        position += length
        if position > size:
            raise MalformedMessageError("a tagged field is longer than the message")
    return position


def encode_zigzag(value: int) -> bytes:
    """Write a signed varint or varlong (zigzag, then LEB128), as records hold them."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    return SMALL_UVARINTS[value] if value < 2048 else encode_uvarint(value)


def read_zigzag(buf: Buffer, position: int, max_bytes: int = 5) -> tuple[int, int]:
    """Read a signed varint (`max_bytes` 5) or varlong (10).

    Returns:
        The value and the position after it.

    Raises:
        MalformedMessageError: It continues past `max_bytes`.
        IndexError: The buffer ends inside it.
    """
    return continue_zigzag(buf, position + 1, buf[position], max_bytes)


def continue_zigzag(buf: Buffer, position: int, byte: int, max_bytes: int) -> tuple[int, int]:
    """Read on after the first byte `byte`; as `read_zigzag`."""
    raw = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if shift >= 7 * max_bytes:
            raise MalformedMessageError(f"varint continues past {max_bytes} bytes")
        byte = buf[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    return (raw >> 1) ^ -(raw & 1), position


def uuid_to_text(value: bytes) -> str:
    """Kafka's text form of 16 raw bytes: 22 characters of base64url without padding."""
    if len(value) != UUID_SIZE:
        raise ValueError(f"a uuid has 16 bytes, not {len(value)}")
    return urlsafe_b64encode(value).decode("ascii").rstrip("=")


def uuid_from_any_text(text: str) -> bytes:
    """Read a uuid from a command line: Kafka's text form, or 32 hexadecimal digits.

    Raises:
        ValueError: The text has neither form.
    """
    digits = text.replace("-", "")
    if len(digits) == 2 * UUID_SIZE:
        try:
            return bytes.fromhex(digits)
        except ValueError:
            pass
    return uuid_from_text(text)


def uuid_from_text(text: str) -> bytes:
    """Read Kafka's text form of a uuid.

    Raises:
        ValueError: Not 22 characters of base64url.
    """
    try:
        value = urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    except ValueError as error:
        raise ValueError(f"{text!r} is no uuid of 22 base64url characters") from error
    if len(value) != UUID_SIZE:
        raise ValueError(f"{text!r} is no uuid of 22 base64url characters")
    return value
