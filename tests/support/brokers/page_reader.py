"""Somebody who follows a page of the documentation word for word.

A fenced block says by its first line what it is: with a name, as in `python NAME` or
`json NAME`, it is a file to write; `python` alone is typed, line by line, at Python's prompt in a
terminal; `sh` are commands, each in a clean shell, which has only what the page has set by
`export`; `text` is what the last commands print: parts of lines, in which `...` stands for
anything. A block without a word is not for a reader to type, `mermaid` is a diagram, and
`properties` alone is a part of a file. Only the ports are changed, to free ones, and hosts where a
test says so. A command that stays (`tidemark start`, `tidemark dev`) runs, as in a terminal of its
own, to the page's end.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.support.brokers.process import ROOT, until
from tests.support.brokers.prompt import Prompt

GUIDE = ROOT / "docs" / "plugin-guide.md"
README = ROOT / "README.md"
BLOCK = re.compile(r"^```(\w*)[ ]?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEADLINE_S = 500
"""For one command: the guide's tests make some hundred fsyncs, beside other tests that do."""
_STAYS = {"tidemark start": "started: node_id=1", "tidemark dev": "ready in"}
"""What a command that runs on has said when it is up."""
_KEPT = ("HOME", "USER", "LANG")
"""Of the variables that a login sets; PATH is there, too."""

Block = tuple[str, str, str]


def blocks(page: Path = GUIDE) -> list[Block]:
    """Kind, name and body of each fenced block."""
    return BLOCK.findall(page.read_text())


class Reader:
    """Follows a page in an empty directory, with the commands of one environment.

    The environment is `.venv` there, too: the README is read in a clone.

    Attributes:
        started: processes that the page starts.
    """

    def __init__(
        self,
        directory: Path,
        programs: Path,
        ports: Mapping[str, str],
        *,
        python: Path | None = None,
        is_active: bool = True,
        machine: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is read yet.

        Args:
            directory: where the reader is.
            programs: the `bin` of the environment that Tidemark is installed in.
            ports: of the page, and those to take.
            python: has the prompt; None for that of the environment.
            is_active: whether its commands are found by their names alone.
            machine: what is set on the reader's machine for all, such as credentials; a PATH of
                more commands comes behind those of the environment.
        """
        self.directory, self._ports = directory, ports
        here = environment(programs, is_active=is_active)
        more = dict(machine or {})
        more["PATH"] = os.pathsep.join(filter(None, [here["PATH"], more.get("PATH")]))
        self._environment = here | more
        self._python = python or programs / "python"
        self.exports: list[str] = []
        self.started: list[subprocess.Popen[bytes]] = []
        self._printed: list[str] = [""]
        self._prompt: Prompt | None = None
        if not (directory / ".venv").exists():
            (directory / ".venv").symlink_to(programs.parent)

    def follow(self, kind: str, name: str, body: str) -> None:
        """Do what a block is there for."""
        for written, ours in self._ports.items():
            body = re.sub(rf"(?<!\d){written}(?!\d)", ours, body)
        match kind, name:
            case _, str() if name:
                (self.directory / name).write_text(body)
            case "python", _:
                self._printed.append(self.prompt().enter(body))
            case "sh", _:
                self._printed.append("".join(map(self.run, _commands(body))))
            case "text", _:
                for line in body.splitlines():
                    shown = ".*".join(map(re.escape, line.split("...")))
                    printed = self._printed[-1]
                    assert re.search(shown, printed), f"not printed: {line}\nbut:\n{printed}"
            case "" | "properties" | "mermaid", _:
                pass
            case _:
                pytest.fail(f"a block of kind {kind!r}: nobody knows what to do with it")

    def printed_lines(self) -> list[str]:
        """All that sessions and commands have printed."""
        return "\n".join(self._printed).splitlines()

    def prompt(self) -> Prompt:
        """Python's prompt, one for the whole page."""
        if self._prompt is None:
            self._prompt = Prompt(self._python, self.directory, self._environment)
        return self._prompt

    def run(self, line: str) -> str:
        """Run one command of a shell; what it has printed, "" where it continues."""
        if line.startswith("export "):
            self.exports.append(line)
            return ""
        for command, sign in _STAYS.items():
            if line.removeprefix(".venv/bin/").startswith(command):
                self._start(line, sign)
                return ""
        done = subprocess.run(
            self._shell(line), check=False, cwd=self.directory, env=self._environment,
            capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout + done.stderr

    def _start(self, line: str, sign: str) -> None:
        file = self.directory / f"server-{len(self.started)}.log"
        with file.open("wb") as log:
            process = subprocess.Popen(
                self._shell("exec " + line), cwd=self.directory, env=self._environment,
                stdout=log, stderr=log,
            )  # fmt: skip
        self.started.append(process)

        def is_up() -> bool:
            said = file.read_text(errors="replace")
            assert process.poll() is None, said
            return sign in said

        until(is_up, f"`{line}` has started", deadline_s=DEADLINE_S)

    def _shell(self, line: str) -> list[str]:
        return ["bash", "--norc", "-e", "-o", "pipefail", "-c", "\n".join([*self.exports, line])]

    def log(self) -> str:
        """What the commands that stay have said."""
        files = sorted(self.directory.glob("server-*.log"))
        return "\n".join(file.read_text(errors="replace") for file in files)

    def end(self) -> None:
        """Leave the prompt, and stop with Ctrl-C what runs."""
        if self._prompt is not None:
            self._prompt.close()
        for process in self.started:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(30) == 0, self.log()
            finally:
                process.kill()

    def read_all(self, page: Path = GUIDE) -> None:
        """The whole page; whatever it started is stopped."""
        self.read(blocks(page))
        assert self.started, "the page starts no broker any more"

    def read(self, of_page: Sequence[Block]) -> None:
        """Some blocks of a page; whatever they started is stopped."""
        try:
            for block in of_page:
                self.follow(*block)
        finally:
            self.end()


def _commands(body: str) -> list[str]:
    r"""The commands of a block: a backslash at the end joins lines."""
    return body.replace("\\\n", " ").splitlines()


def environment(programs: Path, *, is_active: bool = True) -> dict[str, str]:
    """The reader's: this clone is not the directory, and nothing is set.

    Args:
        programs: the `bin` of an environment.
        is_active: whether its commands are found.
    """
    clean = {name: os.environ[name] for name in _KEPT if name in os.environ}
    elsewhere = [one for one in os.get_exec_path() if Path(one) != programs]
    path = os.pathsep.join([str(programs), *elsewhere] if is_active else elsewhere)
    clean |= {"PATH": path, "TERM": "dumb"}
    if programs == Path(sys.executable).parent and not _is_installed_here():
        clean["PYTHONPATH"] = str(ROOT)
    return clean


@cache
def _is_installed_here() -> bool:
    """Whether this environment's Tidemark is this tree: a second work tree may share it."""
    try:
        origin = distribution("tidemark-broker").read_text("direct_url.json") or ""
    except PackageNotFoundError:
        return False
    return f'"{ROOT.as_uri()}"' in origin
