"""The profile `cluster` of docker-compose.yml, started without Docker: same script, same settings.

Only real processes show that the nodes find each other by what the file says, and that all tiers
pass with the secret that the first broker's start has drawn.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.process import ROOT, environment, until
from tests.support.brokers.tiered_topics import TIERED
from tests.support.quorum.serving import consume
from tests.support.stores.s3 import S3Endpoint
from tidemark.embedded.clients import producer

pytestmark = [pytest.mark.lasts(seconds=90), pytest.mark.timeout(400)]

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
NODES = ("controller-1", "controller-2", "controller-3", "broker-1", "broker-2", "broker-3")
RECORDS = 4_000


class ComposeCluster:
    """The six services, each with an address of loopback in place of its name."""

    def __init__(self, directory: Path, s3_url: str, bucket: str) -> None:
        self.directory = directory
        net = f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}"
        self.hosts = {name: f"{net}.{number}" for number, name in enumerate(NODES, 1)}
        self._store = {"http://localstack:4566": s3_url, "bucket=tidemark": f"bucket={bucket}"}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        tools = directory / "bin"
        tools.mkdir()
        (tools / "tidemark").write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tidemark.cli "$@"\n'
        )
        (tools / "tidemark").chmod(0o755)
        self._path = f"{tools}{os.pathsep}{os.environ['PATH']}"

    def here(self, text: str, service: str) -> str:
        """What the file says, for this machine."""
        own = self.hosts[service]
        text = re.sub(r"localhost:\d+", f"{own}:9092", text).replace("0.0.0.0", own)
        for name, address in self.hosts.items():
            text = re.sub(rf"\b{name}:", f"{address}:", text)
        for there, what in self._store.items():
            text = text.replace(there, what)
        text = text.replace("/var/lib/tidemark-secret", f"{self.directory}/secret")
        return text.replace("/var/lib/tidemark", f"{self.directory}/{service}")

    def start(self, service: str) -> None:
        asked = SERVICES[service]
        _, option, file = asked["entrypoint"]
        properties = self.directory / f"{service}.properties"
        text = (ROOT / "localstack/broker" / Path(file).name).read_text()
        properties.write_text(self.here(text, service))
        script = str(ROOT / "localstack/broker/entrypoint.sh")
        arguments = [self.here(one, service) for one in asked["command"]]
        variables = environment() | asked["environment"] | {"PATH": self._path}
        with (self.directory / f"{service}.log").open("ab") as log:
            self._running[service] = subprocess.Popen(
                [script, option, str(properties), *arguments],
                env=variables, cwd=ROOT, stdout=log, stderr=log,
            )  # fmt: skip

    def is_healthy(self, service: str) -> bool:
        """The health check of the file, at this node's address."""
        log = self.directory / f"{service}.log"
        assert self._running[service].poll() is None, log.read_text()[-10_000:]
        _, _, *arguments = SERVICES[service]["healthcheck"]["test"]
        here = [one.replace("127.0.0.1", self.hosts[service]) for one in arguments]
        asked = subprocess.run([sys.executable, *here], check=False, stderr=subprocess.DEVNULL)
        return asked.returncode == 0

    def close(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path, s3: S3Endpoint) -> Iterator[ComposeCluster]:
    made = ComposeCluster(tmp_path, s3.url, s3.new_bucket())
    yield made
    made.close()


def test_three_brokers_beside_three_controllers_tier_to_s3(cluster: ComposeCluster) -> None:
    for name in (*NODES[:3], "broker-1"):
        cluster.start(name)
    until(lambda: cluster.is_healthy("broker-1"), "the first broker is healthy")
    for name in ("broker-2", "broker-3"):  # they wait for that, since the secret is there then
        cluster.start(name)
    until(lambda: all(map(cluster.is_healthy, NODES)), "all are healthy")

    address = f"{cluster.hosts['broker-2']}:9092"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("tides", 3, 1, config=TIERED)])["tides"].result(60)
    sending = producer(address, {})
    for number in range(RECORDS):
        sending.produce("tides", f"{number} ".encode() + b"x" * 1_000, partition=number % 3)
    assert sending.flush(60) == 0
    leaders = admin.list_topics("tides", timeout=30).topics["tides"].partitions.values()
    assert {one.leader for one in leaders} == {11, 12, 13}

    def closed_segments_have_left() -> bool:
        return len(list(cluster.directory.glob("broker-*/logs/tides-*/*.log"))) == 3

    until(closed_segments_have_left, "closed segments of all brokers have left the disk")
    assert len(consume(address, "tides", 300)) == 300  # the first of them: from the bucket

    admin.create_topics([NewTopic("copied", 1)])["copied"].result(60)
    sending = producer(address, {"acks": "all"})
    sending.produce("copied", b"one")
    assert sending.flush(60) == 0
    copied = admin.list_topics("copied", timeout=30).topics["copied"].partitions[0]
    assert sorted(copied.replicas) == [11, 12, 13]
    status = subprocess.run(
        [sys.executable, "-m", "tidemark.cli", "status", "--bootstrap-server", address],
        check=False, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert status.returncode == 0, status.stdout
