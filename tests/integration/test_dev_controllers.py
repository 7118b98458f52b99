"""`tidemark dev --controllers 3`: they elect, survive the loss of one, and end together."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.brokers.process import ROOT, alive, environment, free_ports_in_a_row, until

pytestmark = pytest.mark.lasts(seconds=20)

COUNT = 3


def _page(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def _active(ports: list[int]) -> list[int]:
    """Which controllers say that they are the active one, 0 to 2."""
    wanted = "kafka_controller_KafkaController_ActiveControllerCount 1"
    return [index for index, port in enumerate(ports) if wanted in _page(port, "/metrics")]


def _leader(ports: list[int]) -> int:
    """The node id of the only one that is active; 0: none, or two after an election."""
    active = _active(ports)
    return active[0] + 1 if len(active) == 1 else 0


def _is_green(port: int, node_id: int) -> bool:
    report = json.loads(_page(port, "/health") or "{}")
    return (report.get("status"), report.get("node_id")) == ("green", node_id)


def _ready(ports: list[int]) -> bool:
    return all('"ready": true' in _page(port, "/ready") for port in ports)


def test_three_controllers_lose_their_leader_and_stop_together(tmp_path: Path) -> None:
    first = free_ports_in_a_row(2 * COUNT)
    said = tmp_path / "said"
    command = [
        *(sys.executable, "-m", "tidemark.cli", "dev", "--controllers", str(COUNT)),
        *("--data", str(tmp_path / "data"), "--port", str(first)),
    ]
    with said.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=ROOT, env=environment()
        )
    pids: list[int] = []
    try:
        until(lambda: "Stop it with Ctrl-C" in said.read_text(), "it says what to try")
        pids = [int(pid) for pid in re.findall(r"pid (\d+)", said.read_text())]
        assert len(pids) == COUNT
        pages = [first + COUNT + index for index in range(COUNT)]
        until(lambda: _ready(pages), "all are ready")
        leader = until(lambda: _leader(pages), "one is active") - 1
        until(lambda: _is_green(pages[leader], leader + 1), "it is well")
        os.kill(pids[leader], signal.SIGKILL)
        others = [page for index, page in enumerate(pages) if index != leader]
        until(lambda: _active(others), "another is active")
        until(lambda: _ready(others), "both others are ready")
        until(lambda: f"controller {leader + 1} has ended" in said.read_text(), "it says so")
        process.send_signal(signal.SIGINT)
        until(lambda: process.poll() is not None, "all have ended")
        assert process.returncode == 0
        assert not any(alive(pid) for pid in pids)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)
        print(said.read_text())
