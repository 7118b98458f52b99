"""Nodes of a development cluster, without starting any."""

from pathlib import Path

from tidemark.dev.processes import NodeProcess


def test_the_end_of_a_node_whose_directory_is_gone_can_be_said(tmp_path: Path) -> None:
    node = NodeProcess("broker 12", tmp_path / "broker-12", {})
    assert node.last_words() == "(its log is gone)"
    node.home.mkdir()
    node.log_file.write_text("started\ntidemark: a port is taken\nended\n")
    assert node.last_words() == "tidemark: a port is taken"
