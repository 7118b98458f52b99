"""Logs that get little from one clean stop to the next: nothing of theirs is called damaged."""

from pathlib import Path

import pytest

from tests.support.worlds.local_log import NOW_MS, append, files_of, open_log, with_config

LIVES = 6
INTERVAL = with_config().index_interval_bytes


def indexes(directory: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_of(directory).items() if name.endswith("index")}


@pytest.mark.parametrize("size", [1, INTERVAL // 2], ids=["below an interval", "above two"])
def test_indexes_of_many_short_lives_are_taken_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    config = with_config(index_interval_bytes=10 * INTERVAL) if size == 1 else with_config()
    for life in range(LIVES):
        log = open_log(tmp_path, config=config, recovery_point=life)
        append(log, at_ms=NOW_MS + life, size=size)
        log.close()
        before = indexes(tmp_path)
        open_log(tmp_path, config=config, recovery_point=life + 1).close()
        assert indexes(tmp_path) == before
    assert not caplog.messages


def test_an_interval_goes_on_over_a_clean_stop(tmp_path: Path) -> None:
    """Else a log of many short lives gets no entry, and each look-up walks all of it."""
    for directory, is_stopped in ((tmp_path / "one", False), (tmp_path / "many", True)):
        log = open_log(directory)
        for life in range(3):
            append(log, size=INTERVAL // 2)
            if is_stopped:
                log.close()
                log = open_log(directory, recovery_point=life + 1)
        log.close()
    name = f"{0:020}.index"
    assert files_of(tmp_path / "many")[name] == files_of(tmp_path / "one")[name] != b""
