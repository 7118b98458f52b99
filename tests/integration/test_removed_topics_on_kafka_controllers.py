"""Deleted tiered topics under controllers of Apache Kafka, which tell nobody what was removed."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_client.blocking import BlockingClient
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.primitives import uuid_to_text
from pipeline.cluster.cluster import look
from tests.support.brokers.clients import produce, read_all
from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.kafka_controllers import PlainKafkaController
from tests.support.quorum.quorum import Plan, Quorum, until_asked
from tests.support.quorum.tiering import SWITCH, Cluster, TieringBroker, audited

pytestmark = [pytest.mark.jvm, pytest.mark.lasts(seconds=150), pytest.mark.patience(seconds=400)]

READ, MISSED, KEPT = "read", "missed", "kept"
RECORDS = [(b"%d" % n, (b"%d " % n) * 200) for n in range(3_000)]
AS_READ = [(n, key, value) for n, (key, value) in enumerate(RECORDS)]
SETTINGS = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "metadata.max.retention.bytes": "1",
}
LONG_MS, SHORT_MS = "600000", "1000"
GRACE = "tidemark.remote.delete.grace.ms"
FILE = "tidemark-removed-topics"


async def test_what_was_read_goes_and_what_is_only_missing_waits_for_a_command(
    tmp_path: Path,
) -> None:
    """Only Kafka's controllers make snapshots without our fields, and let their log go."""
    require_kafka_tools()
    plan = Plan(
        PlainKafkaController, is_dynamic=True, count=1, has_links=False, settings=SETTINGS | SWITCH
    )
    async with Quorum(tmp_path, plan) as quorum:
        broker = TieringBroker(11, tmp_path / "broker-11", quorum.membership)
        broker.settings[GRACE] = LONG_MS
        await broker.format("--cluster-secret")
        cluster = Cluster(quorum, [broker])
        with closed_at_the_end(broker):
            await tells(broker, cluster)


@contextmanager
def closed_at_the_end(broker: TieringBroker) -> Iterator[None]:
    try:
        yield
    finally:
        broker.close()
        print(broker.log_tail(100))


async def tells(broker: TieringBroker, cluster: Cluster) -> None:
    await broker.start()
    await cluster.until_all_serve()
    for topic in (READ, MISSED, KEPT):
        led = await cluster.create(topic)
        await asyncio.to_thread(produce, broker, topic, RECORDS)
        await cluster.until_only_active_is_local(topic, led)
    with BlockingClient(broker.address) as client:
        ids = {topic: look(client).topic(topic).topic_id for topic in (READ, MISSED)}
    removed, missing = (uuid_to_text(ids[topic]) for topic in (READ, MISSED))
    kept_file = broker.metadata.parent / FILE
    (controller,) = cluster.quorum.controllers.values()
    at_controller = f"127.0.0.1:{controller.port}"

    await asyncio.to_thread(delete, at_controller, READ)
    await until_asked(
        lambda: kept_file.exists() and removed in kept_file.read_text(),
        "the removal that was read is in the broker's file",
        deadline_s=60,
    )
    broker.kill()
    end = (await cluster.quorum.leader()).high_watermark
    await asyncio.to_thread(delete, at_controller, MISSED)
    await asyncio.to_thread(alter_often, at_controller, KEPT)
    controller.kill()  # at its start it lets go what is older than its newest snapshots
    await controller.start()
    await until_asked(
        lambda: log_start(controller.metadata) > end, "the log begins later", deadline_s=180
    )

    broker.settings[GRACE] = SHORT_MS
    broker.write_config()
    await broker.start()
    assert "loaded snapshot: file=" in broker.log_file.read_text()
    await until_asked(lambda: not cluster.objects(READ), "what was read is removed", deadline_s=120)
    await until_asked(
        lambda: reason_with(broker, missing), "what is missing is named", deadline_s=60
    )
    health = broker.health()
    assert health["status"] == "yellow", health
    assert "tidemark remote forget" in reason_with(broker, missing)
    assert reason_with(broker, "the active controller is Apache Kafka's")
    assert cluster.objects(MISSED)

    code, said = await run_to_end([
        sys.executable, "-m", "tidemark.cli", "remote", "forget", missing, "--yes",
        "--undo-file", str(broker.directory / "undo.json"), "--bootstrap-server", broker.address,
    ])  # fmt: skip
    assert code == 0, said
    await until_asked(lambda: not cluster.objects(MISSED), "it is given up", deadline_s=120)
    await until_asked(
        lambda: not ({removed, missing} & set(kept_file.read_text().split())),
        "the file names what has something left, and nothing else",
        deadline_s=120,
    )
    assert await asyncio.to_thread(read_all, broker, KEPT) == AS_READ
    await audited(broker)


def reason_with(broker: TieringBroker, text: str) -> str:
    return next((one for one in broker.health().get("reasons", ()) if text in one), "")


def log_start(metadata: Path) -> int:
    """Kafka keeps no snapshot from before it."""
    return min((int(path.name[:20]) for path in metadata.glob("*.checkpoint")), default=0)


def delete(controller: str, topic: str) -> None:
    cls = codec.request(ApiKey.DELETE_TOPICS).cls
    asked = cls(topics=[cls.Topics(name=topic)], timeout_ms=30_000)
    with BlockingClient(controller) as client:
        (answer,) = client.ask_any(ApiKey.DELETE_TOPICS, 6, asked).responses
    assert answer.error_code == 0, answer


def alter_often(controller: str, topic: str) -> None:
    """Records enough for several snapshots."""
    cls = codec.request(ApiKey.INCREMENTAL_ALTER_CONFIGS).cls
    with BlockingClient(controller) as client:
        for n in range(200):
            config = cls.Resources.Configs(name="retention.ms", config_operation=0, value=f"{n}")
            config.value = str(604_800_000 + n)
            resource = cls.Resources(resource_type=2, resource_name=topic, configs=[config])
            asked = cls(resources=[resource], validate_only=False)
            (answer,) = client.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked).responses
            assert answer.error_code == 0, answer
