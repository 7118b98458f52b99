"""Readers of a far store on a virtual clock: what they get of what it can give, and what is wasted.

The real reader, caches and loads; the store is a directory whose answers take their time: 30 ms to
the first byte, then all requests share 200 bytes a millisecond. Sizes are a thousandth of real ones
(chunks of 2,000 bytes), so the ratios are those of 2 MB chunks at 200 MB/s.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from rlm.config import TierConfig
from rlm.deletions import Deletions
from rlm.link.endpoint import Endpoint, FakeLink, Received
from rlm.link.messages import (
    Assign,
    Configure,
    Connect,
    PartitionSettings,
    Read,
    ReadAnswer,
    Released,
)
from rlm.plugins import Plugins
from rlm.service import Link, TierReceiver
from rlm.workers import READER_POOL, Done
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.sim.rng import SeededRng
from tests.support.tier.log_in_memory import PARTITION, InlineWorkers, SimulatedBroker

FIRST_BYTE_MS, BYTES_PER_MS, THREADS = 30, 200, 10
CHUNK_BYTES, CACHE_BYTES = 2_000, 128_000


class JobClock(ManualClock):
    """Inside a job, which runs in no time, it shows what the job takes."""

    spent_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.spent_ms


class FarStorage(LocalFsRemoteStorageManager):
    """Says how many bytes each ranged read asked for, and lets its job's time pass."""

    def __init__(self, clock: JobClock) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.clock = clock

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        stream = super().fetch_log_segment(metadata, start_position, end_position)
        with stream:
            data = stream.read()
        self.asked.append(len(data))
        self.clock.spent_ms += FIRST_BYTE_MS
        return FarStream(data, self.clock)


class FarStream(io.BytesIO):
    def __init__(self, data: bytes, clock: JobClock) -> None:
        super().__init__(data)
        self._clock = clock

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        count = super().readinto(buffer)
        self._clock.spent_ms += count // BYTES_PER_MS
        return count


@dataclass(eq=False)
class Transfer:
    """A job of the reader pool that holds a thread until its bytes have come."""

    left_bytes: float
    waits_ms: int
    posts: list[Callable[[], None]] = field(default_factory=list)


class FarWorkers(InlineWorkers):
    """Reader jobs end when the simulated network has brought what they asked of the store."""

    def __init__(self, storage: FarStorage) -> None:
        super().__init__()
        self.storage = storage
        self.waiting: list[tuple[Callable[[], Any], Done[Any]]] = []
        self.running: list[Transfer] = []
        self.busy_ms = self.moved_bytes = 0.0

    def threads(self, pool: str) -> int:
        return THREADS

    def run(self, pool: str, job: Callable[[], Any], done: Done[Any]) -> None:
        if pool == READER_POOL:
            self.waiting.append((job, done))
            self._begin()
        else:
            super().run(pool, job, done)

    def _begin(self) -> None:
        while self.waiting and len(self.running) < THREADS:
            job, done = self.waiting.pop(0)
            own, self.queue = self.queue, []
            asked = len(self.storage.asked)
            InlineWorkers.run(self, READER_POOL, job, done)
            (_, work), self.queue = self.queue[0], []
            work()
            self.storage.clock.spent_ms = 0
            posts, self.queue = [call for _, call in self.queue], own
            size_bytes = sum(self.storage.asked[asked:])
            self.running.append(Transfer(size_bytes, FIRST_BYTE_MS if size_bytes else 1, posts))

    def tick(self) -> None:
        """A millisecond passes on the network."""
        active = [each for each in self.running if each.waits_ms <= 0]
        share = BYTES_PER_MS / max(1, len(active))
        for each in list(self.running):
            if each.waits_ms > 0:
                each.waits_ms -= 1
                continue
            self.moved_bytes += min(share, each.left_bytes)
            each.left_bytes -= share
            if each.left_bytes <= 0:
                self.running.remove(each)
                for post in each.posts:
                    self.post(post)
        self._begin()


class World:
    """A tier, and readers of its one partition at different places."""

    def __init__(self, root: Path, *, segments: int, records: int, **settings: object) -> None:
        self.clock = JobClock(wall_ms=10_000_000)
        ports = simulated(seed=2, clock=self.clock)
        self.scheduler = ports.scheduler
        self.storage = FarStorage(self.clock)
        self.storage.configure({"dir": str(root / "store")})
        self.workers = FarWorkers(self.storage)
        self.log = SimulatedBroker()
        self.log.fill(segments, records=records, size_bytes=120)
        metadata = InMemoryRemoteLogMetadataManager(self.clock, SeededRng(1))
        deletions = Deletions(self.storage, self.clock, 600_000, 3_600_000)
        self.receiver = TierReceiver(
            lambda config, calls: Plugins(self.storage, metadata, deletions),
            self._make_workers,
            ports,
            Link(
                broker=self.log,
                tell=lambda _: None,
                abort=pytest.fail,
                ended=lambda: None,
            ),
        )
        config = TierConfig(
            node_id=1,
            cluster_id="c",
            state_dir=str(root),
            cache_dir=str(root),
            storage_class="x:Y",
            chunk_bytes=CHUNK_BYTES,
            slice_bytes=CHUNK_BYTES // 16,
            chunk_cache_bytes=CACHE_BYTES,
        )
        self.broker = Endpoint(lambda received, reply: None, lambda: None)
        tier = Endpoint(self.receiver, lambda: None)
        self.link = FakeLink(self.broker, tier)
        self.broker.ask(Configure(replace(config, **settings)))  # type: ignore[arg-type]
        self.pump()
        self.broker.ask(Connect())
        self.pump()
        self.broker.ask(
            Assign(
                PARTITION.topic_id,
                PARTITION.partition,
                self.log.leader_epoch,
                topic="orders",
                is_leader=True,
                settings=PartitionSettings(),
            )
        )
        self.pump()
        self.log.expire_local()
        self.storage.asked.clear()  # of copies that were read back
        self.clock.spent_ms = 0

    def _make_workers(self, _: Mapping[str, int]) -> FarWorkers:
        return self.workers

    def pump(self) -> None:
        while self.link.pump() or self.workers.turn():
            pass

    def tick(self) -> None:
        self.workers.tick()
        self.pump()
        self.scheduler.advance(1)
        self.pump()

    @property
    def got_bytes(self) -> int:
        return sum(self.storage.asked)


class Reader:
    """Reads on, as fast as it gets answers or slower."""

    def __init__(self, world: World, offset: int, end: int, *, pause_ms: int = 0) -> None:
        self.world, self.offset, self.end, self.pause_ms = world, offset, end, pause_ms
        self.read_bytes = self.waits = 0
        self.ask()

    @property
    def is_done(self) -> bool:
        return self.offset >= self.end

    def ask(self) -> None:
        question = Read(
            PARTITION.topic_id,
            PARTITION.partition,
            self.world.log.leader_epoch,
            offset=self.offset,
            offset_epoch=1,
            epoch_end=self.world.log.end,
            max_bytes=1_000,
            min_one_batch=True,
            read_committed=False,
            wait_ms=500,
            holder=f"reader {id(self)}",
            read_ahead_bytes=4_000,
        )
        self.world.broker.ask(question).add_done_callback(
            lambda done: self._answered(done.result())
        )

    def _answered(self, received: Received) -> None:
        answer = received.message
        assert isinstance(answer, ReadAnswer)
        assert not answer.error, answer
        for region in answer.regions:
            self.read_bytes += region.size_bytes
        self.world.broker.tell(Released([region.token for region in answer.regions]))
        if answer.regions:
            self.offset = answer.next_offset
        if not self.is_done:
            self.world.scheduler.call_later(self.pause_ms, self.ask)


def run(world: World, readers: list[Reader], limit_ms: int = 60_000) -> int:
    began = world.clock.monotonic_ms()
    while not all(reader.is_done for reader in readers):
        world.tick()
        assert world.clock.monotonic_ms() - began < limit_ms, "no end"
    return world.clock.monotonic_ms() - began


def share_of_the_store(world: World, readers: list[Reader]) -> float:
    took_ms = run(world, readers)
    return sum(reader.read_bytes for reader in readers) / took_ms / BYTES_PER_MS


def test_one_reader_gets_four_fifths_of_what_a_far_store_can_give(tmp_path: Path) -> None:
    world = World(tmp_path, segments=10, records=500)
    reader = Reader(world, 0, 5_000)
    assert share_of_the_store(world, [reader]) >= 0.8
    assert world.got_bytes <= reader.read_bytes * 1.02


def test_a_reader_of_small_segments_does_not_wait_at_their_ends(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, segments=400, records=8)
    reader = Reader(world, 0, 3_200)
    # Each takes the store's time for its indexes as well.
    assert share_of_the_store(world, [reader]) >= 0.4
    assert world.got_bytes <= reader.read_bytes * 1.05


def test_eight_readers_together_get_nine_tenths(tmp_path: Path) -> None:
    world = World(tmp_path, segments=16, records=500)
    readers = [Reader(world, 1_000 * at, 1_000 * (at + 1)) for at in range(8)]
    assert share_of_the_store(world, readers) >= 0.9
    assert world.got_bytes <= sum(reader.read_bytes for reader in readers) * 1.15


def test_a_slow_reader_is_not_loaded_for_further_than_it_needs(tmp_path: Path) -> None:
    world = World(tmp_path, segments=4, records=500)
    reader = Reader(world, 0, 1_000, pause_ms=200)
    run(world, [reader])
    assert world.got_bytes <= reader.read_bytes + 6 * CHUNK_BYTES


@pytest.mark.parametrize("records", [1, 20, 100, 400])
def test_a_reader_that_ends_early_wastes_no_more_than_it_read(tmp_path: Path, records: int) -> None:
    world = World(tmp_path, segments=4, records=500)
    reader = Reader(world, 100, 100 + records)
    run(world, [reader])
    for _ in range(500):
        world.tick()
    assert world.got_bytes <= 2 * reader.read_bytes + 3 * CHUNK_BYTES


def test_one_that_has_just_come_is_served_while_others_load_far_ahead(tmp_path: Path) -> None:
    world = World(tmp_path, segments=16, records=500)
    busy = [Reader(world, 1_000 * at, 1_000 * (at + 1)) for at in range(4)]
    for _ in range(400):
        world.tick()
    began = world.clock.monotonic_ms()
    fresh = Reader(world, 7_500, 7_501)
    while not fresh.is_done:
        world.tick()
        assert world.clock.monotonic_ms() - began <= 5 * FIRST_BYTE_MS
    assert not all(reader.is_done for reader in busy)
