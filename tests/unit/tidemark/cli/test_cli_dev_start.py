"""How `tidemark dev` begins: its ports, the file that it leaves, and what it says when."""

import io
import logging
import os
import pty
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import app
from broker.config.broker_config import BrokerConfig
from runtime.disk import Disk
from runtime.log_lines import _Lines
from tests.support.brokers.process import free_dev_port, free_ports_in_a_row
from tests.support.samples.command_line import files_below, tidemark
from tidemark.dev.cluster import DevCluster
from tidemark.dev.ports import free_port, is_free, ports_of
from tidemark.dev.settings import PROPERTIES, dev_settings


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each run of a broker was given; none runs."""
    given: list[dict[str, Any]] = []

    def run(config: BrokerConfig, **arguments: Any) -> int:
        logging.getLogger("metadata_topic.quorum").info("elects itself")
        logging.getLogger("local_log.manager.load_run").info("1 of 2 are open")
        given.append(arguments | {"config": config})
        return 0

    monkeypatch.setattr(app, "run", run)
    return given


@pytest.fixture
def taken() -> Iterator[Callable[[int], None]]:
    """Takes a port of loopback."""
    held: list[socket.socket] = []

    def take(port: int) -> None:
        held.append(socket.create_server(("127.0.0.1", port)))

    yield take
    for one in held:
        one.close()


def test_the_ports_of_a_lone_node_follow_the_option(tmp_path: Path) -> None:
    for port, http in ((9092, 9464), (19092, 19464)):
        config, _ = BrokerConfig.load(dev_settings(tmp_path, port))
        assert [one.port for one in config.listeners] == [port, port + 1]
        assert config.http_listener == ("127.0.0.1", http)
        assert ports_of(port) == (port, port + 1, http)


@pytest.mark.parametrize(
    ("above", "what"), [(0, "clients"), (1, "controller"), (372, "pages")], ids=str
)
def test_a_taken_port_is_one_line_and_nothing_is_written(
    above: int, what: str, tmp_path: Path, taken: Callable[[int], None], started: list[Any]
) -> None:
    port = free_dev_port()
    taken(port + above)
    result = tidemark("dev", "--data", tmp_path / "data", "--port", port)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"127.0.0.1:{port + above} ({what}) is taken" in result.stderr
    assert result.stderr.count("\n") == 1
    assert files_below(tmp_path) == [] == started
    found = re.search(r"tidemark dev --port (\d+) --data (\S+)\n", result.stderr)
    assert found is not None
    assert found[2] == str(tmp_path / "data"), "no node runs on these data"
    again = tidemark("dev", "--data", tmp_path / "data", "--port", found[1])
    assert again.exit_code == 0, again.output


def test_all_that_is_taken_is_named_at_once(tmp_path: Path, taken: Callable[[int], None]) -> None:
    port = free_dev_port()
    for one in ports_of(port):
        taken(one)
    said = tidemark("dev", "--data", tmp_path, "--port", port).stderr
    assert [f":{one} " in said for one in ports_of(port)] == [True] * 3


def test_a_second_node_is_offered_other_data(
    tmp_path: Path, taken: Callable[[int], None], started: list[Any]
) -> None:
    port, data = free_dev_port(), tmp_path / "data"
    options = ("--override", "num.partitions=3", "--s3", "http://127.0.0.1:1/tides")
    assert tidemark("dev", "--data", data, "--port", port, *options).exit_code == 0
    lock = Disk().lock(data / "logs" / ".lock")
    taken(port)
    said = tidemark("dev", "--data", data, "--port", port, *options).stderr
    lock.release()
    free = free_port(port)
    assert said.endswith(
        f"tidemark dev --port {free} --data {data}-{free} "
        "--s3 http://127.0.0.1:1/tides --override num.partitions=3\n"
    )


def test_a_taken_port_of_a_cluster_is_one_line_and_nothing_is_written(
    tmp_path: Path, taken: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DevCluster, "run", lambda *_: 0)
    port = free_ports_in_a_row(12)
    taken(port + 7)
    options = ("--data", tmp_path / "data", "--brokers", 3)
    said = tidemark("dev", *options, "--port", port)
    assert (said.exit_code, said.stdout, files_below(tmp_path)) == (1, "", [])
    found = re.fullmatch(
        rf"tidemark: --port={port}: 127.0.0.1:{port + 7} \(pages\) is taken; these ports are free: "
        rf"tidemark dev --port (\d+) --data {tmp_path}/data --brokers 3\n",
        said.stderr,
    )
    assert found is not None, said.stderr
    assert tidemark("dev", *options, "--port", found[1]).exit_code == 0


def test_a_port_that_the_option_does_not_move_is_not_moved_by_it(
    tmp_path: Path, taken: Callable[[int], None]
) -> None:
    other = free_dev_port()
    taken(other)
    told = ("--override", f"tidemark.http.listener=127.0.0.1:{other}")
    said = tidemark("dev", "--data", tmp_path, "--port", free_dev_port(), *told).stderr
    assert said.endswith(f"127.0.0.1:{other} (pages) is taken; name another one with --override\n")


def test_a_port_is_free_with_those_that_belong_to_it(taken: Callable[[int], None]) -> None:
    first = free_dev_port()
    found = free_port(first)
    assert found is not None
    taken(found + 372)
    assert free_port(first) not in (None, found)


def test_an_address_that_no_server_can_have_is_left_to_the_start() -> None:
    assert is_free(("no.such.host.invalid", 9092))
    assert is_free(("198.51.100.1", 9092))


def test_each_start_leaves_the_settings_of_its_own(tmp_path: Path, started: list[Any]) -> None:
    port = free_dev_port()
    for count in ("3", "5"):
        (tmp_path / PROPERTIES).write_text("node.id=77\nnonsense")  # is not read
        told = ("--override", f"num.partitions={count}")
        assert tidemark("dev", "--data", tmp_path, "--port", port, *told).exit_code == 0
        config, warnings = BrokerConfig.load(tmp_path / PROPERTIES)
        assert warnings == []
        assert (config.node_id, config.get("num.partitions")) == (1, int(count))
        assert config.rsm_settings["dir"] == str(tmp_path / "remote-tier")


def test_what_may_be_a_secret_is_not_in_the_file_that_a_start_leaves(
    tmp_path: Path, started: list[dict[str, Any]]
) -> None:
    told = [
        "--override", "ssl.keystore.password=hush1", "--override", "rsm.config.secret=hush2",
        "--override", "my.own.key=hush3", "--override", "num.partitions=7",
    ]  # fmt: skip
    done = tidemark("dev", "--data", tmp_path, "--port", free_dev_port(), *told)
    assert done.exit_code == 0
    text = (tmp_path / PROPERTIES).read_text()
    assert "hush" not in text
    assert "may be secrets: ssl.keystore.password, rsm.config.secret, my.own.key\n" in text
    assert "\nnum.partitions=7\n" in text
    assert (tmp_path / PROPERTIES).stat().st_mode & 0o777 == 0o600
    assert started[0]["config"].rsm_settings["secret"] == "hush2"


def test_a_start_beside_a_node_that_runs_leaves_its_settings(
    tmp_path: Path, started: list[Any]
) -> None:
    port = free_dev_port()
    assert tidemark("dev", "--data", tmp_path, "--port", port).exit_code == 0
    before = (tmp_path / PROPERTIES).read_bytes()
    lock = Disk().lock(tmp_path / "logs" / ".lock")
    told = ("--override", "num.partitions=5")
    result = tidemark("dev", "--data", tmp_path, "--port", port, *told)
    lock.release()
    assert (result.exit_code, "is locked by another process" in result.stderr) == (1, True)
    assert (tmp_path / PROPERTIES).read_bytes() == before


def test_it_is_ready_when_it_listens_and_quiet_until_then(
    tmp_path: Path, started: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    out, root = io.StringIO(), logging.getLogger()
    terminal, level_before = logging.StreamHandler(out), root.level
    terminal.setFormatter(_Lines(""))
    root.addHandler(terminal)
    try:
        told = ("--override", "tidemark.log.level=INFO,metadata_topic=DEBUG")
        done = tidemark("dev", "--data", tmp_path, "--port", free_dev_port(), *told)
        assert (done.exit_code, done.stdout) == (0, "")
        started[0]["on_started"](None)
        logging.getLogger("metadata_topic.quorum").info("elects itself again")
    finally:
        root.removeHandler(terminal)
        root.setLevel(level_before)
    assert re.match(r"\nready in \d+\.\d s\nTidemark on 127", capsys.readouterr().out)
    said = out.getvalue()
    assert "1 of 2 are open (" in said
    assert "elects itself again (" in said
    assert "elects itself (" not in said
    assert "elects itself" in (tmp_path / "server.log").read_text()
    level = logging.getLogger("metadata_topic").level
    logging.getLogger("metadata_topic").setLevel(logging.NOTSET)
    assert level == logging.DEBUG, "as the user wants it"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_ends_a_process_is_said_once_on_a_terminal(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read_fd, write_fd = pty.openpty() if is_terminal else os.pipe()
    with os.fdopen(write_fd, "w") as out, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", out)
        patch.setattr("sys.stderr", out)
        app._tell(OSError("the port is taken"))
        out.write("end\n")
        out.flush()
        said = os.read(read_fd, 100).decode().replace("\r", "")
    os.close(read_fd)
    assert said == ("end\n" if is_terminal else "tidemark: the port is taken\nend\n")
    [logged] = [one.getMessage() for one in caplog.records]
    assert logged.startswith("the process ends: the port is taken. ")
