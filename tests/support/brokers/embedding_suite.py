"""Runs pytest on a small suite of somebody else's, with Tidemark's plugin."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.brokers.process import ROOT

OURS = frozenset(
    {
        "broker",
        "kafka_protocol",
        "local_log",
        "metadata_topic",
        "pipeline",
        "rlm",
        "rlmm",
        "rsm_plugins",
        "runtime",
    }
)
"""Packages that have no business in a process that only uses the broker."""

TAKES_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
"""A process that a shell started in the background ignores it, and so do all its children."""


def environment(temporary: Path) -> dict[str, str]:
    """The plugin is named and not found: where Tidemark is installed it would be there twice.

    Temporary directories lie in `temporary`: at its end pytest deletes those of other runs in the
    same place, and beside a whole suite these are large.
    """
    temporary.mkdir(exist_ok=True)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    return kept | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_DEBUG_TEMPROOT": str(temporary),
        "PYTHONPATH": str(ROOT),
    }


def start_suite(
    directory: Path, text: str, options: Sequence[str] = (), *, ini: str = ""
) -> "subprocess.Popen[str]":
    """Start pytest on one file with this text."""
    directory.mkdir(exist_ok=True)
    (directory / "test_suite.py").write_text(text)
    (directory / "conftest.py").write_text(TAKES_CTRL_C)
    (directory / "pytest.ini").write_text(f"[pytest]\n{ini}")
    plugins = ("-p", "tidemark.pytest_plugin", "-p", "no:cacheprovider")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *plugins, *options],
        cwd=directory,
        env=environment(directory / "temporary"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_suite(
    directory: Path, text: str, options: Sequence[str] = (), *, ini: str = ""
) -> tuple[int, str]:
    """Run it to its end: exit code, and what it printed; one that hangs says where."""
    process = start_suite(directory, text, ("-vv", *options), ini=ini)
    try:
        printed, _ = process.communicate(timeout=280)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # pytest's faulthandler prints all stacks
        printed, _ = process.communicate(timeout=20)
        pytest.fail(f"the suite did not end in 280 s:\n{printed}")
    return process.returncode, printed
