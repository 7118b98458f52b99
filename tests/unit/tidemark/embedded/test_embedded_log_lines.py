"""Which lines of logs a failing test shows."""

from pathlib import Path

import pytest

from tidemark.embedded.log_lines import LINES_MAX, log_sizes, warnings_since

OLD = "[2026-11-30 10:00:00,001] WARNING before (broker.app)\n"
LINES = (
    "[2026-11-30 10:00:00,002] INFO a WARNING of no level, that comes late in a line that is long "
    "enough (broker)\n"
    "  its second line\n"
    "[2026-11-30 10:00:00,003] ERROR it fails (broker.app)\n"
    "Traceback (most recent call last):\n"
    "  ValueError: x\n"
    "2026-11-30 10:00:00,004 WARNING tier rlm.maintenance: slow\n"
    "2026-11-30 10:00:00,005 INFO tier rlm.maintenance: well\n"
)
SHOWN = [
    "[2026-11-30 10:00:00,003] ERROR it fails (broker.app)",
    "Traceback (most recent call last):",
    "  ValueError: x",
    "2026-11-30 10:00:00,004 WARNING tier rlm.maintenance: slow",
]


def test_warnings_since_a_test_began_are_shown_whole(tmp_path: Path) -> None:
    log, none = tmp_path / "broker.log", tmp_path / "none.log"
    log.write_text(OLD)
    logs = {1: log, 2: none}
    sizes = log_sizes(logs)
    assert sizes == {log: len(OLD)}
    assert warnings_since(logs, sizes) == ""
    with log.open("a") as file:
        file.write(LINES)
    assert warnings_since(logs, sizes).splitlines() == [f"node 1, {log}:", *SHOWN]
    none.write_text(OLD)
    assert warnings_since(logs, sizes).splitlines()[-2:] == [f"node 2, {none}:", OLD.rstrip()]


def test_a_log_that_was_cut_off_is_shown_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text(OLD)
    assert warnings_since({1: log}, {log: 10_000}) == ""


def test_of_very_many_the_last_ones_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("".join(OLD.replace("before", f"no {n}.") for n in range(LINES_MAX + 7)))
    shown = warnings_since({1: log}, {}).splitlines()
    assert shown[1] == "(7 more lines before these)"
    assert len(shown) == LINES_MAX + 2
    assert f"no {LINES_MAX + 6}." in shown[-1]


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-30T10:00:00.001+00:00 WARNING broker.app: it is late",
        '{"time":"2026-11-30T10:00:00.001Z","level":"ERROR","message":"it is late"}',
        '{"time": "2026-11-30T10:00:00.001Z", "level": "CRITICAL", "message": "it is late"}',
    ],
)
def test_other_formats_of_a_line_are_seen(tmp_path: Path, line: str) -> None:
    log = tmp_path / "broker.log"
    log.write_text(f"{line}\n")
    assert warnings_since({1: log}, {}).endswith(line)
