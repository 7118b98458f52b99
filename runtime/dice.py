"""Randomness as a port: real dice, and dice that one seed replays."""

import random
import uuid
from typing import Protocol

# Kafka's reserved ids: zero means "none", one names the metadata topic (and "unassigned"
# directories).
_RESERVED_IDS_END = 100
# The text form is base64url; a leading '-' would be read as an option by command line tools.
_LEADING_DASH = 0b111110


class Dice(Protocol):
    """Gives random values; nothing else of ours may make them."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def uuid(self) -> bytes:
        """16 raw bytes: a version 4 UUID, not reserved, its text not starting with a dash."""
        ...


def _usable(raw: bytes) -> bool:
    return raw[0] >> 2 != _LEADING_DASH and int.from_bytes(raw, "big") >= _RESERVED_IDS_END


class SystemDice:
    """The operating system's randomness."""

    __slots__ = ()

    def random(self) -> float:
        """A number in [0, 1)."""
        return random.random()

    def uuid(self) -> bytes:
        """16 raw bytes of a fresh id."""
        while not _usable(raw := uuid.uuid4().bytes):
            pass
        return raw


class SeededDice:
    """The same values for the same seed."""

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        """A number in [0, 1)."""
        return self._random.random()

    def uuid(self) -> bytes:
        """16 raw bytes of the next id."""
        while True:
            raw = uuid.UUID(int=self._random.getrandbits(128), version=4).bytes
            if _usable(raw):
                return raw
