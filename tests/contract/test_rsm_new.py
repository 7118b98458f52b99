"""What `tidemark rsm new` writes keeps every promise, as written."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.brokers.process import environment

pytestmark = [pytest.mark.integration, pytest.mark.lasts(seconds=60)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_plugin_that_is_written_keeps_every_promise(tmp_path: Path) -> None:
    """Only its own test, run as a user runs it, shows that the written files fit each other."""
    for command in ("tidemark.cli rsm new kv_store", "pytest -q -p no:cacheprovider"):
        done = subprocess.run(
            [sys.executable, "-m", *command.split()],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "59 passed" in done.stdout, done.stdout
