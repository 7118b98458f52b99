"""What is said on macOS and Windows."""

import os

import pytest

from tests.support.samples.command_line import tidemark
from tidemark.embedded.errors import BrokerError
from tidemark.embedded.guarded import Guarded
from tidemark.platforms import why_no_command, why_not_here


@pytest.mark.parametrize("name", ["start", "dev", "format", "split", "directories", "log"])
def test_no_node_runs_elsewhere(name: str) -> None:
    assert why_no_command(name, "linux") is None
    said = why_no_command(name, "darwin")
    assert said is not None
    assert said.startswith(f"`tidemark {name}` runs on Linux only, and this is macOS: run it in a")


@pytest.mark.parametrize("name", ["cat", "init", "remote", "status", "pipeline"])
def test_what_asks_brokers_is_refused_on_windows_alone(name: str) -> None:
    assert why_no_command(name, "darwin") is None
    assert "this is Windows: run it in WSL 2" in (why_no_command(name, "win32") or "")


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_version_is_said_anywhere(platform: str) -> None:
    assert why_no_command("version", platform) is None


def test_a_command_says_it_in_one_line_and_help_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    done = tidemark("dev", "--port", "1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"Error: {why_not_here('`tidemark dev`')}\n"
    assert tidemark("--help").exit_code == 0


def test_a_broker_in_a_test_suite_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(BrokerError, match="a broker inside a test suite runs on Linux only"):
        Guarded(own_directory=False)
