"""DescribeQuorum of our controllers beside that of Apache Kafka's."""

import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.kafka.tools import require_kafka_tools
from tests.support.quorum.controllers import DESCRIBED, Controller, run_to_end
from tests.support.quorum.kafka_controllers import KafkaController
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=180)]

PATIENCE_S = 10.0
NUMBERS = ("log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp")


async def test_each_field_of_a_leader_and_a_follower_is_as_kafkas(tmp_path: Path) -> None:
    require_kafka_tools()
    ours = await _described(tmp_path / "ours", TidemarkController)
    theirs = await _described(tmp_path / "theirs", KafkaController)
    assert ours == theirs


async def test_a_stopped_leader_that_is_named_first_does_not_hide_the_others(
    tmp_path: Path,
) -> None:
    """Only a real process that is stopped takes connections, and was the leader others know."""
    plan = Plan(TidemarkController, is_dynamic=True, has_links=False)
    async with Quorum(tmp_path, plan) as quorum:
        leader = await quorum.settled()
        stopped = quorum.controllers[leader.node_id]
        stopped.pause()
        try:
            others = [one for one in quorum.controllers.values() if one is not stopped]
            named = ",".join(f"127.0.0.1:{one.port}" for one in (stopped, *others))
            status, said = await run_to_end(
                [
                    sys.executable,
                    "-m",
                    "tidemark.cli",
                    "metadata-quorum",
                    "--bootstrap-controller",
                    named,
                    "describe",
                    "--status",
                ]
            )
        finally:
            stopped.resume()
    assert status == 0, said
    assert f"LeaderId:               {leader.node_id}\n" not in said


async def _described(directory: Path, kind: type[Controller]) -> dict[str, Any]:
    """Answers by who gave them; of numbers only what can be equal."""
    async with Quorum(directory, Plan(kind, is_dynamic=True, has_links=False)) as quorum:
        while True:
            leader = await quorum.settled()
            found = await _answers(quorum, leader.node_id)
            if (await quorum.leader()).epoch == leader.epoch:
                return found


async def _answers(quorum: Quorum, leader_id: int) -> dict[str, Any]:
    follower = next(one for one in quorum.controllers if one != leader_id)
    found: dict[str, Any] = {}
    for role, node_id in (("leader", leader_id), ("follower", follower)):
        talk = quorum.talk(node_id)
        for version in range(3):
            answer = await talk.ask(
                ApiKey.DESCRIBE_QUORUM, DESCRIBED, timeout_s=PATIENCE_S, version=version
            )
            found[f"{role} {version}"] = _quorum(quorum, answer)
    return found


def _quorum(quorum: Quorum, answer: Any) -> dict[str, Any]:
    (topic,) = answer.topics
    (one,) = topic.partitions
    members = {member.directory_id: member.node_id for member in quorum.membership.members}
    return {
        "error": (answer.error_code, answer.error_message),
        "partition": (one.error_code, one.error_message, one.high_watermark > 0),
        "topic": (topic.topic_name, one.partition_index),
        "led by a voter": one.leader_id in quorum.controllers,
        "epoch": one.leader_epoch > 0,
        "voters": sorted(
            (
                voter.replica_id,
                members.get(voter.replica_directory_id),
                *(getattr(voter, name) > 0 for name in NUMBERS),
            )
            for voter in one.current_voters
        ),
        "observers": list(one.observers),
        "nodes": sorted(
            (node.node_id, [_place(quorum, node.node_id, where) for where in node.listeners])
            for node in answer.nodes
        ),
    }


def _place(quorum: Quorum, node_id: int, where: Any) -> tuple[str, str, bool]:
    return where.name, where.host, where.port == quorum.controllers[node_id].port
