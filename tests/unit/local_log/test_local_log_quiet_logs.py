"""Logs that get little from one clean stop to the next: nothing of theirs is called damaged."""

from pathlib import Path

import pytest

from local_log.log.truncation import truncate_to
from runtime.disk import Disk, OpenFile
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


def test_an_interval_continues_over_a_clean_stop(tmp_path: Path) -> None:
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


class CountingDisk(Disk):
    """Notes which files were fsynced, by the ends of their names."""

    def __init__(self) -> None:
        super().__init__()
        self.fsynced: list[str] = []

    def fsync(self, file: OpenFile) -> None:
        self.fsynced.append(file.path.suffix)
        super().fsync(file)


def test_a_flush_waits_for_an_index_only_where_it_has_an_entry_more(tmp_path: Path) -> None:
    disk = CountingDisk()
    log = open_log(tmp_path, disk=disk)

    def flushed_after(**batch: int) -> list[str]:
        append(log, **batch)
        disk.fsynced.clear()
        log.flush()
        return sorted(disk.fsynced)

    append(log)
    log.flush()
    assert flushed_after(at_ms=NOW_MS + 1) == [".log"]
    append(log, at_ms=NOW_MS + 2, size=2 * INTERVAL)
    assert flushed_after(at_ms=NOW_MS + 3, size=INTERVAL) == [".index", ".log", ".timeindex"]
    append(log, at_ms=NOW_MS + 4)  # the entry that is due after so much
    log.flush()
    assert flushed_after(at_ms=NOW_MS + 5) == [".log"]
    truncate_to(log, 1)
    assert flushed_after(at_ms=NOW_MS + 6) == [".index", ".log", ".timeindex"]
    log.close()
