"""`tidemark metadata-quorum describe` beside what Kafka's tool printed for the same answers."""

import json
import socket
from pathlib import Path
from threading import Thread

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


def test_for_programs_it_says_the_same_under_names_of_python() -> None:
    case = next(one for one in CASES if RECORDED[one.name]["exit"] == 0)
    quorum = QUORUMS[case.quorum]
    with serving(scripted(case)) as address:
        status = json.loads(ask(address, *STATUS, "--json").stdout)
        replicas = json.loads(ask(address, "describe", "--replication", "--json").stdout)
    assert status["leader_id"] == quorum.leader_id
    assert status["high_watermark"] == quorum.high_watermark
    assert len(status["current_voters"]) == len(quorum.voters)
    assert status.keys() >= {"cluster_id", "max_follower_lag_time_ms", "current_observers"}
    first, *others = replicas["replicas"]
    assert (first["node_id"], first["status"], first["lag"]) == (quorum.leader_id, "Leader", 0)
    assert len(others) == len(quorum.voters) + len(quorum.observers) - 1


def test_every_recorded_case_is_asked() -> None:
    assert {case.name for case in CASES} == RECORDED.keys()


def test_an_address_where_nobody_listens_is_named() -> None:
    (port,) = free_ports(1)
    done = ask(f"127.0.0.1:{port}", *STATUS)
    assert done.exit_code == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_hung_controller_that_is_named_first_costs_nothing(tmp_path: Path) -> None:
    case = next(case for case in CASES if RECORDED[case.name]["exit"] == 0)
    settings = tmp_path / "client.properties"
    settings.write_text("default.api.timeout.ms=3600000\nrequest.timeout.ms=3600000\n")
    with socket.create_server(("127.0.0.1", 0)) as hung, serving(scripted(case)) as address:
        named = f"127.0.0.1:{hung.getsockname()[1]},{address}"
        done = tidemark(
            "metadata-quorum", "--bootstrap-controller", named, "--command-config", settings,
            *case.arguments,
        )  # fmt: skip
    assert (done.exit_code, done.stdout) == (0, RECORDED[case.name]["stdout"])


def test_a_leader_that_hangs_while_others_still_name_it_is_asked_again() -> None:
    """The leader is stopped; a moment later the others have elected another one."""
    quorum = next(iter(QUORUMS.values()))
    with socket.create_server(("127.0.0.1", 0)) as hung:
        port = hung.getsockname()[1]
        late = ScriptedController(quorum, node_id=2, active=1, others=((1, port),))
        with serving(late) as address:

            def elect() -> None:
                greeted, asked = hung.accept()[0], hung.accept()[0]
                late.active = 2
                asked.recv(1)
                greeted.close(), asked.close()

            thread = Thread(target=elect)
            thread.start()
            done = ask(f"127.0.0.1:{port},{address}", *STATUS)
            thread.join()
    assert done.exit_code == 0, done.stderr


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
