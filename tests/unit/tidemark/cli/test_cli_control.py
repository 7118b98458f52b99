"""The commands that run a broker add the control listener where the settings name it."""

from pathlib import Path
from typing import Any

import pytest

from broker import app
from tests.support.brokers.process import free_dev_port
from tests.support.samples.command_line import tidemark

CONTROL = [
    "--override", "tidemark.control.listener=127.0.0.1:0",
    "--override", "tidemark.control.token=0123456789abcdef",
]  # fmt: skip


@pytest.mark.parametrize("command", ["start", "dev"])
@pytest.mark.parametrize("control", [CONTROL, []])
def test_a_broker_is_extended_where_a_control_listener_is_set(
    command: str, control: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def run(_config: object, **arguments: Any) -> int:
        given.append(arguments)
        return 0

    monkeypatch.setattr(app, "run", run)
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:9093\nlog.dirs={tmp_path / 'logs'}\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\n"
    )
    where = ["--config", str(file)] if command == "start" else ["--data", str(tmp_path / "data")]
    if command == "dev":
        where += ["--port", str(free_dev_port())]
    done = tidemark(command, *where, *control)
    assert done.exit_code == 0, done.output
    (arguments,) = given
    assert (arguments["extend"] is not None) is bool(control)


def test_orphans_are_not_deleted_without_a_second_word() -> None:
    asked = ["remote", "audit", "--delete-orphans", "--bootstrap-server", "127.0.0.1:1"]
    done = tidemark(*asked)
    assert done.exit_code != 0
    assert "--delete-orphans needs --yes" in f"{done.output}{done.exception}"
