"""`tidemark dev` with several nodes: brokers beside controllers, seen with `tidemark status`.

Only real processes show that none is left: after Ctrl-C, after a second one, after the end of the
command by kill -9.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.cimpl import NewTopic

from tests.support.brokers.process import ROOT, alive, environment, free_ports_in_a_row, until
from tests.support.quorum.serving import admin, brokers, consume, produce

pytestmark = pytest.mark.lasts(seconds=60)

COUNT = 3
STATUS_S_MAX = 15
"""Its deadline is 10 s; the rest is a start of Python on a busy machine."""


class Dev:
    """The command, started, with the processes it names.

    Attributes:
        pids: of the nodes by id, and of a lone broker as 0.
    """

    def __init__(self, directory: Path, *options: str, brokers: int = 1) -> None:
        self.port = free_ports_in_a_row(2 * (COUNT + brokers))
        self._ids = {0} if brokers == 1 else set(range(11, 11 + brokers))
        if brokers > 1:
            options = ("--brokers", str(brokers), *options)
        self.said_file, self.pids = directory / "said", dict[int, int]()
        command = [
            *(sys.executable, "-m", "tidemark.cli", "dev", "--controllers", str(COUNT)),
            *("--data", str(directory / "data"), "--port", str(self.port), *options),
        ]
        with self.said_file.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=ROOT, env=environment()
            )

    def said(self) -> str:
        return self.said_file.read_text()

    def until_it_serves(self) -> None:
        def has_said() -> bool:
            assert self.process.poll() is None, self.said()
            return "Stop it with Ctrl-C" in self.said()

        until(has_said, "it says what to try")
        node = r"(?:controller (\d)|broker (\d\d)|the broker): .* pid (\d+)"
        found = re.findall(node, self.said())
        self.pids = {int(one or other or 0): int(pid) for one, other, pid in found}
        assert set(self.pids) == {1, 2, 3} | self._ids

    def pid_of(self, directory: str) -> int:
        """Of the node that has this directory, 0 where it is not started yet."""
        for child in psutil.Process(self.process.pid).children():
            if any(f"/{directory}/" in argument for argument in child.cmdline()):
                return child.pid
        return 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def status(self, *options: str) -> tuple[int, dict[str, Any]]:
        """What `tidemark status` says, and its exit code."""
        given = options or ("--bootstrap-server", self.address)
        done = subprocess.run(
            [sys.executable, "-m", "tidemark.cli", "status", "--json", *given],
            check=False, cwd=ROOT, env=environment(), capture_output=True, timeout=STATUS_S_MAX,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout)

    def until_status(self, wanted: str) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            code, report = self.status()
            assert code == (0 if report["status"] == "green" else 1 if report["cluster_id"] else 2)
            return report if report["status"] == wanted else {}

        return until(look, f"the status is {wanted}")

    def none_is_left(self) -> bool:
        return not any(map(alive, self.pids.values()))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pid in filter(alive, self.pids.values()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def dev(directory: Path, *options: str, brokers: int = 1) -> Iterator[Dev]:
    started = Dev(directory, *options, brokers=brokers)
    try:
        yield started
    finally:
        started.close()
        print(started.said())


def test_a_cluster_serves_loses_its_leader_and_stops_together(tmp_path: Path) -> None:
    seed = tmp_path / "seed.yaml"
    (tmp_path / "one.jsonl").write_text('{"value": "one"}\n')
    seed.write_text("topics:\n  - name: seeded\n    records: one.jsonl\n")
    with dev(tmp_path, "--seed", str(seed)) as cluster:
        cluster.until_it_serves()
        assert consume(cluster.address, "seeded", 1) == {b"one"}
        report = cluster.until_status("green")
        assert [one["id"] for one in report["brokers"]] == [11]
        assert [one["health"] for one in report["controllers"]] == ["green"] * COUNT
        leader = report["quorum"]["leader_id"]
        paused, last = sorted(set(cluster.pids) - {0, leader})

        os.kill(cluster.pids[paused], signal.SIGSTOP)
        report = cluster.until_status("yellow")
        assert f"controller {paused} does not answer" in report["reasons"][0]

        os.kill(cluster.pids[leader], signal.SIGKILL)
        report = cluster.until_status("red")  # half a quorum
        assert report["quorum"] is None
        states = {one["id"]: one["state"] for one in report["controllers"]}
        assert states == {leader: "silent", paused: "silent", last: "running"}
        until(
            lambda: f"controller {leader} has ended: killed by signal 9" in cluster.said(),
            "the end of the leader is said",
        )

        os.kill(cluster.pids[paused], signal.SIGCONT)
        report = cluster.until_status("yellow")
        assert report["quorum"]["leader_id"] != leader
        assert produce(cluster.address, "seeded", [0], iter([2])) == {b"2"}

        cluster.process.send_signal(signal.SIGINT)
        until(lambda: cluster.process.poll() is not None, "it has ended")
        assert cluster.process.returncode == 0
        assert cluster.none_is_left()
        log = (tmp_path / "data" / "broker" / "server.log").read_text()
        assert "stopped: node_id=11" in log
        assert "no controller took note that this broker stops" not in log


def test_three_brokers_reported_as_serving_take_a_topic_of_three_replicas(
    tmp_path: Path,
) -> None:
    """Only here the first broker that serves speaks for those that are not there yet."""
    with dev(tmp_path, brokers=3) as cluster:
        address = ",".join(f"127.0.0.1:{cluster.port + one}" for one in range(3))
        last = until(lambda: cluster.pid_of("broker-13"), "the last broker is started")
        os.kill(last, signal.SIGSTOP)
        until(lambda: {11, 12} <= brokers(address), "the others serve")
        os.kill(last, signal.SIGCONT)  # it has still to load and to register
        cluster.until_it_serves()
        tools = admin(address)
        tools.create_topics([NewTopic("copied", 1)])["copied"].result(60)
        assert produce(address, "copied", [0], iter([1])) == {b"1"}
        topics = tools.list_topics(timeout=60).topics
        assert sorted(topics["copied"].partitions[0].replicas) == [11, 12, 13]
        report = cluster.until_status("green")
        assert [one["id"] for one in report["brokers"]] == [11, 12, 13]

        leader = topics["copied"].partitions[0].leader
        os.kill(cluster.pids[leader], signal.SIGKILL)
        until(
            lambda: f"broker {leader} has ended: killed by signal 9" in cluster.said(),
            "the end of the leader is said",
        )
        assert consume(address, "copied", 1) == {b"1"}

        cluster.process.send_signal(signal.SIGINT)
        until(lambda: cluster.process.poll() is not None, "it has ended")
        assert cluster.process.returncode == 0
        assert cluster.none_is_left()
        for node_id in {11, 12, 13} - {leader}:
            name = "broker" if node_id == 11 else f"broker-{node_id}"
            log = (tmp_path / "data" / name / "server.log").read_text()
            assert f"stopped: node_id={node_id}" in log
            assert "no controller took note that this broker stops" not in log


def test_a_second_ctrl_c_kills_what_does_not_stop(tmp_path: Path) -> None:
    with dev(tmp_path) as cluster:
        cluster.until_it_serves()
        os.kill(cluster.pids[0], signal.SIGSTOP)
        began_s = time.monotonic()
        code, report = cluster.status()
        assert (code, report["brokers"]) == (2, None)
        assert "no broker answers" in report["reasons"][0]
        assert time.monotonic() - began_s < STATUS_S_MAX
        cluster.process.send_signal(signal.SIGINT)
        until(lambda: "Ctrl-C again" in cluster.said(), "it stops")
        cluster.process.send_signal(signal.SIGINT)
        until(lambda: cluster.process.poll() is not None, "it has ended", deadline_s=10)
        assert cluster.none_is_left()


def test_no_node_outlives_a_killed_command(tmp_path: Path) -> None:
    with dev(tmp_path) as cluster:
        cluster.until_it_serves()
        cluster.process.kill()
        until(cluster.none_is_left, "the nodes end")


def test_a_node_that_does_not_start_ends_all_with_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with dev(tmp_path, "--override", f"rsm.config.dir={tmp_path}/file/tier") as cluster:
        until(lambda: cluster.process.poll() is not None, "it has ended")
        assert cluster.process.returncode == 1
        assert "has ended: exit code 1" in cluster.said()
        assert "allowed is the path of a directory" in cluster.said()
        assert "Stop it with Ctrl-C" not in cluster.said()
