"""Kafka's dump tool reads `__consumer_offsets` of our broker: the same records as Kafka's own."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import until
from tests.support.groups.world import SETTINGS, World, kafka_world, our_world
from tests.support.kafka.tools import kafka_tool, require_kafka_tools

pytestmark = [pytest.mark.lasts(seconds=25), pytest.mark.jvm]
TOPIC = "read"
MASKED = (
    (r'"(topicId|memberId|leader)":"[^"]*[-_][^"]*"', r'"\1":"..."'),
    (r'"topicId":"[\w-]{22}"', '"topicId":"..."'),
    (r'"(commitTimestamp|expireTimestamp|currentStateTimestamp)":\d+', r'"\1":0'),
)
"""What differs from run to run; -1 stands for no time, and is compared."""


def talk(world: World) -> None:
    """A member, a static member, offsets without a group in old and new versions, deletions."""
    world.ready()
    world.create(TOPIC, 2)
    world.fill(TOPIC, 2, 5)
    for settings in ({"group.id": "members"}, {"group.id": "fixed", "group.instance.id": "one"}):
        consumer = Consumer(
            {
                "bootstrap.servers": world.bootstrap,
                "client.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **settings,
            }
        )
        consumer.subscribe([TOPIC])
        until(lambda c=consumer: (c.poll(0.1), len(c.assignment()) == 2)[1], "it has both")
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 3), TopicPartition(TOPIC, 1, 4)],
                        asynchronous=False)  # fmt: skip
        consumer.close()
    for version, more in ((2, {"retention_time_ms": 3_600_000}), (8, {})):
        places = [
            {"partition_index": n, "committed_offset": 7 + n, "committed_metadata": "där"}
            for n in range(2)
        ]
        fields = {"group_id": f"simple-{version}", "generation_id_or_member_epoch": -1,
                  "topics": [{"name": TOPIC, "partitions": places}], **more}  # fmt: skip
        done = world.ask(ApiKey.OFFSET_COMMIT, version, **fields)
        assert {one.error_code for one in done.topics[0].partitions} == {0}
    gone = {"name": TOPIC, "partitions": [{"partition_index": 1}]}
    world.ask(ApiKey.OFFSET_DELETE, 0, group_id="simple-8", topics=[gone])
    world.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["simple-2"])


def dumped(directory: Path) -> dict[str, list[str]]:
    """Keys and values as the tool prints them, by partition of `__consumer_offsets`."""
    found: dict[str, list[str]] = {}
    for log in sorted(directory.rglob("__consumer_offsets-*/*.log")):
        if log.stat().st_size == 0:
            continue
        shown = kafka_tool("dump-log", "--offsets-decoder", "--files", str(log))
        lines = re.findall(r"key: (?:\{.*|[^ ]+ payload:.*)", shown)
        for pattern, instead in MASKED:
            lines = [re.sub(pattern, instead, line) for line in lines]
        found[log.parent.name] = lines
    return found


def test_the_dump_tool_prints_the_records_that_kafka_writes(tmp_path: Path) -> None:
    require_kafka_tools()
    shown = {}
    made: Callable[[Path, dict[str, str]], tuple[World, Callable[[], None]]]
    for made in (kafka_world, our_world):
        directory = tmp_path / made.__name__
        directory.mkdir()
        world, end = made(directory, SETTINGS)
        try:
            talk(world)
        finally:
            end()
        shown[world.name] = dumped(directory)
    assert shown["tidemark"] == shown["kafka"]
    lines = [line for of_one in shown["kafka"].values() for line in of_one]
    assert sum('"group":"simple-2"' in line for line in lines) == 5
