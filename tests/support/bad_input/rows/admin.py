"""Topics, their names and settings."""

from typing import Any

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.bad_input.case import case, cases
from tests.support.bad_input.stage import Stage
from tests.support.brokers.bad_input import batch
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import fetch, produce

INVALID_NAME = ErrorCode.INVALID_TOPIC_EXCEPTION
INVALID_CONFIG = ErrorCode.INVALID_CONFIG
PLAIN: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1}


def configs(**values: str) -> dict[str, Any]:
    named = [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]
    return {"configs": named}


@cases(
    {
        "N083 path": ("../../etc/x", {}, INVALID_NAME),
        "N083 absolute": ("/etc/x", {}, INVALID_NAME),
        "N083 nul": ("a\0b", {}, INVALID_NAME),
        "N085 line": ("orders\n", {}, INVALID_NAME),
        "N085 escape": ("\x1b[2J", {}, INVALID_NAME),
        "N091 escape": ("new", configs(**{"a\x1b[2J\r\nb": "1"}), INVALID_CONFIG),
        "N091 long": ("new", configs(**{"k" * 30_000: "v" * 30_000}), INVALID_CONFIG),
        "N092 placeholder": ("new", configs(retention_ms="${env:HOME}"), INVALID_CONFIG),
        "N092 class": (
            "new",
            configs(remote_log_storage_manager_class_name="os:system"),
            INVALID_CONFIG,
        ),
        "N092 path": ("new", configs(log_dirs="/etc"), INVALID_CONFIG),
        "A01 number of 30000 digits": ("new", configs(retention_ms="9" * 30_000), INVALID_CONFIG),
        "A01 digits of elsewhere": ("new", configs(retention_ms="٣"), INVALID_CONFIG),
        "A02 metadata log": ("__cluster_metadata", {}, ErrorCode.POLICY_VIOLATION),
        "A02 remote metadata": ("__remote_log_metadata", {}, ErrorCode.POLICY_VIOLATION),
    }
)
def no_topic_comes_of_it(stage: Stage, asked: tuple[str, dict[str, Any], int]) -> None:
    name, fields, code = asked
    good = f"good-{abs(hash((name, str(fields))))}"
    paths = outside(stage)
    topics = [{"name": name} | PLAIN | fields, {"name": good} | PLAIN]
    answer = stage.client.ask(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout_ms": 10_000})
    refused, made = answer.topics
    assert (refused.name, refused.error_code) == (name, code)
    assert 0 < len(refused.error_message) < 1_000
    assert made.error_code == 0
    assert outside(stage) == paths
    known = stage.client.ask(ApiKey.METADATA, 1, {"topics": None})
    assert good in [one.name for one in known.topics]
    assert name not in [one.name for one in known.topics]


def outside(stage: Stage) -> set[str]:
    """What lies beside the broker's own folder."""
    return {path.name for path in stage.broker.directory.parent.iterdir()}


@cases({"N083 auto created": "../../etc/x", "N085 auto created": "bücher", "N081 auto created": ""})
def no_topic_is_made_by_asking_for_it(stage: Stage, name: str) -> None:
    paths = outside(stage)
    fields = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    answer = stage.client.ask(ApiKey.METADATA, 4, fields)
    assert [one.error_code for one in answer.topics] == [INVALID_NAME]
    assert outside(stage) == paths


def create(stage: Stage, topic: dict[str, Any]) -> Any:
    fields = {"topics": [topic], "timeout_ms": 10_000}
    return stage.client.ask(ApiKey.CREATE_TOPICS, 5, fields).topics[0]


@case("N084")
def a_name_of_249_characters_is_fine(stage: Stage) -> None:
    name = stage.topic().ljust(249, "x")
    assert create(stage, {"name": name, **PLAIN}).error_code == 0
    assert until(
        lambda: produce(stage.client, name, batch(b"x")).error_code == 0, "the topic is led"
    )
    assert fetch(stage.client, name).error_code == 0


TOPIC, BROKER = 2, 4


@cases(
    {
        "N091 unknown of a topic": (TOPIC, "no.such.key", "no.such.value", INVALID_CONFIG),
        "N092 placeholder of a topic": (TOPIC, "retention.ms", "${env:HOME}", INVALID_CONFIG),
        "N092 class of a topic": (TOPIC, "remote.log.storage.manager.class.name", "os:system", 40),
        "N092 class of a broker": (
            BROKER,
            "remote.log.storage.manager.class.name",
            "os:system",
            42,
        ),
        "N092 path of a broker": (BROKER, "log.dirs", "/etc", 42),
        "N092 path of a plugin": (BROKER, "remote.log.storage.manager.class.path", "/etc", 42),
        "N092 store of a broker": (BROKER, "rsm.config.dir", "/etc", 42),
        "N092 listener of a broker": (BROKER, "tidemark.http.listener", "0.0.0.0:1", 42),
    }
)
def no_setting_comes_of_it(stage: Stage, asked: tuple[int, str, str, int]) -> None:
    kind, key, value, code = asked
    name = stage.topic() if kind == TOPIC else str(stage.broker.node_id)
    change = {"name": key, "config_operation": 0, "value": value}
    resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
    fields = {"resources": [resource], "validate_only": False}
    answer = stage.client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, fields).responses[0]
    assert answer.error_code == code, answer.error_message
    described = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    found = stage.client.ask(ApiKey.DESCRIBE_CONFIGS, 1, {"resources": [described]}).results[0]
    assert value not in [one.value for one in found.configs]
