"""Executors in processes of their own: two workers of a standalone cluster read all rows."""

from pathlib import Path

import pytest

from kafka_protocol.types import TopicPartition
from tests.support.lake.cluster import Filling, fill, hdfs_settings, store_of, tiered_cluster
from tests.support.lake.consumer import consumer_digests
from tests.support.spark.frames import frame_digests, source_frame
from tests.support.spark.session import spark_session
from tests.support.spark.standalone import standalone_cluster
from tests.support.stores.hdfs import Hdfs
from tests.support.stores.s3 import CREDENTIALS, S3Endpoint
from tests.support.stores.s3_tier import S3Tier

pytestmark = [pytest.mark.long(seconds=90), pytest.mark.timeout(900)]
FILLING = Filling(partitions=3, epochs=2, records=5_000)
WORKERS = {"spark_executor_memory": "512m"}


def test_two_workers_read_a_directory(tmp_path: Path) -> None:
    check(tmp_path, None)


def test_two_workers_read_s3(
    tmp_path: Path, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    check(tmp_path, S3Tier(s3, s3.url).settings())


def test_two_workers_read_hdfs(tmp_path: Path, hdfs: Hdfs) -> None:
    check(tmp_path, hdfs_settings(hdfs))


def check(tmp_path: Path, store: dict[str, str] | None) -> None:
    """Through the cluster and from the bucket alone, in many small tasks."""
    with tiered_cluster(tmp_path / "broker", store=store) as broker:
        fill(broker, "orders", FILLING)
        expected = consumer_digests(broker.bootstrap, "orders")
        assert {each.count for each in expected.values()} == {9_900}
        address = store_of(broker)
        with (
            standalone_cluster(tmp_path / "spark") as url,
            spark_session(url, **WORKERS) as spark,
        ):
            frame = source_frame(
                spark,
                kafka_bootstrap_servers=broker.bootstrap,
                subscribe="orders",
                minPartitions="12",
            )
            assert frame_digests(frame) == expected
            broker.terminate()
            alone = spark.read.format("tidemark").options(
                **{f"rsm.config.{key}": value for key, value in address.settings.items()},
                **{
                    "remote.log.storage.manager.class.name": address.class_name,
                    "subscribe": "orders",
                    "includeHeaders": "true",
                },
            )
            counts = {place: found.count for place, found in frame_digests(alone.load()).items()}
            assert set(counts) == {TopicPartition("orders", number) for number in range(3)}
            assert all(0 < found <= 9_900 for found in counts.values())
