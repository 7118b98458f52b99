"""A controller as a process of its own, whoever made it."""

import asyncio
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.primitives import uuid_to_text
from tests.support.brokers.process import ROOT, environment, free_ports
from tests.support.quorum.node_connection import NO_ANSWER, NodeConnection

CLUSTER_ID = "tidemarkQuorumCluster0"
START_S = 120.0
STOP_S = 60.0
DESCRIBED = {
    "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
}


@dataclass(frozen=True)
class Member:
    """One voter as all of them are told of it."""

    node_id: int
    port: int
    directory_id: bytes = field(repr=False)

    @property
    def static_voter(self) -> str:
        return f"{self.node_id}@127.0.0.1:{self.port}"

    @property
    def initial_controller(self) -> str:
        return f"{self.static_voter}:{uuid_to_text(self.directory_id)}"


@dataclass(frozen=True)
class Membership:
    """Whom a new quorum begins with; with `is_dynamic` its voters are in the log."""

    members: tuple[Member, ...]
    is_dynamic: bool
    cluster_id: str = CLUSTER_ID

    def settings(self) -> dict[str, str]:
        if not self.is_dynamic:
            voters = ",".join(one.static_voter for one in self.members)
            return {"controller.quorum.voters": voters}
        servers = ",".join(f"127.0.0.1:{one.port}" for one in self.members)
        return {"controller.quorum.bootstrap.servers": servers}

    @property
    def initial_controllers(self) -> str:
        return ",".join(one.initial_controller for one in self.members)


class Controller(ABC):
    """One process with its directory.

    Attributes:
        terminated: exit code after SIGTERM.
        port: where it listens itself; what the others are told is the membership's.
        settings: over those that every controller has.
    """

    kind: str
    terminated = 0

    def __init__(
        self,
        node_id: int,
        directory: Path,
        membership: Membership,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.node_id = node_id
        self.directory = directory
        self.membership = membership
        self.settings = dict(settings or {})
        (self.port,) = free_ports(1)
        self.process: subprocess.Popen[bytes] | None = None
        self.is_paused = False

    # -- what differs

    @abstractmethod
    def format_command(self, *options: str) -> list[str]:
        """Gives the directory its identity; `options` say how a quorum begins."""

    @abstractmethod
    def start_command(self) -> list[str]:
        """Runs until it is stopped."""

    # -- what does not

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def metadata(self) -> Path:
        return self.logs / "__cluster_metadata-0"

    @property
    def config_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def log_file(self) -> Path:
        return self.directory / "server.log"

    @property
    def advertised_port(self) -> int:
        told = [one.port for one in self.membership.members if one.node_id == self.node_id]
        return told[0] if told else self.port

    def properties(self) -> dict[str, str]:
        base = {
            "process.roles": "controller",
            "node.id": str(self.node_id),
            "listeners": f"CONTROLLER://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.logs),
        }
        if self.advertised_port != self.port:
            base["advertised.listeners"] = f"CONTROLLER://127.0.0.1:{self.advertised_port}"
        return base | self.membership.settings() | self.settings

    def write_config(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = (f"{name}={value}\n" for name, value in self.properties().items())
        self.config_file.write_text("".join(lines))

    async def format(self, *options: str) -> None:
        """Format an empty directory; without options as the membership says."""
        self.write_config()
        if not options and self.membership.is_dynamic:
            options = ("--initial-controllers", self.membership.initial_controllers)
        code, said = await run_to_end(self.format_command(*options))
        assert code == 0, said

    async def start(self, *, wait: bool = True) -> None:
        """Start, formatted or not; returns when it answers."""
        if not (self.logs / "meta.properties").exists():
            await self.format()
        self.write_config()
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220  (forks, and does not wait)
                self.start_command(), stdout=log, stderr=log, cwd=ROOT, env=environment()
            )
        self.is_paused = False
        if wait:
            await self.until_it_answers()

    async def until_it_answers(self) -> None:
        talk = NodeConnection(self.port)
        async with asyncio.timeout(START_S):
            while True:
                assert self.process is not None
                code = self.process.poll()
                assert code is None, f"controller {self.node_id} ended: {code}\n{self.log_tail()}"
                try:
                    await talk.ask(ApiKey.DESCRIBE_QUORUM, DESCRIBED, timeout_s=5)
                    break
                except NO_ANSWER:
                    await asyncio.sleep(0.02)
        talk.close()

    async def start_to_end(self) -> tuple[int, str]:
        """Start where a refusal is expected: its exit code, and what it said."""
        self.write_config()
        return await run_to_end(self.start_command())

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL, and its end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.is_paused = False

    def pause(self) -> None:
        """SIGSTOP: connections stay, nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    async def stop(self) -> int:
        """SIGTERM, and its end; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, STOP_S)

    def close(self) -> None:
        """Whatever state it is in: gone afterwards."""
        if self.is_running:
            self.kill()

    def wipe(self) -> None:
        """Forget everything, as with a new disk."""
        assert not self.is_running
        shutil.rmtree(self.logs)

    def log_tail(self, lines: int = 60) -> str:
        text = self.log_file.read_text(errors="replace") if self.log_file.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


async def run_to_end(command: list[str], deadline_s: float = START_S) -> tuple[int, str]:
    """Exit code, and everything that was printed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env=environment(),
    )
    try:
        async with asyncio.timeout(deadline_s):
            said, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, said.decode(errors="replace")
