"""Files from the time of ZooKeeper are refused by a line that says what to write instead."""

import re
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError

OLD = """\
broker.id=7
listeners=PLAINTEXT://localhost:9092
log.dirs={0}/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
"""


def _load(tmp_path: Path, text: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(text.format(tmp_path))
    BrokerConfig.load(file)


def test_a_file_of_zookeepers_time_is_told_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, OLD)
    told = str(refused.value)
    assert told.startswith("zookeeper.connect=localhost:2181: ")
    assert "tidemark format" in told
    assert "\n" not in told


def test_what_it_is_told_to_set_is_a_good_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, OLD)
    told = dict(re.findall(r"([a-z.]+)=(\S+?),? ", refused.value.allowed))
    (more,) = re.findall(r"CONTROLLER://\S+:\d+", refused.value.allowed)
    assert told["node.id"] == "7"
    kept = [line for line in OLD.splitlines() if not line.startswith("zookeeper.")]
    text = "\n".join((*kept, *(f"{key}={value}" for key, value in told.items())))
    _load(tmp_path, text.replace(":9092", f":9092,{more}"))


def test_of_both_ids_the_newer_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"node\.id=8, .*=8@localhost"):
        _load(tmp_path, OLD + "node.id=8\n")


def test_a_left_over_key_of_zookeepers_is_only_named(tmp_path: Path) -> None:
    text = (
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=7@localhost:9093\nzookeeper.connect=localhost:2181\n"
        "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\nlog.dirs={0}/logs\n"
    )
    _load(tmp_path, text)
