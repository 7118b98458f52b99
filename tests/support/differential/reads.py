"""Requests that change nothing: metadata, offsets, the cluster."""

from collections.abc import Callable, Iterator
from typing import Any

from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.differential.common import BASE_MS, TOPICS, every
from tests.support.differential.comparison import Case, Side

# -- Metadata


def metadata_cases() -> Iterator[Case]:
    key = ApiKey.METADATA
    for auto in (True, False):
        for names in (
            ["plain"],
            ["plain", "plain"],
            ["empty", "plain"],
            [],
            ["missing"] * (not auto),
        ):
            more = {"allow_auto_topic_creation": auto}
            yield from every(
                key, f"{names} auto={auto}", _named(names) | more, 4 if not auto else 1
            )
    quiet = {"allow_auto_topic_creation": False}
    for bad in ("", ".", "..", "a b", "x" * 249, "x" * 250, "ü", "../x", "__consumer_offsets"):
        yield from every(key, f"bad name {bad[:5]}", _named([bad, "plain"]) | quiet, 4)
    yield from every(key, "operations", _named(["plain"]) | quiet | _OPERATIONS, 8)

    def by_id(*names: str) -> Callable[[Side], Any]:
        def body(side: Side) -> Any:
            return {"topics": [{"topic_id": side.topic_id(n), "name": None} for n in names]} | quiet

        return body

    for names in (["plain"], ["nobody"], ["plain", "nobody"], ["plain", "plain"]):
        yield from every(key, f"by id {names}", by_id(*names), 10)
    yield from every(
        key,
        "name and id",
        lambda side: {"topics": [{"topic_id": side.topic_id("plain"), "name": "empty"}]} | quiet,
        10,
    )
    yield from every(
        key,
        "a name and an id",
        lambda side: (
            {
                "topics": [
                    {"topic_id": side.topic_id("plain"), "name": None},
                    {"topic_id": ZERO_UUID, "name": "empty"},
                ]
            }
            | quiet
        ),
        10,
    )
    yield from every(
        key, "neither", {"topics": [{"topic_id": ZERO_UUID, "name": None}]} | quiet, 10
    )


_OPERATIONS = {
    "include_cluster_authorized_operations": True,
    "include_topic_authorized_operations": True,
}


def _named(names: list[str]) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in names]}


# -- offsets


def list_offsets_cases() -> Iterator[Case]:
    key = ApiKey.LIST_OFFSETS

    def one(topic: str, timestamp: int, index: int = 0, **more: Any) -> dict[str, Any]:
        epoch = more.pop("epoch", -1)
        asked = {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": epoch}
        return {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]} | more

    times = (0, 1, BASE_MS - 1, BASE_MS, BASE_MS + 1, BASE_MS + 4000, BASE_MS + 10**9, 2**63 - 1)
    for topic in TOPICS:
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, -1000, -(2**63), *times):
            yield from every(key, f"{topic} {timestamp}", one(topic, timestamp))
    for isolation in (0, 1, 2, -1):
        yield from every(key, f"isolation {isolation}", one("plain", -1, isolation_level=isolation))
    for index in (-1, 1, 2, 2**31 - 1, -(2**31)):
        yield from every(key, f"partition {index}", one("plain", -1, index))
    for epoch in (-2, 0, 1, 2, 3, 4, 5, 1000, 2**31 - 1):
        yield from every(key, f"epoch {epoch}", one("plain", -1, epoch=epoch))
    for replica in (-2, -3, 0, 1, 99):
        yield from every(key, f"replica {replica}", one("plain", -1) | {"replica_id": replica})
    for timeout in (-1, 0, 60_000):
        yield from every(key, f"timeout {timeout}", one("tiered", BASE_MS, timeout_ms=timeout), 10)
    asked = {"partition_index": 0, "timestamp": -1}
    twice = {"replica_id": -1, "topics": [{"name": "plain", "partitions": [asked, asked]}]}
    split = {"replica_id": -1, "topics": [{"name": "plain", "partitions": [asked]}] * 2}
    yield from every(key, "partition twice", twice)
    yield from every(key, "topic twice", split)
    yield from every(key, "nothing", {"replica_id": -1, "topics": []})
    yield from every(
        key, "no partitions", {"replica_id": -1, "topics": [{"name": "plain", "partitions": []}]}
    )
    for name in ("", "..", "ü", "x" * 300, "__cluster_metadata"):
        yield from every(key, f"topic {name[:20]}", one(name, -1))


def epoch_end_cases() -> Iterator[Case]:
    key = ApiKey.OFFSET_FOR_LEADER_EPOCH

    def one(topic: str, epoch: int, current: int = -1, index: int = 0) -> dict[str, Any]:
        asked = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
        return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]}

    epochs = (*range(-3, 12), 1000, 2**31 - 1, -(2**31))
    for topic in TOPICS:
        for epoch in epochs:
            yield from every(key, f"{topic} epoch {epoch}", one(topic, epoch))
    for current in epochs:
        yield from every(key, f"current {current}", one("plain", 0, current))
    for index in (-1, 1, 2, 2**31 - 1):
        yield from every(key, f"partition {index}", one("plain", 0, index=index))
    for replica in (-2, 0, 1, 99):
        yield from every(key, f"replica {replica}", one("plain", 0) | {"replica_id": replica}, 3)
    asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    yield from every(key, "twice", {"topics": [{"topic": "plain", "partitions": [asked] * 2}]})
    yield from every(key, "nothing", {"topics": []})
    yield from every(key, "bad name", one("..", 0))


def delete_records_cases() -> Iterator[Case]:
    key = ApiKey.DELETE_RECORDS

    def one(topic: str, offset: int, index: int = 0) -> dict[str, Any]:
        asked = {"partition_index": index, "offset": offset}
        return {"topics": [{"name": topic, "partitions": [asked]}], "timeout_ms": 10_000}

    for topic in ("missing", "compacted", "empty", "cut", "..", "", "__consumer_offsets"):
        for offset in (-2, -100, 0, 2, 1, 4, 3, 11, 2**63 - 1, -(2**63)):
            yield from every(key, f"{topic} {offset}", one(topic, offset))
    for index in (-1, 2, 2**31 - 1):
        yield from every(key, f"partition {index}", one("cut", 0, index))
    for offsets in ((0, 0), (4, 5), (6, 5), (7, 100), (100, 7)):
        asked = [{"partition_index": 0, "offset": offset} for offset in offsets]
        both = {"topics": [{"name": "cut", "partitions": asked}], "timeout_ms": 10_000}
        yield from every(key, f"twice {offsets}", both)
    for timeout in (-1, 0):
        yield from every(key, f"timeout {timeout}", one("cut", 7) | {"timeout_ms": timeout})
    yield from every(key, "nothing", {"topics": [], "timeout_ms": 1000})
    for topic in ("cut", "empty"):
        yield from every(key, f"{topic} all", one(topic, -1))
        yield from every(key, f"{topic} all again, below", one(topic, 3))


# -- the cluster


def cluster_cases() -> Iterator[Case]:
    key = ApiKey.DESCRIBE_CLUSTER
    for operations in (False, True):
        for kind in (1, 2, 0, 3, -1):
            fields = {"include_cluster_authorized_operations": operations, "endpoint_type": kind}
            yield from every(
                key, f"operations={operations} kind={kind}", fields, 0 if kind == 1 else 1
            )
    yield Case("fenced brokers", key, 2, {"include_fenced_brokers": True})


def describe_partitions_cases() -> Iterator[Case]:
    key = ApiKey.DESCRIBE_TOPIC_PARTITIONS

    def one(
        names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
    ) -> Callable[[Side], Any]:
        at = None
        if cursor is not None:
            at = {"topic_name": cursor[0], "partition_index": cursor[1]}
        fields = {
            "topics": [{"name": n} for n in names],
            "response_partition_limit": limit,
            "cursor": at,
        }
        return lambda side: fields

    three = ["many", "plain", "empty"]
    for limit in (2000, 1, 2, 3, 5, 6, 0, -1, 2**31 - 1):
        yield from every(key, f"limit {limit}", one(three, limit))
    for cursor in (
        ("many", 0),
        ("many", 3),
        ("many", 5),
        ("many", 99),
        ("many", -1),
        ("plain", 0),
        ("plain", 1),
        ("empty", 0),
        ("a", 0),
        ("n", 0),
        ("zzz", 0),
        ("missing", 0),
        ("", 0),
    ):
        yield from every(key, f"cursor {cursor}", one(three, 2000, cursor))
        yield from every(key, f"cursor {cursor} limit 2", one(three, 2, cursor))
    for names in (
        ["missing"],
        ["missing", "plain"],
        ["plain", "plain"],
        [""],
        [".."],
        ["x" * 300],
        ["ü"],
    ):
        yield from every(key, f"{names!r:.30}", one(names))
        yield from every(key, f"{names!r:.30} cursor", one(names, 2000, ("many", 0)))


def log_dirs_cases() -> Iterator[Case]:
    key = ApiKey.DESCRIBE_LOG_DIRS

    def some(*asked: tuple[str, list[int]]) -> dict[str, Any]:
        return {"topics": [{"topic": name, "partitions": indexes} for name, indexes in asked]}

    for label, fields in {
        "nothing": some(),
        "no partitions": some(("plain", [])),
        "plain": some(("plain", [0, 1])),
        "several": some(("compacted", [0]), ("many", list(range(6))), ("empty", [0])),
        "partition twice": some(("plain", [0, 0])),
        "topic twice": some(("plain", [1]), ("plain", [0])),
        "partitions that are not": some(("plain", [-1, 2, 2**31 - 1, 0])),
        "missing": some(("missing", [0]), ("", [0]), ("..", [0]), ("x" * 300, [0])),
        "the metadata log": some(("__cluster_metadata", [0])),
    }.items():
        yield from every(key, label, fields)


def config_resources_cases() -> Iterator[Case]:
    key = ApiKey.LIST_CONFIG_RESOURCES
    yield from every(key, "all", {"resource_types": []})
    for types in (
        *([kind] for kind in (2, 4, 8, 16, 32)),
        *([kind] for kind in (0, 1, 3, 64, 127, -1, -128)),
        [16, 4, 32, 2],
        [4, 4],
        [2, 3],
    ):
        yield from every(key, f"types {types}", {"resource_types": types}, 1)


def unregister_cases() -> Iterator[Case]:
    """Of brokers that are not there; one that serves would be continued Kafka's side."""
    for broker_id in (0, 55, -1, 2**31 - 1, -(2**31)):
        yield from every(ApiKey.UNREGISTER_BROKER, f"id {broker_id}", {"broker_id": broker_id})


def init_producer_id_cases() -> Iterator[Case]:
    key = ApiKey.INIT_PRODUCER_ID
    base = {"transactional_id": None, "transaction_timeout_ms": 1000}
    yield from every(key, "plain", base)
    for timeout in (-1, 0, 2**31 - 1):
        yield from every(key, f"timeout {timeout}", base | {"transaction_timeout_ms": timeout})
    yield from every(key, "empty transactional id", base | {"transactional_id": ""})
    for producer_id, epoch in ((-1, 0), (0, -1), (0, 0), (5, 3), (-2, -2), (2**63 - 1, 32767)):
        fields = base | {"producer_id": producer_id, "producer_epoch": epoch}
        yield from every(key, f"id {producer_id} epoch {epoch}", fields, 3)


def acl_cases() -> Iterator[Case]:
    asked = {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    }
    rule = {
        "resource_type": 2,
        "resource_name": "plain",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    yield from every(ApiKey.DESCRIBE_ACLS, "all", asked)
    for count in range(3):
        label = f"{count} entries"
        yield from every(ApiKey.CREATE_ACLS, label, {"creations": [rule] * count})
        yield from every(ApiKey.DELETE_ACLS, label, {"filters": [asked] * count})
