"""The parts of a log own their state: see `local_log/log/partition_log.py`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_fully_and_start_at, truncate_to
from tests.support.worlds.local_log import NOW_MS, append, filled, open_log, retain, with_config

ROOT = Path(__file__).parents[3]
PARTS = {"cleaning", "epoch_file", "health", "lease", "producers", "segments"}
LOGS = {"log", "partition_log"}
LISTS = {"all", "bases"}
CHANGES = {"append", "clear", "extend", "insert", "pop", "remove"}
STATE = set(PartitionLog.__slots__) - {"changed", "log_start_has_no_entry"}


def last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr.lstrip("_")
    # A bare `producers` is what a part holds: ProducerStates, on its way through a function.
    return node.id if isinstance(node, ast.Name) and node.id != "producers" else ""


def written(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines that write an attribute of a part, or a list of it, from outside."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            owner = last_name(node.value)
            if owner in PARTS or (owner in LOGS and node.attr in STATE):
                yield node.lineno, node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            if isinstance(node.value, ast.Attribute) and last_name(node.value.value) in PARTS:
                yield node.lineno, node.value.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            held = node.func.value
            is_list = isinstance(held, ast.Attribute) and held.attr in LISTS
            if is_list and node.func.attr in CHANGES and last_name(held.value) in PARTS:
                yield node.lineno, held.attr


def test_nobody_writes_the_state_of_a_part_but_the_part() -> None:
    wrong = []
    for package in ("local_log", "metadata_topic", "broker/replica", "broker/handlers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            found = written(ast.parse(path.read_text()))
            wrong += [f"{path.relative_to(ROOT)}:{line}: {what}" for line, what in found]
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        "partition_log.log_start_offset = 5",
        "self._log.recovery_point += 1",
        "segments.all.append(new)",
        "del log.segments.bases[:2]",
        "partition.log.high_watermark, other = 1, 2",
    ],
)
def test_such_a_line_is_seen(line: str) -> None:
    assert list(written(ast.parse(line)))


def test_new_settings_reach_the_writer_of_a_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=with_config(segment_bytes=2_000))
    log.set_config(with_config(segment_bytes=100_000))
    append(log, 1, size=1_500)
    append(log, 1, size=1_500)
    assert len(log.segments.all) == 1
    log.set_config(with_config(segment_bytes=2_000))
    append(log, 1, size=1_500)
    assert len(log.segments.all) == 2


def test_a_log_has_the_bytes_of_its_segments_whatever_comes_and_goes(tmp_path: Path) -> None:
    log = filled(tmp_path, config=with_config(retention_bytes=5_000))

    def is_right() -> bool:
        return log.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.log"))

    assert is_right()
    assert retain(log, NOW_MS)
    assert is_right()
    truncate_to(log, log.log_end_offset - 20)
    assert is_right()
    append(log)
    truncate_fully_and_start_at(log, 500)
    assert log.size_bytes == 0
    append(log)
    assert log.size_bytes > 0
    assert is_right()


def test_batches_that_were_cut_are_not_found_where_they_were(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=with_config(segment_bytes=100_000))
    for _ in range(10):
        append(log, 2)
    truncate_to(log, 4)
    append(log, 16)  # one batch in the place of eight
    found = log.read(10, 10_000)
    assert found.first_batch_offset == 4


def test_under_a_new_leader_epoch_the_tier_says_again_what_it_holds(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert log.set_copied_through(10, 0)
    log.epochs.assign(0, log.log_end_offset)
    assert log.copied_through == 10
    log.epochs.assign(1, log.log_end_offset)
    assert log.copied_through == -1
