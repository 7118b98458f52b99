"""Life and death of a real tier process, watched by its supervisor."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from broker.remote.process import (
    EarlyTierProcess,
    start_tier_process,
    take_tier_lock,
)
from broker.remote.supervisor import (
    BACKOFF_MS,
    HEARTBEAT_LIMIT_MS,
    STARVED_PART,
    Spawn,
    Supervisor,
    TierStartError,
)
from rlm.config import TierConfig
from rlm.link.endpoint import Endpoint, LinkEndedError, Received, Reply
from rlm.link.messages import (
    Ack,
    Assign,
    Configure,
    Connect,
    Heartbeat,
    PartitionSettings,
    Read,
    Reconfigure,
)
from rlm.link.socket_transport import SocketTransport
from rlm.tier_process import EXIT_ABORTED
from runtime.child_process import ChildProcess
from runtime.disk import Disk, OpenFile
from runtime.ports import system_ports
from tests.support.sim.ports import simulated
from tests.support.sim.scheduler import ManualScheduler
from tests.support.worlds.waiting import until

pytestmark = pytest.mark.lasts(seconds=8)


def config(root: Path, **changes: object) -> TierConfig:
    root.mkdir(exist_ok=True)
    values: dict[str, object] = {
        "node_id": 1,
        "cluster_id": "c",
        "state_dir": str(root),
        "cache_dir": str(root),
        "storage_class": "rsm_plugins.local_fs:LocalFsRemoteStorageManager",
        "storage_settings": {"dir": str(root / "store")},
        "metadata_class": "rlmm.memory:InMemoryRemoteLogMetadataManager",
    }
    return TierConfig(**(values | changes))  # type: ignore[arg-type]


class Watched:
    def __init__(self, made: TierConfig, spawn: Spawn = start_tier_process) -> None:
        self.ups = self.downs = 0
        loop = asyncio.get_running_loop()
        self.supervisor = Supervisor(made, system_ports(loop), loop, self, spawn)

    async def up_and_running(self) -> None:
        await run_up(self.supervisor)

    def on_request(self, received: Received, reply: Reply) -> None:
        pass

    def on_up(self) -> None:
        self.ups += 1

    def on_down(self) -> None:
        self.downs += 1


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_tier_starts_answers_and_stops_and_gives_its_lock_back(tmp_path: Path) -> None:
    watched = Watched(config(tmp_path))
    await watched.up_and_running()
    assert watched.supervisor.state == "up"
    assert "dir" in watched.supervisor.public_settings
    assert take_tier_lock(Disk(), tmp_path) is None, "the tier holds it"
    pid = watched.supervisor.pid
    assert pid is not None
    answer = await asyncio.wrap_future(watched.supervisor.ask(Heartbeat()))
    assert answer.message == Ack()
    await watched.supervisor.stop()
    assert not is_alive(pid)
    assert take_tier_lock(Disk(), tmp_path) is not None


async def test_a_tier_that_was_started_early_is_the_first_and_later_ones_are_new(
    tmp_path: Path,
) -> None:
    early = EarlyTierProcess()
    child = early._child
    assert child is not None
    watched = Watched(config(tmp_path), early)
    supervisor = watched.supervisor
    await watched.up_and_running()
    assert supervisor.pid == child.pid
    assert take_tier_lock(Disk(), tmp_path) is None, "the tier alone holds it"
    os.kill(child.pid, signal.SIGKILL)
    await until(lambda: watched.ups == 2)
    assert supervisor.pid != child.pid
    await supervisor.stop()


async def test_a_tier_that_died_before_it_was_wanted_is_replaced(tmp_path: Path) -> None:
    early = EarlyTierProcess()
    child = early._child
    assert child is not None
    child.kill()
    child.wait()
    watched = Watched(config(tmp_path), early)
    await watched.up_and_running()
    assert watched.supervisor.pid not in (None, child.pid)
    await watched.supervisor.stop()


async def test_a_tier_that_nobody_wants_ends_with_its_broker() -> None:
    early = EarlyTierProcess()
    child = early._child
    assert child is not None
    early._ours.close()
    await until(lambda: child.exit_code() is not None)
    assert child.exit_code() == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"storage_class": "no.such.module:Plugin"}, "remote.log.storage.manager.class.name"),
        ({"storage_class": "com.example.Java"}, "Java class cannot be loaded"),
        ({"storage_settings": {}}, "rsm.config.dir"),
        ({"metadata_class": "no.such:Manager"}, "remote.log.metadata.manager.class.name"),
        ({"metadata_class": "rlmm.lifecycle:PartitionFacts"}, "not a subclass of rlmm.api"),
    ],
)
async def test_refused_settings_end_the_start_with_key_and_cause(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    watched = Watched(config(tmp_path, **changes))
    with pytest.raises(TierStartError, match=named):
        await watched.supervisor.start()
    await watched.supervisor.stop()
    assert watched.ups == 0


async def test_a_tier_works_only_when_the_broker_takes_connections(tmp_path: Path) -> None:
    watched = Watched(config(tmp_path))
    supervisor = watched.supervisor
    await supervisor.start()
    assert (supervisor.state, supervisor.endpoint, watched.ups) == ("configured", None, 0)
    first = supervisor.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: supervisor.state == "configured" and supervisor.pid != first)
    assert watched.ups == 0
    await supervisor.connect({})
    assert (supervisor.state, watched.ups) == ("up", 1)
    await supervisor.stop()


async def test_a_metadata_manager_that_refuses_its_settings_ends_the_start(tmp_path: Path) -> None:
    topic_based = "rlmm.topic_based.manager:TopicBasedRemoteLogMetadataManager"
    settings = {"node.id": "1", "log.dir": str(tmp_path)}
    watched = Watched(config(tmp_path, metadata_class=topic_based, metadata_settings=settings))
    with pytest.raises(TierStartError, match=r"cluster\.id"):
        await watched.supervisor.start()
    await watched.supervisor.stop()
    settings["cluster.id"] = "c"
    watched = Watched(config(tmp_path, metadata_class=topic_based, metadata_settings=settings))
    await watched.supervisor.start()
    with pytest.raises(TierStartError, match=r"bootstrap\.servers"):
        await watched.supervisor.connect({})
    await watched.supervisor.stop()
    assert not (tmp_path / "remote-log-metadata").exists()


async def test_a_killed_tier_is_replaced_and_two_never_run(tmp_path: Path) -> None:
    watched = Watched(config(tmp_path))
    supervisor = watched.supervisor
    await watched.up_and_running()
    first = supervisor.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: watched.downs == 1)
    assert supervisor.endpoint is None
    await until(lambda: watched.ups == 2)
    assert supervisor.pid != first
    assert supervisor.restarts == 1
    await supervisor.stop()


async def test_a_tier_that_is_started_again_is_told_how_to_reach_the_broker(
    tmp_path: Path,
) -> None:
    topic_based = "rlmm.topic_based.manager:TopicBasedRemoteLogMetadataManager"
    settings = {"node.id": "1", "cluster.id": "c", "log.dir": str(tmp_path)}
    watched = Watched(config(tmp_path, metadata_class=topic_based, metadata_settings=settings))
    supervisor = watched.supervisor
    await supervisor.start()
    await supervisor.connect({"bootstrap.servers": "127.0.0.1:1"})  # nobody is there, and need be
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    await until(lambda: watched.ups == 2)
    os.kill(supervisor.pid, signal.SIGKILL)  # a stop would wait for its clients
    await supervisor.stop()


async def test_a_tier_ends_when_its_link_ends(tmp_path: Path) -> None:
    watched = Watched(config(tmp_path))
    await watched.up_and_running()
    process = watched.supervisor._process
    assert process is not None
    watched.supervisor.state = "stopped"
    endpoint = watched.supervisor._endpoint
    assert endpoint is not None
    transport = endpoint._transport
    assert transport is not None
    transport.close()
    await until(lambda: process.exit_code() is not None)
    assert process.exit_code() == 0


RAISING_MANAGER = """
from rlmm.memory import InMemoryRemoteLogMetadataManager


class Raising(InMemoryRemoteLogMetadataManager):
    def is_ready(self, partition):
        raise RuntimeError("a mistake")
"""


async def test_a_tier_whose_callback_raises_ends_itself_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raising_manager.py").write_text(RAISING_MANAGER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    made = config(tmp_path / "log", metadata_class="raising_manager:Raising")
    watched = Watched(made)
    await watched.up_and_running()
    process = watched.supervisor._process
    assert process is not None
    names = (b"T" * 16, 0, 1)
    watched.supervisor.ask(
        Assign(*names, topic="orders", is_leader=False, settings=PartitionSettings())
    )
    answer = watched.supervisor.ask(
        Read(
            *names,
            offset=0,
            offset_epoch=1,
            epoch_end=10,
            max_bytes=100,
            min_one_batch=True,
            read_committed=False,
            wait_ms=60_000,
            holder="one",
        )
    )
    with pytest.raises(LinkEndedError):
        await asyncio.wrap_future(answer)
    await until(lambda: process.exit_code() is not None)
    assert process.exit_code() == EXIT_ABORTED
    await until(lambda: watched.ups == 2)
    await watched.supervisor.stop()
    assert "RuntimeError: a mistake" in capfd.readouterr().err


class FakeTier:
    """A tier inside the test: answers Configure, and heartbeats as long as it is well.

    Attributes:
        held: messages of these kinds wait for `answer_held`.
        copy_limit: what it goes by.
    """

    def __init__(self) -> None:
        self.well, self.killed = True, False
        self.held: tuple[type, ...] = ()
        self.copy_limit = 0
        self._waiting: list[Reply] = []
        self.beats = 0
        self.pid = 4711
        self.starved_for_ms = 0.0

    def spawn(self, link_fd: int, lock: OpenFile) -> ChildProcess:
        sock = socket.socket(fileno=os.dup(link_fd))
        self.killed = False
        self.endpoint = Endpoint(self.take, lambda: None)
        SocketTransport(sock, asyncio.get_running_loop(), self.endpoint)
        return self  # type: ignore[return-value]

    def take(self, received: Received, reply: Reply) -> None:
        message = received.message
        if isinstance(message, Configure | Reconfigure):
            assert isinstance(message, Configure) or Configure not in self.held, "not yet"
            self.copy_limit = message.config.copy_bytes_per_second
        if isinstance(message, self.held):
            self._waiting.append(reply)
        elif isinstance(message, Configure) or self.well:
            self.beats += isinstance(message, Heartbeat)
            reply(Ack())

    async def is_asked_something_held(self) -> None:
        await until(lambda: bool(self._waiting))

    def answer_held(self) -> None:
        self.held = ()
        for reply in self._waiting:
            reply(Ack())
        self._waiting.clear()

    async def has_answered(self, beats: int) -> None:
        await until(lambda: self.beats == beats)

    def kill(self) -> None:
        self.killed = True
        self.endpoint.end()

    def exit_code(self) -> int | None:
        return -9 if self.killed else None

    def starved_ms(self) -> float:
        return self.starved_for_ms


class Ups:
    def __init__(self, ups: list[int]) -> None:
        self.ups = ups

    def on_request(self, received: Received, reply: Reply) -> None:
        pass

    def on_up(self) -> None:
        self.ups.append(1)

    def on_down(self) -> None:
        pass


async def supervising(
    tier: FakeTier, ups: list[int], made: TierConfig
) -> tuple[Supervisor, ManualScheduler]:
    """A supervisor of `tier` under a clock set by hand, started; `ups` gets one entry a start."""
    ports, loop = simulated(), asyncio.get_running_loop()
    supervisor = Supervisor(made, ports, loop, Ups(ups), tier.spawn)
    await run_up(supervisor)
    return supervisor, ports.scheduler


async def run_up(supervisor: Supervisor) -> None:
    await supervisor.start()
    await supervisor.connect({})


async def test_a_hung_tier_is_killed_and_tried_again_after_a_backoff(tmp_path: Path) -> None:
    tier, ups = FakeTier(), list[int]()
    supervisor, scheduler = await supervising(tier, ups, config(tmp_path))
    for beats in range(1, 31):
        scheduler.advance(1_000)
        await tier.has_answered(beats)
    assert supervisor.state == "up"
    tier.well = False
    for _ in range(HEARTBEAT_LIMIT_MS // 1_000 + 2):
        if not tier.killed:
            scheduler.advance(1_000)
    assert tier.killed
    await until(lambda: supervisor.state == "down")
    assert "silent" in supervisor.reason
    scheduler.advance(499)
    assert supervisor.state == "down"
    tier.well = True
    scheduler.advance(1)
    await until(lambda: len(ups) == 2)
    tier.kill()
    await supervisor.stop()


async def test_a_tier_is_not_killed_for_a_time_in_which_the_broker_stood_still(
    tmp_path: Path,
) -> None:
    tier, ups = FakeTier(), list[int]()
    ports, loop = simulated(), asyncio.get_running_loop()
    supervisor = Supervisor(config(tmp_path), ports, loop, Ups(ups), tier.spawn)
    await supervisor.start()
    await supervisor.connect({})
    tier.well = False  # what it answers is not read at once
    for _ in range(3):
        ports.clock.advance(HEARTBEAT_LIMIT_MS * 4)
        ports.scheduler.advance(1_000)
    assert not tier.killed
    for _ in range(HEARTBEAT_LIMIT_MS // 1_000):
        ports.scheduler.advance(1_000)
    await until(lambda: supervisor.state == "down")
    assert "silent" in supervisor.reason
    await supervisor.stop()


async def test_a_tier_short_of_cpu_is_killed_later_than_one_that_hangs(
    tmp_path: Path,
) -> None:
    tier, ups = FakeTier(), list[int]()
    supervisor, scheduler = await supervising(tier, ups, config(tmp_path))
    tier.well = False
    seconds = 0
    while not tier.killed:
        scheduler.advance(1_000)
        seconds += 1
        tier.starved_for_ms += 3_000  # of several threads
        assert seconds < 1_000
    limit_s = HEARTBEAT_LIMIT_MS // 1_000
    assert limit_s * STARVED_PART - 5 <= seconds <= limit_s * STARVED_PART + 1
    await until(lambda: supervisor.state == "down")
    await supervisor.stop()


async def test_a_tier_that_outlives_its_link_is_killed_before_the_next_starts(
    tmp_path: Path,
) -> None:
    """Its lock is free only when it is gone."""

    tier, ups = FakeTier(), list[int]()
    supervisor, scheduler = await supervising(tier, ups, config(tmp_path))
    tier.endpoint.end()
    assert not tier.killed
    await until(lambda: supervisor.state == "down")
    assert tier.killed
    scheduler.advance(BACKOFF_MS)
    await until(lambda: len(ups) == 2)
    tier.kill()
    await supervisor.stop()


@pytest.mark.parametrize("step", [Configure, Connect])
async def test_settings_changed_while_a_tier_starts_apply_once_it_is_up(
    tmp_path: Path, step: type
) -> None:
    tier, ups = FakeTier(), list[int]()
    tier.held = (step,)
    before, after = (config(tmp_path, copy_bytes_per_second=limit) for limit in (10, 20))
    ports, loop = simulated(), asyncio.get_running_loop()
    supervisor = Supervisor(before, ports, loop, Ups(ups), tier.spawn)
    starting = asyncio.create_task(run_up(supervisor))
    await tier.is_asked_something_held()
    assert tier.copy_limit == 10
    supervisor.reconfigure(after)
    tier.answer_held()
    await starting
    await asyncio.wrap_future(supervisor.ask(Heartbeat()))
    assert tier.copy_limit == 20
    tier.kill()
    await supervisor.stop()
