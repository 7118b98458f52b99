"""Files that cannot be read, and descriptors that are used up, at the network layer."""

import asyncio
import errno
import gc
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import pytest

from broker.network.connection_budget import NEWCOMERS_MAX, ConnectionBudget
from broker.network.limits import NetworkLimits
from broker.network.server import GIVES_WAY_MS, SWEEP_MS
from runtime.disk import Disk, FileRegion, OpenFile
from runtime.disk_errors import DESCRIPTORS_RESERVED, descriptors_for_connections, open_descriptors
from tests.support.worlds.network import Client, Harness, frame, serving
from tests.support.worlds.waiting import PATIENCE_S, until

GAVE_WAY = "tidemark_connections_closed_descriptors_total"
REFUSED = "tidemark_connections_refused_descriptors_total"


class BadDisk(Disk):
    """Fails where an answer is sent from a file."""

    def __init__(self, operation: str, number: int) -> None:
        super().__init__()
        self.operation, self.number = operation, number

    def _check(self, operation: str) -> None:
        if operation == self.operation:
            raise OSError(self.number, os.strerror(self.number))

    def is_resident(self, file: OpenFile, position: int, size: int) -> bool:
        self._check("is_resident")
        return self.operation != "read_at"

    def read_at(self, file: OpenFile, position: int, size: int) -> bytes:
        self._check("read_at")
        return super().read_at(file, position, size)

    def send_file(self, socket_fd: int, file: OpenFile, position: int, size: int) -> int:
        self._check("send_file")
        return super().send_file(socket_fd, file, position, size)


def regions(tmp_path: Path) -> tuple[Path, Callable[..., list[object]]]:
    path = tmp_path / "orders-0" / "00.log"
    path.parent.mkdir()
    path.write_bytes(bytes(1000))
    return path, lambda *_: [FileRegion(Disk().open_read(path), 0, 1000)]


def value(harness: Harness, name: str, *labels: str) -> float:
    return harness.metrics.counter(name, "", ("listener",) if labels else ()).value(*labels)


@pytest.mark.parametrize("operation", ["is_resident", "read_at", "send_file"])
async def test_a_file_that_cannot_be_read_is_named_once_counted_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    path, raw = regions(tmp_path)

    heard: list[tuple[Path, OSError]] = []
    async with serving(raw, disk=BadDisk(operation, errno.EIO)) as harness:
        harness.server.read_failures.on_failure = lambda *failure: heard.append(failure)
        for _ in range(3):
            client = await harness.connect()
            client.send(frame())
            with pytest.raises(EOFError):
                await client.answer()
        assert value(harness, "tidemark_file_read_failures_total") == 3
    assert [(where, error.errno) for where, error in heard] == [(path, errno.EIO)] * 3
    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    assert [str(path) in each.getMessage() for each in errors] == [True]


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE])
async def test_exhaustion_ends_the_connection_and_blames_no_file(
    tmp_path: Path, number: int
) -> None:
    _, raw = regions(tmp_path)

    heard: list[object] = []
    async with serving(raw, disk=BadDisk("send_file", number)) as harness:
        harness.server.read_failures.on_failure = lambda *failure: heard.append(failure)
        client = await harness.connect()
        client.send(frame())
        with pytest.raises(EOFError):
            await client.answer()
    assert heard == []


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT])
async def test_what_happens_to_the_connection_is_not_the_files_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    _, raw = regions(tmp_path)

    heard: list[object] = []
    async with serving(raw, disk=BadDisk("send_file", number)) as harness:
        harness.server.read_failures.on_failure = lambda *failure: heard.append(failure)
        client = await harness.connect()
        client.send(frame())
        with pytest.raises(EOFError):
            await client.answer()
        assert value(harness, "tidemark_file_read_failures_total") == 0
    assert heard == []
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def lowest_free_descriptor() -> int:
    fd = os.open("/dev/null", os.O_RDONLY)
    os.close(fd)
    return fd


@contextmanager
def no_hole_among_descriptors() -> Iterator[None]:
    """What opens next gets the number above all: other tests left some open, with holes below."""
    gc.collect()
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    with ExitStack() as fillers:
        while True:
            filler = os.open("/dev/null", os.O_RDONLY)
            fillers.callback(os.close, filler)
            if filler > highest:
                break
        yield


async def echoes(client: Client) -> bool:
    client.send(frame(b"hello"))
    try:
        return (await client.answer())[1] == b"hello"
    except (EOFError, ConnectionResetError):
        return False


async def test_connections_are_refused_only_while_descriptors_are_short(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(no_hole_among_descriptors())
        limits = NetworkLimits(descriptors_max=lowest_free_descriptor() + 40)
        harness = await stack.enter_async_context(serving(limits=limits))
        first = await harness.connect()
        assert await echoes(first)
        held = []
        while value(harness, REFUSED, "PLAINTEXT") < 5:
            held.append(await harness.connect())
            await until(lambda: True)
            assert len(held) < 100
        assert await echoes(first), "who is there already is served"
        assert lowest_free_descriptor() < limits.descriptors_max + 2 * len(held)
        for client in held:
            client.close()
        await until(lambda: len(harness.server._connections) == 1)
        assert await echoes(await harness.connect())
    said = [each.getMessage() for each in caplog.records if "ulimit -n" in each.getMessage()]
    assert len(said) == 1, "once a minute"


@contextmanager
def no_descriptor_free() -> Iterator[None]:
    gc.collect()  # what others left open would be closed meanwhile
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free_descriptor(), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_while_no_descriptor_is_free_the_backlog_waits_and_the_loop_rests() -> None:
    async with serving() as harness:
        with socket.socket() as sock:
            sock.setblocking(False)
            with no_descriptor_free():
                loop = asyncio.get_running_loop()
                await loop.sock_connect(sock, harness.server.bound["PLAINTEXT"])
                await until(lambda: value(harness, REFUSED, "PLAINTEXT") == 1)
                for _ in range(50):  # in each iteration of the loop a ready reader is called
                    await asyncio.sleep(0)
                assert value(harness, REFUSED, "PLAINTEXT") == 1
            harness.advance(SWEEP_MS)
            await loop.sock_sendall(sock, frame(b"hello"))
            async with asyncio.timeout(PATIENCE_S):
                assert (await loop.sock_recv(sock, 100)).endswith(b"hello")


@contextmanager
def descriptors_at_most(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_idle_connections_give_way_to_files_the_longest_idle_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(no_hole_among_descriptors())
        first = open_descriptors()
        shared, limit = first + 90, first + 130
        stack.enter_context(descriptors_at_most(limit))
        limits = NetworkLimits(descriptors_max=shared)
        gate: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        harness = await stack.enter_async_context(
            serving(lambda _, body: gate if body == b"wait" else [body], limits=limits)
        )
        clients = [await harness.connect() for _ in range(30)]
        await until(lambda: len(harness.server._connections) == 30)
        waiting, *silent = clients
        waiting.send(frame(b"wait"))
        harness.advance(GIVES_WAY_MS)
        assert await echoes(silent[-1])
        while open_descriptors() < shared + (limit - shared) // 2:
            stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        harness.advance(SWEEP_MS)
        assert len(harness.server._connections) == 30, "half of the reserve is free"
        stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        harness.advance(SWEEP_MS)
        assert len(harness.server._connections) == 30 - 21
        assert open_descriptors() <= shared
        assert value(harness, GAVE_WAY, "PLAINTEXT") == 21
        gate.set_result([b"late"])
        assert (await waiting.answer())[1] == b"late"
        assert await echoes(silent[-1])
        newcomer = await harness.connect()
        newcomer.send(frame())
        assert await newcomer.is_closed(), "the reserve is for files"
    said = [each.getMessage() for each in caplog.records if "are closed" in each.getMessage()]
    assert len(said) == 1


async def test_who_was_turned_away_gets_the_place_of_the_longest_idle() -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(no_hole_among_descriptors())
        first = open_descriptors()
        stack.enter_context(descriptors_at_most(first + 130))
        limits = NetworkLimits(descriptors_max=first + 70)
        harness = await stack.enter_async_context(serving(limits=limits))
        held: list[Client] = []
        while value(harness, REFUSED, "PLAINTEXT") < 1:
            harness.advance(1)
            held.append(await harness.connect())
            assert len(held) < 100
            if value(harness, REFUSED, "PLAINTEXT") == 0:
                assert await echoes(held[-1])
        count = len(harness.server._connections)
        harness.advance(SWEEP_MS)
        assert len(harness.server._connections) == count, "nobody has been idle for long"
        harness.advance(GIVES_WAY_MS)
        assert await (await harness.connect()).is_closed()
        harness.advance(SWEEP_MS)
        assert count - 3 <= len(harness.server._connections) < count  # refused ends count, too
        assert await held[0].is_closed()
        for client in (held[0], harness.clients[-1]):
            client.close()  # their ends are descriptors of this process, too
        await until(lambda: open_descriptors() <= limits.descriptors_max - 2)
        assert await echoes(await harness.connect())


def test_files_get_half_of_the_reserve_and_each_newcomer_one_place() -> None:
    budget = ConnectionBudget(limit=1_000, shared=800)
    assert [budget.connections_to_close(count, 0) for count in (0, 800, 900, 901)] == [0, 0, 0, 101]
    assert [budget.connections_to_close(count, 3) for count in (700, 800, 810)] == [3, 3, 13]
    assert budget.connections_to_close(800, 5_000) == NEWCOMERS_MAX
    assert [budget.connections_max(count, 500) for count in (600, 810, 2_000)] == [700, 490, 0]


def test_partitions_take_idle_connections_but_not_the_whole_reserve() -> None:
    """Else whoever holds connections open would keep topics from being made."""
    budget = ConnectionBudget(limit=1_000, shared=800)
    assert [budget.for_partitions(count, 0) for count in (600, 800, 900)] == [200, 0, -100]
    assert [budget.for_partitions(800, idle) for idle in (20, 150, 700)] == [20, 150, 150]
    taken = 800 + budget.for_partitions(800, 700)
    assert budget.connections_to_close(taken, 0) == 150, (
        "what they took is free again after a sweep"
    )
    for taken in range(800, 901):  # nothing goes yet
        assert budget.for_partitions(taken, 700) >= 50


def test_the_reserve_is_never_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, expected in ((20_000, 20_000 - DESCRIPTORS_RESERVED), (260, 130), (1_024, 524)):
        monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, limit))
        assert descriptors_for_connections() == expected
