"""Writes any request of a schema, right or with a few wounds at places where the grammar has them.

Not by the product's encoder: that writes nothing wrong, and what both get wrong nobody would see.
"""

import random
from struct import pack
from typing import Any

from kafka_protocol.wire.schema import FIXED_FORMATS, ArrayType, Field, FieldType, StructType

ELEMENTS_MAX = 3
WOUND_RATE = 0.08
WRONG_LENGTHS = (-(2**31), -2, -1, 0, 1, 127, 128, 16_383, 32_768, 2**24, 2**31 - 1)
EDGES = (0, 1, -1, 2, 127, 128, 32_767, -32_768, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
WORDS = ("", "range", "1", "-1", "x" * 300, "é\x1b[2J\r\n", "\0", "9" * 400)
SIZES = {"b": 8, "h": 16, "i": 32, "q": 64, "H": 16, "I": 32}


def uvarint(number: int) -> bytes:
    out = bytearray()
    number &= 0xFFFFFFFF
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


class RequestWriter:
    """Writes one body after the other with the same rng.

    Attributes:
        wounds: how many the last body has; 0: it is a request as the schema has it.
    """

    def __init__(self, rng: random.Random, *, wound_rate: float = WOUND_RATE) -> None:
        self._rng, self._rate = rng, wound_rate
        self._version, self._flexible, self._hurts = 0, False, False
        self.wounds = 0

    def body(self, struct: StructType, version: int, *, flexible: bool) -> bytes:
        """A request's body; half of them have no wound, and have an answer."""
        self._version, self._flexible, self.wounds = version, flexible, 0
        self._hurts = self._rng.random() < 0.5
        return self._struct(struct)

    def _wound(self) -> bool:
        if not self._hurts or self._rng.random() >= self._rate:
            return False
        self.wounds += 1
        return True

    def _struct(self, struct: StructType) -> bytes:
        out, tagged = bytearray(), {}
        for field in struct.fields:
            if self._version not in field.versions:
                continue
            if self._flexible and self._version in field.tagged:
                if self._rng.random() < 0.5:
                    tagged[field.tag] = self._tagged_value(field)
            else:
                out += self._value(field)
        if self._flexible:
            out += self._tags(tagged)
        return bytes(out)

    def _tagged_value(self, field: Field) -> bytes:
        """A nullable struct has 0 or 1 in front here; all else is as elsewhere."""
        if isinstance(field.type, StructType) and self._version in field.nullable:
            return b"\0" if self._rng.random() < 0.3 else b"\x01" + self._struct(field.type)
        return self._value(field)

    def _tags(self, tagged: dict[int | None, bytes]) -> bytes:
        entries = [(tag or 0, value) for tag, value in sorted(tagged.items(), key=str)]
        if self._wound():
            entries += [(self._rng.choice([0, 1, 7, 2**31]), self._rng.randbytes(3))]
        out = bytearray(uvarint(len(entries) + (1 if self._wound() else 0)))
        for tag, value in entries:
            out += uvarint(tag) + self._length(len(value), "uvarint") + value
        return bytes(out)

    def _length(self, right: int, letter: str) -> bytes:
        number = right
        if self._wound():
            number = self._rng.choice((*WRONG_LENGTHS, right - 1, right + 1))
        if letter == "uvarint":
            return b"\xff" * 6 if number == 2**24 else uvarint(number)
        bits = SIZES[letter]
        number = (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        return pack(f">{letter}", number)

    def _value(self, field: Field) -> bytes:
        kind, may_be_null = field.type, self._version in field.nullable
        if isinstance(kind, StructType):
            if not may_be_null:
                return self._struct(kind)
            return b"\xff" if self._rng.random() < 0.3 else b"\x01" + self._struct(kind)
        if isinstance(kind, ArrayType):
            return self._array(kind, may_be_null)
        return self._plain(kind, field, may_be_null)

    def _array(self, kind: ArrayType, may_be_null: bool) -> bytes:
        if may_be_null and self._rng.random() < 0.2:
            return self._count(-1)
        count = self._rng.randrange(ELEMENTS_MAX + 1)
        elements = b"".join(self._element(kind.element) for _ in range(count))
        return self._count(count) + elements

    def _count(self, count: int) -> bytes:
        return self._length(count + 1, "uvarint") if self._flexible else self._length(count, "i")

    def _element(self, kind: FieldType) -> bytes:
        if isinstance(kind, StructType):
            return self._struct(kind)
        assert isinstance(kind, str)
        return self._plain(kind, None, False)

    def _plain(self, kind: str, field: Field | None, may_be_null: bool) -> bytes:
        value = self._any(kind)
        if kind in FIXED_FORMATS:
            return self._fixed(FIXED_FORMATS[kind], value)
        data = value.encode() if isinstance(value, str) else value
        if may_be_null and self._rng.random() < 0.1:
            data = None
        if kind == "str" and data is not None and self._wound():
            data = b"\xff\xfe" + data
        compact = self._flexible and (field is None or field.compact)
        if compact:
            head = self._length(0 if data is None else len(data) + 1, "uvarint")
        else:
            head = self._length(-1 if data is None else len(data), "h" if kind == "str" else "i")
        return head + (data or b"")

    def _any(self, kind: str) -> Any:
        if kind == "bool":
            return self._rng.random() < 0.5
        if kind == "uuid":
            return self._rng.choice([bytes(16), self._rng.randbytes(16)])
        if kind == "f64":
            return self._rng.choice([0.0, -1.5, float("inf"), float("nan")])
        if kind in FIXED_FORMATS:
            return self._rng.choice(EDGES)
        if kind == "str":
            return self._rng.choice(WORDS)
        return self._rng.randbytes(self._rng.randrange(40))

    def _fixed(self, letter: str, value: Any) -> bytes:
        if letter in SIZES:
            bits = SIZES[letter]
            value &= (1 << bits) - 1
            if letter.islower() and value >> (bits - 1):
                value -= 1 << bits
        return pack(f">{letter}", value)
