"""A controller of Apache Kafka in a quorum that one of ours leads: real processes."""

from pathlib import Path

import pytest

from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.committed import read_copy
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kafka_controllers import PlainKafkaController
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum
from tests.support.quorum.serving import until_true

pytestmark = [pytest.mark.jvm, pytest.mark.lasts(seconds=40), pytest.mark.patience(seconds=120)]

KAFKAS = 3
PERSISTED = "Our registration has been persisted to the metadata log"
WAITS = {"controller.quorum.election.timeout.ms": "60000"}
"""So that it never stands before ours."""


class BesideKafka(Quorum):
    """Two of ours, and the third of Kafka."""

    def made(self, node_id: int, name: str = "") -> Controller:
        if node_id != KAFKAS:
            return super().made(node_id, name)
        place = self.directory / f"controller-{node_id}"
        return PlainKafkaController(node_id, place, self.membership, WAITS)


async def test_it_registers_with_ours_and_is_well(tmp_path: Path) -> None:
    """Only Kafka's own controller shows that it is told what it can go on with."""
    require_kafka_tools()
    plan = Plan(TidemarkController, is_dynamic=False, has_links=False)
    async with BesideKafka(tmp_path, plan) as quorum:
        leader = await quorum.leader()
        assert leader.node_id != KAFKAS
        kafkas = quorum.controllers[KAFKAS]
        await until_true(lambda: PERSISTED in kafkas.log_file.read_text(), "it is registered")
        settled = await quorum.settled()
        assert settled.epoch == leader.epoch
        copy = read_copy(quorum.controllers[leader.node_id], settled.high_watermark)
        (endpoint,) = copy.image.controllers[KAFKAS].endpoints
        assert (endpoint.name, endpoint.port) == ("CONTROLLER", kafkas.port)
        assert not [one for one in kafkas.log_file.read_text().splitlines() if " ERROR " in one]
        assert await kafkas.stop() == 143, "the JVM's code after SIGTERM"
