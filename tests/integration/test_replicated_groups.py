"""The broker that coordinates groups is killed; __consumer_offsets has three copies.

Only real libraries show how each looks for the next coordinator, and only a kill what of the
offsets was on one broker alone.
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from broker.coordinator.group.protocols import java_hash
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.groups.clients import CLIENTS
from tests.support.groups.member import Member
from tests.support.quorum.node_connection import NO_ANSWER, NodeConnection
from tests.support.quorum.own_controllers import SERVING
from tests.support.quorum.replica_rounds import PARTITIONS, TOPIC, Replicated, apart, create
from tests.support.quorum.serving import produce

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=400)]

OFFSETS_PARTITIONS = "offsets.topic.num.partitions"
LIBRARIES = ("confluent-kafka", "aiokafka", "kafka-python")
GOES_ON_S = 60.0
"""A session of 3 s, and what a busy machine takes."""


async def test_groups_continue_when_their_coordinator_is_killed(tmp_path: Path) -> None:
    async with apart(tmp_path / "cluster") as cluster:
        await create(cluster)
        await cluster.until_whole()
        values = count()
        with ExitStack() as stack:
            members = {
                group_of(name): stack.enter_context(
                    Member(CLIENTS[name], cluster.servers, tmp_path / "members")
                )
                for name in LIBRARIES
            }
            for group, member in members.items():
                member.subscribe(group, TOPIC)
            for records in (1, 2):  # the first coordinator is back at the second kill
                await asyncio.to_thread(
                    produce, cluster.servers, TOPIC, list(range(PARTITIONS)), values
                )
                await all_commit(members.values(), records)
                node = await coordinator(cluster, next(iter(members)))
                node.kill()
                began = time.monotonic()
                for group in members:
                    found = await asyncio.to_thread(committed, cluster, group)
                    assert found == dict.fromkeys(range(PARTITIONS), records), group
                await all_commit(members.values(), records)
                print(f"{len(members)} groups commit again after {time.monotonic() - began:.1f} s")
                await node.start()
                await cluster.until_whole()


async def all_commit(members: Iterable[Member], records: int) -> None:
    """Each member has read so many records of each partition, and committed them."""

    def commit(member: Member) -> None:
        member.wait(
            lambda: len(set(member.records)) == records * PARTITIONS, "reads all", GOES_ON_S
        )
        deadline = time.monotonic() + GOES_ON_S
        offsets = [[TOPIC, one, records, ""] for one in range(PARTITIONS)]
        while (error := member.commit(offsets)["error"]) is not None:
            assert time.monotonic() < deadline, f"{member.name} cannot commit: {error}"

    await asyncio.gather(*(asyncio.to_thread(commit, one) for one in members))


def group_of(library: str) -> str:
    """A name of the group whose offsets are in partition 0, as those of the other libraries."""
    names = (f"{library}-{number}" for number in count())
    return next(one for one in names if java_hash(one) % int(SERVING[OFFSETS_PARTITIONS]) == 0)


async def coordinator(cluster: Replicated, group: str) -> Any:
    """The node that coordinates a group, as a node says that answers."""
    fields = {"key": group, "key_type": 0}
    async with asyncio.timeout(GOES_ON_S):
        while True:
            for node in cluster.nodes:
                talk = NodeConnection(int(node.address.split(":")[1]))
                try:
                    found = await talk.ask(ApiKey.FIND_COORDINATOR, fields, timeout_s=5, version=2)
                except NO_ANSWER:
                    continue
                finally:
                    talk.close()
                if found.error_code == 0:
                    return next(one for one in cluster.nodes if one.node_id == found.node_id)
            await asyncio.sleep(0)


def committed(cluster: Replicated, group: str) -> dict[int, int]:
    """What a client that comes new is told of the offsets of a group."""
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": group})
    asked = [TopicPartition(TOPIC, one) for one in range(PARTITIONS)]
    try:
        return {one.partition: one.offset for one in consumer.committed(asked, GOES_ON_S)}
    finally:
        consumer.close()
