"""A start puts aside what is no partition of the broker, and its loop does not wait for it."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.broker import Broker
from broker.config.broker_config import BrokerConfig
from kafka_protocol.types import ZERO_UUID
from metadata_topic.controller.topic_deletion import delete_topics
from runtime.disk import Disk
from runtime.ports import system_ports
from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.tiered_topics import create
from tests.support.worlds.pools import turns

pytestmark = pytest.mark.smoke


class SlowDisk(Disk):
    """Waits at one place until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.proceed = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.proceed.wait(10)


class SlowToRename(SlowDisk):
    """Where a stray is renamed."""

    def rename(self, source: Path, target: Path, *, durable: bool = False) -> None:
        if target.name.endswith("-stray"):
            self.wait()
        super().rename(source, target, durable=durable)


class SlowToOpen(SlowDisk):
    """Where the logs of a start are opened."""

    def list_dir(self, path: Path) -> list[str]:
        if path.name == "t-0":
            self.wait()
        return super().list_dir(path)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_the_loop_continues_while_strays_are_renamed(
    make_broker: Callable[..., BrokerProcess], is_stopped: bool
) -> None:
    formatted = make_broker()
    assert formatted.format().returncode == 0
    stray = formatted.log_directory / "gone-0"
    stray.mkdir()
    (stray / f"{0:020d}.log").write_bytes(b"")
    config, _ = BrokerConfig.load(formatted.properties())
    disk = SlowToRename()

    async def scenario() -> None:
        ports = replace(system_ports(asyncio.get_running_loop()), disk=disk)
        broker = Broker(config, ports)
        starting = asyncio.ensure_future(broker.start())
        try:
            assert await asyncio.to_thread(disk.reached.wait, 10)  # the loop takes this turn
            assert stray.exists()
            if is_stopped:
                starting.cancel()
                await turns()
                assert not starting.done()
            disk.proceed.set()
            if is_stopped:
                with pytest.raises(asyncio.CancelledError):
                    await starting
            else:
                await starting
            assert not stray.exists()
            assert len(list(formatted.log_directory.glob("gone-0.*-stray"))) == 1
        finally:
            disk.proceed.set()
            await broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("disk", [SlowToOpen(), SlowToRename()], ids=["opened", "renamed"])
def test_a_topic_that_is_removed_while_a_start_waits_leaves_nothing(
    make_broker: Callable[..., BrokerProcess], disk: SlowDisk
) -> None:
    """Its log is open before the removal is read; one of its name would be served with it."""
    before = make_broker()
    before.start()
    produce(before, "t", [(None, b"x")])
    assert before.terminate() == 0
    (before.log_directory / "gone-0").mkdir()
    (before.log_directory / "gone-0" / f"{0:020d}.log").write_bytes(b"")
    config, _ = BrokerConfig.load(before.properties())

    async def scenario() -> None:
        ports = replace(system_ports(asyncio.get_running_loop()), disk=disk)
        broker = Broker(config, ports)
        starting = asyncio.ensure_future(broker.start())
        try:
            assert await asyncio.to_thread(disk.reached.wait, 10)
            deleted = await broker._node.submit(lambda now: delete_topics(now, [("t", ZERO_UUID)]))
            assert [one.error for one in deleted] == [None]
            disk.proceed.set()
            await starting
            left = [path.name for path in before.log_directory.glob("t-0*")]
            assert [name.endswith("-delete") for name in left] == [True], left
            assert len(broker._opened.aside) == 1, "that of the stray"
            await asyncio.to_thread(create, before, "t", 1)
            assert await asyncio.to_thread(read_all, before, "t") == []
        finally:
            disk.proceed.set()
            await broker.stop()

    asyncio.run(scenario())
