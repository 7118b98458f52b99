"""Answers of very many regions, or of very many bytes, leave in turns."""

import asyncio
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.network.connection import Connection
from broker.network.dispatch import Answer
from broker.network.registry import RequestContext
from broker.network.request_times import RequestTimes
from broker.network.sender import PIECE_BYTES, SLICE_BYTES, SLICE_CALLS, Sender
from runtime.disk import Disk, FileRegion, OpenFile
from runtime.metrics import Registry
from tests.support.worlds.network import Harness, frame, serving
from tests.support.worlds.waiting import until

REGIONS = 10 * SLICE_CALLS


def answer(parts: list[object], size_bytes: int) -> Answer:
    return parts, size_bytes, (size_bytes, 0, RequestTimes(Registry(), "Fetch"), 0)


class Counting(Disk):
    """Notes in which iteration of the loop each region was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = Counter[int]()
        self._turn = 0

    def send_file(self, socket_fd: int, file: OpenFile, position: int, size: int) -> int:
        if not self.sent:
            self._count_turns()
        self.sent[self._turn] += 1
        return super().send_file(socket_fd, file, position, size)

    def _count_turns(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._count_turns)


@pytest.fixture
def wide(tmp_path: Path) -> list[object]:
    """An answer of thousands of parts that fits into any socket: `b"-xy"` again and again."""
    path = tmp_path / "data"
    path.write_bytes(b"xy")
    file = Disk().open_read(path)
    return [part for _ in range(REGIONS) for part in (b"-", FileRegion(file, 0, 2))]


def connection_of(harness: Harness) -> Connection:
    (connection,) = harness.server._connections
    return connection


async def test_an_answer_of_very_many_regions_is_sent_in_turns(wide: list[object]) -> None:
    disk = Counting()
    async with serving(lambda *_: list(wide), disk=disk) as harness:
        client = await harness.connect()
        client.send(frame(correlation_id=7))
        assert await client.answer() == (7, b"-xy" * REGIONS)
        assert max(disk.sent.values()) <= SLICE_CALLS
        assert connection_of(harness).is_idle
        assert not connection_of(harness)._outflow.is_waiting


async def test_another_connection_is_served_in_between(wide: list[object]) -> None:
    disk = Counting()
    sent_before: list[int] = []

    def serve(_: RequestContext, body: bytes) -> Any:
        if body == b"other":
            sent_before.append(disk.sent.total())
            return [body]
        other.send(frame(b"other"))
        return list(wide)

    async with serving(serve, disk=disk) as harness:
        busy, other = await harness.connect(), await harness.connect()
        busy.send(frame())
        assert await other.answer() == (0, b"other")
        assert await busy.answer() == (0, b"-xy" * REGIONS)
        assert sent_before[0] <= 2 * SLICE_CALLS


async def test_answers_that_come_at_once_are_one_turn_and_keep_their_order(
    wide: list[object],
) -> None:
    disk = Counting()
    gates: list[asyncio.Future[Any]] = []

    def serve(_: RequestContext, body: bytes) -> Any:
        if body == b"late":
            gates.append(asyncio.get_running_loop().create_future())
            return gates[-1]
        for gate in gates:
            gate.set_result(list(wide))
        return [b"end"]

    async with serving(serve, disk=disk) as harness:
        client = await harness.connect()
        late = [frame(b"late", correlation_id=i) for i in range(5)]
        client.send(b"".join(late) + frame(b"all", correlation_id=5))
        for i in range(5):
            assert await client.answer() == (i, b"-xy" * REGIONS)
        assert await client.answer() == (5, b"end")
        assert max(disk.sent.values()) <= SLICE_CALLS


async def test_a_stop_sends_what_is_left(wide: list[object]) -> None:
    disk = Counting()
    stops: list[asyncio.Task[None]] = []

    def serve(*_: object) -> Any:
        stops.append(asyncio.ensure_future(harness.server.stop()))
        return list(wide)

    async with serving(serve, disk=disk) as harness:
        client = await harness.connect()
        client.send(frame())
        assert await client.answer() == (0, b"-xy" * REGIONS)
        assert await client.is_closed()
        await stops[0]


async def test_a_client_that_has_gone_is_sent_nothing_more(wide: list[object]) -> None:
    disk = Counting()
    async with serving(lambda *_: list(wide), disk=disk) as harness:
        client = await harness.connect()
        client.send(frame())
        await until(lambda: bool(disk.sent))
        connection_of(harness).close("gone")
        sent, turn = disk.sent.total(), disk._turn
        await until(lambda: disk._turn > turn + 3)
        assert disk.sent.total() == sent < REGIONS


def test_a_peer_that_reads_as_fast_as_we_send_gets_some_bytes_a_turn(tmp_path: Path) -> None:
    class NeverFull(Disk):
        def is_resident(self, file: OpenFile, position: int, size: int) -> bool:
            return True

        def send_file(self, socket_fd: int, file: OpenFile, position: int, size: int) -> int:
            return size

    class NoSocket:
        def fileno(self) -> int:
            return -1

    path = tmp_path / "data"
    path.touch()
    size = 3 * SLICE_BYTES
    sender = Sender(NoSocket(), NeverFull())  # type: ignore[arg-type]
    sender.add(answer([FileRegion(Disk().open_read(path), 0, size)], size))
    unsent = [size]
    while len(sender.queue):
        assert sender.send() is None
        assert sender.slice_is_over == bool(len(sender.queue))
        unsent.append(sender.unsent_bytes)
    assert unsent[-1] == 0
    assert max(b - a for b, a in pairwise(unsent)) <= SLICE_BYTES + PIECE_BYTES


def test_what_waits_in_memory_is_all_but_the_regions_of_files(tmp_path: Path) -> None:
    class Half(Disk):
        def send_file(self, socket_fd: int, file: OpenFile, position: int, size: int) -> int:
            sizes.append(size)
            if len(sizes) > 1:
                raise BlockingIOError
            return size // 2

    class NoSocket:
        def fileno(self) -> int:
            return -1

    sizes: list[int] = []
    path = tmp_path / "data"
    path.write_bytes(bytes(1_000))
    file = Disk().open_read(path)
    sender = Sender(NoSocket(), Half())  # type: ignore[arg-type]
    sender.add(answer([FileRegion(file, 0, 1_000), b"x" * 50, FileRegion(file, 0, 10)], 1_060))
    assert sender.memory_bytes == 50
    sender.send()
    assert sender.unsent_bytes < 1_060
    assert sender.memory_bytes == 50
