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


def assigned(*brokers: int) -> dict[str, Any]:
    rows = [{"partition_index": 0, "broker_ids": list(brokers)}]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": rows}


@cases(
    {
        "N081 empty": ("", {}, INVALID_NAME),
        "N082 dot": (".", {}, INVALID_NAME),
        "N082 dots": ("..", {}, INVALID_NAME),
        "N083 path": ("../../etc/x", {}, INVALID_NAME),
        "N083 absolute": ("/etc/x", {}, INVALID_NAME),
        "N083 nul": ("a\0b", {}, INVALID_NAME),
        "N084 250 characters": ("x" * 250, {}, INVALID_NAME),
        "N084 32767 characters": ("x" * 32_767, {}, INVALID_NAME),
        "N085 not ASCII": ("bücher", {}, INVALID_NAME),
        "N085 digits of elsewhere": ("topic٣", {}, INVALID_NAME),
        "N085 line": ("orders\n", {}, INVALID_NAME),
        "N085 escape": ("\x1b[2J", {}, INVALID_NAME),
        "N087 none": ("new", {"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        "N087 negative": ("new", {"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        "N089 none": ("new", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        "N089 negative": ("new", {"replication_factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        "N089 two": ("new", {"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        "N089 32767": ("new", {"replication_factor": 32_767}, ErrorCode.INVALID_REPLICATION_FACTOR),
        "N090 twice": ("new", assigned(1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "N090 unknown": ("new", assigned(1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "N090 empty": ("new", assigned(), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "N091 unknown": ("new", configs(no_such_key="1"), INVALID_CONFIG),
        "N091 escape": ("new", configs(**{"a\x1b[2J\r\nb": "1"}), INVALID_CONFIG),
        "N091 long": ("new", configs(**{"k" * 30_000: "v" * 30_000}), INVALID_CONFIG),
        "N092 placeholder": ("new", configs(retention_ms="${env:HOME}"), INVALID_CONFIG),
        "N092 class": (
            "new",
            configs(remote_log_storage_manager_class_name="os:system"),
            INVALID_CONFIG,
        ),
        "N092 path": ("new", configs(log_dirs="/etc"), INVALID_CONFIG),
        "A01 number too large": ("new", configs(retention_ms=str(2**64)), INVALID_CONFIG),
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


@cases({f"N088 {count}": count for count in (10**9, 10_001, 2**31 - 1)})
def very_many_partitions(stage: Stage, count: int) -> None:
    """As in Kafka, all topics of such a request are refused."""
    topics = [{"name": "new"} | PLAIN | {"num_partitions": count}, {"name": "beside"} | PLAIN]
    answer = stage.client.ask(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout_ms": 10_000})
    assert [one.error_code for one in answer.topics] == [ErrorCode.POLICY_VIOLATION] * 2
    known = stage.client.ask(ApiKey.METADATA, 1, {"topics": None})
    assert not {"new", "beside"} & {one.name for one in known.topics}


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


@case("N086")
def a_name_that_collides(stage: Stage) -> None:
    topic = stage.topic()
    fields = {"name": topic.replace("-", "_"), **PLAIN}
    first = create(stage, fields)
    assert first.error_code == 0
    answer = create(stage, fields | {"name": topic.replace("-", ".")})
    assert answer.error_code == INVALID_NAME
    assert topic.replace("-", "_") in answer.error_message


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


@cases({f"A03 type {kind}": kind for kind in (0, 1, 99, -1)})
def resources_of_no_type(stage: Stage, kind: int) -> None:
    change = {"name": "retention.ms", "config_operation": 0, "value": "1"}
    resource = {"resource_type": kind, "resource_name": "x", "configs": [change]}
    fields = {"resources": [resource], "validate_only": False}
    answer = stage.client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, fields).responses[0]
    assert answer.error_code == 42


@cases({f"A04 operation {number}": number for number in (4, 99, -1)})
def operations_that_are_none(stage: Stage, operation: int) -> None:
    change = {"name": "retention.ms", "config_operation": operation, "value": "1"}
    resource = {"resource_type": TOPIC, "resource_name": stage.topic(), "configs": [change]}
    fields = {"resources": [resource], "validate_only": False}
    answer = stage.client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, fields).responses[0]
    assert answer.error_code == 42


@cases(
    {
        "N094 metadata log": ("__cluster_metadata", 0, -1, 44),
        "N058 above the end": ("", 0, 1000, 1),
        "N058 negative": ("", 0, -2, 1),
        "A05 no such partition": ("", 9, 0, 3),
        "A05 no such topic": ("nothing", 0, 0, 3),
    }
)
def records_that_are_not_deleted(stage: Stage, asked: tuple[str, int, int, int]) -> None:
    name, index, offset, code = asked
    partitions = [{"partition_index": index, "offset": offset}]
    topics = [{"name": name or stage.topic(), "partitions": partitions}]
    answer = stage.client.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 1000})
    found = answer.topics[0].partitions[0]
    assert (found.error_code, found.low_watermark) == (code, -1)


@cases({"N093 of today": 2, "N093 unknown": 0, "N093 none": 99})
def acls_without_an_authorizer(stage: Stage, kind: int) -> None:
    """Nothing in them is looked at."""
    acl = {
        "resource_type": kind,
        "resource_name": "a",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": kind,
        "permission_type": 3,
    }
    answer = stage.client.ask(ApiKey.CREATE_ACLS, 2, {"creations": [acl, acl]})
    assert [one.error_code for one in answer.results] == [54, 54]
