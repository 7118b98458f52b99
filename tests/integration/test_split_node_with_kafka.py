"""Apache Kafka's controllers start on directories that `tidemark split` made."""

import asyncio
from pathlib import Path

import pytest

from tests.support.brokers.process import until
from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.kafka_controllers import KafkaController
from tests.support.quorum.serving import consume, create, leaders, produce, topics_of
from tests.support.quorum.split_node import LoneNode, SplitController

pytestmark = [pytest.mark.jvm, pytest.mark.lasts(seconds=40), pytest.mark.patience(seconds=180)]


class SplitKafkaController(SplitController, KafkaController):
    """Kafka's program, with the properties that the command wrote."""

    kind = "kafka"
    start_command = KafkaController.start_command


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
def test_a_majority_of_kafkas_leads_what_the_node_had(tmp_path: Path, is_dynamic: bool) -> None:
    """Its validation of our snapshot, quorum-state and missing log: only Kafka can say it."""
    require_kafka_tools()
    node = LoneNode(tmp_path, is_dynamic=is_dynamic)
    try:
        node.start()
        asyncio.run(create(node.bootstrap, "t", 3))
        said = produce(node.bootstrap, "t", [0, 1, 2], iter(range(3)))
        assert node.terminate() == 0
        assert node.split().returncode == 0
        asyncio.run(_start(node))
        until(lambda: set(leaders(node.bootstrap, "t").values()) == {1}, "all are led")
        assert consume(node.bootstrap, "t", 3) == said
        asyncio.run(create(node.bootstrap, "new", 3))
        assert topics_of(node.bootstrap) >= {"t", "new"}
        assert asyncio.run(node.quorum.settled()).node_id in {101, 102}
    finally:
        node.close()


async def _start(node: LoneNode) -> None:
    """Kafka's two first: ours gets what they have written since."""
    nodes = node.quorum.controllers
    for one in (101, 102):
        nodes[one] = SplitKafkaController(one, nodes[one].port, node.into)
    await asyncio.gather(nodes[101].start(), nodes[102].start())
    await node.quorum.leader()
    await nodes[103].start()
    node.is_split = True
    await asyncio.to_thread(node.start)
