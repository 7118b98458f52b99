"""Consumer groups of clients that anybody uses, against a broker started as its user would.

The scenarios of groups at length, of more clients and beside Apache Kafka, have tests of their own;
here is what each client does first, and that a killed broker forgets nothing.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from tests.support.brokers.clients import produce
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.raw_client import RawClient, build, header
from tests.support.kafka.tools import kafka_tool, require_kafka_tools

GROUPS = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "4"}
DEADLINE_S = 40


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return make_broker(settings=GROUPS).start()


def consumer(broker: BrokerProcess, group: str, topic: str, **settings: object) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 300,
            **settings,
        }
    )
    made.subscribe([topic])
    return made


def fill(broker: BrokerProcess, topic: str, count: int, start: int = 0) -> None:
    produce(broker, topic, [(b"%d" % n, b"%d" % n) for n in range(start, start + count)])


def read(members: list[Consumer], count: int) -> list[bytes]:
    """Values that the members read, in turns, until there are so many."""
    values: list[bytes] = []
    end_s = time.monotonic() + DEADLINE_S
    while len(values) < count:
        assert time.monotonic() < end_s, f"{len(values)} of {count} records were read"
        for member in members:
            for message in member.consume(100, 0.05):
                assert message.error() is None, message.error()
                values.append(message.value() or b"")
    return values


def owned(members: list[Consumer]) -> list[int]:
    """How many partitions each member has; polls, so that rebalances go on."""
    for member in members:
        message = member.poll(0.05)
        assert message is None or message.error() is None
    return sorted(len(member.assignment()) for member in members)


def test_members_share_the_partitions_of_a_topic_and_take_over_what_one_leaves(
    broker: BrokerProcess,
) -> None:
    fill(broker, "shared", 400)
    first, second = (consumer(broker, "g", "shared") for _ in range(2))
    until(lambda: owned([first, second]) == [2, 2], "two have two each", deadline_s=DEADLINE_S)
    second.close()
    until(lambda: owned([first]) == [4], "one has all", deadline_s=DEADLINE_S)
    first.close()


def test_a_group_goes_on_where_it_committed_also_after_the_broker_was_killed(
    broker: BrokerProcess,
) -> None:
    fill(broker, "kept", 400)
    member = consumer(broker, "g", "kept")
    assert len(read([member], 400)) == 400
    committed = member.commit(asynchronous=False)
    assert committed is not None
    broker.kill()
    broker.start()
    fill(broker, "kept", 100, start=400)
    # The member of before joins again by itself; nothing is read twice.
    values = read([member], 100)
    assert sorted(values, key=int) == [b"%d" % n for n in range(400, 500)]
    member.commit(asynchronous=False)
    member.close()
    again = consumer(broker, "g", "kept")
    until(lambda: owned([again]) == [4], "it has all partitions", deadline_s=DEADLINE_S)
    [found] = again.committed([TopicPartition("kept", 0)], 10)
    assert found.offset == 500
    again.close()


def test_groups_are_listed_described_and_deleted(broker: BrokerProcess) -> None:
    fill(broker, "seen", 40)
    member = consumer(broker, "described", "seen", **{"client.id": "me"})
    read([member], 40)
    member.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    listed = admin.list_consumer_groups(request_timeout=10).result()
    assert [one.group_id for one in listed.valid] == ["described"]
    described = admin.describe_consumer_groups(["described"])["described"].result()
    assert described.state.name == "STABLE"
    [shown] = described.members
    assert (shown.client_id, shown.host) == ("me", "/127.0.0.1")
    assert len(shown.assignment.topic_partitions) == 4
    member.close()
    admin.delete_consumer_groups(["described"])["described"].result()
    assert admin.list_consumer_groups(request_timeout=10).result().valid == []


async def test_aiokafka_subscribes_and_commits(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker(settings=GROUPS).start()
    fill(broker, "aio", 100)
    for wanted in (100, 50):
        client = AIOKafkaConsumer(
            "aio",
            bootstrap_servers=broker.bootstrap,
            group_id="aio",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await client.start()
        values = []
        async with asyncio.timeout(DEADLINE_S):
            while len(values) < wanted:
                for some in (await client.getmany(timeout_ms=200)).values():
                    values += [record.value for record in some]
        await client.commit()
        await client.stop()
        assert len(values) == wanted
        fill(broker, "aio", 50, start=100)


def test_kafka_python_subscribes_and_commits(broker: BrokerProcess) -> None:
    fill(broker, "python", 100)
    for wanted in (100, 50):
        client = KafkaConsumer(
            "python",
            bootstrap_servers=broker.bootstrap,
            group_id="python",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        values: list[bytes] = []
        end_s = time.monotonic() + DEADLINE_S
        while len(values) < wanted and time.monotonic() < end_s:
            for some in client.poll(timeout_ms=200).values():
                values += [record.value for record in some]
        client.commit()
        client.close()
        assert len(values) == wanted
        fill(broker, "python", 50, start=100)


def test_a_stop_answers_members_that_wait_and_takes_no_time(broker: BrokerProcess) -> None:
    """A new member waits for one that never joins again."""
    fields = {
        "group_id": "waiting",
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "member_id": "",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    with RawClient(broker) as first, RawClient(broker) as second:
        until(
            lambda: not first.ask(ApiKey.FIND_COORDINATOR, 1, {"key": "waiting"}).error_code,
            "there is a coordinator",
        )
        assert first.ask(ApiKey.JOIN_GROUP, 3, fields).error_code == 0
        message = request(ApiKey.JOIN_GROUP)
        body = message.encode(build(message.cls, fields), 3)
        second.send_frame(header(ApiKey.JOIN_GROUP, 3) + body)
        until(lambda: broker.metric("kafka_server_group_coordinator_metrics_parked_requests") == 1,
              "the second member waits")  # fmt: skip
        began_s = time.monotonic()
        assert broker.terminate() == 0
        assert time.monotonic() - began_s < 20
        assert second.answer(ApiKey.JOIN_GROUP, 3).error_code == 16


@pytest.mark.jvm
def test_the_dump_tool_of_kafka_reads_groups_and_offsets(broker: BrokerProcess) -> None:
    require_kafka_tools()
    fill(broker, "dumped", 40)
    member = consumer(broker, "dumped-group", "dumped")
    read([member], 40)
    member.commit(asynchronous=False)
    member.close()
    assert broker.terminate() == 0
    files = [
        str(path)
        for path in Path(broker.log_directory).glob("__consumer_offsets-*/*.log")
        if path.stat().st_size
    ]
    shown = kafka_tool("dump-log", "--files", ",".join(files), "--offsets-decoder")
    assert '"type":"1","data":{"group":"dumped-group","topic":"dumped","partition":0}' in shown
    assert '"type":"2","data":{"group":"dumped-group"}' in shown
    for complaint in ("mismatches", "corrupt", "isvalid: false", "Exception"):
        assert complaint not in shown
