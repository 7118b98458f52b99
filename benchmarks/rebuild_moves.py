"""Parts `added`, `added-full` and `throttled`: a reassignment gives partitions one replica more."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks.rebuild_cluster import IDS, VICTIM, Beside, Three, p99_ms, three
from benchmarks.rebuild_disk import (
    BESIDE,
    MB,
    NAN,
    REBUILT_S,
    REPLICATED,
    REST_S,
    STORE_READ,
    TOPIC,
    filled,
    log_bytes,
    metric,
)
from benchmarks.replication_nodes import metadata
from tests.support.quorum.controllers import Controller
from tests.support.quorum.moving import going, reassign
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.serving import admin
from tests.support.quorum.tiering import TieringBroker

OTHERS: Final = tuple(one for one in IDS if one != VICTIM)
RATE: Final = "follower.replication.throttled.rate"
THROTTLED: Final = "follower.replication.throttled.replicas"


async def added(
    kind: type[Controller],
    directory: Path,
    megabytes: int,
    *,
    is_tiered: bool,
    rate_mb: int | None = None,
) -> dict[str, float]:
    """Seconds and bytes until a broker that had nothing of a topic is in sync with all of it.

    Args:
        kind: Of the controllers, and so of the brokers.
        directory: Of all.
        megabytes: Of the topic, one copy.
        is_tiered: Most of it is in the remote tier alone.
        rate_mb: At most so many megabytes a second; None: as many as it can.
    """
    async with three(kind, directory) as cluster:
        total = await filled(cluster, OTHERS, megabytes, is_tiered=is_tiered)
        if rate_mb is not None:
            _throttle(cluster, rate_mb * MB)
        broker, beside = cluster.victim, Beside(BESIDE, [one.address for one in cluster.others])
        try:
            rest_began = time.monotonic()
            await asyncio.sleep(REST_S)
            before, began = _copied(broker), time.monotonic()
            await asyncio.to_thread(_begin, cluster)
            await until_asked(
                lambda: not going(cluster.others[0].address),
                "the new replicas are in sync",
                deadline_s=REBUILT_S,
            )
            ended = time.monotonic()
        finally:
            waits = beside.stop()
        copied = _copied(broker) - before
        page = broker.page("metrics") if isinstance(broker, TieringBroker) else ""
        return {
            "from the question to all in sync, s": ended - began,
            "copied from brokers, MB": copied / MB,
            "copied from brokers, % of all": copied / total * 100,
            "copied from brokers, MB/s": copied / MB / (ended - began),
            "read from the store, kB": sum(map(float, STORE_READ.findall(page))) / 1_000
            if page
            else NAN,
            "bytes of logs on its disk then, % of all": log_bytes(broker.logs, TOPIC) / total * 100,
            "produce beside, at rest: p99 ms": p99_ms(waits, rest_began, began),
            "produce beside, from then to in sync: p99 ms": p99_ms(waits, began, ended),
        }


def _begin(cluster: Three) -> None:
    address = cluster.others[0].address
    found = metadata(address, [TOPIC]).topics[0].partitions
    wanted = {one.partition_index: [*one.replica_nodes, VICTIM] for one in found}
    assert set(reassign(address, {TOPIC: wanted})) == {0}


def _throttle(cluster: Three, rate: int) -> None:
    """Set the throttles that `kafka-reassign-partitions --throttle` sets."""
    tools = admin(cluster.others[0].address)
    of_broker = ConfigResource(
        ResourceType.BROKER, str(VICTIM), incremental_configs=[_set(RATE, rate)]
    )
    of_topic = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[_set(THROTTLED, "*")])
    for future in tools.incremental_alter_configs([of_broker, of_topic]).values():
        future.result(30)


def _set(name: str, value: object) -> ConfigEntry:
    return ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)


def _copied(broker: Any) -> float:
    """Bytes that it has replicated so far; the client of the metadata topic has them, too."""
    page = broker.page("metrics") if isinstance(broker, TieringBroker) else ""
    return metric(page, REPLICATED)
