"""The cluster that readers are compared by holds what it promises."""

from pathlib import Path

import pytest

from kafka_protocol.types import TopicPartition
from tests.support.lake.cluster import Filling, epochs_of, fill, tiered_cluster
from tests.support.lake.consumer import rows_of_consumer
from tests.support.lake.rows import digests


@pytest.mark.slow
def test_a_filled_topic_has_epochs_a_deleted_prefix_and_remote_segments(tmp_path: Path) -> None:
    with tiered_cluster(tmp_path / "broker") as broker:
        fill(broker, "orders", Filling())
        rows = list(rows_of_consumer(broker.bootstrap, "orders"))
        assert [each.count for each in digests(rows).values()] == [7_400, 7_400]
        assert rows[0].offset == 100
        assert {row.key is None for row in rows} == {True, False} == {r.value is None for r in rows}
        assert any(row.headers and len(row.headers) > 1 for row in rows)
        for number in range(2):
            assert len(epochs_of(broker, "orders", number)) >= 3
            assert len(broker.remote_segments("orders", number)) > 2
        assert TopicPartition("orders", 1) in digests(rows)
