"""Nodes of a development cluster, without starting any."""

import re
from pathlib import Path

import pytest

from tidemark.dev.cluster import DevCluster
from tidemark.dev.processes import NodeProcess


def test_the_end_of_a_node_whose_directory_is_gone_can_be_said(tmp_path: Path) -> None:
    node = NodeProcess("broker 12", tmp_path / "broker-12", {})
    assert node.last_words() == "(its log is gone)"
    node.home.mkdir()
    node.log_file.write_text("started\ntidemark: a port is taken\nended\n")
    assert node.last_words() == "tidemark: a port is taken"


def test_a_cluster_says_that_it_is_ready_and_what_to_try_when_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(NodeProcess, "start", lambda *_, **__: None)
    monkeypatch.setattr(NodeProcess, "pid", 1)
    monkeypatch.setattr(DevCluster, "_serves", lambda *_: bool(said.append("serves")) or True)
    monkeypatch.setattr(DevCluster, "_wait", lambda *_: 0)
    monkeypatch.setattr(DevCluster, "_stop", lambda *_: None)
    cluster = DevCluster(tmp_path, 12345, 3, brokers=3)
    assert cluster.run(said.append, lambda: said.append("seeded")) == 0
    assert said[-3:-1] == ["serves", "seeded"]
    assert re.match(r"\nready in \d+\.\d s\nTidemark on 127\.0\.0\.1:12345,", said[-1])
    three = "--bootstrap-server 127.0.0.1:12345,127.0.0.1:12346,127.0.0.1:12347"
    for words in (
        "topics create waves --if-not-exists --replication-factor 3 -X remote.storage.enable=true",
        f"produce waves {three}\n",
        f"status {three} --bootstrap-controller 127.0.0.1:12348,",
    ):
        assert words in said[-1]
