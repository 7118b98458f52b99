"""The last lines of `make run-s3` where LocalStack or the broker ends by itself."""

import runpy
import signal
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def why_ended() -> Any:
    return runpy.run_path(str(ROOT / "localstack" / "run_broker.py"))["why_ended"]


def test_a_dead_localstack_is_named_with_its_last_lines_and_its_log(
    why_ended: Any, tmp_path: Path
) -> None:
    log = tmp_path / "localstack.log"
    log.write_text("".join(f"line {number}\n" for number in range(40)))
    first, *lines = why_ended([-signal.SIGKILL, 0], log)
    assert first.startswith("LocalStack ended by SIGKILL, without being asked to")
    assert f"its log is {log}" in first
    assert lines == [f"  line {number}" for number in range(25, 40)]


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ([None, 3], "the broker ended with exit code 3, without being asked to"),
        ([1], "LocalStack ended with exit code 1, without being asked to"),
    ],
)
def test_where_the_screen_has_the_lines_they_are_not_repeated(
    why_ended: Any, tmp_path: Path, codes: list[int | None], said: str
) -> None:
    (line,) = why_ended(codes, tmp_path / "none.log")
    assert line.startswith(said)
    assert line.endswith("see its lines above")


def test_of_two_that_run_nothing_is_said(why_ended: Any, tmp_path: Path) -> None:
    assert why_ended([None, None], tmp_path / "none.log") == []
