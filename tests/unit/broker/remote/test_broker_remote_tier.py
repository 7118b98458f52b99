"""The broker's face of its tier, with a real tier process."""

import asyncio
from pathlib import Path

import pytest

from broker.process.console import broker_counters
from broker.remote.reads import RemoteFetched, RemoteRead
from broker.remote.supervisor import TierStartError
from broker.remote.tier import RemoteTier
from broker.replica.errors import ReplicaNotAvailable
from broker.replica.topic_metrics import TopicMetrics
from rlm.config import TierConfig
from rlm.link.messages import Health, PartitionHealth
from runtime.health_reasons import HealthText
from runtime.ports import system_ports


def config_of(path: Path) -> TierConfig:
    return TierConfig(
        node_id=1,
        cluster_id="c",
        state_dir=str(path),
        cache_dir=str(path),
        storage_class="no.such.module:Plugin",
        storage_settings={},
        metadata_class="rlmm.memory:InMemoryRemoteLogMetadataManager",
    )


async def test_what_the_tier_calls_yellow_is_a_warning_of_the_broker(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    ports = system_ports(loop)
    tier = RemoteTier(config_of(tmp_path), ports, loop)
    assert tier.warnings() == []
    tier.on_health(Health(0, 0, 0, [], [HealthText("a deletion fails for long")]))
    assert tier.warnings() == ["a deletion fails for long"]
    ports.executors.shutdown()


async def test_what_the_page_shows_of_the_tier_goes_when_the_tier_does(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    ports = system_ports(loop)
    tier = RemoteTier(config_of(tmp_path), ports, loop)
    assert (tier.totals, tier.unhealthy_partitions()) == ({}, {})
    unhealthy = [
        PartitionHealth(b"t" * 16, 3, HealthText("a hole")),
        PartitionHealth(b"", -1, HealthText("the whole tier")),
    ]
    tier.on_health(Health(0, 0, 0, unhealthy, totals={"remote_copy_bytes": 9}))
    assert tier.totals == {"remote_copy_bytes": 9}
    assert tier.unhealthy_partitions() == {(b"t" * 16, 3): "a hole"}
    tier.on_down()
    assert (tier.totals, tier.unhealthy_partitions()) == ({}, {})
    ports.executors.shutdown()


class ScriptedReads:
    """Each read is a future that the test ends."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[RemoteFetched]] = []

    def read(self, _: RemoteRead) -> "asyncio.Future[RemoteFetched]":
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


async def test_reads_are_counted_as_what_they_ended_with(tmp_path: Path) -> None:
    """A read that no batch fits is not late: its client has room for others only."""
    loop = asyncio.get_running_loop()
    ports = system_ports(loop)
    tier, reads = RemoteTier(config_of(tmp_path), ports, loop), ScriptedReads()
    tier._reads = reads  # type: ignore[assignment]
    hosted = TopicMetrics(ports.metrics)
    hosted.of("t")
    tier._fetches.attach(hosted)
    for deadline_ms in (*[ports.clock.monotonic_ms() + 600_000] * 4, ports.clock.monotonic_ms()):
        tier.read(RemoteRead(b"t" * 16, "t", 0, 0, 100, True, False, deadline_ms, "a client"))
    got, failed, no_room, excluded, late = reads.futures
    got.set_result(RemoteFetched([memoryview(b"bytes")], 5))
    failed.set_exception(ReplicaNotAvailable("t-0"))
    no_room.set_result(RemoteFetched())
    late.set_result(RemoteFetched())
    excluded.cancel()
    await asyncio.sleep(0)
    counted = {name: one.total() for name, one in broker_counters(ports.metrics).items()}
    assert {name: one for name, one in counted.items() if name.startswith("remote_")} == {
        "remote_fetches": 1,
        "remote_fetch_errors": 1,
        "remote_fetch_expired": 2,
        "remote_fetch_bytes": 5,
    }
    ports.executors.shutdown()


async def test_a_tier_that_ends_before_the_broker_is_attached_does_no_harm(tmp_path: Path) -> None:
    errors: list[object] = []

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    ports = system_ports(loop)
    tier = RemoteTier(config_of(tmp_path), ports, loop)
    with pytest.raises(TierStartError, match=r"remote\.log\.storage\.manager\.class\.name"):
        await tier.start()
    await tier.stop()
    ports.executors.shutdown()
    assert errors == []
