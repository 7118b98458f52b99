"""What must not take part, or is not to be asked: refused by name, and the cluster is as before."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.controller.features import SUPPORTED_FEATURES
from tests.support.brokers.process import free_ports
from tests.support.quorum.node_connection import NO_ANSWER, NodeConnection
from tests.support.quorum.own_controllers import TidemarkBroker, TidemarkController, broker_nodes
from tests.support.quorum.quorum import Plan, Quorum
from tests.support.quorum.serving import brokers, until_true

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.patience(seconds=150)]

KAFKAS_ANONYMOUS = b"\0\0\5User\12ANONYMOUS\0\0"
FOREIGN = "anotherQuorumClusterId"


async def test_bad_starts_and_requests_change_nothing(tmp_path: Path) -> None:
    """Only processes show that each of them ends, or closes a connection, and no other does."""
    plan = Plan(TidemarkController, is_dynamic=False, count=1, has_links=False)
    async with Quorum(tmp_path, plan) as quorum, broker_nodes(quorum, 11) as (node,):
        await until_true(lambda: brokers(node.address) == {11}, "it serves")
        before = await quorum.leader()
        await _a_broker_of_another_cluster(tmp_path, quorum)
        await _a_second_broker_of_a_live_id(tmp_path, quorum)
        await _a_controllers_directory_as_a_broker(tmp_path, quorum)
        await _a_brokers_directory_as_a_controller(tmp_path, quorum, node)
        await _another_list_of_voters(tmp_path, quorum)
        await _registrations_and_heartbeats(quorum.controllers[1].port)
        await _envelopes(quorum.controllers[1].port, node)
        after = await quorum.leader()
        assert (after.node_id, after.epoch) == (before.node_id, before.epoch)
        await until_true(lambda: brokers(node.address) == {11}, "the others went as they came")


async def _is_refused(node: TidemarkController, *named: str) -> None:
    code, said = await node.start_to_end()
    told = [line for line in said.splitlines() if line.startswith("tidemark: ")]
    assert code == 1, said
    assert len(told) == 1, said
    for text in named:
        assert text in told[0]


async def _a_broker_of_another_cluster(tmp_path: Path, quorum: Quorum) -> None:
    membership = replace(quorum.membership, cluster_id=FOREIGN)
    other = TidemarkBroker(12, tmp_path / "foreign", membership)
    await other.format()
    await _is_refused(other, f"cluster.id={FOREIGN}", quorum.membership.cluster_id)
    assert [one.stat().st_size for one in other.metadata.glob("*.log")] == [0]


async def _a_second_broker_of_a_live_id(tmp_path: Path, quorum: Quorum) -> None:
    second = TidemarkBroker(11, tmp_path / "second", quorum.membership)
    await second.format()
    await _is_refused(second, "node.id=11 is taken")


async def _a_controllers_directory_as_a_broker(tmp_path: Path, quorum: Quorum) -> None:
    """Also where its own file does not say who votes."""
    copied = TidemarkBroker(1, tmp_path / "was-a-controller", quorum.membership)
    shutil.copytree(quorum.controllers[1].logs, copied.logs)
    votes = (copied.metadata / "quorum-state").read_bytes()
    copied.settings = {"advertised.listeners": ""}
    await _is_refused(copied, "must not contain node.id=1, which is only a broker")
    copied.settings |= {
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{quorum.controllers[1].port}",
    }
    await _is_refused(copied, "quorum-state has a vote", "is that of a controller")
    assert (copied.metadata / "quorum-state").read_bytes() == votes


async def _a_brokers_directory_as_a_controller(
    tmp_path: Path, quorum: Quorum, node: TidemarkBroker
) -> None:
    copied = TidemarkController(11, tmp_path / "was-a-broker", quorum.membership)
    shutil.copytree(node.logs, copied.logs)
    await _is_refused(copied, "controller.quorum.voters=1@", "node.id=11")


async def _another_list_of_voters(tmp_path: Path, quorum: Quorum) -> None:
    """It is served: who votes is the leader's to say; but a person is told."""
    (nobodys,) = free_ports(1)
    voters = quorum.membership.settings()["controller.quorum.voters"]
    other = TidemarkBroker(13, tmp_path / "other-voters", quorum.membership)
    other.settings["controller.quorum.voters"] = f"{voters},2@127.0.0.1:{nobodys}"
    try:
        await other.start()
        (line,) = [one for one in other.log_file.read_text().splitlines() if "names [1, 2]" in one]
        assert " WARNING " in line
        assert "has the voters [1]" in line
        assert await other.stop() == 0
    finally:
        other.close()


def _registration(**changes: Any) -> dict[str, Any]:
    listener = {"name": "PLAINTEXT", "host": "10.0.0.66", "port": 9999, "security_protocol": 0}
    return {
        "broker_id": 11,
        "cluster_id": "tidemarkQuorumCluster0",
        "incarnation_id": b"s" * 16,
        "listeners": [listener],
        "features": [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        "log_dirs": [b"d" * 16],
        **changes,
    }


async def _registrations_and_heartbeats(port: int) -> None:
    talk = NodeConnection(port)
    for changes, code in (
        ({}, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        ({"broker_id": 14, "cluster_id": FOREIGN}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ):
        answer = await talk.ask(ApiKey.BROKER_REGISTRATION, _registration(**changes), timeout_s=10)
        assert answer.error_code == code
    for broker_id, epoch in ((11, 0), (11, 10**9), (14, 0)):
        beat = {"broker_id": broker_id, "broker_epoch": epoch, "current_metadata_offset": 1}
        answer = await talk.ask(ApiKey.BROKER_HEARTBEAT, beat, timeout_s=10)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    talk.close()


async def _envelopes(port: int, node: TidemarkBroker) -> None:
    """A listener for clients ends the connection; that of controllers refuses the envelope."""
    empty = {
        "request_data": b"",
        "request_principal": KAFKAS_ANONYMOUS,
        "client_host_address": bytes(4),
    }
    nested = empty | {"request_data": b"\0\x3a\0\0\0\0\0\1\0\0\0"}
    client = NodeConnection(node.port)
    with pytest.raises(NO_ANSWER):
        await client.ask(ApiKey.ENVELOPE, nested, timeout_s=10, version=0)
    await until_true(lambda: "api key 58 is not served here" in node.log_tail(), "it is said why")
    talk = NodeConnection(port)
    for fields, code in (
        (nested, ErrorCode.INVALID_REQUEST),
        (empty, ErrorCode.UNSUPPORTED_VERSION),
        (empty | {"request_principal": b"?"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ):
        answer = await talk.ask(ApiKey.ENVELOPE, fields, timeout_s=10, version=0)
        assert (answer.error_code, answer.response_data) == (code, None)
    talk.close()
    await asyncio.sleep(0)
