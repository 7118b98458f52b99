"""`tidemark init`: each file that it writes is read without a warning, and can be formatted."""

import re
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from tests.support.samples.command_line import files_below, tidemark

OF_KAFKA = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""The settings of Kafka 4's config/server.properties."""
STORES = ["none", "tier", "s3://logs/kafka", "hdfs://namenode:8020/kafka"]


def commands(printed: str, word: str) -> list[list[str]]:
    """What is to be typed next, without the program's name."""
    found = re.findall(rf"^  \S*tidemark ({word} .*)$", printed, re.MULTILINE)
    return [line.split() for line in found]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("count", [1, 3])
def test_what_it_writes_is_formatted_by_what_it_says(
    count: int, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = tidemark("init", "--nodes", count, "--store", store, "--port", 19092)
    assert done.exit_code == 0, done.output
    files = sorted(tmp_path.glob("server*.properties"))
    assert len(files) == count
    loaded = [BrokerConfig.load(file) for file in files]
    assert [warnings for _, warnings in loaded] == [[]] * count
    configs = [config for config, _ in loaded]
    assert all(config.without_effect == () for config in configs)
    assert [config.remote_log_storage_system_enable for config in configs] == [
        store != "none"
    ] * count
    listened = [one.port for config in configs for one in config.listeners]
    listened += [config.http_listener[1] for config in configs if config.http_listener]
    assert len(set(listened)) == len(listened) == 3 * count
    formats = commands(done.stdout, "format")
    assert len(formats) == len(commands(done.stdout, "start")) == count
    for one in formats:
        formatted = tidemark(*one)
        assert formatted.exit_code == 0, formatted.output
    assert len({path for config in configs for path in config.log_dirs}) == count
    assert all((path / "meta.properties").exists() for one in configs for path in one.log_dirs)
    if count > 1 and store != "none":
        secrets = {config.tidemark_cluster_secret_file for config in configs}
        assert len(secrets) == 1
        assert Path(secrets.pop()).exists()


def test_nodes_on_hosts_of_their_own_have_the_same_ports(tmp_path: Path) -> None:
    hosts = ("--nodes", "3", "--hosts", "h1,h2, h3")
    done = tidemark("init", *hosts, "--store", "s3://tides", tmp_path / "new" / "n.properties")
    assert done.exit_code == 0, done.output
    configs = [BrokerConfig.load(tmp_path / "new" / f"n-{one}.properties")[0] for one in (1, 2, 3)]
    assert [[str(at.port) for at in one.listeners] for one in configs] == [["9092", "9093"]] * 3
    assert [one.listeners[0].host for one in configs] == ["h1", "h2", "h3"]
    assert [one.http_listener for one in configs] == [(f"h{one}", 9464) for one in (1, 2, 3)]
    assert {str(one.controller_quorum_voters) for one in configs} == {
        str(configs[0].controller_quorum_voters)
    }
    assert [one.get("default.replication.factor") for one in configs] == [3] * 3
    assert [one.get("min.insync.replicas") for one in configs] == [2] * 3
    assert configs[0].rsm_settings["bucket"] == "tides"


def test_no_line_is_without_a_comment_above_its_block(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    assert tidemark("init", "--store", tmp_path / "tier", file).exit_code == 0
    blocks = file.read_text().split("\n\n")
    assert len(blocks) >= 7
    assert all(block.startswith("# ") for block in blocks)


@pytest.mark.parametrize("count", [1, 3])
def test_a_plugin_gets_its_settings_and_as_many_copies_as_there_are_nodes(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ("--set", "url=http://h/a", "--set", "rsm.config.token=a=b")
    done = tidemark("init", "--nodes", count, "--store", "kv_store:KvStorageManager", *given)
    assert done.exit_code == 0, done.output
    for file in tmp_path.glob("*.properties"):
        config, warnings = BrokerConfig.load(file)
        assert (warnings, config.without_effect) == ([], ())
        assert config.remote_log_storage_manager_class_name == "kv_store:KvStorageManager"
        assert config.rsm_settings == {"url": "http://h/a", "token": "a=b"}
        factor = "rlmm.config.remote.log.metadata.topic.replication.factor"
        assert f"{factor}={count}\n" in file.read_text()
    assert [one for one in tmp_path.iterdir() if one.is_dir()] == []


def test_set_takes_the_place_of_a_setting_of_the_store(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    store = ("--store", "s3://tides/p", "--set", "region=eu-west-1")
    assert tidemark("init", *store, "--set", "part.size=8388608", file).exit_code == 0
    settings = BrokerConfig.load(file)[0].rsm_settings
    assert settings == {
        "bucket": "tides", "region": "eu-west-1", "prefix": "p", "part.size": "8388608"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "url=x"), "there is none"),
        (("--store", "ftp://h/d"), "allowed are a directory, s3://BUCKET/PREFIX"),
        (("--store", "s3://"), "allowed are"),
        (("--store", "hdfs://namenode"), "allowed are"),
        (("--nodes", "3", "--hosts", "a,b"), "there must be 3, one for each node"),
        (("--hosts", "a,b"), "there must be 1"),
        (("--nodes", "2"), "'2' is not one of '1', '3'"),
    ],
)
def test_what_cannot_be_written_is_said(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    done = tidemark("init", *arguments, tmp_path / "server.properties")
    assert done.exit_code == 2
    assert words in done.stderr
    assert files_below(tmp_path) == []


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a-2.properties").write_text("mine")
    done = tidemark("init", "--nodes", 3, tmp_path / "a.properties")
    assert done.exit_code == 2
    assert f"{tmp_path / 'a-2.properties'} is there already" in done.stderr
    assert files_below(tmp_path) == ["a-2.properties"]


def test_the_file_that_kafka_brings_along_is_taken_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(OF_KAFKA)
    _, warnings = BrokerConfig.load(file)
    assert warnings == []
    logs = f"--override=log.dirs={tmp_path}/logs"
    done = tidemark("format", "--config", file, "--standalone", logs)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "logs" / "meta.properties").exists()
