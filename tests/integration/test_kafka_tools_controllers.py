"""Kafka's tools with `--bootstrap-controller`: controllers answer as Kafka's do."""

from pathlib import Path

import pytest

from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum

pytestmark = pytest.mark.jvm


def configs(port: int, *arguments: str) -> str:
    return kafka_tool("configs", "--bootstrap-controller", f"127.0.0.1:{port}", *arguments)


async def test_kafka_configs_reads_and_changes_settings_of_controllers(tmp_path: Path) -> None:
    require_kafka_tools()
    async with Quorum(tmp_path, Plan(TidemarkController, True, 1, has_links=False)) as quorum:
        port = quorum.controllers[1].port
        default, own = ("--entity-default",), ("--entity-name", "1")
        for entity in (default, own):
            change = ("--alter", "--entity-type", "brokers", *entity)
            configs(port, *change, "--add-config", f"message.max.bytes={2_000_000 + len(entity)}")

        describe = ("--describe", "--entity-type", "brokers")
        assert configs(port, *describe, *default).splitlines() == [
            "Default configs for brokers in the cluster are:",
            "  message.max.bytes=2000001 sensitive=false "
            "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000001}",
            "  min.insync.replicas=1 sensitive=false "
            "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1}",
        ]
        said = configs(port, *describe, *own)
        assert "message.max.bytes=2000002 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:" in said
        everything = configs(port, *describe, *own, "--all")
        assert "  node.id=1 sensitive=false synonyms={STATIC_BROKER_CONFIG:node.id=1}" in everything
        assert "controller.quorum.fetch.timeout.ms=2000 " in everything
