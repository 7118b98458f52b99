"""Places of files to damage, all of them or drawn by a seed; and a disk for thousands of starts."""

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

ALL = bool(os.environ.get("TIDEMARK_ALL_BITS"))
SEED = int(os.environ.get("TIDEMARK_BITS_SEED", "0")) or Random().randrange(1, 1_000_000)
_IN_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Damaged:
    """One file with one bit flipped, or cut.

    Attributes:
        at: byte of the flipped bit, or the new length.
        bit: None: it is cut.
    """

    file: str
    data: bytes
    at: int
    bit: int | None = None

    def __str__(self) -> str:
        what = "cut at" if self.bit is None else f"bit {self.bit} of byte"
        return f"{self.file}: {what} {self.at}"


def flipped(file: str, data: bytes, at: int, bit: int) -> Damaged:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return Damaged(file, bytes(changed), at, bit)


def drawn(files: Mapping[str, bytes], *, share: int) -> Iterator[Damaged]:
    """Every bit and every length of every file; unless all are wanted, one of each `share`.

    A file that is not empty is damaged in both ways at least once.
    """
    if not ALL:
        print(f"replay: TIDEMARK_BITS_SEED={SEED}")
    rng = Random(SEED)
    for file, data in sorted(files.items()):
        bits = _some(8 * len(data), share, rng)
        yield from (flipped(file, data, bit // 8, bit % 8) for bit in bits)
        lengths = _some(len(data), max(share // 8, 1), rng)
        yield from (Damaged(file, data[:length], length) for length in lengths)


def _some(count: int, share: int, rng: Random) -> list[int]:
    if ALL:
        return list(range(count))
    return [rng.randrange(at, min(at + share, count)) for at in range(0, count, share)]


@contextmanager
def quick_directory() -> Iterator[Path]:
    """A directory in memory where there is one; nobody reads what thousands of starts log."""
    place = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory(prefix="tidemark-", dir=place) as name:
            yield Path(name)
    finally:
        logging.disable(before)
