"""A controller of Apache Kafka in a quorum with two of ours: real processes."""

import asyncio
from pathlib import Path

import pytest

from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.committed import read_copy
from tests.support.quorum.controllers import Controller
from tests.support.quorum.kafka_controllers import PlainKafkaController
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Leader, Plan, Quorum
from tests.support.quorum.serving import until_true

pytestmark = [pytest.mark.jvm, pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=180)]

KAFKAS = 3
PERSISTED = "Our registration has been persisted to the metadata log"
UPDATED = "Received UPDATE_RAFT_VOTER response"
LISTED = ("clientId=identity-check-", "Error while accepting connection")
"""It says the first where it is asked DescribeCluster before it knows metadata.version: our start
looks for another of its own id. The second where DEBUG is on and a client is gone at once."""
REGISTERED_S = 30.0
WAITS = {"controller.quorum.election.timeout.ms": "60000"}
"""So that it never stands before another."""


class TalkativeKafka(PlainKafkaController):
    """Its log has each answer that it got."""

    def start_command(self) -> list[str]:
        return self._java("kafka.Kafka", "DEBUG", str(self.config_file))


class BesideKafka(Quorum):
    """Two of ours, and the third of Kafka."""

    def made(self, node_id: int, name: str = "") -> Controller:
        if node_id != KAFKAS:
            return super().made(node_id, name)
        place = self.directory / f"controller-{node_id}"
        settings = {} if self.plan.settings else WAITS
        return TalkativeKafka(node_id, place, self.membership, settings)


async def test_all_register_with_ours_and_kafkas_is_well(tmp_path: Path) -> None:
    """Only Kafka's own controller shows that it is told what it can continue with."""
    require_kafka_tools()
    plan = Plan(TidemarkController, is_dynamic=False, has_links=False)
    async with BesideKafka(tmp_path, plan) as quorum:
        leader = await quorum.leader()
        assert leader.node_id != KAFKAS
        kafkas = quorum.controllers[KAFKAS]
        for line in (PERSISTED, UPDATED):
            await until_true(lambda line=line: line in kafkas.log_file.read_text(), line)
        (updated, *_) = (one for one in kafkas.log_file.read_text().splitlines() if UPDATED in one)
        assert "errorCode=0," in updated
        await _all_are_registered(quorum, leader)
        assert not _errors(kafkas)
        assert await kafkas.stop() == 143, "the JVM's code after SIGTERM"


async def test_ours_register_with_kafkas(tmp_path: Path) -> None:
    require_kafka_tools()
    plan = Plan(TidemarkController, is_dynamic=False, has_links=False, settings=WAITS)
    async with BesideKafka(tmp_path, plan) as quorum:
        leader = await quorum.leader()
        assert leader.node_id == KAFKAS
        await _all_are_registered(quorum, leader)
        assert not _errors(quorum.controllers[KAFKAS])


async def _all_are_registered(quorum: Quorum, leader: Leader) -> None:
    async with asyncio.timeout(REGISTERED_S):
        while True:
            settled = await quorum.settled()
            assert settled.epoch == leader.epoch
            (ours, *_) = (one for one in quorum.controllers if one not in (leader.node_id, KAFKAS))
            found = read_copy(quorum.controllers[ours], settled.high_watermark).image.controllers
            if set(found) == set(quorum.controllers):
                break
    for node_id, controller in quorum.controllers.items():
        (endpoint,) = found[node_id].endpoints
        assert (endpoint.name, endpoint.port) == ("CONTROLLER", controller.port)


def _errors(controller: Controller) -> list[str]:
    lines = controller.log_file.read_text().splitlines()
    return [one for one in lines if " ERROR " in one and not any(x in one for x in LISTED)]
