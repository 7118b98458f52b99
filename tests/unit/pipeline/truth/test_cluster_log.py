"""The log of a cluster, as brokers tell it that have not all heard of the same."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from kafka_client.blocking import BlockingClient
from kafka_client.transport import Address
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster import cluster
from pipeline.cluster.cluster import UnknownTopicError
from pipeline.truth.cluster_log import ClusterLog
from pipeline.values import ClusterAddress, Where
from tests.support.sim.clock import ManualClock

NODES = ("one", "two")
Epochs = list[int]


class Brokers(BlockingClient):
    """Two brokers; the first tells each time the next of what it is given, the second the last.

    Attributes:
        told: leader epochs by partition of the topic `orders`, None where the first broker does
            not know it.
        ends: asked for an offset, a broker that is given the leader epoch in here says this.
    """

    told: list[Epochs | None]
    ends: dict[int, int]

    def present(self, addresses: Iterable[Address], *_: object) -> Iterator[Address]:
        return iter(dict.fromkeys(addresses))

    def ask(self, address: Address, api_key: int, version: int, body: Any) -> Any:
        """Answer Metadata and ListOffsets."""
        answer = codec.response(api_key).cls
        if api_key == ApiKey.LIST_OFFSETS:
            (wanted,) = body.topics[0].partitions
            end = self.ends.get(wanted.current_leader_epoch)
            part = answer.Topics.Partitions(
                partition_index=wanted.partition_index,
                error_code=75 if end is None else 0,  # UNKNOWN_LEADER_EPOCH
                offset=-1 if end is None else end,
            )
            return answer(topics=[answer.Topics(name="orders", partitions=[part])])
        assert api_key == ApiKey.METADATA
        wanted_names = None if body.topics is None else [one.name for one in body.topics]
        topics = []
        if wanted_names is None or "orders" in wanted_names:
            is_first = address[0] == NODES[0]
            epochs = self.told.pop(0) if is_first and len(self.told) > 1 else self.told[-1]
            of = answer.Topics.Partitions
            parts = [
                of(partition_index=number, leader_id=1, leader_epoch=epoch)
                for number, epoch in enumerate(epochs or ())
            ]
            if epochs is not None:
                topics = [answer.Topics(name="orders", topic_id=b"1" * 16, partitions=parts)]
        brokers = [
            answer.Brokers(node_id=node, host=host, port=1) for node, host in enumerate(NODES, 1)
        ]
        return answer(cluster_id="c", brokers=brokers, topics=topics)


Opened = Callable[..., ClusterLog]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    logs: list[ClusterLog] = []

    def open_log(*told: Epochs | None, ends: dict[int, int] | None = None) -> ClusterLog:
        monkeypatch.setattr(Brokers, "told", list(told), raising=False)
        monkeypatch.setattr(Brokers, "ends", ends or {}, raising=False)
        monkeypatch.setattr(cluster, "BlockingClient", Brokers)
        where = Where(cluster=ClusterAddress(f"{NODES[0]}:1"))
        logs.append(ClusterLog(where, ManualClock()))
        return logs[-1]

    yield open_log
    for log in logs:
        with closing(log):
            pass


def numbers(log: ClusterLog) -> list[int]:
    return [one.partition for one in log.partitions(["orders"])]


def test_a_broker_that_knows_fewer_partitions_is_asked_again(opened: Opened) -> None:
    log = opened([0] * 4, [0] * 3, [0] * 4)
    assert [numbers(log), numbers(log)] == [[0, 1, 2, 3]] * 2
    assert len(Brokers.told) == 1


def test_a_topic_is_gone_only_when_all_brokers_say_so(opened: Opened) -> None:
    log = opened([0], None, [0])
    assert [numbers(log), numbers(log)] == [[0]] * 2
    assert len(Brokers.told) == 1
    listing = opened([0], None, [0])
    assert [listing.topics(), listing.topics()] == [["orders"]] * 2
    deleted = opened([0], None)
    assert deleted.topics() == ["orders"]
    assert deleted.topics() == []
    with pytest.raises(UnknownTopicError, match="there is no topic 'orders'"):
        numbers(deleted)


def test_a_leader_that_was_deposed_and_does_not_know_it_is_not_believed(opened: Opened) -> None:
    """Its log may end before what a stream has read, which would look like lost records."""
    orders = TopicPartition("orders", 0)
    log = opened([5], [4], [5], ends={4: 30, 5: 70})
    assert log.latest([orders]) == {orders: 70}
    assert log.latest([orders]) == {orders: 70}
    assert len(Brokers.told) == 1


def test_a_leader_of_another_epoch_refuses_and_is_asked_under_the_new_one(opened: Opened) -> None:
    orders = TopicPartition("orders", 0)
    log = opened([4], [4], [5], ends={5: 70})
    assert log.earliest([orders]) == {orders: 70}
