"""The broker's face of its tier, with a real tier process."""

import asyncio
from pathlib import Path

import pytest

from broker.remote.supervisor import TierStartError
from broker.remote.tier import RemoteTier
from rlm.config import TierConfig
from rlm.link.messages import Health, PartitionHealth
from rlmm.red import RedText
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
    tier.on_health(Health(0, 0, 0, [], [RedText("a deletion fails for long")]))
    assert tier.warnings() == ["a deletion fails for long"]
    ports.executors.shutdown()


async def test_what_the_page_shows_of_the_tier_goes_when_the_tier_does(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    ports = system_ports(loop)
    tier = RemoteTier(config_of(tmp_path), ports, loop)
    assert (tier.totals, tier.red_partitions()) == ({}, {})
    red = [
        PartitionHealth(b"t" * 16, 3, RedText("a hole")),
        PartitionHealth(b"", -1, RedText("the whole tier")),
    ]
    tier.on_health(Health(0, 0, 0, red, totals={"remote_copy_bytes": 9}))
    assert tier.totals == {"remote_copy_bytes": 9}
    assert tier.red_partitions() == {(b"t" * 16, 3): "a hole"}
    tier.on_down()
    assert (tier.totals, tier.red_partitions()) == ({}, {})
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
