"""Brings both sides of the comparison into the same state: topics, records, restarts, tiers."""

from collections.abc import Callable

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import RawClient, create_topic, produce
from tests.support.differential.common import records
from tests.support.differential.comparison import Side

SEGMENT_BYTES = 1_048_576


def first_life(side: Side) -> None:
    """Topics and the records of the first leader epoch."""
    with side.connect() as client:
        for name, partitions in {
            "plain": 2,
            "empty": 1,
            "trimmed": 1,
            "sink": 2,
            "cut": 1,
            "unwritten": 1,
            "many": 6,
        }.items():
            create_topic(client, name, partitions)
        for name in ("changed", "doomed"):
            create_topic(client, name)
        create_topic(client, "compacted", cleanup_policy="compact")
        _create(client, "stamped", {"message.timestamp.type": "LogAppendTime"})
        _create(
            client,
            "tiered",
            {
                "remote.storage.enable": "true",
                "segment.bytes": str(SEGMENT_BYTES),
                "local.retention.ms": "1000",
                "retention.ms": "-1",
            },
        )
        for topic in ("plain", "trimmed", "compacted"):
            for first, count in ((0, 3), (3, 1), (4, 2)):
                _append(client, topic, records(count, first=first))
        for first in range(5):
            _append(client, "tiered", records(3, first=3 * first, size=160_000))


def second_life(side: Side) -> None:
    """Records under another leader epoch."""
    with side.connect() as client:
        for topic in ("plain", "trimmed", "compacted", "cut"):
            for first, count in ((6, 1), (7, 3)):
                _append(client, topic, records(count, first=first))
        for first in range(5, 10):
            _append(client, "tiered", records(3, first=3 * first, size=160_000))


def third_life(side: Side) -> None:
    """A trimmed log, and a tiered topic whose records are all remote."""
    with side.connect() as client:
        until(lambda: _delete_records(client, "trimmed", 4) == 0, "records are deleted")
    until(lambda: _is_expired(side), f"{side.name}: everything is remote only")
    side.learn_topics()


def _is_expired(side: Side) -> bool:
    with side.connect() as client:
        return _offset(client, "tiered", -4) == 30


def _offset(client: RawClient, topic: str, timestamp: int) -> int:
    asked = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
    answer = client.ask(ApiKey.LIST_OFFSETS, 9, {"replica_id": -1, "topics": [asked]})
    return int(answer.topics[0].partitions[0].offset)


def _delete_records(client: RawClient, topic: str, offset: int) -> int:
    asked = {"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}
    answer = client.ask(ApiKey.DELETE_RECORDS, 1, {"topics": [asked], "timeout_ms": 10_000})
    return int(answer.topics[0].partitions[0].error_code)


def _append(client: RawClient, topic: str, batch: bytearray) -> None:
    until(lambda: produce(client, topic, batch).error_code == 0, f"{topic} takes records")


def _create(client: RawClient, name: str, configs: dict[str, str]) -> None:
    create_topic(client, name, **{key.replace(".", "_"): value for key, value in configs.items()})


def prepare(side: Side, restart: Callable[[], None]) -> None:
    """All three lives."""
    first_life(side)
    restart()
    second_life(side)
    restart()
    third_life(side)
