"""A big topic in S3, read by Spark and by a stream that is killed: the rows of a consumer.

200 MB in CI, 2 GB with `make prove-spark`.
"""

import os
from pathlib import Path
from random import Random

import pytest

from tests.support.lake.cluster import Filling, fill, tiered_cluster
from tests.support.lake.consumer import consumer_digests
from tests.support.spark.frames import frame_digests, source_frame
from tests.support.spark.killed_stream import KilledStream, kill_workers
from tests.support.spark.parquet_sink import sink_digests
from tests.support.spark.session import spark_session
from tests.support.stores.s3 import CREDENTIALS, S3Endpoint
from tests.support.stores.s3_tier import S3Tier

MEGABYTES = int(os.environ.get("TIDEMARK_SPARK_MB", "200"))
PARTITIONS, EPOCHS, RECORD_BYTES, DELETED = 4, 3, 1_000, 1_000
FILLING = Filling(
    partitions=PARTITIONS,
    epochs=EPOCHS,
    records=MEGABYTES * 1_100_000 // (PARTITIONS * EPOCHS * RECORD_BYTES),
    value_bytes=RECORD_BYTES,
    noise_bytes=950,
    deleted=DELETED,
    segment_bytes=8 << 20,
)


@pytest.mark.timeout(1_800)
def test_a_big_topic_has_the_rows_of_a_consumer_in_every_way(
    tmp_path: Path, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    tier = S3Tier(s3, s3.url)
    with tiered_cluster(tmp_path / "broker", store=tier.settings()) as broker:
        fill(broker, "orders", FILLING)
        logs = (size for key, size in tier.listing().items() if key.endswith(".log"))
        assert sum(logs) >= 0.9 * MEGABYTES * 1_000_000
        expected = consumer_digests(broker.bootstrap, "orders")
        each = FILLING.records // 5 * 5 * EPOCHS - DELETED
        assert [found.count for found in expected.values()] == [each] * PARTITIONS
        with spark_session("local[2]") as spark:
            frame = source_frame(
                spark, kafka_bootstrap_servers=broker.bootstrap, subscribe="orders"
            )
            assert frame_digests(frame) == expected
        stream = KilledStream(
            tmp_path / "stream",
            {
                "kafka.bootstrap.servers": broker.bootstrap,
                "subscribe": "orders",
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(each * PARTITIONS // 8),
                "includeHeaders": "true",
            },
        )
        with stream.running():
            stream.wait_for("offsets", 2 + Random().randrange(2))  # killed in the midst of a batch
        with stream.running():
            stream.wait_for("offsets", stream.count("offsets") + 1)
            kill_workers(stream)
        stream.run_to_end()
        assert sink_digests(stream.path) == expected
