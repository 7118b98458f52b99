"""What a decoder is to the fuzzers, and where sound bytes come from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

from tests.support.samples.golden_files import GOLDEN, unpack


@dataclass(frozen=True, slots=True)
class Decoder:
    """One decoder.

    Attributes:
        read: decodes, and walks all that it hands out.
        errors: what it declares.
        samples: sound bytes, to be damaged.
        inflates: it may make so many bytes out of few.
    """

    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...] = ()
    samples: Callable[[], list[bytes]] = field(default=list)
    inflates: int = 0


def walked(read: Callable[[bytes], Iterable[Any]]) -> Callable[[bytes], object]:
    """Reads to the end of what is handed out one by one."""
    return lambda data: [*read(data)]


@cache
def golden(pattern: str) -> tuple[bytes, ...]:
    """Files of Apache Kafka, the shorter ones."""
    unpack()  # also outside pytest
    files = sorted(path for path in GOLDEN.rglob(pattern) if path.is_file())
    found = [path.read_bytes() for path in files if path.stat().st_size < 20_000]
    assert found, pattern
    return tuple(found[:20])


def of_files(*patterns: str) -> Callable[[], list[bytes]]:
    """Samples from golden files."""
    return lambda: [*chain.from_iterable(map(golden, patterns))]
