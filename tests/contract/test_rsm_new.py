"""docs/plugin-http.md as it stands, and what `tidemark rsm new` prints: a broker's tier."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.brokers.page_reader import Reader, blocks
from tests.support.brokers.process import ROOT, free_dev_port

pytestmark = [pytest.mark.integration, pytest.mark.lasts(seconds=60)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_page_and_what_is_printed_work_as_typed(tmp_path: Path) -> None:
    """Only the commands, typed as a user types them, show that files and printed path fit.

    `rsm check` is excluded: it wants a store that runs.
    """
    # This tree is found beside it, also by an environment that another one is installed in.
    path = f"PYTHONPATH={tmp_path}"
    ports = {"19092": str(free_dev_port()), path: f"{path}:{ROOT}"}
    reader = Reader(tmp_path, Path(sys.executable).parent, ports)

    def commands(printed: str) -> str:
        found = re.findall(
            r"^  (?!tidemark rsm check|python -m pytest)(\S.*)$", printed, re.MULTILINE
        )
        return "".join(f"{line}\n" for line in found)

    try:
        for block in blocks(ROOT / "docs" / "plugin-http.md"):
            reader.follow(*block)
        said = "\n".join(reader.printed_lines())
        assert "59 passed" in said
        reader.follow("sh", "", commands(said))
        said = "\n".join(reader.printed_lines())
        reader.follow("sh", "", commands(said.partition("Now:\n")[2]))
        assert len(reader.started) == 1
    finally:
        reader.end()
