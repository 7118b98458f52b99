"""A store that lies for a time: it says that it has done what it has not, or gives other bytes.

A lie is what a tier can notice, by reading back or by a checksum: an object that was put is not
there, ends early, or is an older one; what is there is said to be missing, or one of its bytes is
another. Nobody can notice that a byte within an object was changed when it was put, and no copy is
read in full. A deletion that was answered and not done is an orphan for the audit.
"""

from collections import Counter
from enum import StrEnum
from random import Random
from zlib import crc32

from rsm_plugins.layout.claim_object import is_claim


class Lie(StrEnum):
    """What it does while it lies."""

    FORGETS_PUTS = "forgets puts"
    CUTS_PUTS = "cuts puts"
    HIDES = "hides"
    FLIPS = "flips"


PART = 0.5
"""Of all calls, or of all objects, that it lies of."""


class Lies:
    """See the module.

    Attributes:
        until_us: by lie, when it ends, in the world's time.
        told: how often it has lied.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"replication-lies-{seed}")
        self.until_us: dict[Lie, int] = {}
        self.told: Counter[Lie] = Counter()

    def heal(self) -> None:
        """Be honest from now on."""
        self.until_us.clear()

    def landed(self, now_us: int, key: str, data: bytes) -> bytes | None:
        """What is kept of an object that is put; None: what was there before.

        A claim is not cut: a person would have to delete it.
        """
        if self._lies(Lie.FORGETS_PUTS, now_us):
            return None
        if not is_claim(key) and self._lies(Lie.CUTS_PUTS, now_us):
            return data[: int(self.rng.random() * len(data))]
        return data

    def is_hidden(self, now_us: int, key: str) -> bool:
        """Whether an object that is there is said to be missing, for as long as that lie lasts."""
        until_us = self.until_us.get(Lie.HIDES, 0)
        is_chosen = crc32(f"{key} {until_us}".encode()) % 100 < 100 * PART
        if until_us <= now_us or not is_chosen:
            return False
        self.told[Lie.HIDES] += 1
        return True

    def given(self, now_us: int, data: bytes) -> bytes:
        """What is given for bytes of an object."""
        if not data or not self._lies(Lie.FLIPS, now_us):
            return data
        at = int(self.rng.random() * len(data))
        return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]

    def _lies(self, lie: Lie, now_us: int) -> bool:
        if self.until_us.get(lie, 0) <= now_us or self.rng.random() >= PART:
            return False
        self.told[lie] += 1
        return True
