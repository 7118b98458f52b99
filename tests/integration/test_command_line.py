"""The command line as a user types it, on one broker with real groups.

Only a real broker with real consumers shows that a plan becomes offsets that a consumer reads from,
and only a terminal of 80 columns that lines fit into it.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import tidemark
from tests.support.brokers.process import ROOT, until

pytestmark = pytest.mark.lasts(seconds=40)

ON_A_TERMINAL = """
import fcntl, os, pty, struct, sys, termios
pid, master = pty.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, "-m", "tidemark.cli", *sys.argv[2:]])
fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
os.write(master, sys.argv[1].encode())
while True:
    try:
        data = os.read(master, 65536)
    except OSError:
        break
    if not data:
        break
    os.write(1, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[tidemark.Broker]:
    """`orders` has 40 records in each of two partitions; `readers` has read 10 of the first."""
    with tidemark.Broker(topics=[{"orders": 2}]) as made:
        producer = made.producer()
        for number in range(80):
            producer.produce("orders", b"%d" % number, partition=number % 2)
        producer.flush()
        commit(made, "readers", 10)
        yield made


def commit(broker: tidemark.Broker, group: str, offset: int) -> None:
    consumer = broker.consumer(group, **{"enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


class Shell:
    """Types commands; the address stands in the environment."""

    def __init__(self, broker: tidemark.Broker, home: Path) -> None:
        self.environment = os.environ | {
            "TIDEMARK_BOOTSTRAP_SERVER": broker.bootstrap_servers,
            "PYTHONPATH": str(ROOT),
        }
        self.environment.pop("COLUMNS", None)
        self._home = home

    def run(self, *arguments: str, code: int = 0, errors: bool = True) -> str:
        """Without a terminal; returns what was printed, with errors or without."""
        stderr = subprocess.STDOUT if errors else subprocess.DEVNULL
        return self._run([sys.executable, "-m", "tidemark.cli", *arguments], code, stderr)

    def line(self, line: str) -> str:
        """A line of a shell, without a terminal."""
        program = f'tidemark() {{ {shlex.quote(sys.executable)} -m tidemark.cli "$@"; }}'
        return self._run(["bash", "-c", f"{program}\n{line}"], 0)

    def on_a_terminal(self, *arguments: str, keys: str = "", code: int = 0) -> str:
        """With one of 80 columns, where somebody types `keys`."""
        return self._run([sys.executable, "-c", ON_A_TERMINAL, keys, *arguments], code)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def _run(self, command: list[str], code: int, stderr: int = subprocess.STDOUT) -> str:
        done = subprocess.run(
            command, check=False, cwd=self._home, env=self.environment, timeout=60,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout.replace("\r", "")


@pytest.fixture
def shell(broker: tidemark.Broker, tmp_path: Path) -> Shell:
    return Shell(broker, tmp_path)


def offsets(shell: Shell, group: str) -> dict[int, int]:
    (found,) = shell.json("groups", "describe", group)["groups"]
    return {one["partition"]: one["current_offset"] for one in found["offsets"]}


def test_a_topic_is_made_described_set_and_deleted(shell: Shell) -> None:
    made = shell.run("topics", "create", "-t", "tides", "-p", "3", "-X", "retention.ms=5000")
    assert made == "Created topic tides. PartitionCount: 3  ReplicationFactor: 1\n"
    assert "tides\n" in shell.run("topics", "list")
    assert "TOPIC_ALREADY_EXISTS" in shell.run("topics", "create", "tides", code=1)
    assert "left alone" in shell.run("topics", "create", "tides", "--if-not-exists")

    both = json.loads(
        shell.run("topics", "create", "ebbs", "tides", "-p", "1", "--json", code=1, errors=False)
    )
    assert both["topics"][0] == {"topic": "ebbs", "partition_count": 1, "replication_factor": 1}
    assert "TOPIC_ALREADY_EXISTS" in both["topics"][1]["error"]
    assert shell.json("topics", "delete", "ebbs", "--yes") == {"topics": [{"topic": "ebbs"}]}

    grow = "topics", "alter", "tides", "--partitions"
    assert shell.run(*grow, "4") == "Altered topic tides. PartitionCount: 4\n"
    for count in ("4", "2"):
        said = shell.run(*grow, count, code=1)
        assert said.startswith("tidemark: topic tides: INVALID_PARTITIONS: ")
        assert said.count("\n") == 1

    (topic,) = shell.json("topics", "describe", "tides")["topics"]
    assert topic["configs"] == {"retention.ms": "5000"}
    assert [one["leader"] for one in topic["partitions"]] == [1, 1, 1, 1]

    shell.run("configs", "set", "-t", "tides", "retention.ms=6000", "segment.bytes=1048576")
    assert "INVALID_CONFIG" in shell.run("configs", "set", "-t", "tides", "retention.ms=x", code=1)
    show = "configs", "show", "-t", "tides"
    until(lambda: "6000" in shell.run(*show), "the broker knows it")
    assert shell.run(*show) == (
        "Name             Value  Source\n"
        "retention.ms      6000  DYNAMIC_TOPIC_CONFIG\n"
        "segment.bytes  1048576  DYNAMIC_TOPIC_CONFIG\n"
    )
    assert shell.json(*show)["resource"] == {"type": "topic", "name": "tides"}
    shell.run("configs", "unset", "-t", "tides", "retention.ms")
    assert "was not set" in shell.run("configs", "unset", "-t", "tides", "retention.ms", code=1)

    assert "give --yes" in shell.run("topics", "delete", "tides", code=2)
    assert "Aborted" in shell.on_a_terminal("topics", "delete", "tides", keys="n\n", code=1)
    assert "tides\n" in shell.run("topics", "list")
    said = shell.on_a_terminal("topics", "delete", "tides", keys="y\n")
    assert "Delete tides with all records of 4 partition(s)? [y/N]" in said
    assert "tides\n" not in shell.run("topics", "list")
    assert "there is no topic 'oders'; did you mean orders?" in shell.run(
        "topics", "delete", "oders", "--yes", code=1
    )


def test_topics_of_the_brokers_are_not_deleted(shell: Shell) -> None:
    for name in ("__consumer_offsets", "__remote_log_metadata"):
        said = shell.run("topics", "delete", name, "--yes", code=1)
        assert f"{name}: the brokers keep their own state there" in said
        assert name in shell.run("topics", "list")
    shown = shell.run("topics", "list", "--exclude-internal").splitlines()
    assert "orders" in shown
    assert not any(one.startswith("__") for one in shown)


def test_settings_of_brokers_are_shown_and_set(shell: Shell) -> None:
    shell.run("configs", "set", "--broker-defaults", "log.cleaner.backoff.ms=16000")
    until(lambda: "16000" in shell.run("configs", "show", "--broker-defaults"), "it is known")
    one = "configs", "show", "--broker", "1", "log.cleaner.backoff.ms"
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG" in shell.run(*one)
    assert "log.dirs" in shell.run("configs", "show", "--broker", "1", "--all")
    shell.run("configs", "unset", "--broker-defaults", "log.cleaner.backoff.ms")
    assert "there is no broker 7; the cluster has 1" in shell.run(
        "configs", "show", "--broker", "7", code=1
    )


def test_a_plan_becomes_offsets_that_a_consumer_reads_from(
    shell: Shell, broker: tidemark.Broker
) -> None:
    plan = shell.run("groups", "reset", "readers", "-t", "orders", "--shift-by", "5", code=1)
    assert "orders-1 cannot be shifted: nothing is committed there" in plan
    plan = shell.run("groups", "reset", "readers", "-t", "orders:0", "--shift-by", "5")
    assert plan == (
        "TOPIC   PARTITION  CURRENT-OFFSET  NEW-OFFSET  LOG-END-OFFSET\n"
        "orders          0              10          15              40\n"
        "Nothing was changed; --execute sets the offsets.\n"
    )
    assert offsets(shell, "readers") == {0: 10}
    both = ("-t", "orders:0", "-t", "orders:1")
    shell.run("groups", "reset", "-G", "readers", *both, "--to-offset", "38", "--execute")
    assert offsets(shell, "readers") == {0: 38, 1: 38}

    consumer = reading(broker, "readers")
    try:
        assert {(one.partition(), one.offset()) for one in consumer.consume(4, 30)} == {
            (0, 38), (0, 39), (1, 38), (1, 39),
        }  # fmt: skip
        refused = "Assignments can only be reset if the group 'readers' is inactive"
        for more in ((), ("--execute",)):
            assert refused in shell.run(
                *("groups", "reset", "readers", "-t", "orders", "--to-earliest", *more), code=1
            )
        said = shell.run("groups", "delete", "readers", "--yes", code=1)
        assert "group readers has members; stop its consumers" in said
    finally:
        consumer.close()
    shell.run("groups", "reset", "readers", "--all-topics", "--to-earliest", "--execute")
    assert offsets(shell, "readers") == {0: 0, 1: 0}


def reading(broker: tidemark.Broker, group: str) -> Consumer:
    consumer = broker.consumer(group, **{"enable.auto.commit": False})
    consumer.subscribe(["orders"])
    return consumer


def test_groups_are_listed_described_and_deleted(shell: Shell, broker: tidemark.Broker) -> None:
    commit(broker, "old", 7)
    assert "old" in shell.run("groups", "list")
    described = shell.run("groups", "describe", "--group", "old")
    assert described.splitlines()[1:] == [
        "TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CLIENT-ID",
        "orders          0               7              40   33          -",
    ]
    assert "did you mean old?" in shell.run("groups", "describe", "olds", code=1)
    assert "give --yes" in shell.run("groups", "delete", "old", code=2)
    assert shell.run("groups", "delete", "old", "--yes") == "Deleted group old.\n"
    assert not any(one["group"] == "old" for one in shell.json("groups", "list")["groups"])


LISTING = [
    *(("topics", "list"), ("topics", "describe"), ("topics", "list", "--json")),
    *(("configs", "show", "--broker", "1", "--all"), ("groups", "list")),
    *(("groups", "describe", "--all-groups"), ("status",), ("features", "describe")),
    *(("brokers", "safe-to-stop", "1"), ("metadata-quorum", "describe", "--replication")),
    *(("remote", "segments", "tiered"), ("remote", "segments", "tiered", "--json")),
    *(("consume", "orders"), ("version",)),
]


@pytest.mark.parametrize("command", LISTING, ids=" ".join)
def test_a_reader_that_has_enough_is_no_error(shell: Shell, command: tuple[str, ...]) -> None:
    """Only a real pipe shows what is flushed when, also by rich and at the end of the process."""
    if "tiered" in command:
        shell.run(
            "topics", "create", "tiered", "--if-not-exists", "-X", "remote.storage.enable=true"
        )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "tidemark.cli", *command], check=False, timeout=60,
        env=shell.environment, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


HANGING = [
    *(("topics", "list"), ("configs", "show", "-t", "x"), ("groups", "list"), ("status",)),
    *(("features", "describe"), ("brokers", "safe-to-stop", "1"), ("consume", "x")),
    *(("metadata-quorum", "describe", "--status"), ("remote", "segments", "x"), ("produce", "x")),
]


def test_ctrl_c_ends_each_command_without_a_traceback(shell: Shell) -> None:
    """A server takes connections and says nothing; only a process gets a signal."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        server.settimeout(30)
        environment = shell.environment | {
            "TIDEMARK_BOOTSTRAP_SERVER": f"127.0.0.1:{server.getsockname()[1]}"
        }
        for command in HANGING:
            with subprocess.Popen(
                [sys.executable, "-m", "tidemark.cli", *command], env=environment, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            ) as process:  # fmt: skip
                connection, _ = server.accept()
                process.send_signal(signal.SIGINT)
                said, _ = process.communicate(timeout=30)
                connection.close()
            assert (process.returncode, said) == (130, ""), command


def test_lines_fit_into_80_columns(shell: Shell, broker: tidemark.Broker) -> None:
    consumer = reading(broker, "a-group-with-a-name-that-is-rather-long-as-they-are-at-times")
    try:
        until(lambda: consumer.poll(0.1) or consumer.assignment(), "it has partitions")
        for command in (
            ("topics", "describe"), ("topics", "describe", "--exclude-internal"),
            ("configs", "show", "--broker", "1", "--all"), ("groups", "list"),
            ("groups", "describe", "--all-groups"), ("features", "describe"),
        ):  # fmt: skip
            printed = shell.on_a_terminal(*command)
            assert printed
            assert [one for one in printed.splitlines() if len(one) > 80] == []
    finally:
        consumer.close()


CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = ROOT / "docs" / "command-line.md"


def same(text: str) -> list[str]:
    """Lines without what differs from run to run: ids, ports, spaces between columns."""
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9092", text)
    text = re.sub(r"TopicId: \S{22}", "TopicId: ID", text)
    text = re.sub(r"^rdkafka-[0-9a-f-]+(?= )|^[0-9a-f-]{6,}$", "CONSUMER", text, flags=re.MULTILINE)
    return [" ".join(line.split()) for line in text.splitlines()]


def typed(block: str) -> list[tuple[str, str]]:
    """The commands of a block, and what it shows of each."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, printed) for command, _, printed in (one.partition("\n") for one in parts)]


def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    page = PAGE.read_text()
    first, *blocks = CONSOLE.findall(page)
    with tidemark.Broker() as broker:
        shell = Shell(broker, tmp_path)
        for command, printed in typed(first):
            assert same(shell.line(command)) == same(printed), command
        consumer = reading(broker, "readers")
        until(lambda: consumer.poll(0.1) or consumer.assignment(), "it has partitions")
        consumer.commit(offsets=[TopicPartition("orders", 0, 30)], asynchronous=False)
        try:
            for block in blocks:
                for command, printed in typed(block):
                    is_refused = printed.startswith("tidemark: ")
                    said = shell.on_a_terminal(*shlex.split(command)[1:], code=is_refused)
                    assert same(said) == same(printed), command
                    consumer.poll(0)
        finally:
            consumer.close()
