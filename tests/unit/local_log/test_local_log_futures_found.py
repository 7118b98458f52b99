"""A start finds directories that were to take the place of others."""

import logging
from pathlib import Path

import pytest

from kafka_protocol.files.segment_names import parse_renamed_dir, renamed_dir
from kafka_protocol.types import TopicPartition
from local_log.file_names import FUTURE_MARKER
from local_log.manager.future_dirs import Marker, dump_marker, parse_marker
from local_log.manager.log_dir import LOG_STARTS
from local_log.manager.log_dirs import LogManager
from local_log.manager.replacement import Future
from tests.support.worlds.log_manager import BILLS, IDS, ORDERS, Host, make, names_in
from tests.support.worlds.replacement import BEGINNING, TIERED, check_new

LONG = TopicPartition("t" * 249, 17)


def built(host: Host, tp: TopicPartition = ORDERS) -> Future:
    """A future directory beside a log, and the process ends."""
    manager = host.start()
    if manager.get(tp) is None:
        make(manager, tp)
    future = manager.build_future(tp, BEGINNING)
    manager.close()
    host.assign(tp)
    return future


def begin_swap(host: Host, tp: TopicPartition = ORDERS) -> None:
    """As far as the first rename."""
    host.directory(tp).rename(host.paths[0] / renamed_dir(tp, b"d" * 16, "delete"))


def check_old(manager: LogManager) -> None:
    log = manager.get(ORDERS)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (0, 60)


def set_marker(future: Future, **changes: object) -> None:
    path = future.path / FUTURE_MARKER
    path.write_bytes(dump_marker(parse_marker(path.read_bytes())._replace(**changes)))  # type: ignore[arg-type]


def test_a_marker_says_what_was_written() -> None:
    for is_complete in (False, True):
        marker = Marker(IDS["orders"], LONG, 12, 0, is_complete)
        assert parse_marker(dump_marker(marker)) == marker


@pytest.mark.parametrize("complete", [False, True])
def test_beside_a_directory_of_its_partition_it_is_removed(tmp_path: Path, complete: bool) -> None:
    host = Host(tmp_path, config=TIERED)
    set_marker(built(host), is_complete=complete)
    check_old(host.start())
    assert not list(host.paths[0].glob("orders-0.*"))


def test_the_partition_may_lie_in_another_log_directory(tmp_path: Path) -> None:
    host = Host(tmp_path, 2, config=TIERED)
    future = built(host)
    host.directory().rename(host.directory(index=1))
    check_old(host.start())
    assert not future.path.exists()


@pytest.mark.parametrize("tp", [ORDERS, LONG], ids=["short", "cut in the directory's name"])
def test_a_swap_that_had_begun_is_finished(
    tmp_path: Path, tp: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(IDS, LONG.topic, b"l" * 16)
    host = Host(tmp_path, config=TIERED)
    future = built(host, tp)
    assert (parse_renamed_dir(future.path.name) == (tp, "future")) == (tp is ORDERS)
    begin_swap(host, tp)
    manager = host.start()
    check_new(manager.get(tp))
    assert {path.name for path in host.paths[0].iterdir() if path.is_dir()} == {
        f"{tp.topic}-{tp.partition}"
    }
    assert FUTURE_MARKER not in names_in(host.directory(tp))


def test_of_two_the_later_one_is_swapped_in(tmp_path: Path) -> None:
    host = Host(tmp_path, config=TIERED)
    manager = host.start()
    make(manager, ORDERS)
    for offset in (4500, 5000, 4400):
        manager.build_future(ORDERS, BEGINNING._replace(offset=offset))
    manager.close()
    host.assign(ORDERS)
    begin_swap(host)
    check_new(host.start().get(ORDERS))
    assert not list(host.paths[0].glob("orders-0.*"))


@pytest.mark.parametrize("damage", ["not complete", "damaged", "missing", "not ours"])
def test_what_nothing_proves_stays_as_it_is(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host(tmp_path, config=TIERED)
    future = built(host)
    begin_swap(host)
    marker = future.path / FUTURE_MARKER
    if damage == "not complete":
        set_marker(future, is_complete=False)
    elif damage == "damaged":
        marker.write_bytes(marker.read_bytes().replace(b"offset 5000", b"offset 6000"))
    elif damage == "missing":
        marker.unlink()
    else:
        marker.write_bytes(b"tidemark-future 2\n")
    before = {path.name: path.read_bytes() for path in future.path.iterdir()}
    with caplog.at_level(logging.WARNING):
        manager = host.start()
    assert manager.get(ORDERS) is None
    assert {path.name: path.read_bytes() for path in future.path.iterdir()} == before
    assert str(future.path) in caplog.text


@pytest.mark.parametrize("name", ["", f"{FUTURE_MARKER}.tmp"])
def test_one_with_nothing_in_it_is_removed(tmp_path: Path, name: str) -> None:
    host = Host(tmp_path, config=TIERED)
    path = host.paths[0] / renamed_dir(ORDERS, b"f" * 16, "future")
    path.mkdir()
    if name:
        (path / name).touch()
    host.start()
    assert not path.exists()


def test_a_file_with_the_partition_s_name_breaks_no_directory(tmp_path: Path) -> None:
    host = Host(tmp_path, config=TIERED)
    future = built(host)
    begin_swap(host)
    host.directory().touch()
    assert host.start().dirs[0].works
    assert future.path.exists()


def test_a_lost_checkpoint_is_not_written_again_for_one_partition(tmp_path: Path) -> None:
    """Written with that entry alone, it would say that no other log has a start above 0."""
    host = Host(tmp_path, config=TIERED)
    make(host.start(), BILLS)
    built(host)
    host.assign(BILLS)
    begin_swap(host)
    (host.paths[0] / LOG_STARTS).unlink()
    manager = host.start()
    bills = manager.get(BILLS)
    assert bills is not None
    assert not bills.log_start_has_no_entry
    assert manager.get(ORDERS) is None
    manager.close()
    check_new(host.start().get(ORDERS))


def test_a_topic_that_was_removed_meanwhile_is_deleted_all_the_same(tmp_path: Path) -> None:
    host = Host(tmp_path, config=TIERED)
    built(host)
    begin_swap(host)
    host.wanted = {}
    manager = host.start(removed_topics={IDS["orders"]})
    manager.run_deletions()
    assert manager.get(ORDERS) is None
    assert not host.directory().exists()
    host.start()
    assert not list(host.paths[0].glob("orders-0*"))


def test_without_a_removal_that_was_read_it_is_put_aside(tmp_path: Path) -> None:
    host = Host(tmp_path, config=TIERED)
    built(host)
    begin_swap(host)
    host.wanted = {}
    host.start()
    (kept,) = host.paths[0].glob("orders-0*")
    assert kept.name.endswith("-stray")


def test_a_disk_that_fails_while_a_swap_is_finished_keeps_both(tmp_path: Path) -> None:
    host = Host(tmp_path, config=TIERED)
    future = built(host)
    begin_swap(host)
    host.disk.fail(["rename"], path_part="data-0/orders-0")  # type: ignore[attr-defined]
    assert not host.start().dirs[0].works
    host.disk.heal()  # type: ignore[attr-defined]
    assert future.path.exists()
    check_new(host.start().get(ORDERS))
