"""DescribeQuorum of our controllers beside that of Apache Kafka's."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.kafka.tools import kafka_tool, require_kafka_tools
from tests.support.quorum.controllers import DESCRIBED, Controller, run_to_end
from tests.support.quorum.kafka_controllers import KafkaBroker, KafkaController, MixedQuorum
from tests.support.quorum.own_controllers import TidemarkController, broker_nodes
from tests.support.quorum.quorum import Plan, Quorum
from tests.support.quorum.serving import brokers as brokers_at
from tests.support.quorum.serving import consume, create, produce, until_true
from tidemark.quorum.text import COLUMNS

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


KAFKAS, WAITS = 3, {"controller.quorum.election.timeout.ms": "60000"}
KAFKAS_BROKER, OURS = 11, 12
NUMBERED = ("HighWatermark:", "MaxFollowerLag:", "MaxFollowerLagTimeMs:")


@pytest.mark.jvm
@pytest.mark.long(seconds=80)
@pytest.mark.parametrize("is_led_by_kafka", [False, True], ids=["led by ours", "led by Kafka's"])
async def test_all_nodes_of_a_mixed_cluster_describe_its_quorum_alike(
    tmp_path: Path, is_led_by_kafka: bool
) -> None:
    """Only here do brokers of each kind live, and ask, beside each other on controllers of each."""
    require_kafka_tools()
    async with _mixed(tmp_path, is_led_by_kafka=is_led_by_kafka) as (quorum, nodes):
        for number, broker in enumerate(nodes):
            here, topic = broker.address, f"of-{broker.node_id}"
            assert set((await create(here, topic, 2)).values()) == {KAFKAS_BROKER, OURS}
            said = await asyncio.to_thread(produce, here, topic, [0, 1], iter(range(number, 9)))
            assert await asyncio.to_thread(consume, here, topic, 2) == said
        leader = await quorum.settled()
        assert (leader.node_id == KAFKAS) == is_led_by_kafka
        fields, observers = await _said_by_all(quorum, nodes, "--status")
        columns, *rows = await _said_by_all(quorum, nodes, "--replication")
    assert fields["LeaderId:"] == str(leader.node_id)
    voters = [(one["id"], one["endpoints"]) for one in json.loads(fields["CurrentVoters:"])]
    members = quorum.membership.members
    assert voters == [(one.node_id, [f"CONTROLLER://127.0.0.1:{one.port}"]) for one in members]
    assert [one["id"] for one in observers] == [KAFKAS_BROKER, OURS]
    followers = [one for one in quorum.controllers if one != leader.node_id]
    assert [int(row[0]) for row in rows] == [leader.node_id, *followers, KAFKAS_BROKER, OURS]
    assert [row[-1] for row in rows] == ["Leader", *2 * ["Follower"], *2 * ["Observer"]]
    assert {row[2:4] for row in rows} == {(True, True)}, "all have fetched and caught up"
    assert columns == COLUMNS


async def _said_by_all(quorum: Quorum, brokers: Any, what: str) -> list[Any]:
    """Kafka's tool and ours, through each node: they say the same."""
    told = []
    for node in (*quorum.controllers.values(), *brokers):
        kind = "server" if node in brokers else "controller"
        at = (f"--bootstrap-{kind}", f"127.0.0.1:{node.port}", "describe", what)
        told += [_masked(await tool(*at)) for tool in (_of_kafka, _of_ours)]
    assert all(one == told[0] for one in told), told
    return told[0]


async def _of_kafka(*arguments: str) -> str:
    return await asyncio.to_thread(kafka_tool, "metadata-quorum", *arguments)


async def _of_ours(*arguments: str) -> str:
    code, said = await run_to_end(
        [sys.executable, "-m", "tidemark.cli", "metadata-quorum", *arguments]
    )
    assert code == 0, said
    return said


@asynccontextmanager
async def _mixed(directory: Path, *, is_led_by_kafka: bool) -> AsyncIterator[Any]:
    """Two controllers of ours, one of Kafka's, and a broker of each: Kafka's, then ours."""
    plan = Plan(TidemarkController, is_dynamic=True, has_links=False)
    quorum = MixedQuorum(directory, plan, kafkas=1)
    for node_id, controller in quorum.controllers.items():
        controller.settings |= WAITS if (node_id == KAFKAS) != is_led_by_kafka else {}
    kafkas = KafkaBroker(KAFKAS_BROKER, directory / "kafka-broker", quorum.membership)
    async with quorum, broker_nodes(quorum, OURS) as (ours,):
        try:
            await kafkas.start()
            for at in (kafkas.address, ours.address):
                await until_true(
                    lambda at=at: brokers_at(at) == {KAFKAS_BROKER, OURS}, "both serve"
                )
            yield quorum, (kafkas, ours)
        finally:
            kafkas.close()


def _masked(text: str) -> list[Any]:
    """Without offsets, lags and times; observers sorted: they come out of a map."""
    lines = [line for line in text.splitlines() if line]
    if "Status" not in lines[0]:
        fields = dict(line.split(maxsplit=1) for line in lines)
        observers = json.loads(fields.pop("CurrentObservers:"))
        for name in NUMBERED:
            assert fields.pop(name).lstrip("-").isdigit()
        return [fields, sorted(observers, key=lambda one: int(one["id"]))]
    columns, *rows = (tuple(line.split()) for line in lines)
    rows = [(*row[:2], *(int(number) > 0 for number in row[4:6]), row[-1]) for row in rows]
    return [columns, *sorted(rows, key=lambda row: int(row[0]) if row[-1] == "Observer" else 0)]


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
