"""Damage to the tier's caches on disk: reads give the right bytes, and what is off is said."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_protocol.files import txn_index
from rlm.link.messages import Health, Released
from rlm.read.disk_chunk_cache import DiskChunkCache
from rlm.read.disk_index_cache import DiskIndexCache, sealed, unsealed
from rsm_plugins.segment import IndexType
from rsm_plugins.testing import Operation, segment
from runtime.disk import Disk, OpenFile
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.tier.log_in_memory import values_of
from tests.support.tier.pair import Pair, bytes_of

INDEXES, CHUNKS = "remote-log-index-cache", "remote-log-chunk-cache"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def swap(path: Path) -> None:
    """Another segment's file under this name."""
    other = next(each for each in sorted(path.parent.iterdir()) if is_of_another(each, path))
    path.write_bytes(other.read_bytes())


def is_of_another(one: Path, path: Path) -> bool:
    return one.suffix == path.suffix and one.name != path.name


def make_unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "lost": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "flipped": flip,
    "another's": swap,
}


def reasons(pair: Pair) -> list[str]:
    pair.scheduler.advance(1_000)
    pair.pump()
    health = next(each for each in reversed(pair.told) if isinstance(each, Health))
    return [each.reason for each in health.unhealthy]


def read_all(pair: Pair) -> dict[tuple[int, int], bytes]:
    offset, got = 0, dict[tuple[int, int], bytes]()
    while offset < 60:
        received = pair.read(offset, max_bytes=300)
        values = values_of(bytes_of(received))
        assert (1, offset) in values
        got |= values
        offset = max(values)[1] + 1
        for region in received.message.regions:  # type: ignore[union-attr]
            pair.broker.tell(Released([region.token]))
    return {key: value for key, value in got.items() if key[1] < 60}


def forget_memory(pair: Pair) -> None:
    pair.reads.indexes._parsed.clear()
    pair.reads.indexes._bytes = 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_index_files_are_fetched_anew(pair: Pair, damage: str) -> None:
    truth = read_all(pair)
    for path in sorted((pair.root / INDEXES).iterdir()):
        DAMAGES[damage](path)
    forget_memory(pair)
    fetched = pair.calls(Operation.FETCH_INDEX)
    assert read_all(pair) == truth
    assert pair.calls(Operation.FETCH_INDEX) > fetched
    assert reasons(pair) == []
    forget_memory(pair)
    fetched = pair.calls(Operation.FETCH_INDEX)
    assert read_all(pair) == truth
    assert pair.calls(Operation.FETCH_INDEX) == fetched, "they are well again"


def test_one_flipped_bit_of_a_cached_transaction_index_is_noticed(tmp_path: Path) -> None:
    entry = txn_index.pack_entry(txn_index.AbortedTransaction(7, 10, 20, 21))
    cache, one = DiskIndexCache(Disk(), tmp_path, 1 << 20, ManualClock()), segment()
    fetches: list[int] = []

    def fetch() -> bytes:
        fetches.append(1)
        return entry

    def get() -> bytes:
        return cache.get(one, IndexType.TRANSACTION, fetch, past_cache=False)

    assert get() == get() == entry
    assert len(fetches) == 1
    (path,) = (tmp_path / INDEXES).iterdir()
    content = bytearray(path.read_bytes())
    for bit in range(0, len(content) * 8, 3):
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        assert get() == entry
        content[bit // 8] ^= 1 << bit % 8
    assert len(fetches) == 1 + len(range(0, len(content) * 8, 3))


def test_an_index_file_of_another_version_or_segment_is_not_used() -> None:
    assert unsealed("0_a.index", b"12345678" * 4) is None
    assert unsealed("0_b.index", sealed("0_a.index", b"12345678")) is None
    assert unsealed("0_a.index", sealed("0_a.index", b"12345678")) == b"12345678"
    assert unsealed("0_a.index", sealed("0_a.index", b"")) == b""


@pytest.mark.parametrize("operation", ["open_read", "rename", "write_at", "fsync"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_an_index_cache_that_fails_costs_no_read(
    tmp_path: Path, operation: str, number: int
) -> None:
    disk = FaultyDisk()
    pair = Pair(tmp_path, disk=disk)
    pair.log.fill(3, records=20)
    pair.assign()
    disk.fail([operation], path_part=INDEXES, error=number)
    truth = read_all(pair)
    assert len(truth) == 60
    forget_memory(pair)
    assert read_all(pair) == truth
    is_off = operation != "open_read" and number == errno.EIO
    assert [reason.split(":")[0] for reason in reasons(pair)] == (
        ["the index cache on disk is off"] if is_off else []
    )


def test_a_cache_directory_that_is_gone_costs_no_read(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    pair = Pair(tmp_path, cache_dir=str(cache), chunk_cache_disk_bytes=1 << 20)
    pair.log.fill(3, records=20)
    pair.assign()
    shutil.rmtree(cache)
    cache.write_text("no directory any more")
    assert len(read_all(pair)) == 60
    forget_memory(pair)
    assert len(read_all(pair)) == 60
    assert any("index cache on disk is off" in reason for reason in reasons(pair))
    assert not (tmp_path / INDEXES).exists()


@pytest.mark.parametrize("damage", [*DAMAGES, "unreadable"])
def test_damaged_chunk_files_are_fetched_anew(tmp_path: Path, damage: str) -> None:
    pair = Pair(tmp_path, chunk_cache_bytes=900, chunk_cache_disk_bytes=1 << 20)
    pair.log.fill(3, records=20)
    pair.assign()
    truth = read_all(pair)
    assert len(truth) == 60
    paths = sorted((tmp_path / CHUNKS).iterdir())
    assert len(paths) > 3
    for path in paths:
        (DAMAGES | {"unreadable": make_unreadable})[damage](path)
    assert read_all(pair) == truth
    off = [reason for reason in reasons(pair) if "chunk cache on disk is off" in reason]
    assert len(off) == (1 if damage == "unreadable" else 0)


def test_each_flipped_bit_of_a_cached_chunk_is_noticed(tmp_path: Path) -> None:
    """No checksum of a batch covers its base offset, and not every batch is in an index."""
    disk, size, key = Disk(), 100, (b"s" * 16, 0, 100)
    cache = DiskChunkCache(disk, tmp_path / CHUNKS, 1 << 20, "lru")
    data, buffer = bytes(range(size)), bytearray(size)
    source = disk.memfd("chunk")
    disk.write_at(source, 0, data)
    for bit in range(size * 8):
        cache.put(key, source, size)
        assert cache.read_into(key, memoryview(buffer))
        assert buffer == data
        (path,) = (tmp_path / CHUNKS).iterdir()
        content = bytearray(data)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        assert not cache.read_into(key, memoryview(buffer)), bit
        assert key not in cache, "it is let go"


def test_what_an_earlier_process_left_in_the_chunk_cache_is_removed(tmp_path: Path) -> None:
    (tmp_path / CHUNKS).mkdir()
    (tmp_path / CHUNKS / "1.chunk").write_bytes(b"of an hour ago")
    pair = Pair(tmp_path, chunk_cache_disk_bytes=1 << 20)
    pair.pump()
    assert list((tmp_path / CHUNKS).iterdir()) == []


def test_descriptors_that_are_used_up_do_not_switch_the_chunk_cache_off(tmp_path: Path) -> None:
    disk = FaultyDisk()
    pair = Pair(tmp_path, disk=disk, chunk_cache_bytes=900, chunk_cache_disk_bytes=1 << 20)
    pair.log.fill(3, records=20)
    pair.assign()
    truth = read_all(pair)
    disk.fail(["open_read", "write_at"], path_part=CHUNKS, error=errno.EMFILE)
    assert read_all(pair) == truth
    assert reasons(pair) == []
    disk.heal()
    assert read_all(pair) == truth
    assert pair.reads.on_disk.is_on
    files = [path.stat().st_size for path in (tmp_path / CHUNKS).iterdir()]
    assert sum(files) == pair.reads.on_disk.total_bytes


class NoMemoryFiles(Disk):
    """Makes no memory file while `is_short`."""

    is_short = False

    def memfd(self, name: str) -> OpenFile:
        if self.is_short:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().memfd(name)


def test_a_tier_without_descriptors_answers_late_and_continues(tmp_path: Path) -> None:
    disk = NoMemoryFiles()
    pair = Pair(tmp_path, disk=disk)
    pair.log.fill(1, records=20)
    pair.assign()
    disk.is_short = True
    assert pair.read(0, wait_ms=100).files == ()
    assert pair.reads.chunks.total_bytes == 0
    disk.is_short = False
    assert bytes_of(pair.read(0))
