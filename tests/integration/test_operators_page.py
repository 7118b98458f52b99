"""Pages as an operator follows them: their files and commands, typed as shown.

Only real processes show that a page is right: docs/controllers.md, and of docs/replication.md how a
broker is replaced, while clients write.

A block that says `properties NAME` is a file, `sh` are commands, `text` is what they print (parts
of lines). The hosts h1, h2 ... are addresses of loopback here, /var/lib/tidemark is a directory.
`tidemark start` runs on as in a terminal of its own; `rm -r` of a node's directory is the end of
its machine; `tidemark status` is repeated until it says what the page says.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_protocol.records.batch import iter_batches
from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.process import ROOT, until
from tests.support.quorum.tier_rounds import Traffic

pytestmark = [pytest.mark.lasts(seconds=120), pytest.mark.timeout(600)]

PARTITIONS = 3
CONTROLLERS = ROOT / "docs" / "controllers.md"
REPLICATION = ROOT / "docs" / "replication.md"
BLOCK = re.compile(r"^```(sh|text|properties)[ ]?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOST = re.compile(r"(?<![a-z])h(?=(?:\d+|\$n):)")
START = re.compile(r"tidemark start --config (\S+)\.properties")
GONE = re.compile(r"rm -r \S*/(\S+)")


class Operator:
    """Follows the page in an empty directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._net = f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}."
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._printed = ""
        programs = Path(sys.executable).parent
        self._environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def at(self, hosts: str) -> str:
        """The addresses that stand for hosts of a page."""
        return HOST.sub(self._net, hosts)

    def follow_all(self, page: str) -> None:
        """Make the files of a page, type its commands, and see what they print."""
        blocks = BLOCK.findall(page)
        assert blocks
        for block, (kind, _, body) in pairwise([*blocks, ("", "", "")]):
            self.follow(*block, then=body if kind == "text" else "")

    def follow(self, kind: str, name: str, body: str, then: str) -> None:
        """`then`: what the page says that the last command prints."""
        body = self.at(body.replace("/var/lib/tidemark", f"{self._directory}/lib"))
        if kind == "properties":
            (self._directory / name).write_text(body)
        elif kind == "sh":
            *lines, last = body.splitlines()
            self._printed = "".join([*map(self._type, lines), self._type(last, then)])
        else:
            for line in body.splitlines():
                assert line in self._printed, f"not printed: {line}\n{self._printed}"

    def _type(self, line: str, then: str = "") -> str:
        if start := START.fullmatch(line):
            self._start(line, start[1])
            return ""
        if gone := GONE.fullmatch(line):
            self._nodes[gone[1]].kill()
            self._nodes[gone[1]].wait()
        if "tidemark status" in line:
            return until(lambda: self._status(line, then.splitlines()), line)
        code, printed = self._run(line)
        assert code == 0, f"{line}\n{printed}"
        return printed

    def _status(self, line: str, then: list[str]) -> str:
        for name, node in self._nodes.items():
            if node.poll() not in (None, -9):
                pytest.fail(f"{name} has ended:\n{(self._directory / name).read_text()[-5_000:]}")
        code, printed = self._run(line)
        print(printed)
        return printed if code == 0 and all(one in printed for one in then) else ""

    def _run(self, line: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", line], check=False, cwd=self._directory, env=self._environment,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def _start(self, line: str, name: str) -> None:
        with (self._directory / name).open("ab") as log:
            self._nodes[name] = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=self._directory, env=self._environment,
                stdout=log, stderr=log,
            )  # fmt: skip

    def close(self) -> None:
        for node in self._nodes.values():
            node.kill()
            node.wait()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    one = Operator(tmp_path)
    yield one
    one.close()


def test_the_page_works_word_for_word(operator: Operator) -> None:
    operator.follow_all(CONTROLLERS.read_text())


def test_a_broker_is_replaced_word_for_word(operator: Operator, tmp_path: Path) -> None:
    _, _, rest = REPLICATION.read_text().partition("## Replace a broker\n")
    section, _, _ = rest.partition("\n## ")
    cluster, before, loss = section.partition("### Before a planned one\n")
    operator.follow_all(cluster)
    servers = operator.at("h11:9092,h13:9092")
    brokers = SimpleNamespace(bootstrap=servers, log_tail=lambda: "")
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([
        NewTopic("orders", PARTITIONS, 3),
        NewTopic("audit", 2, replica_assignment=[[12], [11]]),
    ])  # fmt: skip
    for topic in made.values():
        topic.result(30)
    kept = [(None, b"%d" % number) for number in range(100)]
    for partition in (0, 1):
        produce(brokers, "audit", kept, partition)
    traffic = Traffic(servers, "orders", PARTITIONS)
    try:
        until(lambda: traffic.least > 50, "there are records")
        operator.follow_all(before + loss)
        acknowledged = traffic.least
        until(lambda: traffic.least > acknowledged, "records are acknowledged in the end, too")
    finally:
        traffic.stop()
    for partition, keys in enumerate(traffic.acknowledged):
        there = {offset: key for offset, key, _ in read_all(brokers, "orders", partition)}
        assert keys.items() <= there.items(), f"orders-{partition} lost acknowledged records"
    assert end_offsets(brokers, "audit", 0) == (0, 0)
    assert [value for _, _, value in read_all(brokers, "audit", 1)] == [value for _, value in kept]
    operator.close()
    for partition in range(PARTITIONS):
        first, *others = (copy(tmp_path / f"lib/broker-{one}", partition) for one in (11, 12, 13))
        assert others == [first, first], f"the copies of orders-{partition} differ"


def copy(directory: Path, partition: int) -> list[tuple[int, int, int]]:
    """(base offset, leader epoch, checksum) of each batch in a copy of `orders`."""
    return [
        (header.base_offset, header.partition_leader_epoch, header.crc)
        for segment in sorted((directory / f"orders-{partition}").glob("*.log"))
        for _, header in iter_batches(segment.read_bytes())
    ]
