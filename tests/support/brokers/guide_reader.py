"""Somebody who follows docs/plugin-guide.md word for word.

A fenced block says by its first line what it is: `python NAME` and `properties NAME` are files to
write, `sh` are commands, `text` is what the last commands print (parts of lines). Only the ports
are changed, to free ones. `tidemark start` runs, as in a terminal of its own, to the page's end.
"""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.brokers.process import free_ports, until

GUIDE = Path(__file__).parents[3] / "docs" / "plugin-guide.md"
BLOCK = re.compile(r"^```(\w*)[ ]?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEADLINE_S = 500
"""For one command: the page's tests make some hundred fsyncs, beside other tests that do."""


class Reader:
    """Follows the page in an empty directory, with the commands of one environment.

    Attributes:
        started: brokers that the page starts.
    """

    def __init__(self, directory: Path, programs: Path) -> None:
        """`programs`: the `bin` of the environment that Tidemark is installed in."""
        self.directory, self._programs = directory, programs
        self.exports: list[str] = []
        self.started: list[subprocess.Popen[bytes]] = []
        self.printed = ""
        self.ports = dict(zip(("9092", "9093"), map(str, free_ports(2)), strict=True))

    def follow(self, kind: str, name: str, body: str) -> None:
        for written, ours in self.ports.items():
            body = body.replace(written, ours)
        match kind:
            case "python" | "properties":
                (self.directory / name).write_text(body)
            case "sh":
                self.printed = "".join(self.run(line) for line in body.splitlines())
            case "text":
                for line in body.splitlines():
                    assert line in self.printed, f"not printed: {line}\nprinted:\n{self.printed}"
            case _:
                pytest.fail(f"a block of kind {kind!r}: nobody knows what to do with it")

    def run(self, line: str) -> str:
        if line.startswith("export "):
            self.exports.append(line)
            return ""
        if line.startswith("tidemark start"):
            self.start(line)
            return ""
        done = subprocess.run(
            self.shell(line), check=False, cwd=self.directory, env=environment(self._programs),
            capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout + done.stderr

    def start(self, line: str) -> None:
        with (self.directory / "server.log").open("wb") as log:
            process = subprocess.Popen(
                self.shell("exec " + line), cwd=self.directory, env=environment(self._programs),
                stdout=log, stderr=log,
            )  # fmt: skip
        self.started.append(process)

        def is_up() -> bool:
            assert process.poll() is None, self.log()
            return "started: node_id=1" in self.log()

        until(is_up, f"`{line}` has started", deadline_s=DEADLINE_S)

    def shell(self, line: str) -> list[str]:
        return ["bash", "-e", "-c", "\n".join([*self.exports, line])]

    def log(self) -> str:
        file = self.directory / "server.log"
        return file.read_text() if file.exists() else ""

    def end(self) -> None:
        for process in self.started:
            process.send_signal(signal.SIGINT)  # Ctrl-C, as the page says
            try:
                assert process.wait(30) == 0, self.log()
            finally:
                process.kill()

    def read_all(self) -> None:
        """The whole page; whatever it started is stopped."""
        try:
            for block in blocks():
                self.follow(*block)
        finally:
            self.end()
        assert self.started, "the page starts no broker any more"


def environment(programs: Path) -> dict[str, str]:
    """The reader's: these commands are found, this clone is not the directory."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PATH": path}


def blocks() -> list[tuple[str, str, str]]:
    return BLOCK.findall(GUIDE.read_text())
