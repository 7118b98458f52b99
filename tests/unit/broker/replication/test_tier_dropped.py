"""All that is remote is to be deleted: each replica begins where its own disk does."""

from dataclasses import replace
from pathlib import Path

from broker.replica.partition import Partition
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dir import LOG_STARTS
from tests.support.worlds.data_plane import NODE, World
from tests.support.worlds.followers import FOLLOWER, Pair, following

TP = TopicPartition("t", 0)
DROP = LogConfig(remote_log_delete_on_disable=True)


async def tiered(pair: Pair, *, led_from: int, followed_from: int) -> tuple[Partition, Partition]:
    """Two replicas with 40 records in segments of 10, whose local logs begin there."""
    pair.add_topic("t", remote_storage_enable=True)
    led, followed = (one.replicas.partitions[TP] for one in (pair.leader, pair.follower))
    for count in range(40):
        pair.leader.append("t", b"%d" % count)
        if count % 10 == 9:
            await pair.run(700)
            led.log.roll()
            followed.log.roll()
    await pair.run(700)
    pair.change("t", isr=(NODE, FOLLOWER))
    for world, log, start in (
        (pair.leader, led.log, led_from),
        (pair.follower, followed.log, followed_from),
    ):
        expire(world, log, start)
    return led, followed


def expire(world: World, log: PartitionLog, start: int) -> None:
    assert log.set_copied_through(start - 1, 3)
    log.hold.end()
    world.logs.retention.run([log], world.clock.wall_ms(), release_copied=True)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, start)


def configure(pair: Pair, config: LogConfig) -> None:
    for world in (pair.leader, pair.follower):
        world.configs["t"] = config
        world.replicas.hosting.configure({"t"})


def checkpointed(world: World) -> int | None:
    directory = world.logs.directory_of(TP)
    assert directory is not None
    return directory.entry(LOG_STARTS, TP)


async def test_a_replica_that_leads_next_has_all_from_its_log_start_on(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        led, followed = await tiered(pair, led_from=10, followed_from=30)
        configure(pair, DROP)
        assert (led.log.log_start_offset, followed.log.log_start_offset) == (10, 30)
        await pair.run(700)
        assert checkpointed(pair.follower) == 30
        assert led.members_highest_log_start == 30
        pair.follower.change("t", leader=FOLLOWER, leader_epoch=4)
        assert followed.is_leader
        assert followed.log.log_start_offset == followed.log.local_log_start_offset == 30


async def test_a_log_that_is_lent_is_told_when_it_is_here(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        _, followed = await tiered(pair, led_from=10, followed_from=30)
        followed.log.lease.grant(truncates=False)
        configure(pair, DROP)
        assert followed.log.log_start_offset == 0
        followed.log.lease.take_back()
        await pair.run(700)
        assert checkpointed(pair.follower) == 30


async def test_a_replica_that_hears_of_it_with_its_role_begins_there(tmp_path: Path) -> None:
    """As at a start: its log is opened with the settings."""
    async with following(tmp_path) as pair:
        led, followed = await tiered(pair, led_from=10, followed_from=30)
        for partition in (led, followed):
            partition.log.set_config(DROP)
        pair.leader.configs["t"] = DROP
        pair.change("t", leader_epoch=4)
        assert (led.log.log_start_offset, followed.log.log_start_offset) == (10, 30)
        await pair.run(700)
        assert checkpointed(pair.follower) == 30


async def test_what_is_remote_stays_while_nobody_orders_its_deletion(tmp_path: Path) -> None:
    async with following(tmp_path) as pair:
        led, followed = await tiered(pair, led_from=10, followed_from=30)
        configure(pair, replace(led.log.config, remote_log_copy_disable=True))
        configure(pair, replace(DROP, remote_storage_enable=True))
        await pair.run(700)
        assert (led.log.log_start_offset, followed.log.log_start_offset) == (0, 0)
        assert led.members_highest_log_start == 0
