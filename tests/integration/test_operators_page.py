"""docs/controllers.md as an operator follows it: its files and commands, typed as shown.

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

import pytest

from tests.support.brokers.process import ROOT, until

pytestmark = [pytest.mark.lasts(seconds=60), pytest.mark.timeout(600)]

PAGE = ROOT / "docs" / "controllers.md"
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

    def follow(self, kind: str, name: str, body: str, then: str) -> None:
        """`then`: what the page says that the last command prints."""
        body = body.replace("/var/lib/tidemark", f"{self._directory}/lib")
        body = HOST.sub(self._net, body)
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
    blocks = BLOCK.findall(PAGE.read_text())
    assert {"controller-1.properties", "broker-11.properties"} <= {name for _, name, _ in blocks}
    for block, (kind, _, body) in pairwise([*blocks, ("", "", "")]):
        operator.follow(*block, then=body if kind == "text" else "")
