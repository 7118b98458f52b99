"""Questions to leaders while leaders change, against brokers that are a table of answers."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from kafka_client.blocking import BlockingClient, ClusterError, UnreachableError
from kafka_client.transport import Address
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from pipeline.cluster.asker import Asker, LeaderChangedError
from pipeline.cluster.cluster import NotNowError, UnknownTopicError
from pipeline.cluster.questions import (
    LATEST,
    EpochAsked,
    EpochEnd,
    broker_settings,
    epoch_ends,
    list_offsets,
)

ORDERS = [TopicPartition("orders", number) for number in range(3)]


class TableClient(BlockingClient):
    """Answers as a cluster of two brokers does, of which the second leads partition 1."""

    def __init__(self) -> None:
        super().__init__("one:1")
        self.leaders = {0: 1, 1: 2, 2: 1}
        self.epochs = {0: 5, 1: 6, 2: 7}
        self.asked: list[tuple[Address, int]] = []
        self.code: Callable[[int, int], int] = lambda node, partition: (
            0 if self.leaders[partition] == node else int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        )
        self.away: set[str] = set()

    def present(self, addresses: Iterable[Address], *_: object) -> Iterator[Address]:
        return iter(dict.fromkeys(addresses))

    def ask(self, address: Address, api_key: int, version: int, body: Any) -> Any:
        self.asked.append((address, api_key))
        if address[0] in self.away:
            raise UnreachableError(f"{address[0]} is away")
        answer = codec.response(api_key).cls
        return getattr(self, ApiKey(api_key).name.lower())(
            answer, {"one": 1, "two": 2}[address[0]], body
        )

    def metadata(self, answer: Any, _node: int, _body: Any) -> Any:
        parts = [
            answer.Topics.Partitions(partition_index=n, leader_id=node, leader_epoch=self.epochs[n])
            for n, node in self.leaders.items()
        ]
        return answer(
            cluster_id="c",
            brokers=[
                answer.Brokers(node_id=1, host="one", port=1),
                answer.Brokers(node_id=2, host="two", port=1),
            ],
            topics=[answer.Topics(name="orders", topic_id=bytes(16), partitions=parts)],
        )

    def list_offsets(self, answer: Any, node: int, body: Any) -> Any:
        return answer(
            topics=[
                answer.Topics(
                    name=topic.name,
                    partitions=[
                        answer.Topics.Partitions(
                            partition_index=part.partition_index,
                            error_code=self.stale(part) or self.code(node, part.partition_index),
                            offset=100 + part.partition_index,
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )

    def stale(self, part: Any) -> int:
        wanted = part.current_leader_epoch
        is_old = 0 <= wanted < self.epochs[part.partition_index]
        return int(ErrorCode.FENCED_LEADER_EPOCH) if is_old else 0

    def offset_for_leader_epoch(self, answer: Any, _node: int, body: Any) -> Any:
        return answer(
            topics=[
                answer.Topics(
                    topic=topic.topic,
                    partitions=[
                        answer.Topics.Partitions(
                            partition=part.partition,
                            leader_epoch=part.leader_epoch if part.leader_epoch < 5 else -1,
                            end_offset=part.leader_epoch * 10 if part.leader_epoch < 5 else -1,
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )

    def describe_configs(self, answer: Any, _node: int, body: Any) -> Any:
        config = answer.Results.Configs
        return answer(
            results=[
                answer.Results(
                    resource_name=body.resources[0].resource_name,
                    configs=[
                        config(name="rsm.config.bucket", value="b"),
                        config(name="rsm.config.secret", value=None, is_sensitive=True),
                    ],
                )
            ]
        )


@pytest.fixture
def client() -> TableClient:
    return TableClient()


def offsets(client: TableClient, **more: Any) -> dict[TopicPartition, int]:
    found = list_offsets(Asker(client, 5), dict.fromkeys(ORDERS, LATEST), **more)
    return {partition: one.offset for partition, one in found.items()}


def test_one_request_a_broker_asks_for_all_partitions(client: TableClient) -> None:
    assert offsets(client) == {partition: 100 + partition.partition for partition in ORDERS}
    assert [key for _, key in client.asked].count(ApiKey.LIST_OFFSETS) == 2


def test_a_new_leader_is_found_and_only_its_partitions_are_asked_again(client: TableClient) -> None:
    asker = Asker(client, 5)
    asker.look()
    client.leaders[0] = 2
    found = list_offsets(asker, dict.fromkeys(ORDERS, LATEST))
    assert len(found) == 3
    assert client.asked[-1] == (("two", 1), ApiKey.LIST_OFFSETS)


def test_a_named_leader_epoch_that_is_over_ends_the_round(client: TableClient) -> None:
    old = {partition: client.epochs[partition.partition] for partition in ORDERS}
    assert len(offsets(client, epochs=old)) == 3
    client.epochs[2] += 1
    with pytest.raises(LeaderChangedError, match="orders-2: FENCED_LEADER_EPOCH"):
        offsets(client, epochs=old)


def test_a_broker_that_is_away_is_asked_again_until_the_deadline(client: TableClient) -> None:
    asker = Asker(client, 0.2)
    asker.look()
    client.away = {"two"}
    with pytest.raises(UnreachableError, match="two is away"):
        list_offsets(asker, {ORDERS[1]: LATEST})
    client.leaders[1] = 1
    assert list_offsets(asker, {ORDERS[1]: LATEST})[ORDERS[1]].offset == 101


def test_any_known_broker_says_where_the_leaders_are(client: TableClient) -> None:
    asker = Asker(client, 5)
    asker.look()
    client.away = {"one"}
    assert asker.look().topics["orders"].leaders == client.leaders


def test_what_cannot_be_answered_is_not_asked_again(client: TableClient) -> None:
    client.code = lambda _node, _partition: int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ClusterError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        offsets(client)
    assert not isinstance(caught.value, NotNowError)
    asker = Asker(client, 5)
    with pytest.raises(UnknownTopicError, match="did you mean orders"):
        list_offsets(asker, {TopicPartition("order", 0): LATEST})
    with pytest.raises(ClusterError, match="orders has no partition 9: it has 3"):
        list_offsets(asker, {TopicPartition("orders", 9): LATEST})


def test_epochs_of_one_partition_are_asked_in_one_request(client: TableClient) -> None:
    asked = [EpochAsked(ORDERS[0], epoch) for epoch in (3, 4, 9)] + [EpochAsked(ORDERS[1], 2)]
    epochs = dict.fromkeys(ORDERS, 5)
    found = epoch_ends(Asker(client, 5), asked, epochs)
    assert found == {one: EpochEnd(one.epoch, one.epoch * 10) for one in asked if one.epoch < 5}
    assert [key for _, key in client.asked].count(ApiKey.OFFSET_FOR_LEADER_EPOCH) == 2


def test_secrets_of_a_broker_are_left_out(client: TableClient) -> None:
    assert broker_settings(Asker(client, 5)) == {"rsm.config.bucket": "b"}
