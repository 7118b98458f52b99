"""The RocksDB cache after damage: what it still says is a moment of the topic, or it begins again.

Never a part of the segments: a partition with a hole would be validated by it.
"""

import gc
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlmm.api import Fence
from rlmm.lifecycle import PartitionFacts, SegmentEntry
from rlmm.rocksdb_store import DAMAGE_SUFFIX, RocksdbStore
from rlmm.store import START, Changes, DamagedStoreError, Position, SegmentChange
from rlmm.store import partition_key as key_of
from rlmm.testing import PARTITION, segment
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng
from tests.support.tier.memory_topic import MemoryTopic

KEY = key_of(PARTITION)
COUNT = 600


def opened(directory: Path) -> RocksdbStore:
    gc.collect()  # what cannot be closed ends with its process, here with its last reference
    return RocksdbStore(directory, cluster_id="c", partition_count=3)


def write(store: RocksdbStore, number: int) -> None:
    """The record at offset `number` of the topic: one more segment."""
    entry = SegmentEntry(segment(number, number * 10, number * 10 + 9), number, number)
    facts = PartitionFacts(PARTITION, Fence(1, 1), live_count=number + 1)
    changes = Changes({KEY: facts}, {(KEY, entry.metadata.id.id): SegmentChange(None, entry)})
    store.write(1, changes, Position(number + 1, 0))


@pytest.fixture(autouse=True, scope="module")
def few_objects_to_collect() -> Iterator[None]:
    """`opened` collects garbage some hundred times: not among all that other tests have made."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of two tables and a log, as a kill leaves it."""
    root = tmp_path_factory.mktemp("cache")
    store = opened(root / "live")
    for number in range(COUNT):
        write(store, number)
        if number in (COUNT // 3, COUNT * 2 // 3):
            store._db.flush()
    shutil.copytree(root / "live", root / "killed")
    store.close()
    return root / "killed"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 3] ^= 4
    path.write_bytes(data)


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "lost": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": flip,
    "unreadable": unreadable,
}


def segments(store: RocksdbStore) -> int:
    """How many segments the store has, all of which must be those up to its position."""
    found = [entry.metadata.start_offset // 10 for entry in store.entries(1, KEY)]
    assert found == list(range(max(0, store.position(1).offset)))
    for number in found[::7]:
        assert store.entry(1, KEY, segment(number, 0, 0).id.id) is not None
    facts = store.all_facts(1)
    assert [each.live_count for each in facts] == ([len(found)] if found else [])
    return len(found)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(one, marks=() if one in ("lost", "flipped") else pytest.mark.long(seconds=5))
        for one in DAMAGES
    ],
)
def test_a_damaged_file_costs_a_rebuild_and_never_a_part_of_the_segments(
    killed: Path, tmp_path: Path, damage: str
) -> None:
    names = sorted(path.name for path in killed.iterdir())
    assert {Path(name).suffix for name in names} >= {".sst", ".log"}
    for name in names:
        directory = tmp_path / f"of {name}"
        shutil.copytree(killed, directory)
        DAMAGES[damage](directory / name)
        for _ in range(2):
            store = opened(directory)
            try:
                segments(store)
            except DamagedStoreError:
                assert store.failure is not None
                continue
            finally:
                store.close()
            break
        else:
            pytest.fail(f"{name} stays damaged")
        store = opened(directory)
        write(store, segments(store))
        segments(store)
        store.close()


def test_a_log_cut_at_any_byte_keeps_position_and_segments_consistent(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path / "live")
    write(store, 0)
    (log,) = (tmp_path / "live").glob("*.log")
    first_write = log.stat().st_size
    write(store, 1)
    shutil.copytree(tmp_path / "live", tmp_path / "killed")
    store.close()
    data = (tmp_path / "killed" / log.name).read_bytes()
    seen = set()
    for end in (*range(first_write, len(data), 24), len(data)):  # a position alone takes 39
        directory = tmp_path / f"cut at {end}"
        shutil.copytree(tmp_path / "killed", directory)
        (directory / log.name).write_bytes(data[:end])
        store = opened(directory)
        seen.add(segments(store))
        store.close()
    assert seen == {1, 2}


def test_an_undamaged_cache_is_used_as_it_is(killed: Path, tmp_path: Path) -> None:
    shutil.copytree(killed, tmp_path / "cache")
    store = opened(tmp_path / "cache")
    assert segments(store) == COUNT
    store.close()


def test_a_cache_of_an_hour_ago_is_an_earlier_moment(tmp_path: Path) -> None:
    store = opened(tmp_path / "cache")
    for number in range(10):
        write(store, number)
    shutil.copytree(tmp_path / "cache", tmp_path / "an hour ago")
    for number in range(10, 20):
        write(store, number)
    store.close()
    store = opened(tmp_path / "an hour ago")
    assert segments(store) == 10
    assert store.position(1) == Position(10, 0)
    store.close()


def test_entries_that_are_not_as_many_as_was_counted_prove_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path / "cache")
    for number in range(5):
        write(store, number)
    facts = PartitionFacts(PARTITION, Fence(1, 1), live_count=9)
    store.write(1, Changes({KEY: facts}, {}), Position(6, 0))
    with pytest.raises(DamagedStoreError, match="5 live segments are stored, not 9"):
        list(store.entries(1, KEY))
    store.close()
    store = opened(tmp_path / "cache")
    assert store.position(1) == START
    store.close()


def test_a_cache_that_another_process_has_open_is_left_alone(tmp_path: Path) -> None:
    first = opened(tmp_path / "cache")
    write(first, 0)
    with pytest.raises(Exception, match="lock"):
        opened(tmp_path / "cache")
    assert segments(first) == 1
    first.close()


def test_a_manager_with_a_damaged_cache_ends_and_the_next_reads_the_topic(
    tmp_path: Path,
) -> None:
    topic = MemoryTopic(3)

    def manager() -> TopicBasedRemoteLogMetadataManager:
        gc.collect()
        made = TopicBasedRemoteLogMetadataManager(
            port_factory=lambda settings: topic.port(),
            clock=ManualClock(),
            rng=SeededRng(1),
            threaded=False,
        )
        made.configure(
            {
                "node.id": "1",
                "cluster.id": "c",
                "log.dir": str(tmp_path),
                "bootstrap.servers": "nowhere:1",
            }
        )
        return made

    def owned(made: TopicBasedRemoteLogMetadataManager, incarnation: int) -> bool:
        done = made.own(PARTITION, Fence(1, incarnation))
        for _ in range(20):
            made.turn()
        return done.done() and done.exception() is None

    first = manager()
    assert owned(first, 1)
    for number in range(200):
        add = first.add(segment(number, number, number), Fence(1, 1), 1)
        for _ in range(3):
            first.turn()
        assert add.exception(0) is None
    store = first._store
    assert isinstance(store, RocksdbStore)
    store._db.flush()
    first.close()
    for path in (tmp_path / "remote-log-metadata").glob("*.sst"):
        flip(path)
    second = manager()
    try:
        is_owned = owned(second, 2)
    except DamagedStoreError:
        is_owned = False
    assert not is_owned or second.failure() is None
    second.close()
    third = manager()
    assert owned(third, 3)
    assert len(list(third.list_segments(PARTITION))) == 200
    third.close()
    assert not (tmp_path / f"remote-log-metadata{DAMAGE_SUFFIX}").exists()


def test_the_count_follows_each_change(tmp_path: Path) -> None:
    store = opened(tmp_path / "cache")
    write(store, 0)
    (entry,) = store.entries(1, KEY)
    facts = replace(PartitionFacts(PARTITION, Fence(1, 1)), live_count=0)
    gone = Changes({KEY: facts}, {(KEY, entry.metadata.id.id): SegmentChange(entry, None)})
    store.write(1, gone, Position(2, 0))
    assert list(store.entries(1, KEY)) == []
    store.close()
