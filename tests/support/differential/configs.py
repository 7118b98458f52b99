"""DescribeConfigs, IncrementalAlterConfigs and its old form, AlterConfigs."""

from collections.abc import Iterator
from typing import Any

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.differential.common import every
from tests.support.differential.comparison import Case
from tests.support.differential.topics import topic_settings

_ALL_LOCAL_MS = ("local.retention.ms", 0, "-2")
_RESOURCES = (
    (2, "missing"),
    (2, ""),
    (2, ".."),
    (4, "99"),
    (4, "x"),
    (4, "-1"),
    (0, "plain"),
    (1, "x"),
    (3, "x"),
    (5, "x"),
    (99, "x"),
    (-1, "x"),
    (8, "1"),
    (8, "x"),
)


def describe_configs_cases() -> Iterator[Case]:
    key = ApiKey.DESCRIBE_CONFIGS

    def one(kind: int, name: str, keys: list[str] | None = None, **more: Any) -> dict[str, Any]:
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        return {"resources": [asked]} | more

    some = ["retention.ms", "cleanup.policy", "segment.bytes", "min.insync.replicas"]
    for synonyms in (False, True):
        for topic in ("plain", "tiered", "compacted"):
            label = f"{topic} synonyms={synonyms}"
            yield from every(key, label, one(2, topic, include_synonyms=synonyms))
            yield from every(key, f"{label} some", one(2, topic, some, include_synonyms=synonyms))
        yield from every(
            key,
            f"broker some synonyms={synonyms}",
            one(
                4,
                "1",
                ["log.retention.hours", "log.retention.ms", "node.id", "num.io.threads"],
                include_synonyms=synonyms,
            ),
        )
        yield from every(key, f"cluster synonyms={synonyms}", one(4, "", include_synonyms=synonyms))
    for keys in ([], ["no.such.key"], ["retention.ms", "retention.ms"], [""]):
        yield from every(key, f"keys {keys}", one(2, "plain", keys))
    for kind, name in (
        (2, "missing"),
        (2, ""),
        (2, ".."),
        (2, "x" * 300),
        (4, "99"),
        (4, "x"),
        (4, "-1"),
        (4, " 1"),
        (0, "plain"),
        (1, "x"),
        (3, "x"),
        (5, "x"),
        (8, "1"),
        (16, "c"),
        (32, "g"),
        (99, "x"),
        (-1, "x"),
        (8, ""),
        (8, "x"),
    ):
        yield from every(key, f"resource {kind} {name[:10]!r}", one(kind, name, some))
    yield from every(key, "nothing", {"resources": []})
    asked = one(2, "plain", some)["resources"]
    yield from every(key, "twice", {"resources": asked * 2})
    yield Case("documentation", key, 4, one(2, "plain", include_documentation=True))
    yield Case("whole broker", key, 4, one(4, "1", include_synonyms=True))


def alter_configs_cases() -> Iterator[Case]:
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    SET, DELETE, APPEND, SUBTRACT = range(4)

    def one(kind: int, name: str, *ops: tuple[str, int, str | None], **more: Any) -> dict[str, Any]:
        settings = [{"name": n, "config_operation": op, "value": v} for n, op, v in ops]
        asked = {"resource_type": kind, "resource_name": name, "configs": settings}
        return {"resources": [asked], "validate_only": True} | more

    # An unknown operation makes Kafka's controller resign; ours answers INVALID_REQUEST.
    for operation in (SET, DELETE, APPEND, SUBTRACT):
        for name, value in (
            ("retention.ms", "5"),
            ("retention.ms", None),
            ("retention.ms", ""),
            ("retention.ms", "x"),
            ("cleanup.policy", "compact"),
            ("cleanup.policy", "x"),
            ("cleanup.policy", ""),
            ("no.such.key", "1"),
            ("", "1"),
            ("leader.replication.throttled.replicas", "0:1"),
        ):
            label = f"topic {operation} {name}={value}"
            yield from every(key, label, one(2, "plain", (name, operation, value)))
    for name, value in topic_settings():
        yield Case(f"set {name}={value}", key, 1, one(2, "plain", (name, SET, value)))
    tier, off = "remote.storage.enable", ("remote.storage.enable", SET, "false")
    drop, keep = "remote.log.delete.on.disable", "remote.log.copy.disable"
    for topic, label, ops in (
        ("tiered", "off", [off]),
        ("tiered", "off by default", [(tier, DELETE, None)]),
        ("tiered", "off and dropped", [off, (drop, SET, "true")]),
        ("tiered", "off and kept", [off, (keep, SET, "true")]),
        ("tiered", "copying stopped", [(keep, SET, "true")]),
        ("tiered", "copying stopped, local is all", [(keep, SET, "true"), _ALL_LOCAL_MS]),
        ("tiered", "compacted", [("cleanup.policy", SET, "compact")]),
        ("tiered", "total below local", [("retention.ms", SET, "999")]),
        ("plain", "off", [off]),
        ("plain", "off and dropped", [off, (drop, SET, "true")]),
        ("plain", "on", [(tier, SET, "true")]),
        ("plain", "on and compacted", [(tier, SET, "true"), ("cleanup.policy", SET, "compact")]),
        ("plain", "on, copying stopped", [(tier, SET, "true"), (keep, SET, "true")]),
        ("compacted", "on", [(tier, SET, "true")]),
    ):
        yield Case(f"tiering of {topic}: {label}", key, 1, one(2, topic, *ops))
    yield from every(
        key, "same key twice", one(2, "plain", ("retention.ms", 0, "1"), ("retention.ms", 0, "2"))
    )
    for kind, name in _RESOURCES:
        yield from every(
            key, f"resource {kind} {name!r}", one(kind, name, ("retention.ms", 0, "5"))
        )
    for name, value in (
        ("log.retention.ms", "5"),
        ("log.retention.ms", "x"),
        ("num.io.threads", "3"),
        ("node.id", "4"),
        ("log.dirs", "/x"),
        ("advertised.listeners", "PLAINTEXT://x:1"),
        ("no.such.key", "1"),
        ("remote.log.storage.manager.class.name", "x.Y"),
        ("max.connections.per.ip", "-1"),
        ("max.connections.per.ip", "500"),
        ("log.cleaner.threads", "0"),
        ("min.insync.replicas", "1"),
        ("zookeeper.connect", "x"),
        ("message.max.bytes", "-1"),
        ("log.segment.bytes", "1"),
        ("remote.log.manager.copier.thread.pool.size", "0"),
        ("remote.log.manager.copier.thread.pool.size", "4"),
        ("remote.log.manager.copier.thread.pool.size", "5"),
        ("remote.log.manager.expiration.thread.pool.size", "20"),
        ("remote.log.manager.expiration.thread.pool.size", "21"),
        ("remote.log.manager.follower.thread.pool.size", "1"),
        ("remote.log.manager.follower.thread.pool.size", "5"),
        ("remote.log.reader.threads", "x"),
        ("remote.log.reader.threads", "21"),
        ("remote.log.reader.max.pending.tasks", "5"),
        ("remote.log.manager.copy.max.bytes.per.second", "0"),
        ("remote.log.manager.copy.max.bytes.per.second", "1"),
        ("remote.log.manager.fetch.max.bytes.per.second", "9223372036854775808"),
        ("remote.log.manager.fetch.quota.window.num", "5"),
        ("remote.log.index.file.cache.total.size.bytes", "0"),
        ("log.local.retention.ms", "604800001"),
        ("log.remote.copy.lag.ms", "1000"),
        ("log.local.retention.ms", "-1"),
    ):
        for broker in ("1", ""):
            label = f"broker {broker!r} {name}={value}"
            yield Case(label, key, 1, one(4, broker, (name, SET, value)))
            yield Case(f"{label} delete", key, 1, one(4, broker, (name, DELETE, None)))
    yield from every(key, "nothing", {"resources": [], "validate_only": True})
    yield from every(key, "no settings", one(2, "plain"))
    asked = one(2, "plain", ("retention.ms", SET, "1"))["resources"]
    yield from every(key, "resource twice", {"resources": asked * 2, "validate_only": True})
    real = {"validate_only": False}
    for label, ops in (
        ("set", [("retention.ms", SET, "123456"), ("cleanup.policy", SET, "delete")]),
        ("append", [("cleanup.policy", APPEND, "compact")]),
        ("append again", [("cleanup.policy", APPEND, "compact")]),
        ("subtract", [("cleanup.policy", SUBTRACT, "delete")]),
        ("subtract what is not there", [("cleanup.policy", SUBTRACT, "delete")]),
        ("subtract the last", [("cleanup.policy", SUBTRACT, "compact")]),
        ("delete", [("cleanup.policy", DELETE, None), ("retention.ms", DELETE, "x")]),
        ("delete again", [("retention.ms", DELETE, None)]),
        ("good and bad", [("retention.ms", SET, "77"), ("segment.bytes", SET, "x")]),
    ):
        yield Case(f"for real: {label}", key, 1, one(2, "changed", *ops, **real))
        yield _changed_after(label)


def _changed_after(label: str) -> Case:
    keys = ["retention.ms", "cleanup.policy", "segment.bytes"]
    asked = {"resource_type": 2, "resource_name": "changed", "configuration_keys": keys}
    body = {"resources": [asked], "include_synonyms": True}
    return Case(f"after {label}", ApiKey.DESCRIBE_CONFIGS, 4, body)


def replace_configs_cases() -> Iterator[Case]:
    """The old form; Kafka's broker never answers a request that names a resource twice."""
    key = ApiKey.ALTER_CONFIGS

    def one(kind: int, name: str, *set_: tuple[str, str | None], **more: Any) -> dict[str, Any]:
        settings = [{"name": n, "value": v} for n, v in set_]
        asked = {"resource_type": kind, "resource_name": name, "configs": settings}
        return {"resources": [asked], "validate_only": True} | more

    for name, value in topic_settings():
        yield from every(key, f"set {name}={value}", one(2, "plain", (name, value)))
    tier, drop = ("remote.storage.enable", "true"), ("remote.log.delete.on.disable", "true")
    for topic, label, settings in (
        ("tiered", "nothing", ()),
        ("tiered", "only on", (tier,)),
        ("tiered", "only dropped", (drop,)),
        ("tiered", "off", (("remote.storage.enable", "false"),)),
        ("tiered", "off and dropped", (("remote.storage.enable", "false"), drop)),
        ("tiered", "compacted", (tier, ("cleanup.policy", "compact"))),
        ("plain", "on", (tier,)),
        ("compacted", "on", (tier,)),
        ("compacted", "on, policy gone", (tier, ("cleanup.policy", "delete"))),
    ):
        yield Case(f"tiering of {topic}: {label}", key, 2, one(2, topic, *settings))
    five = "retention.ms", "5"
    yield from every(key, "same key twice", one(2, "plain", five, ("retention.ms", "6")))
    for kind, name in _RESOURCES:
        yield from every(key, f"resource {kind} {name!r}", one(kind, name, five))
    for name, value in (
        ("log.retention.ms", "5"),
        ("log.retention.ms", "x"),
        ("log.retention.ms", None),
        ("node.id", "4"),
        ("no.such.key", "1"),
        ("remote.log.manager.copier.thread.pool.size", "21"),
    ):
        yield Case(f"broker {name}={value}", key, 2, one(4, "1", (name, value)))
    yield from every(key, "nothing", {"resources": [], "validate_only": True})
    real = {"validate_only": False}
    for label, settings in (
        ("two", (("retention.ms", "123"), ("cleanup.policy", "compact"))),
        ("one of them, and another", (("retention.ms", "124"), ("segment.bytes", "2000000"))),
        ("good and bad", (("retention.ms", "77"), ("segment.bytes", "x"))),
        ("none", ()),
    ):
        yield from every(key, f"for real: {label}", one(2, "changed", *settings, **real))
        yield _changed_after(label)
    keys = "log.retention.ms", "log.segment.bytes"
    for label, settings in (
        ("two", ((keys[0], "500000000"), (keys[1], "20000000"))),
        ("one of them", ((keys[0], "600000000"),)),
        ("none", ()),
    ):
        yield Case(f"broker for real: {label}", key, 2, one(4, "1", *settings, **real))
