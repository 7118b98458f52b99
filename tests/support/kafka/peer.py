"""Apache Kafka with a remote tier as a process, started through the peer program."""

import subprocess
from pathlib import Path

from tests.support.brokers.process import free_ports
from tests.support.kafka.tools import PEERS

SMALL_INDEXES = ("log.index.size.max.bytes=65536",)
"""For directories that are copied: Kafka fills index files with zeros up to their largest size."""


class KafkaPeer:
    """One node with its own data directory and ports; ask `require_kafka_tools` before."""

    def __init__(self, data: Path, overrides: tuple[str, ...] = ()) -> None:
        self.data = data
        self.overrides = overrides
        self.port, self.controller_port = free_ports(2)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        ports = ("--port", str(self.port), "--controller-port", str(self.controller_port))
        more = [word for pair in self.overrides for word in ("--override", pair)]
        self._run("start", *ports, "--tiered", "--heap", "512m", *more)

    def stop(self) -> None:
        self._run("stop")

    def kill(self) -> None:
        self._run("stop", "--kill")

    def log_tail(self, lines: int = 60) -> str:
        text = (self.data / "server.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def restart(self) -> None:
        self.stop()
        self.start()

    def _run(self, action: str, *more: str) -> None:
        command = [str(PEERS / "kafka"), action, "--data", str(self.data), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
