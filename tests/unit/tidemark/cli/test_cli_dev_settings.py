from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from runtime.disk import Disk
from tests.support.brokers.process import free_ports_in_a_row
from tests.support.samples.command_line import tidemark
from tidemark.commands.dev import welcome
from tidemark.dev.settings import (
    ClusterPorts,
    S3Bucket,
    dev_broker_settings,
    dev_controller_settings,
    dev_settings,
)
from tidemark.node_files.formatting import format_cluster


def test_the_development_settings_are_valid_and_all_known(tmp_path: Path) -> None:
    config, warnings = BrokerConfig.load(dev_settings(tmp_path, 9092))
    assert warnings == []
    assert config.log_dirs == (tmp_path / "logs",)
    assert config.remote_log_storage_system_enable
    assert config.rsm_settings["dir"] == str(tmp_path / "remote-tier")
    assert config.http_listener == ("127.0.0.1", 9464)


def test_a_record_that_its_topic_allows_fits_into_a_segment(tmp_path: Path) -> None:
    ports = ClusterPorts.in_a_row(9092, 1)
    for entries in (
        dev_settings(tmp_path, 9092),
        dev_broker_settings(tmp_path, ports),
        dev_controller_settings(tmp_path, ports, 1),  # validates settings of topics by its own
    ):
        assert BrokerConfig.load(entries)[0].log_segment_bytes == 1 << 30, "as Kafka's"


def test_internal_topics_fit_on_one_broker(tmp_path: Path) -> None:
    config, _ = BrokerConfig.load(dev_settings(tmp_path, 9092))
    for name in (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
        "default.replication.factor",
    ):
        assert config.get(name) == 1, name
    assert config.rlmm_settings["remote.log.metadata.topic.replication.factor"] == "1"
    assert config.rlmm_settings["remote.log.metadata.topic.min.isr"] == "1"


def test_what_to_do_next_names_the_address_and_the_places(tmp_path: Path) -> None:
    config, _ = BrokerConfig.load(dev_settings(tmp_path, 12345))
    text = welcome(config, tmp_path)
    for words in (
        "127.0.0.1:12345",
        "create waves --if-not-exists -X remote.storage.enable=true -X segment.bytes=1048576",
        "produce waves",
        "remote.storage.enable",
        "remote-tier",
        "/metrics",
    ):
        assert words in text


def test_a_bucket_takes_the_place_of_the_directory(tmp_path: Path) -> None:
    bucket = S3Bucket.parse("http://127.0.0.1:4566/tidemark")
    config, warnings = BrokerConfig.load(dev_settings(tmp_path, 9092, bucket))
    assert warnings == []
    assert config.rsm_settings["endpoint.url"] == "http://127.0.0.1:4566"
    assert config.rsm_settings["bucket"] == "tidemark"
    assert "dir" not in config.rsm_settings
    text = welcome(config, tmp_path, bucket)
    assert "http://127.0.0.1:4566/tidemark?list-type=2" in text
    assert "remote-tier" not in text


@pytest.mark.parametrize(
    "text",
    ["tidemark", "http://127.0.0.1:4566", "http:///tidemark", "s3://tidemark/a", "http://h/a/b"],
)
def test_what_names_no_bucket_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="http://HOST:PORT/BUCKET"):
        S3Bucket.parse(text)


def test_the_settings_of_a_cluster_are_valid_and_meet_nowhere(tmp_path: Path) -> None:
    ports = ClusterPorts.in_a_row(9092, 3)
    entries = [dev_controller_settings(tmp_path, ports, one) for one in (1, 2, 3)]
    entries.append(dev_broker_settings(tmp_path, ports, S3Bucket("http://s3:4566", "tides")))
    loaded = [BrokerConfig.load(one) for one in entries]
    assert [warnings for _, warnings in loaded] == [[]] * 4
    configs = [config for config, _ in loaded]
    assert len({config.controller_quorum_voters for config in configs}) == 1
    assert len({config.node_id for config in configs}) == 4
    assert len({path for config in configs for path in config.log_dirs}) == 4
    listened = [one.port for config in configs for one in config.listeners]
    listened += [config.http_listener[1] for config in configs if config.http_listener]
    assert sorted(listened) == list(range(9092, 9100))
    assert configs[3].rsm_settings["bucket"] == "tides"
    assert all(config.remote_log_storage_system_enable for config in configs)


def test_the_settings_of_three_brokers_are_valid_and_share_the_store(tmp_path: Path) -> None:
    ports = ClusterPorts.in_a_row(9092, 3, 3)
    entries = [dev_controller_settings(tmp_path, ports, one) for one in (1, 2, 3)]
    entries += [dev_broker_settings(tmp_path, ports, None, one) for one in range(3)]
    loaded = [BrokerConfig.load(one) for one in entries]
    assert [warnings for _, warnings in loaded] == [[]] * 6
    configs = [config for config, _ in loaded]
    assert len({config.node_id for config in configs}) == 6
    assert len({path for config in configs for path in config.log_dirs}) == 6
    listened = [one.port for config in configs for one in config.listeners]
    listened += [config.http_listener[1] for config in configs if config.http_listener]
    assert sorted(listened) == list(range(9092, 9104))
    assert [one.listeners[0].port for one in configs[3:]] == [9092, 9093, 9094]
    assert {one.rsm_settings["dir"] for one in configs[3:]} == {str(tmp_path / "remote-tier")}
    assert {one.default_replication_factor for one in configs} == {3}


def test_a_cluster_with_a_node_that_runs_already_is_not_started(tmp_path: Path) -> None:
    ports = ClusterPorts.in_a_row(9092, 3)
    controllers = [dev_controller_settings(tmp_path, ports, one) for one in (1, 2, 3)]
    format_cluster(BrokerConfig.load(one)[0] for one in controllers)
    running = tmp_path / "controller-2" / "metadata"
    lock = Disk().lock(running / ".lock")
    result = tidemark(
        "dev", "--controllers", "3", "--data", tmp_path, "--port", free_ports_in_a_row(8)
    )
    lock.release()
    assert result.exit_code == 1
    said = f"tidemark: log directory {running} is locked by another process"
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*/server.*"))
