"""What docker-compose.yml starts, started without Docker: same script and settings, same store."""

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import ROOT, environment, free_ports, until
from tests.support.brokers.tiered_topics import TIERED, as_read, values
from tests.support.stores.hdfs import Hdfs
from tests.support.stores.s3 import S3Endpoint

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
BROKER = ROOT / "localstack" / "broker"
NO_CURL = shutil.which("curl") is None


class ComposeBroker:
    """A broker of the compose file on free ports, with a directory and a store of its own."""

    def __init__(self, service: str, directory: Path, store: Mapping[str, str]) -> None:
        """`store`: what stands in the compose file, and what it is here."""
        self.service = SERVICES[service]
        self.logs = directory / "logs"
        host, internal, controller, self.http_port = free_ports(4)
        self.bootstrap = f"127.0.0.1:{host}"
        told = f"HOST://{self.bootstrap},INTERNAL://127.0.0.1:{internal}"
        here = {
            "advertised.listeners": told,
            "listeners": f"{told},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "tidemark.http.listener": f"127.0.0.1:{self.http_port}",
            "log.dirs": str(self.logs),
        }
        arguments = "\n".join(self.service["command"])
        for there, what in store.items():
            assert there in arguments
            arguments = arguments.replace(there, what)
        self.arguments = arguments.split("\n")
        self.arguments += [f"--override={key}={value}" for key, value in here.items()]
        tools = directory / "bin"
        tools.mkdir()
        (tools / "tidemark").write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tidemark.cli "$@"\n'
        )
        (tools / "tidemark").chmod(0o755)
        self.environment = environment() | self.service.get("environment", {})
        self.environment["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
        self.log_file = directory / "broker.log"
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        config = ["--config", str(BROKER / "server.properties")]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [str(BROKER / "entrypoint.sh"), *config, *self.arguments],
                env=self.environment,
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        return self.process

    def log_tail(self) -> str:
        return self.log_file.read_text(errors="replace")[-20_000:]

    def healthy(self) -> bool:
        """The health check of the compose file, asked at this broker's port."""
        assert self.process.poll() is None, self.log_tail()
        kind, _, *arguments = self.service["healthcheck"]["test"]
        assert kind == "CMD"
        here = [one.replace(":9464/", f":{self.http_port}/") for one in arguments]
        asked = subprocess.run([sys.executable, *here], check=False, stderr=subprocess.DEVNULL)
        return asked.returncode == 0

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def started(service: str, directory: Path, store: Mapping[str, str]) -> Iterator[ComposeBroker]:
    broker = ComposeBroker(service, directory, store)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.stop()
        print(broker.log_tail())


def tiers_and_starts_again(broker: ComposeBroker) -> None:
    client: Any = SimpleNamespace(bootstrap=broker.bootstrap, log_tail=broker.log_tail)
    until(broker.healthy, "the health check passes")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("tides", 1, 1, config=TIERED)])["tides"].result(60)
    sent = values(1_200)
    produce(client, "tides", sent)
    local = broker.logs / "tides-0"
    until(lambda: len(list(local.glob("*.log"))) == 1, "closed segments have left the disk")
    assert broker.stop() == 0
    broker.start()
    until(broker.healthy, "the health check passes again, on formatted directories")
    assert read_all(client, "tides") == as_read(sent)


def test_the_broker_tiers_to_s3_and_starts_again(tmp_path: Path, s3: S3Endpoint) -> None:
    bucket = s3.new_bucket()
    store = {"http://localstack:4566": s3.url, "bucket=tidemark": f"bucket={bucket}"}
    with started("broker", tmp_path, store) as broker:
        tiers_and_starts_again(broker)
    assert any(key.endswith(".manifest") for key in s3.keys(bucket))


def test_the_broker_of_the_hdfs_profile_does_so_too(tmp_path: Path, hdfs: Hdfs) -> None:
    root = hdfs.new_root()
    store = {"hdfs://namenode:8020/tidemark": hdfs.rpc + root}
    with started("broker-hdfs", tmp_path, store) as broker:
        tiers_and_starts_again(broker)
    assert any(path.endswith(".manifest") for path in hdfs.tree(root))


@pytest.mark.skipif(NO_CURL, reason="the images have curl, this machine has not")
def test_the_health_check_of_hdfs_passes_once_files_can_be_written(hdfs: Hdfs) -> None:
    kind, command = SERVICES["datanode"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    here = command.replace("namenode:9870", urlsplit(hdfs.web).netloc)
    assert subprocess.run(["sh", "-c", here], check=False).returncode == 0


@pytest.mark.skipif(NO_CURL, reason="the images have curl, this machine has not")
def test_the_health_check_of_localstack_passes_once_the_buckets_are_made(s3: S3Endpoint) -> None:
    kind, command = SERVICES["localstack"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    here = command.replace("http://127.0.0.1:4566", s3.url)
    assert subprocess.run(["sh", "-c", here], check=False).returncode == 0
    (nowhere,) = free_ports(1)
    elsewhere = command.replace("127.0.0.1:4566", f"127.0.0.1:{nowhere}")
    assert subprocess.run(["sh", "-c", elsewhere], check=False).returncode != 0


def sent_to_docker(target: Path) -> Path:
    """Copy what Dockerfile.dockerignore lets into the build."""
    lines = (ROOT / "localstack/broker/Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in lines, "an allow list"
    target.mkdir()
    for name in [line[1:] for line in lines if line.startswith("!")]:
        source = ROOT / name
        assert source.exists(), name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target / name, ignore=ignore)
        else:
            shutil.copy(source, target / name)
    return target


def test_what_is_sent_to_docker_is_enough_to_install_everything(tmp_path: Path) -> None:
    tree = sent_to_docker(tmp_path / "context")
    ended = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path), str(tree)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    (wheel,) = tmp_path.glob("*.whl")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert set(packages) <= tops
    dockerfile = (tree / "localstack/broker/Dockerfile").read_text()
    for word in dockerfile.replace("\\", " ").split():
        if word.startswith("localstack/"):
            assert (tree / word).is_file(), word
