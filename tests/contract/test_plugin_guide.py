"""docs/plugin-guide.md followed word for word in an empty directory."""

import sys
from pathlib import Path

import pytest

from tests.support.brokers.page_reader import GUIDE, Reader, blocks
from tests.support.brokers.process import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.lasts(seconds=20)]

PLUGIN_LINES_MAX = 80


@pytest.mark.slow
def test_the_guide_works_word_for_word(tmp_path: Path) -> None:
    ports = dict(zip(("19092", "19093"), map(str, free_ports(2)), strict=True))
    Reader(tmp_path, Path(sys.executable).parent, ports).read_all()


def test_the_worked_example_is_short() -> None:
    [plugin] = [body for kind, name, body in blocks() if name == "sqlite_store.py"]
    assert len(plugin.splitlines()) <= PLUGIN_LINES_MAX


def test_no_fence_is_missed() -> None:
    fences = [line for line in GUIDE.read_text().splitlines() if line.startswith("```")]
    assert len(fences) == 2 * len(blocks())
