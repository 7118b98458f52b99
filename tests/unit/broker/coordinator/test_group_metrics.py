"""Each number about groups moves by what it counts."""

import asyncio
from pathlib import Path

from broker.coordinator.shard import ShardStage
from broker.topics.offsets_topic import OFFSETS_TOPIC
from kafka_protocol.wire.api_keys import ApiKey
from runtime.timing_wheel import TICK_MS
from tests.support.coordinator.served import ServedGroups
from tests.support.worlds.pools import HeldPool
from tests.support.worlds.waiting import until

METRICS = "kafka_server_group_coordinator_metrics_"


def shown(groups: ServedGroups) -> dict[str, float]:
    """All values, by name and labels; groups are counted again."""
    groups.world.clock.advance(1_000)
    return {
        ".".join((one.name.removeprefix(METRICS), *one.labels.values())): one.value
        for one in groups.world.metrics.samples()
    }


async def stable(groups: ServedGroups, group: str = "g") -> None:
    """A member joins, and is given its assignment."""
    joining = groups.join(group=group)
    await asyncio.sleep(0)
    groups.world.scheduler.advance(2 * TICK_MS)
    joined = await joining
    await groups.told(
        ApiKey.SYNC_GROUP,
        3,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[{"member_id": joined.member_id, "assignment": b"a"}],
    )


async def test_commits_deletions_and_expiries_are_counted(tmp_path: Path) -> None:
    groups = ServedGroups(tmp_path)
    for partition in range(3):
        groups.commit(1, partition=partition)
    assert shown(groups)["offset_commit_count"] == 3
    asked = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    await groups.told(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=asked)
    assert shown(groups)["offset_deletion_count"] == 1
    groups.world.clock.advance(8 * 24 * 3_600_000)
    await groups.coordinator.expire()
    assert shown(groups)["offset_expiration_count"] >= 2


async def test_rebalances_are_counted_for_the_life_of_the_broker(tmp_path: Path) -> None:
    """A counter that falls when leadership moves would make a rate of nonsense."""
    groups = ServedGroups(tmp_path)
    await stable(groups)
    found = shown(groups)
    assert found["group_completed_rebalance_count"] == 1
    assert (found["group_count.classic"], found["group_count.other"]) == (1, 0)
    assert found["kafka_coordinator_group_GroupMetadataManager_NumGroupsStable"] == 1
    groups.world.change(OFFSETS_TOPIC, leader=2, leader_epoch=4)
    found = shown(groups)
    assert found["group_completed_rebalance_count"] == 1
    assert found["group_count.classic"] == 0
    groups.world.change(OFFSETS_TOPIC, leader=1, leader_epoch=5)
    await until(lambda: groups.coordinator.shards[0].stage is ShardStage.ACTIVE)
    await stable(groups, "h")
    assert shown(groups)["group_completed_rebalance_count"] == 2


async def test_how_long_answers_wait_for_their_commit_is_counted(tmp_path: Path) -> None:
    pool = HeldPool(is_holding=False)
    groups = ServedGroups(tmp_path, pool=pool, flush_messages=1)
    pool.is_holding = True
    answer = groups.commit(1)
    await pool.until_held()
    groups.world.clock.advance(70)
    pool.release()
    await answer
    found = shown(groups)
    assert found["event_purgatory_time_ms_count"] == 1
    assert found["event_purgatory_time_ms_sum"] == 70
