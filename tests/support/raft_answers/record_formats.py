"""Format directories with Kafka's storage tool and keep what it wrote, or why it did not.

    python -m tests.support.raft_answers.record_formats

writes `tests/golden/raft/formatted/<case>/` and `tests/golden/raft/formats.jsonl`.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from kafka_protocol.wire.primitives import uuid_to_text
from tests.support.kafka.tools import PEERS
from tests.support.raft_answers.directories import CLUSTER_ID
from tests.support.raft_answers.facts import directory_of
from tests.support.samples.golden_files import GOLDEN

FOLDER = GOLDEN / "raft"
HOSTS = {1: "127.0.0.1:19093", 2: "controller-2:19094", 3: "[::1]:19095", 4: "h:1"}


def voters(*ids: int) -> str:
    """`--initial-controllers` of these nodes."""
    return ",".join(f"{i}@{HOSTS[i]}:{uuid_to_text(directory_of(i))}" for i in ids)


D1 = uuid_to_text(directory_of(1))
D2 = uuid_to_text(directory_of(2))
BAD_VOTERS = {
    "no-voter": "",
    "no-directory": "1@127.0.0.1:19093",
    "short-directory": "1@127.0.0.1:19093:x",
    "id-is-no-number": f"x@127.0.0.1:19093:{D1}",
    "no-id": f"127.0.0.1:19093:{D1}",
    "no-port": f"1@127.0.0.1:{D1}",
    "port-too-large": f"1@127.0.0.1:70000:{D1}",
    "same-id-twice": f"1@127.0.0.1:19093:{D1},1@b:2:{D2}",
    "same-directory-twice": f"1@127.0.0.1:19093:{D1},2@b:2:{D1}",
    "no-host": f"1@:19093:{D1}",
    "port-0": f"1@127.0.0.1:0:{D1}",
    "zero-directory": f"1@127.0.0.1:19093:{uuid_to_text(bytes(16))}",
    "ipv6-without-brackets": f"1@::1:19093:{D1}",
}
OPTIONS = {
    "nothing": (),
    "standalone": ("--standalone",),
    "no-initial": ("--no-initial-controllers",),
    "initial": ("--initial-controllers", voters(1, 2, 3)),
    "standalone-and-initial": ("--standalone", "--initial-controllers", voters(1, 2, 3)),
    "standalone-and-no-initial": ("--standalone", "--no-initial-controllers"),
    "initial-and-no-initial": (
        "--no-initial-controllers",
        "--initial-controllers",
        voters(1, 2, 3),
    ),
}
KINDS = ("controller", "static", "broker", "combined")


@dataclass(frozen=True)
class Case:
    """One call of the tool."""

    name: str
    kind: str
    options: tuple[str, ...]


def cases() -> Iterator[Case]:
    """All calls."""
    for kind, (name, options) in product(KINDS, OPTIONS.items()):
        yield Case(f"{kind}-{name}", kind, options)
    yield Case("controller-outside", "controller", ("--initial-controllers", voters(2, 3)))
    yield Case("controller-alone", "controller", ("--initial-controllers", voters(1)))
    for name, text in BAD_VOTERS.items():
        yield Case(f"controller-{name}", "controller", ("--initial-controllers", text))


def properties(kind: str, logs: Path) -> dict[str, str]:
    """server.properties of a kind of node."""
    roles = {"broker": "broker", "combined": "broker,controller"}.get(kind, "controller")
    listeners = []
    if "broker" in roles:
        listeners.append("PLAINTEXT://127.0.0.1:19092")
    if "controller" in roles:
        listeners.append("CONTROLLER://127.0.0.1:19093")
    lines = {
        "process.roles": roles,
        "node.id": "1",
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(logs),
    }
    if kind == "static":
        lines["controller.quorum.voters"] = "1@127.0.0.1:19093,2@controller-2:19094"
    else:
        lines["controller.quorum.bootstrap.servers"] = "127.0.0.1:19093"
    return lines


def main() -> None:
    rows = []
    shutil.rmtree(FOLDER / "formatted", ignore_errors=True)
    for case in cases():
        with tempfile.TemporaryDirectory(prefix="format-") as folder:
            logs = Path(folder) / "logs"
            config = Path(folder) / "server.properties"
            lines = properties(case.kind, logs)
            config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            done = subprocess.run(
                [
                    *(str(PEERS / "kafka"), "tool", "storage", "format"),
                    *("-t", CLUSTER_ID, "-c", str(config), *case.options),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            written = sorted(str(p.relative_to(logs)) for p in logs.rglob("*") if p.is_file())
            if done.returncode == 0:
                shutil.copytree(logs, FOLDER / "formatted" / case.name)
            text = (done.stdout + done.stderr).replace(folder, "").splitlines()
            said = [line for line in text if line and not line.startswith(("\t", "Bootstrap"))]
            rows.append(
                {
                    "case": case.name,
                    "kind": case.kind,
                    "options": case.options,
                    "exit": done.returncode,
                    "files": written,
                    "said": said[-3:] if done.returncode else said,
                }
            )
            print(case.name, done.returncode, flush=True)
    lines_out = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
    (FOLDER / "formats.jsonl").write_text("".join(lines_out))


if __name__ == "__main__":
    main()
