"""docs/plugin-http.md as it stands: what `tidemark rsm new` writes keeps every promise."""

import sys
from pathlib import Path

import pytest

from tests.support.brokers.page_reader import Reader, blocks
from tests.support.brokers.process import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.lasts(seconds=60)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_plugin_that_is_written_keeps_every_promise(tmp_path: Path) -> None:
    """Only its own test, run as a user runs it, shows that the written files fit each other."""
    reader = Reader(tmp_path, Path(sys.executable).parent, {})
    reader.read(blocks(ROOT / "docs" / "plugin-http.md"))
    assert any("59 passed" in line for line in reader.printed_lines())
