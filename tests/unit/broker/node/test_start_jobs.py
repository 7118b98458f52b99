"""What a start and a stop do beside the event loop: where it runs, how it ends, what is said."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from broker.broker import Broker
from broker.config.broker_config import BrokerConfig
from broker.node.start_jobs import LOG_EVERY_MS, Count, StopMark, beside_the_loop
from local_log.errors import LoadStopped
from runtime.disk import Buffer, Disk, OpenFile
from runtime.executors import ThreadPool
from runtime.ports import Ports, system_ports
from tests.support.brokers.process import BrokerProcess
from tests.support.sim.clock import ManualClock


class WatchedDisk(Disk):
    """Notes which threads read from directories and write files."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: dict[str, set[int]] = {}
        self.writes: dict[str, set[int]] = {}

    def open_read(self, path: Path) -> OpenFile:
        self.reads.setdefault(path.parent.name, set()).add(threading.get_ident())
        return super().open_read(path)

    def atomic_write(self, path: Path, data: Buffer, *, durable: bool = True) -> None:
        self.writes.setdefault(path.name, set()).add(threading.get_ident())
        super().atomic_write(path, data, durable=durable)


async def test_the_metadata_log_is_read_and_logs_are_closed_beside_the_loop(
    tmp_path: Path,
) -> None:
    formatted = BrokerProcess(tmp_path / "broker")
    formatted.settings["tidemark.http.listener"] = f"127.0.0.1:{formatted.http_port}"
    assert formatted.format().returncode == 0
    config, _ = BrokerConfig.load(formatted.properties())
    disk = WatchedDisk()

    def ports(loop: asyncio.AbstractEventLoop) -> Ports:
        made = system_ports(loop)
        return Ports(
            clock=made.clock,
            scheduler=made.scheduler,
            executors=made.executors,
            disk=disk,
            rng=made.rng,
            metrics=made.metrics,
        )

    async def life() -> None:
        broker = Broker(config, ports(asyncio.get_running_loop()))
        try:
            await broker.start()
        finally:
            disk.writes.clear()
            await broker.stop()

    await life()
    disk.reads.clear()
    await life()
    me = threading.get_ident()
    assert disk.reads["__cluster_metadata-0"]
    assert me not in disk.reads["__cluster_metadata-0"]
    assert disk.writes[".kafka_cleanshutdown"]
    assert me not in disk.writes[".kafka_cleanshutdown"]


async def test_whoever_cancels_a_job_gets_its_end_first() -> None:
    mark, begun, ended = StopMark(), threading.Event(), threading.Event()
    proceed = threading.Event()

    def job() -> None:
        begun.set()
        proceed.wait(30)
        try:
            mark.check()
        finally:
            ended.set()

    pool = ThreadPool("job", 1)
    task = asyncio.ensure_future(beside_the_loop(pool, job, stop=mark.stop))
    await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done(), "the job still works"
    proceed.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    pool.shutdown()
    with pytest.raises(LoadStopped):
        mark.check()


def test_a_count_says_how_far_it_is_and_has_a_line_from_time_to_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    count = Count(7, "logs are closed", clock)
    with caplog.at_level(logging.INFO):
        count.one_more()
        assert count.text() == "1 of 7 logs are closed"
        assert not caplog.messages
        clock.advance(LOG_EVERY_MS)
        count.one_more()
        count.one_more()
    assert caplog.messages == ["2 of 7 logs are closed"]
