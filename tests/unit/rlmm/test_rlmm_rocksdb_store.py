from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rocksdict import Options, Rdict

from rlmm.api import Fence, PartitionDeleteState
from rlmm.barrier import newest_of
from rlmm.lifecycle import PartitionFacts, SegmentEntry
from rlmm.rocksdb_store import RocksdbStore
from rlmm.store import START, Changes, MemoryStore, MetadataStore, Position, SegmentChange
from rlmm.store import partition_key as key_of
from rlmm.testing import PARTITION, segment

KEY = key_of(PARTITION)
FACTS = PartitionFacts(
    PARTITION,
    Fence(3, 4),
    77,
    PartitionDeleteState.DELETE_PARTITION_MARKED,
    1_234,
    2,
    highest_epoch=5,
    log_starts=((1, 2**40), (3, 0)),
    given_ends=((-1, 70), (3, 20)),
    unclean_epoch=2,
)


def entry(number: int, first: int) -> SegmentEntry:
    meta = replace(segment(number, first, first + 9), custom_metadata=b"k", txn_index_empty=True)
    return SegmentEntry(meta, number, number * 10, Fence(1, number), Fence(2, 2**62))


def put(*entries: SegmentEntry) -> Changes:
    facts = replace(FACTS, live_count=len(entries))
    return Changes({KEY: facts}, {(KEY, e.metadata.id.id): SegmentChange(None, e) for e in entries})


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    made: MetadataStore = MemoryStore()
    if request.param == "rocksdb":
        made = RocksdbStore(tmp_path / "cache", cluster_id="c", partition_count=50)
    yield made
    made.close()


def test_an_empty_store_begins_at_the_start(store: MetadataStore) -> None:
    assert store.position(3) == START
    assert store.facts(3, KEY) is None
    assert store.all_facts(3) == []
    assert list(store.entries(3, KEY)) == []
    assert store.entry(3, KEY, b"x" * 16) is None


def test_all_that_is_written_comes_back(store: MetadataStore) -> None:
    one = entry(1, 0)
    bare = SegmentEntry(segment(2, 10, 19), started_seen_ms=5)
    store.write(3, put(one, bare), Position(9, 2))
    assert store.position(3) == Position(9, 2)
    assert store.facts(3, KEY) == FACTS
    assert store.all_facts(3) == [FACTS]
    assert FACTS.live_count == 2
    assert store.entry(3, KEY, one.metadata.id.id) == one
    assert list(store.entries(3, KEY)) == [one, bare]


def test_entries_ascend_by_start_offset(store: MetadataStore) -> None:
    entries = [entry(1, 2**40), entry(2, 300), entry(3, 7), entry(4, 300)]
    store.write(3, put(*entries), Position(1, 0))
    starts = [e.metadata.start_offset for e in store.entries(3, KEY)]
    assert starts == [7, 300, 300, 2**40]


def test_the_newest_entry_is_the_one_that_a_barrier_repeats(store: MetadataStore) -> None:
    assert store.newest_entry(3, KEY) is None
    long = SegmentEntry(segment(5, 20, 2**40), started_seen_ms=1)
    same_end = SegmentEntry(segment(6, 500, 2**40), started_seen_ms=1)
    entries = [entry(1, 0), entry(2, 300), long, entry(4, 2**39), same_end]
    for count in range(1, len(entries) + 1):
        store.write(3, put(*entries[:count]), Position(count, 0))
        live = [each.metadata for each in store.entries(3, KEY)]
        newest = store.newest_entry(3, KEY)
        assert newest is not None
        assert newest.metadata == newest_of(live)


def test_a_forgotten_segment_is_gone(store: MetadataStore) -> None:
    one = entry(1, 0)
    store.write(3, put(one), Position(1, 0))
    gone = Changes(
        {KEY: replace(FACTS, live_count=0)}, {(KEY, one.metadata.id.id): SegmentChange(one, None)}
    )
    store.write(3, gone, Position(2, 0))
    assert store.entry(3, KEY, one.metadata.id.id) is None
    assert list(store.entries(3, KEY)) == []


def test_partitions_are_kept_apart(store: MetadataStore) -> None:
    other = (PARTITION.topic_id, 256)
    store.write(3, put(entry(1, 0)), Position(1, 0))
    assert list(store.entries(3, other)) == []
    assert store.all_facts(2) == []
    assert store.all_facts(4) == []


def test_dropping_a_metadata_partition_leaves_the_others(store: MetadataStore) -> None:
    for number in (2, 3, 4):
        store.write(number, put(entry(number, 0)), Position(1, 0))
    store.drop(3)
    assert store.position(3) == START
    assert store.all_facts(3) == []
    assert store.entry(3, KEY, (3).to_bytes(16, "big")) is None
    assert list(store.entries(3, KEY)) == []
    assert len(list(store.entries(2, KEY))) == len(list(store.entries(4, KEY))) == 1


def reopened(directory: Path, cluster_id: str = "c", count: int = 50) -> MetadataStore:
    first = RocksdbStore(directory, cluster_id="c", partition_count=50)
    first.write(3, put(entry(1, 0)), Position(9, 2))
    first.close()
    return RocksdbStore(directory, cluster_id=cluster_id, partition_count=count)


def test_a_restart_finds_everything(tmp_path: Path) -> None:
    store = reopened(tmp_path / "cache")
    assert store.position(3) == Position(9, 2)
    assert list(store.entries(3, KEY)) == [entry(1, 0)]
    store.close()


@pytest.mark.parametrize(("cluster_id", "count"), [("other", 50), ("c", 49)])
def test_a_cache_of_another_cluster_or_topic_is_thrown_away(
    tmp_path: Path, cluster_id: str, count: int
) -> None:
    store = reopened(tmp_path / "cache", cluster_id, count)
    assert store.position(3) == START
    assert store.all_facts(3) == []
    store.close()


def raw(directory: Path) -> Rdict:
    """The database itself, to write what other versions wrote."""
    return Rdict(str(directory), Options(raw_mode=True))


@pytest.mark.parametrize(
    "version",
    [
        msgspec.msgpack.encode((2, "c", 50)),  # of the version before
        msgspec.msgpack.encode((4, "c", 50, "more")),
        msgspec.msgpack.encode("c"),
        None,
    ],
)
def test_a_cache_of_another_layout_or_of_none_is_thrown_away(
    tmp_path: Path, version: bytes | None
) -> None:
    directory = tmp_path / "cache"
    reopened(directory).close()
    db = raw(directory)
    if version is None:
        del db[b"V"]
    else:
        db[b"V"] = version
    db.close()
    store = RocksdbStore(directory, cluster_id="c", partition_count=50)
    assert store.position(3) == START
    assert store.all_facts(3) == []
    store.write(3, put(entry(1, 0)), Position(9, 2))
    store.close()
    again = RocksdbStore(directory, cluster_id="c", partition_count=50)
    assert again.position(3) == Position(9, 2), "it has the number of this layout now"
    again.close()


def test_a_damaged_cache_is_thrown_away(tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    reopened(directory).close()
    for path in directory.glob("MANIFEST*"):
        path.write_bytes(b"not a manifest")
    store = RocksdbStore(directory, cluster_id="c", partition_count=50)
    assert store.position(3) == START
    store.close()


def test_a_file_in_the_place_of_the_cache_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"this is no directory")
    store = RocksdbStore(tmp_path / "cache", cluster_id="c", partition_count=50)
    assert store.position(3) == START
    store.close()


def test_the_cache_may_be_deleted_whole(tmp_path: Path) -> None:
    store = RocksdbStore(tmp_path / "a" / "b", cluster_id="c", partition_count=1)
    assert store.position(0) == START
    store.close()
