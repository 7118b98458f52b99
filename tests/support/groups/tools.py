"""Kafka's tools for groups with all their subcommands, and what they print, made comparable."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import until
from tests.support.groups import builds
from tests.support.groups.clients import CLIENTS
from tests.support.groups.scenarios import Stage, owns
from tests.support.groups.world import World

GROUPS = "org.apache.kafka.tools.GroupsCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
STREAMS_RESET = "org.apache.kafka.tools.StreamsResetter"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
ACTIVE, IDLE = "tools-active", "tools-idle"
A, B = "tools-a", "tools-b"
COUNT = 10


class Tools:
    """One JVM that runs tool after tool."""

    def __init__(self, world: World) -> None:
        self.world = world
        command = builds.java_command(world.bootstrap)
        command[command.index("Member")] = "Tools"
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, tool: str, *words: str) -> str:
        """What it printed, and its exit code where that is not 0."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        args = ["--bootstrap-server", self.world.bootstrap, *words]
        self._process.stdin.write(json.dumps({"tool": tool, "args": args}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        code = f"\nexit code {answer['code']}" if answer["code"] else ""
        return normal(answer["said"]) + code

    def close(self) -> None:
        """End the JVM."""
        self._process.kill()
        self._process.communicate()


def normal(said: str) -> str:
    """Without what differs by itself: ids, ports, the width of columns, the order of lines."""
    said = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", said)
    said = re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", said)
    lines = [re.sub(r"\s+", " ", line).strip() for line in said.splitlines()]
    return "\n".join(sorted(line for line in lines if line and not _is_noise(line)))


def _is_noise(line: str) -> bool:
    return line.startswith(("WARN", "SLF4J", "log4j", "StatusLogger"))


def prepared(world: World, directory: Path) -> Stage:
    """A group with a member, and one with offsets only."""
    stage = Stage(world, CLIENTS["confluent-kafka"], directory, ACTIVE)
    world.create(A, 3)
    world.create(B, 1)
    world.fill(A, 3, COUNT)
    world.fill(B, 1, COUNT)
    member = stage.join("member", A, session_ms=30_000)
    owns(member, stage.partitions(3, A))
    member.wait(lambda: len(member.records) == 3 * COUNT, "all is read")
    assert member.commit()["error"] is None
    commit(world, IDLE, {(A, 0): 5, (A, 1): 6, (B, 0): 7})
    until(lambda: world.describe(ACTIVE).group_state == "Stable", "it is stable")
    return stage


def commit(world: World, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Offsets of a group without members."""
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
                for (name, index), offset in offsets.items()
                if name == topic
            ],
        }
        for topic in sorted({topic for topic, _ in offsets})
    ]
    answer = world.ask(ApiKey.OFFSET_COMMIT, 7, group_id=group, topics=topics)
    assert all(one.error_code == 0 for topic in answer.topics for one in topic.partitions)


def calls(directory: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every subcommand, on both groups; the order matters."""
    for words in (
        "--list",
        "--list --state",
        "--list --state Stable,Empty",
        "--list --type",
        "--list --type classic",
        "--list --type consumer",
        f"--describe --group {ACTIVE}",
        f"--describe --group {ACTIVE} --offsets --verbose",
        f"--describe --group {ACTIVE} --members",
        f"--describe --group {ACTIVE} --members --verbose",
        f"--describe --group {ACTIVE} --state",
        f"--describe --group {ACTIVE} --state --verbose",
        f"--describe --group {IDLE}",
        f"--describe --group {IDLE} --members",
        f"--describe --group {IDLE} --state",
        "--describe --all-groups --state",
        "--describe --all-groups --offsets",
        "--describe --group tools-nobody",
        "--describe --group tools-nobody --members",
        "--describe --group tools-nobody --state",
        f"--delete --group {ACTIVE}",
        f"--delete-offsets --group {ACTIVE} --topic {A}",
        f"--delete-offsets --group {ACTIVE} --topic {B}",
        f"--reset-offsets --group {ACTIVE} --topic {A} --to-earliest --execute",
    ):
        yield CONSUMER_GROUPS, tuple(words.split())
    plan = directory / "plan.csv"
    plan.write_text(f"{A},0,2\n{A},1,3\n{B},0,4\n")
    for how in (
        f"--topic {A} --to-earliest --dry-run",
        f"--topic {A} --to-earliest --execute",
        f"--topic {A} --to-latest --execute",
        f"--topic {A}:0,2 --to-offset 3 --execute",
        f"--topic {A}:0 --to-offset 99 --execute",
        f"--topic {A} --shift-by 2 --execute",
        f"--topic {A} --shift-by -1 --execute",
        f"--topic {A} --to-current --execute",
        f"--topic {A} --to-datetime 2020-01-01T00:00:00.000 --execute",
        f"--topic {A} --to-datetime 2099-01-01T00:00:00.000 --execute",
        f"--topic {A} --by-duration PT1H --execute",
        "--all-topics --to-offset 4 --execute",
        f"--from-file {plan} --execute",
        f"--topic {A} --topic {B} --to-current --export --dry-run",
        "--topic tools-missing --to-earliest --execute",
        f"--topic {A}:9 --to-earliest --execute",
    ):
        yield CONSUMER_GROUPS, ("--reset-offsets", "--group", IDLE, *how.split())
        yield CONSUMER_GROUPS, ("--describe", "--group", IDLE, "--offsets")
    yield from _looking_closer()
    yield from _resetting(directory)
    for words in (
        f"--reset-offsets --group tools-new --topic {B} --to-offset 2 --execute",
        "--reset-offsets --all-groups --all-topics --to-earliest --dry-run",
        f"--delete-offsets --group {IDLE} --topic {B}",
        f"--delete-offsets --group {IDLE} --topic {A}:0,9",
        f"--delete-offsets --group {IDLE} --topic tools-missing",
        "--delete-offsets --group tools-nobody --topic tools-a",
        f"--describe --group {IDLE}",
        f"--delete --group {IDLE} --group tools-new",
        f"--delete --group {IDLE}",
        "--delete --group tools-nobody",
        "--delete --all-groups",
        "--list --state",
    ):
        yield CONSUMER_GROUPS, tuple(words.split())
    for words in (
        "--list",
        "--list --consumer",
        "--list --share",
        "--list --streams",
        "--list --group-type classic",
        "--list --group-type consumer",
        "--list --protocol consumer",
        "--list --protocol connect",
    ):
        yield GROUPS, tuple(words.split())
    yield from _beside_groups()


def _looking_closer() -> Iterator[tuple[str, tuple[str, ...]]]:
    for words in (
        "--list --state CompletingRebalance,PreparingRebalance,Dead,Assigning,Reconciling",
        "--list --type nonsense",
        "--list --state --type",
        "--list --state Stable --type classic",
        "--describe --all-groups --members --verbose",
        "--describe --all-groups --state --verbose",
        "--describe --all-groups --offsets --verbose",
        f"--describe --group {ACTIVE} --group {IDLE} --group tools-nobody",
        f"--describe --group {ACTIVE} --group tools-nobody --state",
        f"--describe --group {ACTIVE} --offsets --members",
        f"--describe --group {IDLE} --members --verbose",
        "--describe --group tools-nobody --members --verbose",
        "--describe --group tools-nobody --state --verbose",
        f"--delete --group {ACTIVE} --group tools-nobody",
        f"--delete-offsets --group {ACTIVE} --topic {A}:1",
        f"--delete-offsets --group tools-nobody --topic {A} --topic tools-missing",
        "--validate-regex a.*",
        "--validate-regex [",
    ):
        yield CONSUMER_GROUPS, tuple(words.split())


def _resetting(directory: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Odd forms, and several groups at once."""
    wrong, several = directory / "wrong.csv", directory / "several.csv"
    wrong.write_text(f"{A},0\n{A},x,2\n")
    several.write_text(f"{IDLE},{A},0,1\ntools-other,{A},1,2\n")
    for how in (
        f"--group {IDLE} --topic {A} --to-earliest",
        f"--group {IDLE} --topic {A}:0-1 --to-earliest",
        f"--group {IDLE} --topic {A}:x --to-earliest",
        f"--group {IDLE} --topic {A} --by-duration P1D --dry-run",
        f"--group {IDLE} --topic {A} --by-duration PT0S --dry-run",
        f"--group {IDLE} --topic {A} --by-duration nonsense --dry-run",
        f"--group {IDLE} --topic {A} --to-datetime 2020-01-01T00:00:00 --dry-run",
        f"--group {IDLE} --topic {A} --to-datetime 2020-01-01T00:00:00.000+02:00 --dry-run",
        f"--group {IDLE} --topic {A} --to-datetime nonsense --dry-run",
        f"--group {IDLE} --topic {A} --shift-by -100 --execute",
        f"--group {IDLE} --topic {A} --shift-by 100 --execute",
        f"--group {IDLE} --topic {A} --to-offset -5 --execute",
        f"--group {IDLE} --topic {A} --to-offset 5 --execute --export",
        f"--group {IDLE} --from-file {wrong} --dry-run",
        f"--group {IDLE} --from-file {directory}/none.csv --dry-run",
        f"--group {IDLE} --group tools-other --from-file {several} --execute",
        f"--group {IDLE} --group tools-other --topic {A} --to-current --export --dry-run",
        "--group tools-other --all-topics --to-latest --execute",
        "--group tools-nobody --all-topics --to-latest --execute",
        f"--group tools-nobody --topic {A} --to-current --dry-run",
        f"--group {ACTIVE} --all-topics --to-latest --dry-run",
        f"--group {ACTIVE} --group {IDLE} --all-topics --to-latest --execute",
        f"--group {IDLE} --topic __consumer_offsets --to-earliest --execute",
    ):
        yield CONSUMER_GROUPS, ("--reset-offsets", *how.split())
    yield CONSUMER_GROUPS, ("--delete", "--group", "tools-other")


def _beside_groups() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Tools that look at offsets, reset an application of Streams, and read in a group."""
    for words in (
        f"--topic {A}",
        f"--topic {A} --time earliest",
        f"--topic {A} --time max-timestamp --partitions 0",
        f"--topic {A} --time earliest-local",
        f"--topic {A} --time 0",
        f"--topic {A} --time nonsense",
        f"--topic {A} --partitions 9",
        "--topic tools-missing",
        f"--topic-partitions {A}:0-2,{B}",
        "--topic __consumer_offsets --exclude-internal-topics",
        "--topic __consumer_offsets --time earliest",
    ):
        yield GET_OFFSETS, tuple(words.split())
    for words in (
        "",
        f"--input-topics {A} --dry-run",
        f"--input-topics {A}",
        f"--input-topics {A} --to-offset 3",
        f"--input-topics {A} --shift-by 1",
        f"--input-topics {A} --by-duration PT1H",
        f"--intermediate-topics {B}",
        "--input-topics tools-missing",
        "--internal-topics tools-app-x",
    ):
        yield STREAMS_RESET, ("--application-id", "tools-app", *words.split())
    yield CONSUMER_GROUPS, ("--describe", "--group", "tools-app")
    quiet = "--timeout-ms 3000"
    for words in (
        f"--topic {A} --group tools-console --from-beginning --max-messages 30",
        f"--topic {A} --group tools-console {quiet}",
        f"--topic tools-missing --group tools-console-2 {quiet}",
        "--include tools-.* --group tools-console-3 --from-beginning --max-messages 40",
        f"--include .*offsets --group tools-console-4 --from-beginning {quiet}",
    ):
        yield CONSOLE_CONSUMER, tuple(words.split())
    for group in ("tools-console", "tools-console-2", "tools-console-3", "tools-console-4"):
        yield CONSUMER_GROUPS, ("--describe", "--group", group)


def transcript(world: World, directory: Path) -> list[tuple[str, str]]:
    """Each call with what it printed."""
    directory.mkdir(parents=True, exist_ok=True)
    stage = prepared(world, directory / "members")
    tools = Tools(world)
    try:
        return [
            (" ".join(words).replace(str(directory), "DIR"), tools.run(tool, *words))
            for tool, words in calls(directory)
        ]
    finally:
        tools.close()
        stage.close()
