"""Several controllers for development: each a process of its own, all stopped by one Ctrl-C."""

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from broker.config.broker_config import BrokerConfig
from runtime.disk import Disk
from tidemark.dev.settings import HOST, dev_controller_settings
from tidemark.node_files.formatting import format_node, is_formatted
from tidemark.node_files.loading import load

CLUSTER_ID: Final = "tidemark-dev-controller"
_STOP_S: Final = 30


class DevControllers:
    """A quorum of processes in `data/controller-N`, with their logs beside their directories."""

    def __init__(self, data: Path, port: int, count: int, overrides: Sequence[str] = ()) -> None:
        """Nothing is started yet.

        Args:
            data: directory for everything.
            port: of the first controller; the others follow, then the ports of their pages.
            count: how many.
            overrides: `key=value` for all of them.
        """
        self._port, self._count = port, count
        self._homes = [data / f"controller-{one}" for one in range(1, count + 1)]
        self._entries = [
            dev_controller_settings(home, port, count, number)
            for number, home in enumerate(self._homes, 1)
        ]
        self._overrides = tuple(overrides)
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, say: Callable[[str], None]) -> int:
        """Start them, and return when Ctrl-C or SIGTERM has stopped them, or one has ended.

        Raises:
            ConfigError, FormatError, OSError: they cannot be started; none was.
        """
        configs = [self._load(entries) for entries in self._entries]
        for config in configs:
            if not is_formatted(config):
                format_node(config, cluster_id=CLUSTER_ID)
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            for home, entries in zip(self._homes, self._entries, strict=True):
                self._running.append(self._start(home, entries))
            say(self._welcome())
            return self._wait(say)
        except KeyboardInterrupt:
            return 0
        finally:
            self._stop()

    def _load(self, entries: dict[str, str]) -> BrokerConfig:
        return load(entries, self._overrides, list_without_effect=False)

    def _start(self, home: Path, entries: dict[str, str]) -> "subprocess.Popen[bytes]":
        file, log = home / "server.properties", home / "server.log"
        text = "".join(f"{key}={value}\n" for key, value in entries.items())
        Disk().atomic_write(file, text.encode())
        command = [sys.executable, "-m", "tidemark.cli", "start", "--config", str(file)]
        for pair in self._overrides:
            command += ["--override", pair]
        with log.open("ab") as output:
            # A session of its own: Ctrl-C reaches this process, which stops them in order.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def _wait(self, say: Callable[[str], None]) -> int:
        """Wait until one ends by itself, which is for a person to look at; others may be killed."""
        left = dict(enumerate(self._running, 1))
        while left:
            for number, process in list(left.items()):
                try:
                    code = process.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
                del left[number]
                say(f"controller {number} has ended: exit code {code}, log in {self._log(number)}")
        return 1

    def _log(self, number: int) -> Path:
        return self._homes[number - 1] / "server.log"

    def _stop(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGTERM)  # nothing happens to one that has ended
        for process in self._running:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _welcome(self) -> str:
        lines = [
            f"  controller {number}: {HOST}:{self._port + number - 1}, pages on "
            f"http://{HOST}:{self._port + self._count + number - 1}, pid {process.pid}, "
            f"log {self._log(number)}"
            for number, process in enumerate(self._running, 1)
        ]
        shown = "\n".join(lines)
        every = ",".join(f"{HOST}:{self._port + one}" for one in range(self._count))
        return f"""
A metadata quorum of {self._count}. Stop it with Ctrl-C.
{shown}

Who leads, and how far the others are:
  tidemark metadata-quorum --bootstrap-controller {every} describe --status
  tidemark metadata-quorum --bootstrap-controller {every} describe --replication

Kill the leader and ask again; start it again by hand:
  kill -9 PID
  tidemark start --config {self._homes[0].parent}/controller-N/server.properties

Watch one of them:
  curl -s http://{HOST}:{self._port + self._count}/ready
  curl -s http://{HOST}:{self._port + self._count}/metrics | grep -i raft
"""


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
