"""Passes over whole logs: what stays, and the damage that shows only while a log is cleaned."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.records.records import build_batch, iter_records
from local_log.cleaner.log_pass import Job, LogPass
from local_log.cleaner.offset_map import ENTRY_BYTES
from local_log.cleaner.process import Answer, Failed
from local_log.file_names import LOG, TXN_INDEX
from local_log.log.partition_log import PartitionLog
from local_log.log.truncation import truncate_to
from local_log.recovery.recovery import chain_of_batches
from local_log.segment.segment import LogSegment
from tests.support.worlds.cleaned_logs import (
    batches_of,
    clean,
    commit,
    end_transaction,
    open_compacted,
    put,
    records_of,
    table_of,
)
from tests.support.worlds.cleaner import SETTINGS, World, fill
from tests.support.worlds.local_log import GOLDEN, NOW_MS

HOUR_MS = 3_600_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_keys_of_an_aborted_transaction_replace_nothing(tmp_path: Path) -> None:
    log = open_compacted(tmp_path)
    put(log, ("a", "kept"))
    put(log, ("a", "gone"), producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 3, commits=False)
    log.roll(NOW_MS)
    commit(log)
    clean(log)
    assert table_of(log) == {b"a": b"kept"}
    assert [record.value for record in records_of(log)] == [b"kept"]


def test_small_segments_become_one_also_where_all_of_their_records_stay(tmp_path: Path) -> None:
    log = open_compacted(tmp_path)
    for number in range(3):
        put(log, (f"k{number}", "v"))
        log.roll(NOW_MS)
    commit(log)
    before = records_of(log)
    clean(log)
    assert [segment.base_offset for segment in log.segments.all] == [0, 3]
    assert records_of(log) == before


def test_records_without_timestamps_are_no_younger_after_a_pass(tmp_path: Path) -> None:
    log = open_compacted(tmp_path)
    for value in "12":
        put(log, ("a", value), at_ms=-1)
    log.roll(NOW_MS)
    commit(log)
    log.disk.set_modified_ms(log.segments.all[0].path(LOG), NOW_MS - HOUR_MS)
    clean(log)
    assert len(records_of(log)) == 1
    assert log.segments.all[0].modified_ms() == NOW_MS - HOUR_MS


def test_a_walk_ends_where_the_map_is_full(tmp_path: Path) -> None:
    """What lies behind is not known: there a tombstone may have something to delete yet."""
    log = open_compacted(tmp_path)
    for number in range(6):
        put(log, (f"k{number}", "v"))
    put(log, ("k0", "a key that the map has"))
    log.roll(NOW_MS)
    commit(log)
    done = clean(log, map_bytes=3 * (ENTRY_BYTES + 2))
    assert (done.keys_left, done.cleaned_to) == (True, 3)


@pytest.mark.parametrize(("name", "end"), [("compacted-0", 240), ("compacted-txn-0", 260)])
def test_what_kafka_has_cleaned_stays_as_it_is(tmp_path: Path, name: str, end: int) -> None:
    """Its horizons have not passed, and its keys are there once: nothing is left to do."""
    for path in (GOLDEN / "clean" / name).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    log = open_compacted(tmp_path, was_compacted=True, recovery_point=None)
    commit(log)
    before = [(header, batch) for header, batch in batches_of(log) if header.base_offset < end]
    horizons = [h.base_timestamp for h, _ in before if h.has_delete_horizon]
    log.roll(NOW_MS)
    put(log, ("zzz", "1"), at_ms=NOW_MS)
    commit(log)
    clean(log, now_ms=min(horizons, default=NOW_MS) - 1)
    after = [(header, batch) for header, batch in batches_of(log) if header.base_offset < end]
    assert [h.base_offset for h, _ in after] == [h.base_offset for h, _ in before]
    for (old, was), (new, now) in zip(before, after, strict=True):
        # Markers whose last records Kafka's pass has removed get their horizon in the next one.
        is_marked = new.has_delete_horizon and not old.has_delete_horizon
        assert now == was or (old.is_control and is_marked), new
        assert [*iter_records(now)] == [*iter_records(was)]


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_partition_of_kafkas_consumer_offsets_is_cleaned(tmp_path: Path, number: int) -> None:
    """Keys of whatever kind, known here or not, and markers of transactional commits."""
    source = GOLDEN.parent / "consumer-offsets" / f"__consumer_offsets-{number}"
    for path in source.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    log = open_compacted(tmp_path, recovery_point=None)
    commit(log)
    # Closed as it is, with a record after it that replaces none of Kafka's.
    log.roll(NOW_MS)
    put(log, ("no key of Kafka's", "1"))
    commit(log)
    before, count = table_of(log), len(records_of(log))
    clean(log)
    assert table_of(log) == before
    assert len(records_of(log)) < count
    end = log.segments.all[-1].base_offset
    keys = [record.key for record in records_of(log) if record.offset < end]
    assert len(keys) == len(set(keys))


def transaction(log: PartitionLog, keys: int, *, commits: bool) -> None:
    """Key K is committed, then written again by a transaction of some segments."""
    fields = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    put(log, ("K", "committed"))
    put(log, ("K", "in the transaction"), base_sequence=0, **fields)  # type: ignore[arg-type]
    for number in range(1, keys):
        put(log, (f"t{number}", "v" * 90), base_sequence=number, **fields)  # type: ignore[arg-type]
    end_transaction(log, 7, commits=commits)


@pytest.mark.parametrize("is_cut", [True, False])
@pytest.mark.parametrize(
    ("keys", "later_batches", "map_bytes"),
    [
        pytest.param(1, 20, 1 << 20, id="in what is cleaned"),
        pytest.param(40, 20, 4096, id="behind the last key that has room"),
        pytest.param(10, 0, 1 << 20, id="in the active segment"),
    ],
)
def test_an_aborted_transaction_that_no_index_names(
    world: World, keys: int, later_batches: int, map_bytes: int, *, is_cut: bool
) -> None:
    """It ends wherever a pass looks for its marker."""
    world.settings = replace(SETTINGS, map_bytes=map_bytes)
    log = world.log(segment_bytes=700)
    transaction(log, keys, commits=False)
    fill(log, later_batches)
    before = records_of(log)
    [index] = log.directory.glob(f"*{TXN_INDEX}")
    if is_cut:
        index.write_bytes(index.read_bytes()[:-1])
    else:
        index.unlink()
    world.cleaner.start()
    world.ports.scheduler.advance(10_000)
    assert "producer 7 aborted what is in no transaction index" in log.cleaning.uncleanable
    assert records_of(log) == before
    assert world.leftovers(log) == []
    assert not log.is_offline


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_in_which_the_map_fills_up(world: World, *, commits: bool) -> None:
    """Keys that did not fit take further passes, at once."""
    world.settings = replace(SETTINGS, map_bytes=4096)
    log = world.log(segment_bytes=700)
    transaction(log, 40, commits=commits)
    fill(log, 20)
    before = table_of(log)
    world.cleaner.start()
    assert not log.cleaning.uncleanable
    assert len(world.worker.jobs) > commits
    assert world.checkpoint() == log.segments.all[-1].base_offset
    assert table_of(log) == before
    values = [record.value for record in records_of(log) if record.key == b"K"]
    assert values == [b"in the transaction" if commits else b"committed"]


def test_what_a_truncation_took_from_under_the_pass_is_no_damage(world: World) -> None:
    log = world.log(segment_bytes=700)
    fill(log, 20)
    end = log.segments.all[3].base_offset

    def shorten(job: Job) -> None:
        path = log.segments.all[3].path(LOG)
        path.write_bytes(path.read_bytes()[:-1])
        world.worker.before = lambda _: None

    def cut(answer: Answer) -> None:
        if isinstance(answer, Failed):
            seen.append(answer)
            truncate_to(log, end)

    seen: list[Failed] = []
    world.worker.before, world.worker.each = shorten, cut
    world.cleaner.start()
    assert [failed.is_damage for failed in seen] == [True]
    assert not log.cleaning.uncleanable
    fill(log, 20)
    world.ports.scheduler.advance(5000)
    assert world.checkpoint() == log.segments.all[-1].base_offset


def flipped_bit(segment: LogSegment) -> None:
    data = bytearray(segment.path(LOG).read_bytes())
    data[100] ^= 1
    segment.path(LOG).write_bytes(data)


def trailing(size: int) -> Callable[[LogSegment], None]:
    def append(segment: LogSegment) -> None:
        with segment.path(LOG).open("ab") as file:
            file.write(bytes(size))
        segment.size_bytes += size

    return append


def offsets_of_later_segments(segment: LogSegment) -> None:
    *_, (position, last) = segment.batches(0)
    with segment.path(LOG).open("r+b") as file:
        file.seek(position)
        file.write((last.base_offset + (1 << 40)).to_bytes(8, "big"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flipped_bit, "damaged batch at byte 0 of {path}: its checksum is wrong"),
        (trailing(1), "of {path}: the last batch is cut"),
        (trailing(60), "of {path}: the last batch is cut"),
        (offsets_of_later_segments, "to below {end}"),
    ],
)
def test_damage_sets_the_log_aside_until_it_is_truncated(
    world: World, damage: Callable[[LogSegment], None], reason: str
) -> None:
    log = world.log(segment_bytes=700)
    fill(log, 40)
    bases, segment = list(log.segments.all), log.segments.all[1]
    damage(segment)
    world.cleaner.start()
    world.ports.scheduler.advance(10_000)
    assert len(world.worker.jobs) == 1
    assert world.cleaner.uncleanable == [log]
    wanted = reason.format(path=segment.path(LOG), end=log.segments.all[2].base_offset)
    assert wanted in log.cleaning.uncleanable
    assert (list(log.segments.all), world.leftovers(log), log.is_offline) == (bases, [], False)
    truncate_to(log, segment.base_offset)
    assert world.cleaner.uncleanable == []


def test_a_failed_pass_sets_only_its_own_log_aside(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick, sound = world.log("sick"), world.log("sound")
    fill(sick, 60)
    fill(sound, 20)
    run = LogPass.run

    def fail(one: LogPass) -> object:
        if "sick" in one._job.directory:
            raise OverflowError("too large")
        return run(one)

    monkeypatch.setattr(LogPass, "run", fail)
    world.cleaner.start()
    assert world.cleaner.uncleanable == [sick]
    reason = f"a pass over {sick.directory} failed with OverflowError: too large"
    assert sick.cleaning.uncleanable == reason
    assert world.checkpoint(sound.topic_partition) == sound.segments.active.base_offset


def test_the_batches_say_where_epochs_begin_however_often_they_are_cleaned(
    tmp_path: Path,
) -> None:
    """A follower knows it by nothing else."""
    log = open_compacted(tmp_path)
    for offset, epoch in enumerate((2, 2, 5, 5, 6, 6, 6)):
        batch = build_batch(
            [(NOW_MS, b"k", b"%d" % offset, [])], base_offset=offset, leader_epoch=epoch
        )
        log.append_batches(batch, now_ms=NOW_MS)
    log.roll(NOW_MS)
    commit(log)
    for _ in range(2):
        clean(log)
        assert chain_of_batches(log.segments.all) == log.epochs.entries()
    assert log.size_bytes < 5 * len(batch)
