"""Each file of `tidemark init` starts: the program's own commands, typed, and a tiered topic.

Only real processes show that the addresses, the secret and the plugin's settings fit together.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.process import environment, free_dev_port, until
from tests.support.stores.s3 import CREDENTIALS
from tidemark.dev.ports import is_free

pytestmark = [pytest.mark.lasts(seconds=180), pytest.mark.timeout(600)]

EXAMPLE = "# rsm.config.endpoint.url=https://s3.example.org"


def free_port() -> int:
    """One whose nodes, up to three on this machine, find all of theirs free."""

    def found() -> int:
        port = free_dev_port()
        wanted = [port + step + more for step in (0, 100, 200) for more in (0, 1, 2, 372)]
        return port if all(is_free(("127.0.0.1", one)) for one in wanted) else 0

    return until(found, "ports for three nodes")


def shell(line: str, directory: Path) -> "subprocess.Popen[bytes]":
    """Run what is to be typed, by this tree's program."""
    program = f"exec {sys.executable} -m tidemark.cli"
    typed = re.sub(r"^\S*tidemark", program, line)
    with (directory / f"{len(list(directory.glob('*.log')))}.log").open("wb") as log:
        return subprocess.Popen(
            ["bash", "-c", typed], cwd=directory, env=environment() | CREDENTIALS, stdout=log,
            stderr=log,
        )  # fmt: skip


@contextmanager
def nodes(directory: Path, count: int, store: str, port: int, endpoint: str = "") -> Iterator[str]:
    """Nodes that were made and started by what `tidemark init` has said; gives their addresses."""
    init = f"tidemark init --nodes {count} --store {store} --port {port}"
    assert shell(init, directory).wait(60) == 0
    for file in directory.glob("*.properties"):
        text = file.read_text()
        assert not endpoint or EXAMPLE in text
        file.write_text(text.replace(EXAMPLE, f"rsm.config.endpoint.url={endpoint}"))
    said = (directory / "0.log").read_text().partition("Now:\n")[2].splitlines()
    formats, starts = said[:count], said[count:]
    assert len(starts) == count
    for line in formats:
        assert shell(line.strip(), directory).wait(60) == 0, line
    processes = [shell(line.strip(), directory) for line in starts]
    logs = [directory / f"{1 + count + one}.log" for one in range(count)]

    def are_up() -> bool:
        texts = [one.read_text(errors="replace") for one in logs]
        assert all(one.poll() is None for one in processes), "\n".join(texts)[-10_000:]
        return all(" started: node_id=" in text for text in texts)

    try:
        until(are_up, "all nodes have started", deadline_s=120)
        yield ",".join(f"127.0.0.1:{port + 100 * one}" for one in range(count))
    finally:
        for one in processes:
            one.send_signal(signal.SIGINT)
        for one in processes:
            one.wait(60)


def place(
    kind: str, directory: Path, request: pytest.FixtureRequest
) -> tuple[str, str, Callable[[], Any]]:
    """For --store, its endpoint where it is not AWS, and what says that a segment is copied."""
    if kind == "s3":
        s3: Any = request.getfixturevalue("s3")
        bucket = s3.new_bucket()
        return f"s3://{bucket}/tides", s3.url, lambda: of_segments(s3.keys(bucket, "tides/"))
    if kind == "hdfs":
        hdfs: Any = request.getfixturevalue("hdfs")
        root = hdfs.new_root()
        return f"{hdfs.rpc}{root}", "", lambda: of_segments(hdfs.tree(root))
    tier = directory / "tier"
    store = "none" if kind == "none" else str(tier)
    return store, "", lambda: of_segments(map(str, tier.rglob("*")))


def of_segments(paths: Iterable[str]) -> list[str]:
    """Of the paths in a store: a manifest is written last."""
    return [one for one in paths if one.endswith(".manifest")]


@pytest.mark.parametrize(
    "case", ["1-none", "1-directory", "1-s3", "1-hdfs", "3-directory", "3-s3", "3-hdfs"]
)
def test_what_init_writes_starts_and_serves(
    case: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count, kind = int(case[0]), case[2:]
    store, endpoint, copied = place(kind, tmp_path, request)
    with nodes(tmp_path, count, store, free_port(), endpoint) as servers:
        admin = AdminClient({"bootstrap.servers": servers})
        tiered = {} if kind == "none" else {"remote.storage.enable": "true"}
        topic = NewTopic("tides", 1, config={**tiered, "segment.bytes": "1048576"})
        admin.create_topics([topic])["tides"].result(60)
        at = SimpleNamespace(bootstrap=servers, log_tail=lambda: "")
        records = [(None, os.urandom(100_000)) for _ in range(15)]
        produce(at, "tides", records)
        assert [value for _, _, value in read_all(at, "tides")] == [value for _, value in records]
        replicas = admin.list_topics("tides", timeout=30).topics["tides"].partitions[0].replicas
        assert len(replicas) == count
        if kind != "none":
            until(copied, "a segment is copied", deadline_s=90)
