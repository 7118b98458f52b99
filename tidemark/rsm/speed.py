"""How fast a store is, seen through its plugin: what a tier can hope for, and no more.

One thread reads ranges as a consumer of old data does, four at once as several do.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.contract import AllPromises, expect
from rsm_plugins.contract.samples import large_log, segment_data
from rsm_plugins.segment import RemoteLogSegmentMetadata

_COPIES = 3
_RANGES = 40
_RANGE_BYTES = 1 << 20
_THREADS = 4
_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and 95th percentile of some times."""

    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Speed:
    """The measurements; MB are 10^6 bytes.

    Attributes:
        segment_bytes: size of the segments that were copied and read whole.
        copy_mb_s: bytes of the log per second of a copy, indexes and all.
        read_mb_s: the same for reading it whole.
        first_byte: from the call to the first byte of a range of 1 MiB.
        range_1mib: from the call to its last byte.
        four_threads_mb_s: ranges of 1 MiB read by four threads at once.
        delete: one deletion.
    """

    segment_bytes: int
    copy_mb_s: float
    read_mb_s: float
    first_byte: Spread
    range_1mib: Spread
    four_threads_mb_s: float
    delete: Spread


def measure(manager: RemoteStorageManager, promises: AllPromises) -> Speed:
    """Copy, read and delete some segments of the scratch topic of `promises`, by the clock.

    Raises:
        AssertionError: it took too long. Else whatever the plugin raises.
    """
    [speed] = expect.together(
        [lambda: _measure(manager, promises)], deadline_s=_DEADLINE_S, what="measuring"
    )
    return speed


def _measure(manager: RemoteStorageManager, promises: AllPromises) -> Speed:
    size = max(promises.large_segment_bytes, 2 * _RANGE_BYTES)
    log = large_log(size)
    copies: list[RemoteLogSegmentMetadata] = []

    def copy(number: int) -> None:
        metadata = promises.segment(number, size_bytes=size)
        copies.append(promises.copied(manager, metadata, segment_data(log)))

    copying = [_timed(partial(copy, number)) for number in range(1, _COPIES + 1)]
    reading = [_timed(partial(_drain, manager, copied)) for copied in copies]
    places = _places(size, _RANGES)
    times = [_range(manager, copies[0], first) for first in places]
    four = _timed(lambda: _four_threads(manager, copies[0], size))
    deleting = [_timed(partial(manager.delete_log_segment_data, copied)) for copied in copies]
    return Speed(
        segment_bytes=size,
        copy_mb_s=_mb_s(size, statistics.median(copying)),
        read_mb_s=_mb_s(size, statistics.median(reading)),
        first_byte=_spread([first for first, _ in times]),
        range_1mib=_spread([whole for _, whole in times]),
        four_threads_mb_s=_mb_s(_RANGES * _RANGE_BYTES, four),
        delete=_spread(deleting),
    )


def _places(size: int, count: int) -> list[int]:
    rng = random.Random(3)
    return [rng.randrange(size - _RANGE_BYTES + 1) for _ in range(count)]


def _range(
    manager: RemoteStorageManager, copied: RemoteLogSegmentMetadata, first: int
) -> tuple[float, float]:
    began = time.perf_counter()
    with manager.fetch_log_segment(copied, first, first + _RANGE_BYTES - 1) as stream:
        stream.read(1)
        first_byte_s = time.perf_counter() - began
        while stream.read(1 << 18):
            pass
    return first_byte_s, time.perf_counter() - began


def _drain(manager: RemoteStorageManager, copied: RemoteLogSegmentMetadata) -> None:
    with manager.fetch_log_segment(copied, 0) as stream:
        while stream.read(1 << 20):
            pass


def _four_threads(
    manager: RemoteStorageManager, copied: RemoteLogSegmentMetadata, size: int
) -> None:
    places = _places(size, _RANGES)

    def reader(mine: Sequence[int]) -> Callable[[], None]:
        def run() -> None:
            for first in mine:
                _range(manager, copied, first)

        return run

    readers = [reader(places[number::_THREADS]) for number in range(_THREADS)]
    expect.together(readers, deadline_s=_DEADLINE_S, what="reading with four threads")


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _mb_s(size_bytes: int, took_s: float) -> float:
    return round(size_bytes / max(took_s, 1e-9) / 1e6, 1)


def _spread(times_s: Sequence[float]) -> Spread:
    ordered = sorted(times_s)
    worst = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return Spread(round(statistics.median(ordered) * 1e3, 2), round(worst * 1e3, 2))
