"""The numbers and names of the codecs."""

from enum import IntEnum

from kafka_protocol.records.errors import UnsupportedCodecError


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, number: int) -> "Codec":
        """The codec of this number.

        Raises:
            UnsupportedCodecError: there is none.
        """
        try:
            return cls(number)
        except ValueError:
            raise UnsupportedCodecError(number) from None

    @classmethod
    def named(cls, name: str) -> "Codec":
        """The codec that configurations call `name` (`none`, also `uncompressed`).

        Raises:
            ValueError: there is none.
        """
        if name == "uncompressed":
            return cls.NONE
        try:
            return cls[name.upper()]
        except KeyError:
            raise ValueError(f"unknown compression type {name!r}") from None


XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
"""In front of the blocks of snappy; each block has its length before it."""
