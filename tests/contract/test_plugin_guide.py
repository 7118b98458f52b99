"""docs/plugin-guide.md followed word for word in an empty directory.

A fenced block says by its first line what it is: `python NAME` and `properties NAME` are files to
write, `sh` are commands, `text` is what the last commands print (parts of lines). Only the ports
are changed, to free ones. `tidemark start` runs, as in a terminal of its own, to the page's end.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness_broker import free_ports, until

GUIDE = Path(__file__).parents[2] / "docs" / "plugin-guide.md"
BLOCK = re.compile(r"^```(\w*)[ ]?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLUGIN_LINES_MAX = 79
DEADLINE_S = 120


class Reader:
    """Somebody who does what the page says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
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
            self.shell(line), check=False, cwd=self.directory, env=environment(),
            capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout + done.stderr

    def start(self, line: str) -> None:
        with (self.directory / "server.log").open("wb") as log:
            process = subprocess.Popen(
                self.shell("exec " + line), cwd=self.directory, env=environment(),
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


def environment() -> dict[str, str]:
    """The reader's: the commands of this environment are found, this clone is not the directory."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PATH": path}


def blocks() -> list[tuple[str, str, str]]:
    return BLOCK.findall(GUIDE.read_text())


@pytest.mark.slow
def test_the_guide_works_word_for_word(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        for block in blocks():
            reader.follow(*block)
    finally:
        reader.end()
    assert reader.started, "the page starts no broker any more"


def test_the_worked_example_is_short() -> None:
    [plugin] = [body for kind, name, body in blocks() if name == "sqlite_store.py"]
    assert len(plugin.splitlines()) <= PLUGIN_LINES_MAX


def test_no_fence_is_missed() -> None:
    fences = [line for line in GUIDE.read_text().splitlines() if line.startswith("```")]
    assert len(fences) == 2 * len(blocks())
