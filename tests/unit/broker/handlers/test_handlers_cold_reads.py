"""A fetch of what is not in memory is looked up by a thread, never on the loop."""

import threading
from pathlib import Path

import pytest

from broker.handlers.fetch import FetchHandler
from kafka_protocol.records.control import ControlType, end_transaction_batch
from kafka_protocol.types import TopicPartition
from runtime.disk import Disk, OpenFile
from runtime.executors import make_pool
from tests.support.worlds.data_plane import NOW_MS, World, batch, call, values_of
from tests.support.worlds.fetch import ask, make, parts

BATCHES = 40


class ColdDisk(Disk):
    """Nothing is in memory before a thread has read it.

    Attributes:
        waited: what the loop's thread has read although it was not in memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop_thread = threading.current_thread()
        self.is_cold = False
        self.warm: set[str] = set()
        self.waited: list[str] = []

    def chill(self) -> None:
        self.is_cold = True
        self.warm.clear()

    def read_at(self, file: OpenFile, position: int, size: int) -> bytes:
        name = str(file.path)
        if threading.current_thread() is not self.loop_thread:
            self.warm.add(name)
        elif self.is_cold and name not in self.warm:
            self.waited.append(name)
        return super().read_at(file, position, size)

    def read_resident(self, file: OpenFile, position: int, size: int) -> bytes | None:
        if self.is_cold and str(file.path) not in self.warm:
            return None
        return super().read_resident(file, position, size)

    def is_resident(self, file: OpenFile, position: int, size: int) -> bool:
        return not self.is_cold or str(file.path) in self.warm


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, disk=ColdDisk())


def _handler(world: World) -> FetchHandler:
    handler = make(world)
    handler._reads = make_pool("reads", 4)
    return handler


def _fill(world: World, **config: object) -> None:
    """A topic of several segments, none of whose files was opened for reading yet."""
    world.add_topic("t", 2, index_interval_bytes=200, **config)
    for index in range(2):
        for number in range(BATCHES):
            world.append("t", b"%d" % number * 100, index=index)
            if number % 10 == 9:
                world.log("t", index).roll(NOW_MS)
        world.log("t", index).flush()
    disk = world.disk
    assert isinstance(disk, ColdDisk)
    for index in range(2):
        log = world.log("t", index)
        log.segments.forget_places()
        for segment in log.segments.all[:-1]:
            segment.release()
    disk.chill()


def _values(world: World, version: int = 12, **asked: int) -> list[bytes | None]:
    fields = ask(world, version, ("t", [{"partition": 1} | asked]), isolation_level=1)
    [answer] = parts(call(_handler(world), version, fields))
    assert answer.error_code == 0
    return values_of(answer.records)


@pytest.mark.parametrize("offset", [0, 3, 17, 25, BATCHES - 1])
@pytest.mark.parametrize("size", [1, 700, 10**6])
def test_no_look_up_waits_on_the_loop(world: World, offset: int, size: int) -> None:
    _fill(world)
    values = _values(world, fetch_offset=offset, partition_max_bytes=size)
    assert values[0] == b"%d" % offset * 100
    assert world.disk.waited == []  # type: ignore[attr-defined]


def test_below_a_high_watermark_inside_the_segment_neither(world: World) -> None:
    _fill(world)
    log = world.log("t", 1)
    log.update_high_watermark(17)
    values = _values(world, fetch_offset=12)
    assert values == [b"%d" % number * 100 for number in range(12, 17)]
    assert world.disk.waited == []  # type: ignore[attr-defined]


def test_the_index_of_aborted_transactions_is_read_by_a_thread(world: World) -> None:
    world.add_topic("t", 2)
    partition = world.replicas.partitions[TopicPartition("t", 1)]
    data = batch(b"gone", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition.append(data, now_ms=NOW_MS)
    marker = end_transaction_batch(
        ControlType.ABORT,
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=NOW_MS,
        producer_id=9,
        producer_epoch=0,
        coordinator_epoch=0,
    )
    log = partition.log
    log.append_as_leader(marker, leader_epoch=3, now_ms=NOW_MS, from_client=False)
    log.roll(NOW_MS)
    partition.append(batch(b"more"), now_ms=NOW_MS)
    log.flush()
    log.segments.all[0].release()
    disk = world.disk
    assert isinstance(disk, ColdDisk)
    disk.chill()
    handler = _handler(world)
    call(handler, 12, ask(world, 12, ("t", [{"partition": 1}]), isolation_level=0))
    disk.warm.discard(str(log.segments.all[0].path(".txnindex")))
    fields = ask(world, 12, ("t", [{"partition": 1}]), isolation_level=1)
    [answer] = parts(call(handler, 12, fields))
    assert [(a.producer_id, a.first_offset) for a in answer.aborted_transactions] == [(9, 0)]
    assert disk.waited == []


def test_one_cold_partition_of_very_many_is_looked_up_by_a_thread(world: World) -> None:
    _fill(world)
    unknown = [{"partition": index} for index in range(2, 1200)]
    asked = [{"partition": 0, "fetch_offset": 15, "partition_max_bytes": 1}, *unknown]
    found = parts(call(_handler(world), 12, ask(world, 12, ("t", asked))))
    assert [p.partition_index for p in found] == [0, *range(2, 1200)]
    assert values_of(found[0].records) == [b"15" * 100]
    assert world.disk.waited == []  # type: ignore[attr-defined]


def test_reads_at_the_end_need_no_thread(world: World) -> None:
    _fill(world)
    world.append("t", b"new", index=1)
    handler = make(world)
    handler._reads = None  # type: ignore[assignment]
    fields = ask(world, 12, ("t", [{"partition": 1, "fetch_offset": BATCHES}]), isolation_level=1)
    [answer] = parts(call(handler, 12, fields))
    assert values_of(answer.records) == [b"new"]
    assert world.disk.waited == []  # type: ignore[attr-defined]
