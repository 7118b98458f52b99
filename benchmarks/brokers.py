"""Starts the two brokers that are compared: ours as its user would, Kafka by its peer program."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PLUGIN = "rsm_plugins.local_fs:LocalFsRemoteStorageManager"
ROOT = Path(__file__).resolve().parent.parent
TIDEMARK = (sys.executable, "-m", "tidemark.cli")


@dataclass(frozen=True)
class Running:
    """A broker that answers: where, and which process."""

    bootstrap: str
    pid: int
    seconds_to_ready: float


def peers() -> Path:
    """Folder of the peer programs (`kafka`, `measure`): TIDEMARK_PEERS, or `../shared/peers`."""
    found = Path(os.environ.get("TIDEMARK_PEERS", ROOT.parent / "shared" / "peers"))
    if not (found / "measure").exists():
        sys.exit(f"no peer programs in {found}: set TIDEMARK_PEERS to their folder")
    return found


def free_port() -> int:
    """A port that was free a moment ago, with the next one free too (for the controller)."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def server_properties(
    data: Path, port: int, *, tiered: bool, settings: Mapping[str, str] | None = None
) -> str:
    """The same settings that the Kafka peer runs with, for one combined node of ours."""
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "log.dirs": str(data / "logs"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    if tiered:
        lines |= {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": PLUGIN,
            "rsm.config.dir": str(data / "remote-tier"),
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
            "rlmm.config.remote.log.metadata.topic.min.isr": "1",
            "remote.log.manager.task.interval.ms": "1000",
            "log.retention.check.interval.ms": "1000",
            "log.initial.task.delay.ms": "500",
        }
    lines |= settings or {}
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def wait_answering(
    bootstrap: str, process: "subprocess.Popen[bytes]", deadline_s: float = 60
) -> None:
    """Return when the broker answers a Metadata request; fail when it ended or never does."""
    host, port = bootstrap.rsplit(":", 1)
    request = b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x05bench" + b"\xff\xff\xff\xff"
    began = time.monotonic()
    while time.monotonic() - began < deadline_s:
        if process.poll() is not None:
            sys.exit(f"the broker ended with {process.returncode} before it answered")
        try:
            with socket.create_connection((host, int(port)), 1) as client:
                client.settimeout(5)
                client.sendall(len(request).to_bytes(4, "big") + request)
                if len(client.recv(8)) == 8:
                    return
        except OSError:
            time.sleep(0.005)
    sys.exit(f"no answer from {bootstrap} after {deadline_s} s")


def formatted(
    data: Path, *, tiered: bool, settings: Mapping[str, str] | None = None
) -> tuple[Path, str]:
    """Make a new data directory for a Tidemark broker; its configuration and its address."""
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    port = free_port()
    config = data / "server.properties"
    config.write_text(server_properties(data, port, tiered=tiered, settings=settings))
    subprocess.run(
        [*TIDEMARK, "format", "--config", str(config)], check=True, stdout=subprocess.DEVNULL
    )
    return config, f"127.0.0.1:{port}"


@contextmanager
def launched(config: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a broker of formatted directories until the block ends; it need not answer yet."""
    with (config.parent / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [*TIDEMARK, "start", "--config", str(config)], stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def tidemark(
    data: Path, *, tiered: bool, settings: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Run one Tidemark broker under `data` until the block ends; `settings` go over the usual."""
    config, bootstrap = formatted(data, tiered=tiered, settings=settings)
    began = time.monotonic()
    with launched(config) as process:
        wait_answering(bootstrap, process)
        yield Running(bootstrap, process.pid, round(time.monotonic() - began, 3))


@contextmanager
def kafka(
    data: Path, *, tiered: bool, settings: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Run Apache Kafka under `data` until the block ends; `settings` go over the usual."""
    shutil.rmtree(data, ignore_errors=True)
    program, port = str(peers() / "kafka"), free_port()
    options = ["--tiered"] if tiered else []
    for name, value in (settings or {}).items():
        options += ["--override", f"{name}={value}"]
    answer = subprocess.run(
        [program, "start", "--data", str(data), "--port", str(port), *options],
        check=True,
        stdout=subprocess.PIPE,
    )
    facts = json.loads(answer.stdout)
    try:
        yield Running(facts["bootstrap"], facts["pid"], facts["seconds_to_ready"])
    finally:
        subprocess.run([program, "stop", "--data", str(data)], check=False)
