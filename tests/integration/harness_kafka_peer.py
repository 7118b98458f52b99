"""Apache Kafka with a remote tier as a process, started through the peer program."""

import subprocess
from pathlib import Path

from harness_broker import free_ports
from harness_kafka_tools import PEERS


class KafkaPeer:
    """One node with its own data directory and ports; ask `require_kafka_tools` before."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port, self.controller_port = free_ports(2)

    def start(self) -> None:
        ports = ("--port", str(self.port), "--controller-port", str(self.controller_port))
        self._run("start", *ports, "--tiered", "--heap", "512m")

    def stop(self) -> None:
        self._run("stop")

    def restart(self) -> None:
        self.stop()
        self.start()

    def _run(self, action: str, *more: str) -> None:
        command = [str(PEERS / "kafka"), action, "--data", str(self.data), *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
