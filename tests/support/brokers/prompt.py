"""Python's interactive prompt, and somebody who types at it; and what its grammar allows.

It is the plain prompt, which takes one line after the other: the only one up to Python 3.12, and
the stricter one since. The newer one takes a pasted block as a whole.
"""

import codeop
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.support.groups.builds import python_with_a_client, pythons, pythons_of_ci

PROMPT = "tidemark-page> "
MORE = "tidemark-more> "
DEADLINE_S = 300
LINES_MAX = 200
"""Of what a block prints: the prompt echoes what each expression in a loop gives."""
_VERSION = "import sys, confluent_kafka; print(*sys.version_info[:2])"
_ERROR = re.compile(r"^(Traceback \(most recent|\w*(Error|Exception)\b)", re.MULTILINE)


class Prompt:
    """One interpreter in a terminal of its own."""

    def __init__(self, python: Path, directory: Path, environment: Mapping[str, str]) -> None:
        """Start it."""
        import pexpect  # what only looks at a page does without

        # Prompts that no page prints.
        first = f"import sys; sys.ps1, sys.ps2 = {PROMPT!r}, {MORE!r}"
        settings = {**environment, "TERM": "dumb", "PYTHON_BASIC_REPL": "1", "INPUTRC": "/dev/null"}
        self._version = version_of(python)
        self._child = pexpect.spawn(
            str(python), ["-q"], cwd=str(directory), env=settings, timeout=DEADLINE_S,
            encoding="utf-8", echo=False, dimensions=(50, 1_000),
        )  # fmt: skip
        self._child.expect_exact(">>> ")
        self._child.sendline(first)
        self._child.expect_exact(PROMPT)

    def enter(self, block: str) -> str:
        """Type a block and the empty line that ends it; returns what was printed.

        Raises:
            AssertionError: Python has shown an error, or more lines than a person reads.
        """
        printed = ""
        for line in [*block.splitlines(), ""]:
            self._child.sendline(line)
            self._child.expect([re.escape(PROMPT), re.escape(MORE)])
            printed += self._child.before or ""
        printed = printed.replace("\r\n", "\n")
        assert not _ERROR.search(printed), f"Python {self._version}, typed:\n{block}\n{printed}"
        count = len(printed.splitlines())
        assert count <= LINES_MAX, f"{count} lines are printed, such as {printed[:200]!r}:\n{block}"
        return printed

    def close(self) -> None:
        """Leave it."""
        self._child.close(force=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def version_of(python: Path) -> tuple[int, int] | None:
    """Its version; None where it does not run, or has no Kafka client."""
    done = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True, check=False)
    numbers = done.stdout.split()
    return (int(numbers[0]), int(numbers[1])) if done.returncode == 0 and numbers else None


def at(end: str) -> Path:
    """A Python with a Kafka client: `this`, or the `oldest` or `newest` found.

    Skips a test where that is this one, or where the client has no wheel for it.
    """
    this = sys.version_info[:2]
    if end == "this":
        return Path(sys.executable)
    version = min(pythons()) if end == "oldest" else max(pythons())
    shown = f"Python {version[0]}.{version[1]}"
    if version == this:
        pytest.skip(f"{shown}, which runs this, is the {end} found: on PATH, of pyenv and of uv")
    try:
        return python_with_a_client(version)
    except pythons_of_ci().NoWheelError as error:
        pytest.skip(f"{shown}: {error}")


def refusal(session: str) -> str:
    """Why the plain prompt does not take a session as it is typed; "" where it does.

    The prompt runs a statement when it is complete. A block, such as a loop, ends with an empty
    line and with nothing else.
    """
    pending: list[str] = []
    for number, line in enumerate([*session.splitlines(), ""], start=1):
        pending.append(line)
        try:
            if codeop.compile_command("\n".join(pending), f"line {number}") is not None:
                pending.clear()
        except (SyntaxError, ValueError, OverflowError) as error:
            return f"line {number}, {line!r}: {error}"
    return f"it does not end: {pending}" if any(pending) else ""


def sessions(text: str) -> Iterator[tuple[int, str]]:
    """Each block of a page that is typed at the prompt: its line, and its text."""
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text[: block.start()].count("\n") + 1, block[1]
