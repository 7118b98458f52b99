"""Kafka's own command-line tools, run against our broker through the peer program."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.brokers.process import ROOT

PEERS = Path(os.environ.get("TIDEMARK_PEERS", ROOT.parent / "shared" / "peers"))


def why_not() -> str | None:
    """Why Kafka's tools cannot run here, or None."""
    if shutil.which("java") is None:
        return "no JVM on PATH"
    if not (PEERS / "kafka").exists():
        return f"no peer program {PEERS / 'kafka'}: set TIDEMARK_PEERS to its folder"
    return None


def require_kafka_tools() -> None:
    """Skip the test, with the reason, where the tools cannot run."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)


def kafka_tool(
    name: str, *arguments: str, stdin: str = "", check: bool = True, timeout_s: float = 120
) -> str:
    """Run `kafka tool NAME ARGUMENTS` and return what it printed, stderr after stdout."""
    done = subprocess.run(
        [str(PEERS / "kafka"), "tool", name, *arguments],
        input=stdin,
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=tempfile.gettempdir(),
    )
    output = done.stdout + done.stderr
    if check:
        assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{output}"
    return output
