"""The README as a newcomer types it, at the oldest and the newest Python there is here.

Only real processes show that its session, its commands and what they print are right.
"""

import re
import sys
from pathlib import Path

import pytest

from tests.support.brokers import prompt
from tests.support.brokers.page_reader import README, Reader, blocks
from tests.support.brokers.process import ROOT, free_dev_port

pytestmark = pytest.mark.lasts(seconds=30)


@pytest.mark.parametrize("end", [pytest.param("this", marks=pytest.mark.smoke), "oldest", "newest"])
def test_the_first_session_works_as_typed(end: str, tmp_path: Path) -> None:
    python = prompt.at(end)
    port, own = free_dev_port(), free_dev_port()
    ports = {
        "9092": str(port), "9093": str(port + 1), "9464": str(port + 372), "19092": str(own),
    }  # fmt: skip
    reader = Reader(tmp_path, Path(sys.executable).parent, ports, python=python, is_active=False)
    page = blocks(README)
    # `make run` itself installs from the package index; what it runs then is this:
    assert page[0][2].startswith("make run ")
    assert "\nrun: $(VENV)/.installed\n\t@exec $(BIN)/tidemark dev\n" in makefile()
    reader.read([("sh", "", ".venv/bin/tidemark dev --port 9092\n"), *page[1:]])
    assert "b'0'" in reader.printed_lines()
    assert len(reader.started) == 2, "the page starts a broker of its own"
    assert f"Tidemark on 127.0.0.1:{port}, data in {tmp_path}/data" in reader.log()


def test_the_readme_fits_on_two_screens_and_names_the_system_first() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 125
    assert "Linux" in text.splitlines()[2]
    assert re.search(r"pip install (?!'?DIRECTORY)", text) is None


def makefile() -> str:
    return (ROOT / "Makefile").read_text()
