"""Caches that no other test fills: each keeps its bound, and gives the same answers beyond it."""

from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.group import offsets as group_offsets
from broker.coordinator.group.offsets import OffsetStore
from broker.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from broker.handlers.metadata import MetadataHandler
from broker.remote import buffered_ranges
from broker.remote.buffered_ranges import BufferedRange, BufferedRanges, Position
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from local_log.log.segments import RECENT_BATCHES
from metadata_topic.quorum.driver.raft_metrics import RaftMetrics
from rlm.link.messages import ReadAnswer
from rlm.read import index_cache, loads
from rlm.read.index_cache import IndexCache
from rlm.read.loads import Loads, Wait
from rlm.read.read_ahead import READERS_MAX, Sequence, Sequences
from rlm.read.read_ahead_policy import Pace
from rlm.read.segment_index import SegmentIndex
from rlmm import quick_records, records
from rlmm.api import PartitionDeleteState
from rlmm.events import SegmentAdded
from rlmm.lifecycle import Fence, PartitionFacts, Stamp
from rlmm.store import Changes, MemoryStore, SegmentChange
from rlmm.topic_based.view_cache import ViewCache
from rsm_plugins.layout.manager import BoundedMap
from rsm_plugins.segment import RemoteLogSegmentId
from runtime.metrics import Registry
from tests.support.samples.remote import PARTITION, STARTED, entry, metadata
from tests.support.sim.clock import ManualClock
from tests.support.sim.scheduler import ManualScheduler
from tests.support.tier.log_in_memory import InlineWorkers
from tests.support.worlds.admin import Admin
from tests.support.worlds.local_log import open_log


def test_places_of_few_batches_are_remembered(tmp_path: Path) -> None:
    places = open_log(tmp_path).segments
    count = 5 * RECENT_BATCHES
    for n in range(count):
        places.note_place(n, n * 100, 100)
    known = [n for n in range(count) if places.recent_place(n) is not None]
    assert RECENT_BATCHES <= len(known) <= 2 * RECENT_BATCHES
    assert known[-1] == count - 1  # the newest are
    assert places.recent_place(count - 1) == ((count - 1) * 100, 100)


def test_readers_that_continue_are_bounded() -> None:
    gone: list[int] = []
    readers = Sequences(gone.append)
    for n in range(READERS_MAX + 10):
        readers.remember((b"topic", 0, n), Sequence(n, Pace()), now_ms=0)
    assert len(readers) == READERS_MAX
    assert gone == list(range(10))  # the longest silent


def test_windows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffered_ranges, "BUFFERED_RANGES_MAX", 3)
    clock = ManualClock()
    kept = BufferedRanges(clock, ManualScheduler(clock))
    places = [Position(b"t", 0, 0, offset, 0, False, "reader") for offset in range(5)]
    table = {"batch_ends": array("q", [10]), "last_offsets": array("q", [100])}
    answer = ReadAnswer(b"t", 0, 0, **{name: each.tobytes() for name, each in table.items()})
    for place in places:
        kept.put(BufferedRange(place, answer, [memoryview(bytes(10))]))
    assert len(kept) == 3
    assert [place in kept for place in places] == [False, False, True, True, True]


def test_a_bounded_map_keeps_the_last_used() -> None:
    known: BoundedMap[int, str] = BoundedMap(2)
    known[1], known[2] = "a", "b"
    assert known.get(1) == "a"
    known[3] = "c"
    assert (known.get(1), known.get(2), known.get(3)) == ("a", None, "c")


def test_views_of_partitions_without_segments_are_bounded_too() -> None:
    views = ViewCache(MemoryStore(), segments_max=10)
    partitions = [(n.to_bytes(16, "big"), 0) for n in range(50)]
    made = [views.get(0, partition) for partition in partitions]
    assert views.get(0, partitions[-1]) is made[-1]
    assert views.get(0, partitions[0]) is not made[0]
    views.drop(0)
    again = [views.get(0, partition) for partition in partitions[:10]]
    assert [views.get(0, one) for one in partitions[:10]] == again  # the count is whole again


def test_a_view_counts_as_it_grows_and_as_it_shrinks() -> None:
    views = ViewCache(MemoryStore(), segments_max=10)
    grows, other, third = ((n.to_bytes(16, "big"), 0) for n in range(3))
    held = views.get(0, grows)
    segments = {(grows, n.to_bytes(16, "big")): entry(metadata(n, n)) for n in range(20)}
    for key, one in segments.items():
        views.apply(0, Changes(segments={key: SegmentChange(None, one)}))
    for key, one in segments.items():
        views.apply(0, Changes(segments={key: SegmentChange(one, None)}))
    views.get(0, other)
    assert views.get(0, grows) is held, "nothing is left of its segments"
    for key, one in segments.items():
        views.apply(0, Changes(segments={key: SegmentChange(None, one)}))
    assert len(held) == len(segments)
    views.get(0, third)
    assert (0, other) not in views._views
    assert (0, grows) not in views._views


def test_a_partition_whose_deletion_is_complete_has_no_view_any_more() -> None:
    views = ViewCache(MemoryStore(), segments_max=10)
    key = (PARTITION.topic_id, PARTITION.partition)
    held = views.get(0, key)
    for state in PartitionDeleteState:
        is_last = state is PartitionDeleteState.DELETE_PARTITION_FINISHED
        views.apply(0, Changes(facts={key: PartitionFacts(PARTITION, delete_state=state)}))
        assert ((0, key) not in views._views) == is_last
    assert views.get(0, key) is not held


def test_known_parts_of_metadata_records_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_records, "_KNOWN_MAX", 5)
    monkeypatch.setattr(quick_records, "_partitions", {})
    for n in range(30):
        partition = PARTITION._replace(topic=f"topic-{n}")
        named = replace(metadata(0, 9), id=RemoteLogSegmentId(partition, bytes(16)))
        event = SegmentAdded(replace(named, state=STARTED), Stamp(Fence(1, n), -1))
        assert records.decode(records.encode(event)) == event
    assert 0 < len(quick_records._partitions) <= 6


def test_failed_loads_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "FAILURES_MAX", 4)
    workers, clock = InlineWorkers(), ManualClock()
    all_loads = Loads(workers, clock, ManualScheduler(clock), 100)
    for n in range(10):
        all_loads.ask(Failing((f"key-{n}",)), lambda: None)
        workers.turn()
    failed = [n for n in range(10) if all_loads.has_failed(f"key-{n}")]
    assert failed == [6, 7, 8, 9]
    errors = [all_loads.failure(f"key-{n}") for n in failed]
    assert [str(error) for error in errors] == ["no store"] * 4
    for error in errors:  # frames would keep buffers, and all that they were called with
        assert error is not None
        assert error.__traceback__ is None
        assert error.__cause__ is not None
        assert error.__cause__.__traceback__ is None


class Failing:
    """A load that fails, and counts what it reserved."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.reserved = 0

    def reserve(self) -> bool:
        self.reserved += 1
        return True

    def run(self, damaged: int):  # type: ignore[no-untyped-def]
        try:
            raise ConnectionResetError("by the peer")
        except OSError as error:
            raise OSError("no store") from error
        yield

    def arrived(self, number: int, value: object) -> None:
        raise AssertionError("nothing arrives")

    def failed(self, error: BaseException, is_final: bool) -> None:
        assert isinstance(error, OSError)

    def free(self, number: int) -> None:
        self.reserved -= 1


class HeldWorkers(InlineWorkers):
    """Threads that begin with nothing."""

    def run(self, pool, job, done) -> None:  # type: ignore[no-untyped-def]
        """Keep it."""


def test_loads_beyond_the_bound_wait_and_reserve_nothing() -> None:
    clock = ManualClock()
    all_loads = Loads(HeldWorkers(), clock, ManualScheduler(clock), in_flight_max=3)
    asked = [Failing((f"key-{n}",)) for n in range(5)]
    waits = [all_loads.ask(one, lambda: None, f"reader-{n}") for n, one in enumerate(asked)]
    assert waits == [Wait.LOADING] * 3 + [Wait.FULL] * 2
    assert [one.reserved for one in asked] == [1, 1, 1, 0, 0]
    assert all_loads.in_flight == 3
    assert not all_loads.has_capacity()  # nothing is loaded ahead of anybody then


def test_the_times_of_few_appends_are_kept() -> None:
    clock = ManualClock()
    registry = Registry()
    metrics = RaftMetrics(registry, clock)
    for n in range(1_500):
        metrics.appended(1, n + 1)
    clock.advance(7)
    metrics.committed(1_500)
    counted = [one for one in registry.samples() if one.name.endswith("commit_time_ms_count")]
    assert [one.value for one in counted] == [1_000]


def test_a_kept_answer_is_that_of_one_who_asked_for_operations_or_not(tmp_path: Path) -> None:
    admin = Admin({}, tmp_path)
    handler = MetadataHandler(admin.cluster, None)
    request = codec.request(ApiKey.METADATA).cls
    admin.create("topic")
    for wants in (False, True, False, True):
        asked = request(topics=None, include_topic_authorized_operations=wants)
        (topic,) = admin.ask(handler, asked, 9).topics
        assert (topic.topic_authorized_operations != -(2**31)) is wants


def test_answers_about_deleted_topics_are_not_kept_for_long(tmp_path: Path) -> None:
    admin = Admin({}, tmp_path)
    handler = MetadataHandler(admin.cluster, None)
    request = codec.request(ApiKey.METADATA).cls
    admin.create("stays")
    for n in range(30):
        (made,) = admin.create(f"goes-{n}")
        answer = admin.ask(handler, request(topics=None, allow_auto_topic_creation=False))
        assert {topic.name for topic in answer.topics} == {"stays", f"goes-{n}"}
        admin.delete((None, made.topic_id))
    assert len(handler._encoded) <= 5


def test_a_page_of_partitions_is_bounded_and_names_the_next_ones_start(
    tmp_path: Path,
) -> None:
    admin = Admin({}, tmp_path)
    admin.create("a", "b", num_partitions=4)
    handler = DescribeTopicPartitionsHandler(admin.cluster, 3, lambda _: False)
    request = codec.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS).cls
    cursor, pages = None, []
    while True:
        answer = admin.ask(handler, request(response_partition_limit=2_000, cursor=cursor))
        pages.append([len(topic.partitions) for topic in answer.topics])
        if answer.next_cursor is None:
            break
        at = answer.next_cursor
        cursor = request.Cursor(topic_name=at.topic_name, partition_index=at.partition_index)
    assert pages == [[3], [1, 2], [2]]


def test_parsed_indexes_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    one = SegmentIndex(metadata(0, 9), b"", b"", 1 << 20, 1 << 20)
    monkeypatch.setattr(index_cache, "MEMORY_BYTES", 3 * one.size_bytes)
    parts: dict[str, Any] = dict.fromkeys(("store", "files", "loads", "config"))
    cache = IndexCache(**parts, clock=ManualClock())  # nothing is loaded
    for n in range(10):
        cache._keep(n.to_bytes(16, "big"), one)
    assert [n for n in range(10) if n.to_bytes(16, "big") in cache._parsed] == [7, 8, 9]
    cache.distrust((8).to_bytes(16, "big"))
    cache._keep(bytes(16), one)
    assert len(cache._parsed) == 3


def test_a_load_remembers_few_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "_PREFIXES_MAX", 4)
    offsets = OffsetStore()
    for n in range(10):
        offsets.groups[f"g{n}"] = {"t": {}}
        offsets.remember_prefix(b"key of %d" % n, f"g{n}", "t")
        assert len(offsets.by_prefix) <= 4
    assert offsets.put_again(b"key of 9" + bytes(4), b"value", 7)
    assert not offsets.put_again(b"key of 0" + bytes(4), b"value", 7)  # is read in full
