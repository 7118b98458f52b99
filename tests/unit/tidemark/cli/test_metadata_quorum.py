"""`tidemark metadata-quorum describe` beside what Kafka's tool printed for the same answers."""

import json

import pytest
from click.testing import Result

from tests.support.brokers.process import free_ports
from tests.support.described.cases import CASES, QUORUMS, Case
from tests.support.described.record import FILE
from tests.support.described.scripted_controller import (
    CONTROLLER_APIS,
    ApiKey,
    ScriptedController,
    serving,
)
from tests.support.samples.command_line import tidemark

RECORDED = {row["case"]: row for row in map(json.loads, FILE.read_text().splitlines())}
STATUS = ("describe", "--status")


def ask(address: str, *arguments: str) -> Result:
    return tidemark("metadata-quorum", "--bootstrap-controller", address, *arguments)


def scripted(case: Case) -> ScriptedController:
    quorum = QUORUMS[case.quorum]
    controller = ScriptedController(quorum, node_id=quorum.leader_id, active=quorum.leader_id)
    controller.apis = CONTROLLER_APIS | {ApiKey.DESCRIBE_QUORUM: case.versions}
    return controller


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_prints_what_kafkas_tool_prints(case: Case) -> None:
    recorded = RECORDED[case.name]
    with serving(scripted(case)) as address:
        done = ask(address, *case.arguments)
    if recorded["exit"]:
        assert done.exit_code != 0
    else:
        assert (done.exit_code, done.stdout) == (0, recorded["stdout"])


def test_every_recorded_case_is_asked() -> None:
    assert {case.name for case in CASES} == RECORDED.keys()


def test_an_address_where_nobody_listens_is_named() -> None:
    (port,) = free_ports(1)
    done = ask(f"127.0.0.1:{port}", *STATUS)
    assert done.exit_code == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe",),
        ("describe", "--status", "--replication"),
        ("describe", "--status", "--human-readable"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...]) -> None:
    done = ask("127.0.0.1:1", *arguments)
    assert done.exit_code != 0
    assert "--" in done.stderr
