"""Remote tiers of several brokers beside three controllers: real processes, real clients."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.quorum.serving import leaders
from tests.support.quorum.tier_rounds import run_rounds
from tests.support.quorum.tiering import Cluster, audited, tiers_apart, tiers_combined

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=240)]

METADATA = "__remote_log_metadata"
RECORDS = [(b"%d" % n, (b"%d " % n) * 200) for n in range(6_000)]
AS_READ = [(n, key, value) for n, (key, value) in enumerate(RECORDS)]
Starts = Callable[[Path], AbstractAsyncContextManager[Cluster]]


@pytest.mark.smoke
@pytest.mark.parametrize("starts", [tiers_apart, tiers_combined], ids=["apart", "combined"])
async def test_a_topics_life_in_the_tiers_of_several_brokers(
    tmp_path: Path, starts: Starts
) -> None:
    """Only processes show that tiers reach the metadata topic at each other's brokers."""
    async with starts(tmp_path) as cluster:
        one, other = cluster.nodes[:2]
        led = await cluster.create("t", 2 * len(cluster.nodes))
        assert set(led.values()) == cluster.ids
        assert set(leaders(other.address, METADATA).values()) <= cluster.ids
        for partition in led:
            await asyncio.to_thread(produce, other, "t", RECORDS, partition)
        await cluster.until_only_active_is_local("t", led)
        for partition in led:
            assert await asyncio.to_thread(read_all, one, "t", partition) == AS_READ
            assert await asyncio.to_thread(end_offsets, one, "t", partition) == (0, len(RECORDS))
        await audited(one)
        await cluster.delete("t")
        await cluster.until_green()
        for node in cluster.nodes:
            assert await node.stop() == 0


@pytest.mark.parametrize("starts", [tiers_apart, tiers_combined], ids=["apart", "combined"])
async def test_controllers_brokers_and_tiers_are_killed(tmp_path: Path, starts: Starts) -> None:
    """Only processes show what a kill leaves in the store, and who takes it away."""
    async with starts(tmp_path) as cluster:
        await run_rounds(cluster, seed=1, rounds=4, say=print)
