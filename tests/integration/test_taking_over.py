"""A cluster of Apache Kafka is taken over node by node under its clients, and goes back."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.quorum import until_asked
from tests.support.quorum.taking_over import (
    COMPACTED,
    IDS,
    MOVED,
    PATIENCE_S,
    PLAIN,
    TIERED,
    TakeOver,
    kafkas_cluster,
)
from tests.support.quorum.taking_over_clients import (
    Reader,
    Writer,
    contradictions,
    read_all,
)

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.long(seconds=280),
    pytest.mark.patience(seconds=850),
    pytest.mark.timeout(900),
]

SIZES = {PLAIN: 1_000, TIERED: 20_000}
PARTITIONS = {PLAIN: 3, TIERED: 2}
KEYS = [b"key %d" % number for number in range(20)]
RESTING = "resting"
"""A group that committed before and comes back after."""


async def test_each_node_is_replaced_under_its_clients_and_some_go_back(tmp_path: Path) -> None:
    """Only Kafka's own directories and processes show what the other leaves for each of them."""
    require_kafka_tools()
    async with kafkas_cluster(tmp_path) as cluster:
        await cluster.create_topics()
        moved = await asyncio.to_thread(cluster.transact)
        await asyncio.to_thread(write_keys, cluster)
        writer, reader = Writer(cluster.servers, SIZES), Reader(cluster.servers, [*SIZES])
        writer.start()
        reader.start()
        await until_copied(cluster, writer, reader, more=2)
        rest(cluster)

        await cluster.lower_features()
        await cluster.copying(is_on=False)
        for node_id in cluster.controllers:
            await cluster.controller_is(node_id, ours=True)
        await cluster.draw_secret()
        for node_id in IDS:
            await cluster.broker_is(node_id, ours=True)
            if node_id == IDS[0]:
                await cluster.lead_metadata_by(node_id)
            assert await validated(cluster, writer, reader, TIERED) == []
        await cluster.copying(is_on=True)
        await until_copied(cluster, writer, reader, more=1)
        await until_asked(
            lambda: {cluster.health(one)["status"] for one in IDS} == {"green"},
            "all are green",
            deadline_s=PATIENCE_S,
        )

        await cluster.copying(is_on=False)
        await cluster.lead_metadata_by(IDS[-1])
        await cluster.broker_is(IDS[0], ours=False)
        await cluster.controller_is(1, ours=False)
        await progress(writer, reader)

        await asyncio.to_thread(writer.stop)
        for topic in SIZES:
            assert await validated(cluster, writer, reader, topic) == []
        await until_asked(
            lambda: reader.wrong or reader.count == writer.count,
            "the group has read all",
            deadline_s=PATIENCE_S,
        )
        await asyncio.to_thread(reader.stop)
        assert reader.wrong == []
        assert values(await asyncio.to_thread(read_all, cluster.servers, MOVED, 1)) == moved
        compacted = values(await asyncio.to_thread(read_all, cluster.servers, COMPACTED, 1))
        assert set(compacted) >= {b"%s 4" % key for key in KEYS}
        assert committed(cluster) == 5


async def until_copied(cluster: TakeOver, writer: Writer, reader: Reader, *, more: int) -> None:
    """Wait until the store has so many segments more of each partition of the tiered topic."""
    before = [len(cluster.remote_segments(TIERED, one)) for one in range(PARTITIONS[TIERED])]

    def are() -> bool:
        found = [len(cluster.remote_segments(TIERED, one)) for one in range(PARTITIONS[TIERED])]
        are_more = all(now >= then + more for now, then in zip(found, before, strict=True))
        return are_more or bool(writer.wrong or reader.wrong)

    await until_asked(are, "segments are copied", deadline_s=PATIENCE_S)
    assert [*writer.wrong, *reader.wrong] == []


async def progress(writer: Writer, reader: Reader) -> None:
    """Wait until both clients have continued."""
    written, read = writer.count + 20, reader.count + 20
    await until_asked(
        lambda: (writer.count >= written and reader.count >= read) or writer.wrong or reader.wrong,
        "clients continue",
        deadline_s=PATIENCE_S,
    )


async def validated(cluster: TakeOver, writer: Writer, reader: Reader, topic: str) -> list[str]:
    """What clients were told and is not so, or is there twice."""
    known = {place: dict(offsets) for place, offsets in writer.acknowledged.items()}
    found = await asyncio.to_thread(read_all, cluster.servers, topic, PARTITIONS[topic])
    return [*writer.wrong, *reader.wrong, *contradictions(known, topic, found)]


def write_keys(cluster: TakeOver) -> None:
    producer = Producer({"bootstrap.servers": cluster.servers})
    for number in range(5):
        for key in KEYS:
            producer.produce(COMPACTED, b"%s %d" % (key, number), key=key)
        assert producer.flush(60) == 0


def rest(cluster: TakeOver) -> None:
    """Commit offset 5 of a partition, for a group that has no member."""
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": RESTING})
    consumer.commit(offsets=[TopicPartition(PLAIN, 0, 5)], asynchronous=False)
    consumer.close()


def committed(cluster: TakeOver) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": RESTING})
    (found,) = consumer.committed([TopicPartition(PLAIN, 0)], timeout=60)
    consumer.close()
    return int(found.offset)


def values(found: dict[int, list[tuple[int, bytes]]]) -> list[bytes]:
    return [value for read in found.values() for _, value in read]
