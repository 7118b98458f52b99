"""Starts a broker as its user would: `tidemark format`, `tidemark start`, signals by pid."""

import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[3]
LOCAL_FS = "rsm_plugins.local_fs:LocalFsRemoteStorageManager"
SETTLE_S = 60.0


PORTS = range(12_000, 32_000, 2)
"""Below those that a kernel gives to connections. A peer that wants two takes the odd one, too."""
_WORKERS_MAX = 8
_line_of_ports: deque[int] = deque()
"""Those of this process, the one given longest ago first."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free, all different; another worker takes others.

    A port comes again only when all others came: one that was given to a server that does not
    listen yet looks free.
    """
    found: list[int] = []
    for port in _in_turn():
        if len(found) == count:
            return found
        if _is_free(port):
            found.append(port)
    raise AssertionError(f"{len(found)} of {count} ports are free")


def free_ports_in_a_row(count: int) -> int:
    """The first of so many ports that are free; some of them are other workers' to take."""
    for first in _in_turn():
        if all(map(_is_free, range(first, first + count))):
            return first
    raise AssertionError(f"no {count} ports in a row are free")


def free_dev_port() -> int:
    """A port for `tidemark dev`: the controller's and that of the pages are free, too."""
    for port in _in_turn():
        if all(map(_is_free, (port, port + 1, port + 372))):
            return port
    raise AssertionError("no port is free with those that belong to it")


def _in_turn() -> Iterator[int]:
    """This worker's ports, from the one after the last that was taken on."""
    if not _line_of_ports:
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        mine = PORTS[worker % _WORKERS_MAX :: _WORKERS_MAX]
        _line_of_ports.extend(Random().sample(mine, k=len(mine)))
    for _ in range(len(_line_of_ports)):
        _line_of_ports.rotate(-1)
        yield _line_of_ports[-1]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def until(condition: Callable[[], T], what: str, *, deadline_s: float = SETTLE_S) -> T:
    """Ask again and again until the answer is truthy; fail naming `what` at the deadline."""
    began = time.monotonic()
    pause_s = 0.005
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() - began > deadline_s:
            raise AssertionError(f"not within {deadline_s} s: {what}; last answer: {answer!r}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.25)


class BrokerProcess:
    """One broker with its own data directory, ports and log file."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        tiered: bool = False,
        store: Mapping[str, str] | None = None,
        node_id: int = 1,
    ) -> None:
        """A broker that is not started yet.

        `store` names a storage plugin with its settings; without it: a directory of this broker.
        """
        self.directory = directory
        self.node_id = node_id
        self.tiered = tiered
        self.store = store
        self.port, self.controller_port, self.http_port = free_ports(3)
        self.settings = dict(settings or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.log_file = directory / "server.log"
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_directory(self) -> Path:
        return self.directory / "logs"

    @property
    def remote_directory(self) -> Path:
        return self.directory / "remote-tier"

    @property
    def config_file(self) -> Path:
        return self.directory / "server.properties"

    def properties(self) -> dict[str, str]:
        """The settings in force: a combined node with small intervals, then the test's own."""
        base = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"{self.node_id}@127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.log_directory),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "tidemark.http.listener": f"127.0.0.1:{self.http_port}",
        }
        if self.tiered:
            base |= {
                "remote.log.storage.system.enable": "true",
                "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
                "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
                "rlmm.config.remote.log.metadata.topic.min.isr": "1",
                "remote.log.manager.task.interval.ms": "500",
                "log.retention.check.interval.ms": "500",
                "log.initial.task.delay.ms": "200",
                "tidemark.remote.copy.max.ms": "5000",
                "tidemark.remote.delete.grace.ms": "1000",
            }
            base |= self.store or {
                "remote.log.storage.manager.class.name": LOCAL_FS,
                "rsm.config.dir": str(self.remote_directory),
            }
        return base | self.settings

    def write_config(self) -> Path:
        text = "".join(f"{key}={value}\n" for key, value in self.properties().items())
        self.config_file.write_text(text)
        return self.config_file

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run one `tidemark` command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "tidemark.cli", *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
            env=environment(),
        )

    def format(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`tidemark format` with this broker's settings."""
        self.write_config()
        return self.command("format", "--config", str(self.config_file), *arguments)

    def start_to_end(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`tidemark start` where it is expected to refuse: run until it ends."""
        self.write_config()
        return self.command("start", "--config", str(self.config_file), *arguments)

    def start_command(self) -> list[str]:
        """The process that `start` makes."""
        return [sys.executable, "-m", "tidemark.cli", "start", "--config", str(self.config_file)]

    def start(self, *, wait: bool = True) -> "BrokerProcess":
        """Start (or start again) on the same data, and wait until it answers Metadata."""
        self.write_config()
        if not (self.log_directory / "meta.properties").exists():
            done = self.format()
            assert done.returncode == 0, done.stdout + done.stderr
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self.start_command(),
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=environment(),
            )
        if wait:
            until(self.answers, f"the broker answers on {self.bootstrap}")
            self._wait_ready()
        return self

    def answers(self) -> bool:
        """Whether a Metadata request gets an answer; fails when the process is gone."""
        assert self.process is not None
        code = self.process.poll()
        assert code is None, f"the broker ended with {code}:\n{self.log_tail()}"
        request = b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x04test" + b"\x00\x00\x00\x00"
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                client.settimeout(5)
                client.sendall(len(request).to_bytes(4, "big") + request)
                return len(client.recv(8)) == 8
        except OSError:
            return False

    def _wait_ready(self) -> None:
        """Wait for `/ready`; fails when the process is gone, with what it said last."""
        process = self.process
        assert process is not None
        said = (0, "")

        def is_ready() -> bool:
            nonlocal said
            said = self.http("/ready")
            return said[0] == 200 or process.poll() is not None

        try:
            until(is_ready, f"/ready of {self.bootstrap} is 200")
            assert process.poll() is None, "the broker ended, and another one answers there"
        except AssertionError as error:
            raise AssertionError(f"{error}; it said {said}:\n{self.log_tail()}") from None

    def http(self, path: str) -> tuple[int, str]:
        """Status and body of a GET on the broker's HTTP endpoint; status 0 when nobody listens."""
        try:
            url = f"http://127.0.0.1:{self.http_port}{path}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def health(self) -> dict[str, Any]:
        """What the page `/health` says, once it answers: a busy machine may let it wait."""
        report: dict[str, Any] = json.loads(
            until(lambda: self.http("/health")[1], "an answer of /health")
        )
        return report

    def metric(self, name: str, **labels: str) -> float:
        """Sum of all samples of `name` that carry these labels; 0 when there are none."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in self.http("/metrics")[1].splitlines()
            if line.split("{")[0].split(" ")[0] == name and all(one in line for one in wanted)
        )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def tier_pid(self) -> int | None:
        """Process id of the tier process, or None."""
        return tier_pid(self.pid)

    def terminate(self, deadline_s: float = 30) -> int:
        """SIGTERM, then wait for the end; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(
                f"no clean stop within {deadline_s} s:\n{self.log_tail()}"
            ) from None

    def kill_tier(self) -> None:
        """SIGKILL the tier process alone."""
        tier = self.tier_pid()
        assert tier is not None, "no tier process runs"
        os.kill(tier, signal.SIGKILL)
        until(lambda: not alive(tier), f"the tier {tier} is gone")

    def kill(self) -> None:
        """SIGKILL, then wait for the end of the broker and of its tier."""
        assert self.process is not None
        tier = self.tier_pid()
        self.process.kill()
        self.process.wait()
        if tier is not None:
            until(lambda: not alive(tier), f"the tier {tier} ends by itself")

    def close(self) -> None:
        """Whatever state it is in: gone afterwards."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def log_text(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def partition_directory(self, topic: str, partition: int = 0) -> Path:
        return self.log_directory / f"{topic}-{partition}"

    def local_segments(self, topic: str, partition: int = 0) -> list[int]:
        """Base offsets of the local segments, ascending."""
        found = self.partition_directory(topic, partition).glob("*.log")
        return sorted(int(path.stem) for path in found)

    def remote_segments(self, topic: str, partition: int = 0) -> list[int]:
        """Base offsets of the complete segments in the store, ascending."""
        found = self.remote_paths(f"**/{topic}-*/{partition}/*.manifest")
        return sorted(int(path.name.split("-")[0]) for path in found)

    def remote_paths(self, pattern: str = "**/*") -> list[Path]:
        """Paths in the store that match, also while others are deleted: Path.glob fails then."""
        root = self.remote_directory
        return [root / path for path in glob.glob(pattern, root_dir=root, recursive=True)]


def tier_pid(broker_pid: int) -> int | None:
    """Process id of the tier process, a broker's child, or None."""
    children = Path(f"/proc/{broker_pid}/task/{broker_pid}/children")
    for child in children.read_text().split() if children.exists() else []:
        with suppress(FileNotFoundError, ProcessLookupError):  # it ends while we look
            if b"tier_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return None


def alive(pid: int) -> bool:
    """Whether a process runs: one that ended but was not yet waited for does not."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def environment() -> dict[str, str]:
    """The caller's environment, with this tree importable."""
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def running(broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """Start `broker`, hand it out, and leave nothing behind; its log goes to the test's report."""
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.log_tail(200))
