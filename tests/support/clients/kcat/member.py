"""kcat as a member of a group: it is only started and stopped, and what it prints is translated.

It commits by itself, when it ends and every five seconds.
"""

import re
import subprocess
import sys
import threading
from typing import Any

from tests.support.clients.wire import Commands, Owned, say

_REBALANCED = re.compile(r"% Group \S+ rebalanced.*?(assigned|revoked): (.*)")
_PARTITION = re.compile(r"(\S+) \[(\d+)\]")


def stderr_of(process: "subprocess.Popen[str]", owned: Owned) -> None:
    """Translate what it says of its assignment."""
    assert process.stderr is not None
    for line in process.stderr:
        found = _REBALANCED.match(line)
        if found is None:
            continue
        partitions = [(topic, int(number)) for topic, number in _PARTITION.findall(found[2])]
        if found[1] == "assigned":
            owned.assigned(partitions)
        else:
            owned.gone("revoked", partitions)


def stdout_of(process: "subprocess.Popen[str]", owned: Owned) -> None:
    """Translate the records."""
    assert process.stdout is not None
    for line in process.stdout:
        topic, partition, offset, value = line.rstrip("\n").split("\t", 3)
        owned.record(topic, int(partition), int(offset), value.encode())


def start(bootstrap: str, command: dict[str, Any]) -> "subprocess.Popen[str]":
    """The kcat of a subscription."""
    settings = {
        "bootstrap.servers": bootstrap,
        "session.timeout.ms": command.get("session_ms", 6_000),
        "heartbeat.interval.ms": 500,
        "topic.metadata.refresh.interval.ms": 1_000,
        "auto.offset.reset": command.get("reset", "earliest"),
        "partition.assignment.strategy": command.get("strategy") or "range",
    }
    if command.get("instance"):
        settings["group.instance.id"] = command["instance"]
    words = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    topics = command.get("topics") or [command["pattern"]]
    return subprocess.Popen(
        ["kcat", "-u", "-f", "%t\t%p\t%o\t%s\n", *words, "-G", command["group"], *topics],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def main() -> None:
    owned = Owned()
    commands = Commands()
    process: subprocess.Popen[str] | None = None
    while True:
        command = commands.wait()
        match command["do"]:
            case "subscribe":
                process = start(sys.argv[1], command)
                for read in (stderr_of, stdout_of):
                    threading.Thread(target=read, args=(process, owned), daemon=True).start()
            case "close" | "end":
                if process is not None:
                    process.terminate()
                    process.wait(20)
                say("closed")
                return
            case other:
                say("error", error=f"kcat does not {other}")


main()
