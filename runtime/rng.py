"""Randomness as a port, and the operating system's own."""

import random
import uuid
from collections.abc import Callable
from typing import Protocol

# Kafka's reserved ids: zero means "none", one names the metadata topic (and "unassigned"
# directories).
_RESERVED_IDS_END = 100
# The text form is base64url; a leading '-' would be read as an option by command line tools.
_LEADING_DASH = 0b111110


class Rng(Protocol):
    """Random values; no other code of ours may make them."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def uuid(self) -> bytes:
        """16 raw bytes: a version 4 UUID, not reserved, its text not starting with a dash."""
        ...


def usable(raw: bytes) -> bool:
    """Whether the id is not reserved, and its text is no option."""
    return raw[0] >> 2 != _LEADING_DASH and int.from_bytes(raw, "big") >= _RESERVED_IDS_END


class SystemRng:
    """The operating system's randomness."""

    __slots__ = ()

    def random(self) -> float:
        """A number in [0, 1)."""
        return random.random()

    def uuid(self) -> bytes:
        """16 raw bytes of a fresh id."""
        while not usable(raw := uuid.uuid4().bytes):
            pass
        return raw


def seeded(seed: int) -> Callable[[], float]:
    """Numbers in [0, 1) that are the same for the same seed: for faults that a test asks for."""
    return random.Random(seed).random


class Backoff:
    """The pauses between tries of one thing."""

    __slots__ = ("_failures", "_first_ms", "_jitter", "_max_ms", "_rng")

    def __init__(self, first_ms: int, max_ms: int, jitter: float, rng: Rng) -> None:
        self._first_ms, self._max_ms, self._jitter, self._rng = first_ms, max_ms, jitter, rng
        self._failures = 0

    def next_ms(self) -> float:
        """The pause after one more failure: doubled, then moved by up to `jitter` of itself."""
        pause = min(self._first_ms * 2.0 ** min(self._failures, 62), float(self._max_ms))
        self._failures += 1
        return min(pause * (1 + self._jitter * (2 * self._rng.random() - 1)), self._max_ms)

    def reset(self) -> None:
        """Begin again with the first pause, after a success."""
        self._failures = 0
