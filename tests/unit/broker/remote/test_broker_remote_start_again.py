"""A tier that could not be started is tried again, and the reason is in the health answer."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.remote.process import LOCK_NAME
from broker.remote.supervisor import Supervisor, TierStartError
from rlm.config import TierConfig
from rlm.link.endpoint import Endpoint, Received, Reply
from rlm.link.messages import Ack
from rlm.link.socket_transport import SocketTransport
from runtime.disk import OpenFile
from tests.support.sim.ports import simulated


class FakeTier:
    """A child inside the test that answers everything; it cannot be started while `error` is set.

    `lingers`: it is not gone when it is killed.
    """

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.lingers, self.killed, self.starts = False, False, 0
        self.pid = 4711

    def spawn(self, link_fd: int, lock: OpenFile) -> "FakeTier":
        self.starts += 1
        if self.error is not None:
            raise self.error
        self.killed = False
        sock = socket.socket(fileno=os.dup(link_fd))
        self.endpoint = Endpoint(self.take, lambda: None)
        SocketTransport(sock, asyncio.get_running_loop(), self.endpoint)
        return self

    def take(self, received: Received, reply: Reply) -> None:
        reply(Ack())

    def kill(self) -> None:
        self.killed = True
        self.endpoint.end()

    def exit_code(self) -> int | None:
        return -9 if self.killed and not self.lingers else None


class Bench:
    def __init__(self, root: Path) -> None:
        self.ports, self.tier, self.ups = simulated(), FakeTier(), 0
        self.scheduler = self.ports.scheduler
        self.supervisor = Supervisor(
            TierConfig(
                node_id=1,
                cluster_id="c",
                state_dir=str(root),
                cache_dir=str(root),
                storage_class="x:Y",
            ),
            self.ports,
            asyncio.get_running_loop(),
            self,
            self.tier.spawn,
        )

    def on_request(self, received: Received, reply: Reply) -> None:
        pass

    def on_up(self) -> None:
        self.ups += 1

    def on_down(self) -> None:
        pass

    async def started(self) -> None:
        await self.supervisor.start()
        await self.supervisor.connect({})
        assert self.ups == 1

    async def pass_until(self, condition: Callable[[], bool]) -> None:
        """Let time pass, half a second at a time."""
        for _ in range(200):
            if condition():
                return
            self.scheduler.advance(500)
            for _ in range(5):
                await asyncio.sleep(0)
        raise AssertionError("it did not happen in 100 s")

    async def end(self) -> None:
        self.tier.kill()
        await self.supervisor.stop()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM])
async def test_a_child_that_cannot_be_made_is_tried_again(tmp_path: Path, number: int) -> None:
    bench = Bench(tmp_path)
    await bench.started()
    bench.tier.error = OSError(number, os.strerror(number))
    bench.tier.kill()
    await bench.pass_until(lambda: bench.tier.starts == 2)
    before = open_files()
    await bench.pass_until(lambda: bench.tier.starts == 4)
    assert open_files() <= before
    assert os.strerror(number) in bench.supervisor.reason
    assert bench.supervisor.state == "down"
    bench.tier.error = None
    await bench.pass_until(lambda: bench.ups == 2)
    assert bench.supervisor.reason == ""
    await bench.end()


async def test_a_link_that_the_loop_cannot_watch_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    await bench.started()
    loop = asyncio.get_running_loop()
    watch, ours = loop.add_reader, list[int]()

    def exhausted(fd: int, *more: object) -> None:
        """The tier of the test has its end in the same loop: every second one is the broker's."""
        ours.append(fd)
        if len(ours) % 2 == 0:
            raise OSError(errno.ENOSPC, "epoll has no room")
        watch(fd, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "add_reader", exhausted)
    bench.tier.kill()
    await bench.pass_until(lambda: "epoll has no room" in bench.supervisor.reason)
    assert bench.tier.killed, "a child without a link is of no use"
    assert bench.supervisor.state == "down"
    monkeypatch.undo()
    await bench.pass_until(lambda: bench.ups == 2)
    await bench.end()


async def test_a_lock_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.started()
    (tmp_path / LOCK_NAME).unlink()
    (tmp_path / LOCK_NAME).mkdir()
    bench.tier.kill()
    await bench.pass_until(lambda: "cannot be started" in bench.supervisor.reason)
    assert LOCK_NAME in bench.supervisor.reason
    (tmp_path / LOCK_NAME).rmdir()
    await bench.pass_until(lambda: bench.ups == 2)
    await bench.end()


async def test_a_first_start_that_fails_ends_the_start_of_the_broker(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.tier.error = OSError(errno.EMFILE, "too many open files")
    with pytest.raises(TierStartError, match="too many open files"):
        await bench.supervisor.start()
    await bench.supervisor.stop()


async def test_no_tier_starts_while_another_runs_even_without_its_lock_file(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    await bench.started()
    bench.tier.lingers = True
    (tmp_path / LOCK_NAME).unlink()
    bench.tier.kill()
    await bench.pass_until(lambda: "still holds" in bench.supervisor.reason)
    assert bench.tier.starts == 1
    bench.tier.lingers = False
    await bench.pass_until(lambda: bench.ups == 2)
    await bench.end()
