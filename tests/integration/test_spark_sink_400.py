"""A stream into a topic with PySpark 4.0.0, by Spark's Kafka sink and by ours: the same records.

Before 4.1, streams hand rows to a Python sink, no Arrow; the test needs that version.
"""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.tiered_topics import create
from tests.support.lake.consumer import rows_of_consumer
from tests.support.spark.pyspark_400 import needs_pyspark_400, run_stream

pytestmark = [pytest.mark.slow, needs_pyspark_400, pytest.mark.timeout(900)]
Produced = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...] | None]


def produced(broker: BrokerProcess, topic: str) -> list[Produced]:
    rows = rows_of_consumer(broker.bootstrap, topic)
    return sorted((one.partition, one.key, one.value, one.headers) for one in rows)


def test_a_stream_writes_what_sparks_sink_writes(broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "from", 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(300):
        headers = [("h", b"%d" % number), ("h", None)] if number % 2 else None
        producer.produce("from", b"v%d" % number, b"k%d" % number, number % 3, headers=headers)
    assert producer.flush(60) == 0
    for sink in ("kafka", "tidemark"):
        create(broker, f"into-{sink}", 3)
        here = {"kafka.bootstrap.servers": broker.bootstrap}
        source = {**here, "subscribe": "from", "startingOffsets": "earliest"}
        asked = {
            "format": "tidemark",
            "options": {**source, "includeHeaders": "true"},
            "sink": {"format": sink, "options": {**here, "topic": f"into-{sink}"}},
            "checkpoint": str(tmp_path / sink),
        }
        run_stream(asked, connector=sink == "kafka")
    assert produced(broker, "into-tidemark") == produced(broker, "from")
    assert produced(broker, "into-kafka") == produced(broker, "from")
