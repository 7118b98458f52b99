"""aiokafka: a client in pure Python that speaks older versions."""

import asyncio

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.support.brokers.process import BrokerProcess


@pytest.mark.smoke
def test_records_come_back_as_sent(broker: BrokerProcess) -> None:
    sent = [(b"%d" % n, b"value %d" % n) for n in range(500)]

    async def send_and_read() -> list[tuple[bytes | None, bytes | None]]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, enable_idempotence=True, compression_type="gzip"
        )
        await producer.start()
        try:
            futures = [await producer.send("aio", key=k, value=v, partition=0) for k, v in sent]
            await asyncio.gather(*futures)
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition("aio", 0)])
            async with asyncio.timeout(60):
                return [
                    (record.key, record.value) for record in [await consumer.getone() for _ in sent]
                ]
        finally:
            await consumer.stop()

    assert asyncio.run(send_and_read()) == sent


async def test_admin_creates_and_deletes(broker: BrokerProcess) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        created = await admin.create_topics([NewTopic("aio-admin", 2, 1)])
        assert created.topic_errors[0][1] == 0
        assert "aio-admin" in await admin.list_topics()
        await admin.delete_topics(["aio-admin"])
        assert "aio-admin" not in await admin.list_topics()
    finally:
        await admin.close()
