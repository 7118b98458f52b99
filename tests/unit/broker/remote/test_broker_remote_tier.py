"""The broker's face of its tier, with a real tier process."""

import asyncio
from pathlib import Path

import pytest

from broker.remote.supervisor import TierStartError
from broker.remote.tier import RemoteTier
from rlm.config import TierConfig
from runtime.ports import system_ports


async def test_a_tier_that_ends_before_the_broker_is_attached_does_no_harm(tmp_path: Path) -> None:
    errors: list[object] = []

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    ports = system_ports(loop)
    config = TierConfig(
        node_id=1,
        cluster_id="c",
        state_dir=str(tmp_path),
        cache_dir=str(tmp_path),
        storage_class="no.such.module:Plugin",
        storage_settings={},
        metadata_class="rlmm.memory:InMemoryRemoteLogMetadataManager",
    )
    tier = RemoteTier(config, ports, loop)
    with pytest.raises(TierStartError, match=r"remote\.log\.storage\.manager\.class\.name"):
        await tier.start()
    await tier.stop()
    ports.executors.shutdown()
    assert errors == []
