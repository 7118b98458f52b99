"""The log of a cluster, as brokers tell it that have not all heard of the same."""

from contextlib import closing
from typing import Any

import pytest

from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.wire_client import Address, WireClient
from pipeline.truth import cluster_log
from pipeline.truth.cluster_log import ClusterLog
from pipeline.values import ClusterAddress, Where
from runtime.sim.clock import ManualClock


class LateBroker(WireClient):
    """Tells of a topic that has so many partitions with each question for it."""

    counts: list[int]

    def ask(self, address: Address, api_key: int, version: int, body: Any) -> Any:
        """Answer Metadata."""
        assert api_key == ApiKey.METADATA
        answer = codec.response(api_key).cls
        names = [one.name for one in body.topics]
        topics = []
        if "orders" in names:
            count = self.counts.pop(0)
            of = answer.Topics.Partitions
            parts = [of(partition_index=n, leader_id=1, leader_epoch=0) for n in range(count)]
            topics = [answer.Topics(name="orders", topic_id=b"1" * 16, partitions=parts)]
        broker = answer.Brokers(node_id=1, host="one", port=1)
        return answer(cluster_id="c", brokers=[broker], topics=topics)


def test_a_broker_that_knows_fewer_partitions_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LateBroker, "counts", [4, 3, 4], raising=False)
    monkeypatch.setattr(cluster_log, "WireClient", LateBroker)
    where = Where(cluster=ClusterAddress("one:1"))
    with closing(ClusterLog(where, ManualClock())) as log:
        for _ in range(2):
            assert [one.partition for one in log.partitions(["orders"])] == [0, 1, 2, 3]
    assert LateBroker.counts == []
