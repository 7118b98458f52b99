"""Requests about topics and their settings."""

from collections.abc import Callable, Iterator
from typing import Any

from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.differential.common import VERSIONS, every
from tests.support.differential.comparison import Case, Side

# -- topics and settings


def create_topics_cases() -> Iterator[Case]:
    key = ApiKey.CREATE_TOPICS

    def one(name: str, **fields: Any) -> dict[str, Any]:
        validate = fields.pop("validate_only", True)
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1} | fields
        return {"topics": [topic], "timeout_ms": 10_000, "validate_only": validate}

    for name in (
        "new",
        "plain",
        "",
        ".",
        "..",
        "a b",
        "ü",
        "x" * 249,
        "x" * 250,
        "__consumer_offsets",
        "../x",
    ):
        yield from every(key, f"name {name[:20]}", one(name))
    for count in (-2, -1, 0, 1, 10_000, 10_001, 2**31 - 1, -(2**31)):
        yield from every(key, f"partitions {count}", one("new", num_partitions=count))
    for factor in (-2, -1, 0, 1, 2, 32767, -32768):
        yield from every(key, f"factor {factor}", one("new", replication_factor=factor))
    for label, assignment in _assignments():
        free = one("new", assignments=assignment, num_partitions=-1, replication_factor=-1)
        yield from every(key, f"assignment {label}", free)
        yield Case(f"assignment and count {label}", key, 7, one("new", assignments=assignment))
    for name, value in topic_settings():
        settings = [{"name": name, "value": value}]
        yield Case(f"config {name}={value}", key, 7, one("new", configs=settings))
    doubled = [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}]
    yield from every(key, "config twice", one("new", configs=doubled))
    tier = [{"name": "remote.storage.enable", "value": "true"}]
    compact = [*tier, {"name": "cleanup.policy", "value": "compact"}]
    yield from every(key, "tiered and compacted", one("new", configs=compact))
    many = [one(name)["topics"][0] for name in ("new", "new", "other", "plain")]
    yield from every(
        key, "several, one twice", {"topics": many, "timeout_ms": 1000, "validate_only": True}
    )
    yield from every(key, "nothing", {"topics": [], "timeout_ms": 1000})
    for version in VERSIONS[key]:
        made = f"made.{version}"
        yield Case("for real", key, version, one(made, num_partitions=3, validate_only=False))
        yield Case("again", key, version, one(made, validate_only=False))
        yield Case("collides", key, version, one(made.replace(".", "_"), validate_only=False))


def _assignments() -> Iterator[tuple[str, Any]]:
    for label, rows in (
        ("good", [(0, [1])]),
        ("two", [(0, [1]), (1, [1])]),
        ("gap", [(0, [1]), (2, [1])]),
        ("from 1", [(1, [1])]),
        ("negative", [(-1, [1])]),
        ("twice", [(0, [1]), (0, [1])]),
        ("unknown broker", [(0, [99])]),
        ("negative broker", [(0, [-1])]),
        ("broker twice", [(0, [1, 1])]),
        ("no broker", [(0, [])]),
        ("uneven", [(0, [1]), (1, [1, 2])]),
    ):
        yield label, [{"partition_index": i, "broker_ids": ids} for i, ids in rows]


def topic_settings() -> Iterator[tuple[str, str | None]]:
    values: dict[str, tuple[str | None, ...]] = {
        "retention.ms": (
            "1",
            "0",
            "-1",
            "-2",
            "",
            "x",
            "1.5",
            " 7 ",
            None,
            "9223372036854775808",
            "${env:HOME}",
        ),
        "retention.bytes": ("-1", "-2", "5"),
        "segment.bytes": ("1048576", "1048575", "0", "-1", "2147483648"),
        "segment.ms": ("1", "0"),
        "cleanup.policy": (
            "compact",
            "delete",
            "compact,delete",
            "",
            "none",
            "DELETE",
            "delete,delete",
            "delete,x",
        ),
        "compression.type": ("producer", "gzip", "zip", "GZIP", ""),
        "min.insync.replicas": ("1", "0", "-1"),
        "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime"),
        "max.message.bytes": ("0", "-1", "2147483647"),
        "unclean.leader.election.enable": ("true", "TRUE", "yes", ""),
        "min.cleanable.dirty.ratio": ("0", "1", "1.1", "-0.1", "x"),
        "remote.storage.enable": ("true", "false", "maybe"),
        "local.retention.ms": ("-2", "-1", "-3", "5", "604800001"),
        "local.retention.bytes": ("-2", "-1", "5"),
        "remote.log.copy.disable": ("true", "false"),
        "remote.log.delete.on.disable": ("true", "false"),
        "leader.replication.throttled.replicas": ("*", "none", "", "0:1", "0:1,1:2", "x", "0:1,"),
        "compression.gzip.level": ("-1", "0", "1", "9", "10"),
        "compression.zstd.level": ("-131072", "22", "23"),
        "compression.lz4.level": ("0", "1", "17", "18"),
        "flush.messages": ("0", "1"),
        "index.interval.bytes": ("0", "-1"),
        "segment.index.bytes": ("3", "4"),
        "preallocate": ("true",),
        "min.compaction.lag.ms": ("-1", "0"),
        "max.compaction.lag.ms": ("0", "1"),
        "delete.retention.ms": ("-1", "0"),
        "file.delete.delay.ms": ("-1", "0"),
        "message.timestamp.before.max.ms": ("-1", "0"),
        "message.timestamp.after.max.ms": ("-1", "0"),
        "segment.jitter.ms": ("-1", "0"),
        "message.format.version": ("3.0",),
        "no.such.key": ("1",),
        "": ("1",),
    }
    for name, texts in values.items():
        for text in texts:
            yield name, text


def create_partitions_cases() -> Iterator[Case]:
    key = ApiKey.CREATE_PARTITIONS

    def one(name: str, count: int, replicas: list[list[int]] | None = None) -> dict[str, Any]:
        assignments = None if replicas is None else [{"broker_ids": ids} for ids in replicas]
        topic = {"name": name, "count": count, "assignments": assignments}
        return {"topics": [topic], "timeout_ms": 10_000, "validate_only": True}

    for count in (-(2**31), -1, 0, 1, 2, 3, 10_002, 10_003, 2**31 - 1):
        yield from every(key, f"plain to {count}", one("plain", count))
    for name in ("missing", "", "..", "a b", "x" * 250, "tiered", "compacted"):
        yield from every(key, f"name {name[:20]}", one(name, 60))
    for name in ("__consumer_offsets", "__cluster_metadata", "__remote_log_metadata"):
        yield from every(key, f"name {name}", one(name, 60))
    for replicas in ([], [[1]], [[1], [1]], [[99]], [[-1]], [[]], [[1, 1]], [[1, 2]]):
        yield from every(key, f"replicas {replicas}", one("plain", 3, replicas))
    yield from every(key, "replicas, but as many as now", one("plain", 2, []))
    two = [one("plain", count)["topics"][0] for count in (3, 4)]
    other = one("missing", 3)["topics"][0]
    for label, topics in (("twice", two), ("twice and another", [*two, other]), ("nothing", [])):
        body = {"topics": topics, "timeout_ms": 10_000, "validate_only": True}
        yield from every(key, label, body)
    for version in VERSIONS[key]:
        name = f"made.{version + 2}"
        yield Case("for real", key, version, one(name, 5) | {"validate_only": False})
        yield Case("after", ApiKey.METADATA, 9, {"topics": [{"name": name}]})
        assigned = one(name, 7, [[1], [1]]) | {"validate_only": False}
        yield Case("assigned for real", key, version, assigned)
        yield Case("after", ApiKey.METADATA, 9, {"topics": [{"name": name}]})


def delete_topics_cases() -> Iterator[Case]:
    key = ApiKey.DELETE_TOPICS
    for names in (["nobody"], [""], [".."], [], ["nobody", "nobody"], ["__cluster_metadata"]):
        fields = {
            "topic_names": names,
            "topics": [{"name": name, "topic_id": ZERO_UUID} for name in names],
            "timeout_ms": 10_000,
        }
        yield from every(key, f"{names}", fields)
    for version in VERSIONS[key]:
        name = f"made.{version if version > 1 else 7}"
        fields = {
            "topic_names": [name, "nobody"],
            "topics": [{"name": name}, {"name": "nobody"}],
            "timeout_ms": 10_000,
        }
        yield Case("for real", key, version, fields)

    def entries(*pairs: tuple[str | None, str | None]) -> Callable[[Side], Any]:
        def body(side: Side) -> Any:
            topics = [
                {"name": name, "topic_id": side.topic_id(of) if of else ZERO_UUID}
                for name, of in pairs
            ]
            return {"topics": topics, "timeout_ms": 10_000}

        return body

    for label, pairs in {
        "both": [("plain", "plain")],
        "neither": [(None, None)],
        "unknown id": [(None, "nobody")],
        "empty name": [("", None)],
        "the same by name and id": [("doomed", None), (None, "doomed")],
        "the same name twice": [("doomed", None), ("doomed", None)],
        "the same id twice": [(None, "doomed"), (None, "doomed")],
    }.items():
        yield Case(label, key, 6, entries(*pairs))
