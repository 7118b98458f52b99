"""What a read asks of the store: small first reads, a scan beside shared chunks, chunks on disk."""

import errno
from pathlib import Path
from random import Random

import pytest

from rlm.link.messages import Health, OffsetForTimestamp, ReadAnswer, Released, TimestampAnswer
from runtime.disk import Disk, OpenFile
from tests.support.tier.log_in_memory import values_of
from tests.support.tier.pair import NAMES, Pair, bytes_of, error_of, tokens_of


def count(pair: Pair, name: str, **labels: str) -> float:
    return sum(
        sample.value
        for sample in pair.tier.telemetry.registry.samples()
        if sample.name == name and sample.labels == labels
    )


def fetched_bytes(pair: Pair) -> float:
    name = "tidemark_remote_store_bytes_total"
    return count(pair, name, store="Y", operation="fetch", topic="orders")


def asked(pair: Pair, level: str, result: str) -> float:
    name = "tidemark_remote_chunk_cache_requests_total"
    return count(pair, name, level=level, result=result)


def make(root: Path, segments: int = 1, records: int = 500, **settings: object) -> Pair:
    pair = Pair(root, **settings)  # type: ignore[arg-type]
    pair.log.fill(segments, records=records, size_bytes=100)
    pair.assign()
    pair.log.expire_local()
    return pair


BATCH_BYTES_MAX = 190


@pytest.mark.parametrize("offset", [0, 1, 77, 250, 498, 499])
def test_one_record_at_a_cold_place_fetches_a_slice_and_no_more(
    tmp_path: Path, offset: int
) -> None:
    pair = make(tmp_path, chunk_bytes=20_000, slice_bytes=1_000)
    received = pair.read(offset, max_bytes=1_000_000)
    assert min(values_of(bytes_of(received)))[1] == offset
    # At an offset that begins a slice, the index names the batch before it: two slices.
    assert 0 < fetched_bytes(pair) <= 2 * (1_000 + BATCH_BYTES_MAX)


def test_a_reader_after_a_slice_gets_whole_chunks_and_each_record_once(
    tmp_path: Path,
) -> None:
    pair = make(tmp_path, segments=2, chunk_bytes=20_000, slice_bytes=1_000)
    offset, got = 333, list[int]()
    while offset < 1_000:
        received = pair.read(offset, max_bytes=5_000, read_ahead_bytes=0)
        got += [at for _, at in values_of(bytes_of(received))]
        assert isinstance(received.message, ReadAnswer)
        offset = received.message.next_offset
        pair.broker.tell(Released(tokens_of(received)))
    assert got == list(range(333, 1_000))


def test_a_slice_is_not_fetched_where_the_whole_chunk_is_here(tmp_path: Path) -> None:
    pair = make(tmp_path, chunk_bytes=20_000, slice_bytes=1_000)
    offset = 0
    while offset < 200:
        answer = pair.read(offset, max_bytes=5_000).message
        assert isinstance(answer, ReadAnswer)
        offset = answer.next_offset
    before = fetched_bytes(pair)
    bytes_of(pair.read(120, max_bytes=100))
    assert fetched_bytes(pair) == before


def test_a_time_is_looked_up_in_a_slice(tmp_path: Path) -> None:
    pair = make(tmp_path, chunk_bytes=20_000, slice_bytes=1_000)
    question = OffsetForTimestamp(
        *NAMES,
        pair.log.leader_epoch,
        timestamp_ms=1_250,
        log_start_offset=0,
        chain=[tuple(entry) for entry in pair.log.chain],
        wait_ms=500,
    )
    answer = pair.ask(question, 600).message
    assert isinstance(answer, TimestampAnswer)
    assert answer.offset == 250
    assert fetched_bytes(pair) <= 2 * (1_000 + BATCH_BYTES_MAX)


def scan_beside_hot_readers(root: Path, policy: str) -> tuple[float, float, float]:
    """Share of hits of readers of one region before, while and after another reads everything."""
    pair = make(
        root,
        segments=10,
        chunk_bytes=2_000,
        chunk_cache_bytes=40_000,
        chunk_cache_policy=policy,
    )
    rng, scan_at = Random(5), 1_000
    shares = []
    for is_scanning in (False, True, False):
        hits = reads = 0
        for _ in range(120):
            before = fetched_bytes(pair)
            received = pair.read(rng.randrange(60), max_bytes=150)
            pair.broker.tell(Released(tokens_of(received)))
            hits, reads = hits + (fetched_bytes(pair) == before), reads + 1
            for _ in range(3 if is_scanning else 0):
                received = pair.read(scan_at, max_bytes=2_000)
                pair.broker.tell(Released(tokens_of(received)))
                assert isinstance(received.message, ReadAnswer)
                scan_at = received.message.next_offset
        shares.append(hits / reads)
    return shares[0], shares[1], shares[2]


def test_a_backfill_leaves_what_several_readers_share_in_the_cache(tmp_path: Path) -> None:
    _, during, after = scan_beside_hot_readers(tmp_path / "resistant", "scan-resistant")
    assert during > 0.95
    assert after > 0.99
    _, during_lru, _ = scan_beside_hot_readers(tmp_path / "lru", "lru")
    assert during_lru < during


def on_disk(root: Path, **settings: object) -> Pair:
    return make(
        root,
        segments=3,
        records=100,
        chunk_bytes=2_000,
        chunk_cache_bytes=6_000,
        chunk_cache_disk_bytes=1_000_000,
        **settings,
    )


def read_all(pair: Pair) -> dict[tuple[int, int], bytes]:
    got = dict[tuple[int, int], bytes]()
    offset = 0
    while offset < pair.log.end:
        received = pair.read(offset, max_bytes=2_000)
        assert not error_of(received)
        got |= values_of(bytes_of(received))
        assert isinstance(received.message, ReadAnswer)
        offset = received.message.next_offset
        pair.broker.tell(Released(tokens_of(received)))
        pair.pump()
    return got


def chunk_files(root: Path) -> list[Path]:
    return sorted((root / "remote-log-chunk-cache").glob("*.chunk"))


def test_what_memory_has_no_room_for_is_read_back_from_disk(tmp_path: Path) -> None:
    pair = on_disk(tmp_path)
    assert read_all(pair) == pair.log.truth
    before, files = fetched_bytes(pair), chunk_files(tmp_path)
    assert len(files) > 5
    assert read_all(pair) == pair.log.truth
    # What was in memory at the end of the first round had not been written yet.
    assert fetched_bytes(pair) - before <= 8_000
    assert asked(pair, "disk", "hit") > 5


def test_the_disk_level_stays_within_its_bound(tmp_path: Path) -> None:
    pair = make(
        tmp_path,
        segments=3,
        records=100,
        chunk_bytes=2_000,
        chunk_cache_bytes=6_000,
        chunk_cache_disk_bytes=9_000,
    )
    read_all(pair)
    sizes = [path.stat().st_size for path in chunk_files(tmp_path)]
    assert 0 < sum(sizes) <= 9_000
    assert sum(sizes) == pair.reads.on_disk.total_bytes


def test_damage_on_disk_is_noticed_and_the_store_is_asked(tmp_path: Path) -> None:
    pair = on_disk(tmp_path)
    read_all(pair)
    for path in chunk_files(tmp_path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    before = fetched_bytes(pair)
    assert read_all(pair) == pair.log.truth
    assert fetched_bytes(pair) > before


def test_files_that_vanish_or_are_cut_cost_a_fetch_and_no_error(tmp_path: Path) -> None:
    pair = on_disk(tmp_path)
    read_all(pair)
    for number, path in enumerate(chunk_files(tmp_path)):
        path.unlink() if number % 2 else path.write_bytes(b"")
    assert read_all(pair) == pair.log.truth
    assert sum(path.stat().st_size for path in chunk_files(tmp_path)) == (
        pair.reads.on_disk.total_bytes
    )


@pytest.mark.parametrize("disk_bytes", [0, 1_000_000])
def test_nothing_of_an_earlier_process_is_used(tmp_path: Path, disk_bytes: int) -> None:
    read_all(on_disk(tmp_path))
    assert chunk_files(tmp_path)
    pair = Pair(tmp_path, chunk_cache_disk_bytes=disk_bytes)
    pair.pump()
    assert chunk_files(tmp_path) == []


class FullDisk(Disk):
    """A disk that takes only memory files."""

    def write_at(self, file: OpenFile, position: int, data: bytes | bytearray | memoryview) -> None:
        if isinstance(file.path, Path):
            raise OSError(errno.ENOSPC, "no space left")
        super().write_at(file, position, data)


def test_a_full_disk_switches_the_level_off_and_costs_no_read(tmp_path: Path) -> None:
    pair = on_disk(tmp_path)
    pair.reads.on_disk._disk = FullDisk()
    assert read_all(pair) == pair.log.truth
    assert chunk_files(tmp_path) == []
    pair.scheduler.advance(1_500)
    pair.pump()
    health = [each for each in pair.told if isinstance(each, Health)][-1]
    assert any("chunk cache on disk is off" in each.reason for each in health.unhealthy)


class StuckDisk(Disk):
    """A disk that removes nothing any more."""

    def unlink(self, path: Path, *, missing_ok: bool = True) -> None:
        raise OSError(errno.EIO, "input/output error")


def test_damage_on_a_disk_that_removes_nothing_costs_no_read(tmp_path: Path) -> None:
    pair = on_disk(tmp_path)
    read_all(pair)
    for path in chunk_files(tmp_path):
        path.write_bytes(bytes(path.stat().st_size))
    pair.reads.on_disk._disk = StuckDisk()
    assert read_all(pair) == pair.log.truth
    assert not pair.reads.on_disk.is_on
