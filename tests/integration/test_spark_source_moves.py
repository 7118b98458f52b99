"""A stream moved between Spark's Kafka source and ours, on one checkpoint.

Spark promises nothing of the kind. It holds because both keep the same JSON; tried with the version
whose Kafka source can be had from Maven Central, PySpark 4.0.0, in a Python of its own.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.brokers.process import BrokerProcess
from tests.support.lake.cluster import Filling, fill, tiered_cluster
from tests.support.spark.pyspark_400 import needs_pyspark_400, run_stream

pytestmark = [pytest.mark.slow, needs_pyspark_400, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with tiered_cluster(tmp_path_factory.mktemp("broker")) as started:
        fill(started, "orders", Filling(epochs=2, records=500, deleted=0))
        yield started


def run(broker: BrokerProcess, place: Path, source: str) -> None:
    """Read all there is, in a process with the other PySpark."""
    asked = {
        "format": source,
        "options": {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": "orders",
            "startingOffsets": "earliest",
        },
        "path": str(place / "rows"),
        "checkpoint": str(place / "checkpoint"),
    }
    run_stream(asked, connector=source == "kafka")


def produce(broker: BrokerProcess, records: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(records):
        producer.produce("orders", b"value", partition=number % 2)
    assert producer.flush(60) == 0


def test_a_stream_moves_from_sparks_source_to_ours_and_back(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    ends = []
    for batch, source in enumerate(["kafka", "tidemark", "kafka", "tidemark"]):
        run(broker, tmp_path, source)
        text = (tmp_path / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()[-1]
        ends.append(json.loads(text)["orders"]["0"])
        produce(broker, 100)
    assert ends == [1000, 1050, 1100, 1150]
    from pyarrow import dataset

    table = dataset.dataset(tmp_path / "rows", exclude_invalid_files=True).to_table()
    found = sorted(zip(*(table[one].to_pylist() for one in ("partition", "offset")), strict=True))
    assert found == [(number, offset) for number in range(2) for offset in range(1150)]
