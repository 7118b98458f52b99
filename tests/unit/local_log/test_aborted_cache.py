"""The bytes of transaction indexes that are kept in memory have a bound."""

from pathlib import Path

from local_log.segment.aborted_index import AbortedCache
from local_log.segment.segment import LogSegment
from runtime.disk import Disk


def _segments(count: int) -> list[LogSegment]:
    return [LogSegment(Disk(), Path("none"), base, 0) for base in range(count)]


def test_the_least_recently_used_goes_when_the_bound_is_reached() -> None:
    first, second, third, huge = _segments(4)
    cache = AbortedCache(bytes_max=100)
    cache.put(first, b"a" * 40, cache.drops)
    cache.put(second, b"b" * 40, cache.drops)
    assert cache.get(first) == b"a" * 40
    cache.put(third, b"c" * 40, cache.drops)
    assert cache.get(second) is None
    assert (cache.get(first), cache.get(third)) == (b"a" * 40, b"c" * 40)
    cache.put(huge, b"d" * 101, cache.drops)
    assert cache.get(huge) is None
    assert cache.size_bytes == 80


def test_what_is_put_again_or_dropped_does_not_count_twice() -> None:
    (segment,) = _segments(1)
    cache = AbortedCache(bytes_max=100)
    cache.put(segment, b"a" * 40, cache.drops)
    cache.put(segment, b"b" * 50, cache.drops)
    assert cache.size_bytes == 50
    cache.drop(segment)
    cache.drop(segment)
    assert (cache.get(segment), cache.size_bytes) == (None, 0)


def test_bytes_that_were_read_before_an_entry_was_added_are_not_kept(tmp_path):
    cache = AbortedCache(bytes_max=100)
    segment = LogSegment(Disk(), tmp_path, 0, 0)
    drops = cache.drops
    cache.drop(segment)  # an append on another thread, between the reading and the keeping
    cache.put(segment, b"a" * 40, drops)
    assert cache.get(segment) is None
