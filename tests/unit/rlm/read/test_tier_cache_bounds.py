"""Each cache of the reading side keeps its bound, and counts what it holds."""

from dataclasses import replace
from pathlib import Path

import pytest

from rlm.link.messages import Released
from rlm.read import index_cache
from rlm.read.chunk_cache import ChunkCache
from rlm.read.disk_index_cache import DiskIndexCache
from rlm.read.eviction_policy import POLICIES, ScanResistantPolicy
from rlm.read.index_cache import IndexCache, _SegmentIndexLoad, _TransactionsLoad
from rlm.read.read_ahead import READERS_MAX, Sequence, Sequences
from rlm.read.read_ahead_policy import Pace
from rlm.read.read_path import ReadPath
from rsm_plugins.segment import IndexType
from rsm_plugins.testing import segment
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.tier.log_in_memory import values_of
from tests.support.tier.pair import Pair, bytes_of, tokens_of


def indexes_hold(cache: IndexCache) -> int:
    return sum(index.size_bytes for index in cache._parsed.values())


def test_parsed_indexes_have_a_bound_in_memory(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_of(pair.read(0))
    cache = pair.reads.indexes
    monkeypatch.setattr(index_cache, "MEMORY_BYTES", 2 * indexes_hold(cache))
    for offset in (20, 40, 0, 20, 40):
        bytes_of(pair.read(offset))
        assert 0 < cache._bytes == indexes_hold(cache) <= index_cache.MEMORY_BYTES
    for segment_id in list(cache._parsed):
        cache.distrust(segment_id)
        cache.distrust(segment_id)
    assert cache._bytes == 0


def test_segments_whose_index_is_not_trusted_are_bounded(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged log is found again and again, and its index perhaps never loaded again."""
    monkeypatch.setattr(index_cache, "DISTRUSTED_MAX", 3)
    cache = pair.reads.indexes
    ids = [segment(number).id.id for number in range(1, 6)]
    for segment_id in [*ids, ids[-2], ids[-1]]:
        cache.distrust(segment_id)
        assert len(cache._distrusted) <= 3
    is_distrusted = [_SegmentIndexLoad(cache, segment(n))._is_distrusted for n in range(1, 6)]
    assert is_distrusted == [False, False, True, True, True]


def test_transaction_indexes_have_a_bound_and_the_oldest_goes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_cache, "TRANSACTION_INDEXES_MAX", 2)
    cache = pair.reads.indexes
    ids = []
    for number in range(1, 5):
        metadata = segment(number)
        ids.append(metadata.id.id)
        _TransactionsLoad(cache, metadata).arrived(0, b"")
    assert list(cache._transactions) == ids[-2:]


def test_an_index_file_that_is_fetched_anew_counts_once(tmp_path: Path) -> None:
    cache = DiskIndexCache(Disk(), tmp_path, 1 << 20, ManualClock())
    for size in (1_000, 3_000, 2_000):
        cache.get(segment(), IndexType.OFFSET, lambda size=size: bytes(size), past_cache=True)  # type: ignore[misc]
        [file] = (tmp_path / "remote-log-index-cache").iterdir()
        assert cache.total_bytes == file.stat().st_size > size


def test_an_index_that_is_used_is_kept_beyond_its_time(tmp_path: Path) -> None:
    clock = ManualClock()
    cache = DiskIndexCache(Disk(), tmp_path, 1 << 20, clock, ttl_ms=1_000)
    fetched: list[int] = []

    def get(number: int) -> None:
        def fetch() -> bytes:
            fetched.append(number)
            return b"index"

        cache.get(segment(number), IndexType.OFFSET, fetch, past_cache=False)

    get(1)
    get(2)
    for _ in range(3):
        clock.advance(600)
        get(1)
        cache.expire()
    get(1)
    get(2)
    assert fetched == [1, 2, 2]


def test_readers_are_remembered_up_to_a_bound_and_the_longest_silent_goes() -> None:
    gone: list[int] = []
    readers = Sequences(gone.append)
    for number in range(READERS_MAX + 3):
        readers.remember((b"t", 0, number), Sequence(number, Pace()), now_ms=0)
    assert len(readers) == READERS_MAX
    assert gone == [0, 1, 2]


def test_what_went_is_remembered_for_as_many_bytes_as_the_cache_has() -> None:
    policy = ScanResistantPolicy[int](1_000)
    for key in range(100):
        policy.add(key, 100)
        policy.enter(key)
        policy.remove(key)
        assert policy._ghosts.total == min(1_000, 100 * (key + 1))
    assert list(policy._ghosts.sizes) == list(range(90, 100))


def test_what_several_readers_share_is_at_most_half() -> None:
    policy = ScanResistantPolicy[int](1_000)
    for key in range(10):
        policy.add(key, 100)
        for _ in range(2):
            policy.enter(key)
    assert policy._protected.total == 500
    assert list(policy.victims()) == list(range(10))


# -- chunks in memory


def sums(reads: ReadPath) -> tuple[int, int, int]:
    """Memory of all chunks, of those that nobody holds, and of those held, counted again."""
    lent = [lease.chunk for lease in reads.leases._leases.values() if lease.chunk is not None]
    chunks = {id(one): one for one in (*reads.chunks._chunks.values(), *lent)}
    total = sum(one.capacity_bytes for one in chunks.values())
    held = sum(one.capacity_bytes for one in chunks.values() if one.handed_out)
    return total, total - held, held


def counted(cache: ChunkCache) -> tuple[int, int, int]:
    return cache._total, cache._idle, cache.held_bytes


def test_memory_is_counted_right_however_often_a_chunk_is_held(tmp_path: Path) -> None:
    pair = Pair(tmp_path, chunk_cache_bytes=8_000)
    pair.log.fill(3, records=60)
    pair.assign()
    cache = pair.reads.chunks
    held = [pair.read(offset, max_bytes=100) for offset in (0, 0, 1, 60, 61, 0)]
    assert counted(cache) == sums(pair.reads)
    assert cache.held_bytes > 0
    for received in held:
        pair.broker.tell(Released(tokens_of(received)))
        pair.pump()
        assert counted(cache) == sums(pair.reads)
    assert cache.held_bytes == 0
    for offset in range(0, 180, 7):
        received = pair.read(offset, max_bytes=100)
        pair.broker.tell(Released(tokens_of(received)))
        pair.pump()
        assert counted(cache) == sums(pair.reads)
        assert cache.total_bytes <= 8_000


def test_what_may_be_loaded_ahead_is_shared_by_the_readers(pair: Pair) -> None:
    cache = pair.reads.chunks
    assert cache.share(0) == cache.share(1) == (1 << 20) * 3 // 8
    assert cache.share(3) == (1 << 20) // 8


def test_a_chunk_that_was_loaded_twice_counts_once(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.log.fill(2, records=60)
    pair.assign()
    bytes_of(pair.read(0, max_bytes=100))
    cache = pair.reads.chunks
    key, chunk = next(iter(cache._chunks.items()))
    place = cache._set_aside(chunk.first, chunk.end)  # for a load that is given up, and comes
    assert place is not None
    late = replace(chunk, file=place.file, capacity_bytes=place.capacity_bytes, handed_out=0)
    cache._loaded(key, late, is_ahead=False)
    assert cache._chunks[key] is chunk
    assert late.file.fd == -1
    assert counted(cache) == sums(pair.reads)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_held_chunk_that_one_reader_came_to_keeps_its_bytes(tmp_path: Path, policy: str) -> None:
    """Each policy would evict it first: nobody came to it again."""
    pair = Pair(tmp_path, chunk_cache_bytes=1_300, chunk_cache_policy=policy)
    pair.log.fill(1, records=60)
    pair.assign()
    held = pair.read(0, max_bytes=100)
    before = bytes_of(held)
    assert (1, 0) in values_of(before)
    for offset in range(10, 60, 2):
        received = pair.read(offset, max_bytes=100)
        assert (1, offset) in values_of(bytes_of(received))
        pair.broker.tell(Released(tokens_of(received)))
        pair.pump()
        assert pair.reads.chunks.total_bytes <= 1_300
        assert bytes_of(held) == before, offset
    pair.broker.tell(Released(tokens_of(held)))
    pair.pump()
    for offset in range(10, 60, 2):
        received = pair.read(offset, max_bytes=100)
        pair.broker.tell(Released(tokens_of(received)))
        pair.pump()
    assert bytes_of(held) != before, "given back, its memory is used again"
