"""Remote tiers of several brokers beside three controllers: real processes, real clients."""

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.files.meta_properties import META_PROPERTIES, parse_meta_properties
from kafka_protocol.types import EpochEntry
from kafka_protocol.wire.primitives import uuid_to_text
from local_log.manager.log_dir import COMMITTED_METADATA
from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.tiered_files import CHAIN, assert_whole, directory_of, objects
from tests.support.brokers.tiered_partition import fill
from tests.support.brokers.tiered_topics import delete_topic
from tests.support.quorum.broker_beside import BrokerBesideControllers
from tests.support.quorum.quorum import until
from tests.support.quorum.serving import leaders
from tests.support.quorum.tier_rounds import run_rounds
from tests.support.quorum.tiering import (
    Cluster,
    Tiering,
    audited,
    tiers_apart,
    tiers_beside_one_voter,
    tiers_combined,
)
from tests.support.rounds import rounds

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=240)]

ROUNDS = rounds("TIDEMARK_TIER_ROUNDS", quick=8, full=32)
METADATA = "__remote_log_metadata"
METADATA_LOG = "__cluster_metadata-0"
IN_ORDER = {"enable.idempotence": True}
"""Also where a leader does not know yet that it leads, and the first batch is sent again."""
RECORDS = [(b"%d" % n, (b"%d " % n) * 200) for n in range(6_000)]
AS_READ = [(n, key, value) for n, (key, value) in enumerate(RECORDS)]


def chain_of(broker: BrokerProcess) -> list[EpochEntry]:
    return epoch_checkpoint.parse((directory_of(broker) / CHAIN).read_bytes())


Starts = Callable[[Path], AbstractAsyncContextManager[Cluster]]


@pytest.mark.smoke
@pytest.mark.parametrize(
    "starts",
    [tiers_apart, tiers_combined, tiers_beside_one_voter],
    ids=["apart", "combined", "beside one voter"],
)
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
            await asyncio.to_thread(produce, other, "t", RECORDS, partition, **IN_ORDER)
        await cluster.until_only_active_is_local("t", led)
        for partition in led:
            assert await asyncio.to_thread(read_all, one, "t", partition) == AS_READ
            assert await asyncio.to_thread(end_offsets, one, "t", partition) == (0, len(RECORDS))
        await audited(one)
        await cluster.delete("t")
        await cluster.until_green()
        for node in cluster.nodes:
            assert await node.stop() == 0


async def test_a_topic_whose_only_broker_is_gone_leaves_the_store(tmp_path: Path) -> None:
    """K405-39: another process removes it, which never hosted the topic."""
    async with tiers_combined(tmp_path) as cluster:
        led = await cluster.create("t")
        gone = cluster.node(led[0])
        here = next(one for one in cluster.nodes if one is not gone)
        await asyncio.to_thread(produce, here, "t", RECORDS, **IN_ORDER)
        await cluster.until_only_active_is_local("t", led)
        gone.kill()
        await until_led_by_others(cluster, gone, METADATA)
        await asyncio.to_thread(delete_topic, here, "t")
        await until(lambda: not cluster.objects("t"), "nothing is left of it", deadline_s=120)
        await gone.start()
        await cluster.until_green()
        assert not gone.local_segments("t")
        await audited(here, "--deep")


async def until_led_by_others(cluster: Cluster, gone: Tiering, topic: str) -> None:
    here = next(one for one in cluster.nodes if one is not gone)
    others = cluster.ids - {gone.node_id}
    await until(
        lambda: bool(led := set(leaders(here.address, topic).values())) and led <= others,
        f"others lead {topic}",
        deadline_s=60,
    )


@pytest.mark.parametrize("starts", [tiers_apart, tiers_combined], ids=["apart", "combined"])
@pytest.mark.rounds(seconds=120)
@pytest.mark.patience(seconds=120 + 30 * ROUNDS)
async def test_controllers_brokers_and_tiers_are_lost(tmp_path: Path, starts: Starts) -> None:
    """Only processes show what a kill leaves in the store, and who takes it away."""
    async with starts(tmp_path) as cluster:
        await run_rounds(cluster, seed=1, rounds=ROUNDS, say=print)


async def test_leader_epochs_of_an_earlier_time_are_raised_over_the_wire(tmp_path: Path) -> None:
    """All controllers are put back to an older copy: another process gives the higher epoch."""
    broker = BrokerBesideControllers(tmp_path / "broker", tiered=True)
    quorum = broker.quorum
    try:
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(fill, broker)
        assert broker.terminate() == 0
        await quorum.stop()
        places = [one.metadata for one in quorum.controllers.values()]
        places.append(broker.log_directory / METADATA_LOG)
        for place in places:
            shutil.copytree(place, place.with_name("older"))
        for _ in range(3):
            await asyncio.to_thread(broker.start)
            await asyncio.to_thread(
                produce, broker, "orders", [(None, bytes(100_000)) for _ in range(25)]
            )
            broker.kill()
        await quorum.stop()
        before, used = objects(broker), chain_of(broker)[-1].epoch
        for place in places:
            shutil.rmtree(place)
            place.with_name("older").rename(place)
        (broker.log_directory / COMMITTED_METADATA).unlink()  # the operator means it
        meta = parse_meta_properties((broker.log_directory / META_PROPERTIES).read_bytes())
        done = await asyncio.to_thread(
            broker.command,
            "directories",
            "accept",
            uuid_to_text(meta.directory_id),
            "--yes",
            "--config",
            str(broker.config_file),
        )
        assert done.returncode == 0, done
        await asyncio.to_thread(broker.start)
        assert f"written under leader epoch {used}, and the metadata say" in broker.log_text()
        await asyncio.to_thread(assert_whole, broker, 120, before)
        assert chain_of(broker)[-1].epoch == used + 1
    finally:
        broker.close()
        print(broker.log_tail(100))


async def test_nothing_is_removed_while_no_controller_confirms_the_image(tmp_path: Path) -> None:
    """It was read that the topic was removed; that it still is, nobody can say."""
    grace = {"tidemark.remote.delete.grace.ms": "8000"}
    broker = BrokerBesideControllers(tmp_path / "broker", tiered=True, settings=grace)
    controllers = broker.quorum.controllers.values()
    try:
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(fill, broker)
        before = objects(broker)
        await asyncio.to_thread(delete_topic, broker, "orders")
        marked = "DELETE_PARTITION_MARKED of orders"
        await until(lambda: marked in broker.log_text(), "it is marked", deadline_s=60)
        for one in controllers:
            one.kill()
        refused = "the image of the metadata is not known to be new enough"
        await until(lambda: refused in broker.log_text(), "it is validated again", deadline_s=120)
        assert "DELETE_PARTITION_STARTED of orders" not in broker.log_text()
        assert objects(broker) == before
        await asyncio.gather(*(one.start() for one in controllers))
        await until(lambda: not broker.remote_segments("orders"), "it is gone", deadline_s=120)
    finally:
        broker.close()
        print(broker.log_tail(100))
