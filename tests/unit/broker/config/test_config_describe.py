"""DescribeConfigs against the answers that Apache Kafka 4.3.1 gave."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.describe import (
    ConfigEntry,
    ConfigSource,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from broker.config.key import ConfigType
from tests.support.samples.config import BASE, load_entries

FRAMES = Path(__file__).parents[3] / "golden/frames/DescribeConfigs.jsonl"
TOPIC, BROKER = 2, 4
# Welcome names of later versions that 4.3.1 does not know.
OURS = {"remote.copy.lag.bytes", "remote.copy.lag.ms"}


def results() -> list[Any]:
    found = []
    for line in FRAMES.read_text().splitlines():
        frame = json.loads(line)
        request, response = frame["request_json"]["body"], frame["response_json"]["body"]
        for asked, answer in zip(request["resources"], response["results"], strict=True):
            name = f"v{frame['version']}-{asked['resourceName']}"
            found.append(pytest.param(frame["version"], request, asked, answer, id=name))
    return found


def golden_broker(topic: str) -> BrokerConfig:
    """The two brokers that were asked: their settings as far as the answers show them."""
    entries = {"log.index.size.max.bytes": "8192"}
    if topic in ("rep", "one"):
        config = load_entries({**entries})
        return config.with_dynamic({"min.insync.replicas": "1"}, {})
    config = load_entries(
        entries
        | {
            "log.dirs": "/golden/kafka-43/A/logs",
            "log.cleaner.backoff.ms": "1000",
            "log.retention.ms": "-1",
            "log.message.timestamp.after.max.ms": "9223372036854775807",
        }
    )
    default = {"min.insync.replicas": "1"}
    if topic != "tooltopic":
        default["message.max.bytes"] = "1500000"
    return config.with_dynamic(default, {"log.cleaner.backoff.ms": "900"})


@pytest.mark.parametrize(("version", "request_body", "asked", "answer"), results())
def test_entries_are_those_of_kafka(
    version: int, request_body: Any, asked: Any, answer: Any
) -> None:
    theirs = {config["name"]: config for config in answer["configs"]}
    names = asked["configurationKeys"]
    broker = golden_broker(asked["resourceName"])
    if asked["resourceType"] == TOPIC:
        own = {name: one["value"] for name, one in theirs.items() if one["configSource"] == 1}
        entries = describe_topic(broker, own, names)
    else:
        entries = describe_broker(broker, names)
    ours = {entry.name: entry for entry in entries if entry.name not in OURS}
    assert set(ours) == set(theirs)
    for name, one in theirs.items():
        entry = ours[name]
        assert entry.value == one["value"], name
        assert entry.read_only == one["readOnly"], name
        assert entry.source == one["configSource"], name
        assert entry.is_sensitive == one["isSensitive"], name
        if request_body["includeSynonyms"]:
            assert _synonyms(entry) == one["synonyms"], name
        if version >= 3:
            assert entry.type == one["configType"], name
        if one.get("documentation"):
            assert entry.documentation


def _synonyms(entry: ConfigEntry) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "value": one.value, "source": int(one.source)} for one in entry.synonyms
    ]


def entry_of(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(entry for entry in entries if entry.name == name)


def test_a_topic_setting_lists_all_places_it_could_come_from() -> None:
    broker = load_entries({"log.cleanup.policy": "compact"}).with_dynamic(
        {"log.cleanup.policy": "delete"}, {"log.cleanup.policy": "delete,compact"}
    )
    entry = entry_of(describe_topic(broker, {"cleanup.policy": "compact"}), "cleanup.policy")
    assert [(one.value, one.source.name) for one in entry.synonyms] == [
        ("compact", "TOPIC_CONFIG"),
        ("delete,compact", "DYNAMIC_BROKER_CONFIG"),
        ("delete", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("compact", "STATIC_BROKER_CONFIG"),
        ("delete", "DEFAULT_CONFIG"),
    ]


def test_a_weaker_unit_alone_is_no_synonym_as_in_kafka() -> None:
    broker = load_entries({"log.retention.hours": "1"})
    entry = entry_of(describe_topic(broker, {}), "retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == (
        "3600000",
        ConfigSource.DEFAULT_CONFIG,
        (),
    )


def test_secrets_and_plugin_settings_are_never_shown() -> None:
    broker = load_entries(
        {"ssl.key.password": "hunter2", "rsm.config.token": "hunter3", "no.such": "hunter4"}
    )
    entries = describe_broker(broker)
    for name in ("ssl.key.password", "rsm.config.token", "no.such"):
        entry = entry_of(entries, name)
        assert entry.is_sensitive
        assert entry.value is None
    assert entry_of(entries, "no.such").type is ConfigType.UNKNOWN
    assert "hunter" not in repr(entries)


def test_a_plugins_setting_that_it_declares_no_secret_is_shown() -> None:
    entries = describe_broker(
        load_entries({"rsm.config.dir": "tier", "rsm.config.token": "hunter2"}),
        public_settings=["dir"],
    )
    entry = entry_of(entries, "rsm.config.dir")
    assert (entry.value, entry.is_sensitive, entry.read_only) == ("tier", False, True)
    assert [one.value for one in entry.synonyms] == ["tier"]
    assert entry_of(entries, "rsm.config.token").value is None


def test_a_url_with_credentials_is_not_shown() -> None:
    given = {"rsm.config.url": "ftp://me:hunter2@host/dir"}
    entries = describe_broker(load_entries(given), public_settings=["url"])
    assert entry_of(entries, "rsm.config.url").value is None
    assert "hunter2" not in repr(entries)


def test_internal_keys_show_only_when_set() -> None:
    name = "remote.log.manager.task.retry.jitter"
    assert name not in [entry.name for entry in describe_broker(load_entries({}))]
    assert name in [entry.name for entry in describe_broker(load_entries({name: "0.1"}))]


@pytest.mark.parametrize(
    "name",
    [
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ],
)
def test_a_throttle_has_no_default_among_its_synonyms(name: str) -> None:
    """As Kafka 4.3.1 described one that `kafka-reassign-partitions.sh --throttle` had set."""
    broker = load_entries({}).with_dynamic({name: "54321"}, {name: "12345"})
    entry = entry_of(describe_broker(broker), name)
    assert (entry.value, entry.source) == ("12345", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [(one.value, one.source) for one in entry.synonyms] == [
        ("12345", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("54321", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    ]


def test_old_names_are_not_described() -> None:
    broker = load_entries({"remote.log.index.file.cache.total.size.mb": "1"})
    names = {entry.name: entry for entry in describe_broker(broker)}
    assert "remote.log.index.file.cache.total.size.mb" not in names
    assert names["remote.log.index.file.cache.total.size.bytes"].value == "1048576"


def test_the_clusters_default_lists_only_what_was_set_over_the_wire() -> None:
    broker = load_entries({"num.partitions": "3"}).with_dynamic({"min.insync.replicas": "1"}, {})
    (entry,) = describe_broker_default(broker)
    assert (entry.name, entry.value) == ("min.insync.replicas", "1")
    assert entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert describe_broker_default(load_entries({**BASE})) == []
