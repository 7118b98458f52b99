"""A log that contradicts what is known of it is left as it is, until a person has looked."""

import shutil

import pytest

from kafka_protocol.records.batch import iter_batches
from local_log.recovery.acceptance import ACCEPTED, Accepted, parse
from local_log.refusal import Fault, FaultKind, describe
from runtime.disk import Disk, OpenFile
from tests.support.worlds.local_log import (
    SMALL,
    accept,
    append,
    files_of,
    filled,
    open_log,
    refused,
    with_config,
)

CHAIN = "leader-epoch-checkpoint"


@pytest.fixture
def closed(tmp_path):
    """A log of some segments, killed; its segments can still be asked for paths."""
    log = filled(tmp_path)
    log.close(clean=False)
    return log


def _kinds(facts):
    return [fault.kind for fault in facts.faults]


def _path(log, number):
    return log.segments.all[number].path(".log")


def _records(directory):
    return sum(
        path.stat().st_size for path in directory.iterdir() if path.suffix in (".log", ".cut")
    )


def _drop_last_batch(path):
    data = path.read_bytes()
    path.write_bytes(data[: list(iter_batches(data))[-1][0]])


# -- its end -----------------------------------------------------------------------------------


def test_log_that_ends_below_its_recovery_point_is_refused(closed, tmp_path):
    end = closed.log_end_offset
    _drop_last_batch(_path(closed, -1))
    (fault,) = refused(tmp_path, clean=False, recovery_point=end).faults
    assert (fault.kind, fault.limit) == (FaultKind.ENDS_TOO_EARLY, end)
    assert f"flushed up to {end}" in describe(fault)
    assert open_log(tmp_path, clean=False, recovery_point=fault.offset).log_end_offset < end


@pytest.mark.parametrize("how", ["empty", "missing"])
@pytest.mark.parametrize("clean", [True, False])
def test_last_segment_without_its_bytes_is_refused(closed, tmp_path, how, clean):
    path = _path(closed, -1)
    path.write_bytes(b"") if how == "empty" else path.unlink()
    facts = refused(tmp_path, clean=clean, recovery_point=closed.log_end_offset)
    assert _kinds(facts) == [FaultKind.ENDS_TOO_EARLY]


def test_every_segment_lost_is_refused(closed, tmp_path):
    for path in tmp_path.glob("*.log"):
        path.unlink()
    facts = refused(tmp_path, clean=False, recovery_point=closed.log_end_offset)
    assert (_kinds(facts), facts.log_end) == ([FaultKind.ENDS_TOO_EARLY], 0)


def test_after_a_clean_stop_all_below_the_high_watermark_must_exist(closed, tmp_path):
    end = closed.log_end_offset
    _drop_last_batch(_path(closed, -1))
    facts = refused(tmp_path, clean=True, recovery_point=0, high_watermark=end)
    assert (facts.flushed_end, _kinds(facts)) == (end, [FaultKind.ENDS_TOO_EARLY])
    # A manager keeps that mark: the start after the next kill comes to the same validation.
    again = refused(tmp_path, clean=False, recovery_point=facts.flushed_end, high_watermark=end)
    assert again.faults == facts.faults
    assert open_log(tmp_path, clean=False, high_watermark=end).high_watermark < end


@pytest.mark.parametrize("point", [None, 30])
def test_log_that_ends_below_its_start_is_refused_where_that_was_flushed(closed, tmp_path, point):
    for segment in closed.segments.all[1:]:
        segment.path(".log").unlink()
    end = closed.segments.all[1].base_offset
    assert end < 30
    facts = refused(tmp_path, clean=False, recovery_point=point, log_start=30)
    assert FaultKind.ENDS_BELOW_ITS_START in _kinds(facts)


def test_log_that_ends_below_its_start_and_was_not_flushed_begins_there(closed, tmp_path):
    for segment in closed.segments.all[1:]:
        segment.path(".log").unlink()
    end, before = closed.segments.all[1].base_offset, _records(tmp_path)
    log = open_log(tmp_path, clean=False, recovery_point=end, log_start=30)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (30, 30, 0)
    assert _records(tmp_path) == before
    assert append(log).first_offset == 30


@pytest.mark.parametrize("clean", [True, False])
def test_accepted_loss_of_the_end_gives_no_offset_twice(closed, tmp_path, clean):
    end = closed.log_end_offset
    path = _path(closed, -1)
    path.write_bytes(path.read_bytes()[:-3])
    known = {"clean": clean, "recovery_point": end}
    facts = refused(tmp_path, **known)
    accept(tmp_path, facts)
    log = open_log(tmp_path, **known)
    assert append(log).first_offset == end
    # A batch without records takes their place: who reads to the end gets there.
    assert log.read(facts.log_end, 1 << 20).first_batch_offset == facts.log_end
    log.close()
    again = open_log(tmp_path, clean=False, recovery_point=0)
    assert again.log_end_offset == end + 1
    again.close()
    assert parse((tmp_path / ACCEPTED).read_bytes()) == Accepted()


def test_accepted_loss_of_every_segment_begins_after_what_was_flushed(closed, tmp_path):
    end = closed.log_end_offset
    for path in tmp_path.glob("*.log"):
        path.unlink()
    config = with_config(remote_storage_enable=True)
    known = {"clean": False, "recovery_point": end, "log_start": 0, "config": config}
    accept(tmp_path, refused(tmp_path, **known))
    log = open_log(tmp_path, **known)
    assert (log.log_end_offset, append(log).first_offset) == (end, end)


# -- damage ------------------------------------------------------------------------------------


def _flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_damage_below_the_recovery_point_is_refused_and_accepted_set_aside(closed, tmp_path):
    bases = [segment.base_offset for segment in closed.segments.all]
    path, before = _path(closed, 1), _records(tmp_path)
    at, header = list(iter_batches(path.read_bytes()))[2]
    _flip(path, at + 70)
    known = {"clean": False, "recovery_point": bases[2] - 1}
    facts = refused(tmp_path, **known)
    name = f"{bases[1]:020d}.log"
    expected = Fault(FaultKind.DAMAGE, name, at, header.base_offset, bases[2])
    assert facts.faults == (expected,)
    accept(tmp_path, facts)
    log = open_log(tmp_path, **known)
    assert log.log_end_offset == closed.log_end_offset
    assert [segment.base_offset for segment in log.segments.all] == bases
    assert log.read(header.base_offset, 1 << 20).first_batch_offset == bases[2]
    assert (tmp_path / f"{name}.1.{at}.cut").exists()
    assert _records(tmp_path) == before
    log.close()
    open_log(tmp_path, recovery_point=log.log_end_offset).close()


def test_damage_above_the_recovery_point_is_cut_and_kept_beside_the_log(closed, tmp_path):
    path, before = _path(closed, 1), _records(tmp_path)
    at, header = list(iter_batches(path.read_bytes()))[2]
    _flip(path, at + 70)
    log = open_log(tmp_path, clean=False)
    assert log.log_end_offset == header.base_offset
    assert _records(tmp_path) == before
    assert len(list(tmp_path.glob("*.cut"))) == len(closed.segments.all) - 1
    assert append(log).first_offset == header.base_offset
    log.close()
    assert len(list(tmp_path.glob("*.cut"))) == len(closed.segments.all) - 1


def test_a_second_cut_at_the_same_place_takes_another_name(closed, tmp_path):
    path = _path(closed, 0)
    at, _ = list(iter_batches(path.read_bytes()))[2]
    copy = path.read_bytes()
    for _ in range(2):
        path.write_bytes(copy)
        _flip(path, at + 70)
        open_log(tmp_path, clean=False).close(clean=False)
    names = {found.name for found in tmp_path.glob(f"{path.name}.*.{at}.cut")}
    assert names == {f"{path.name}.1.{at}.cut", f"{path.name}.2.{at}.cut"}


def test_a_length_that_claims_later_batches_is_damage_and_nothing_is_lost(closed, tmp_path):
    path, before = _path(closed, -1), _records(tmp_path)
    batches = list(iter_batches(path.read_bytes()))
    _flip(path, batches[-2][0] + 9)  # 64 KiB more than the file has
    refused(tmp_path, clean=False, recovery_point=None)
    log = open_log(tmp_path, clean=False)
    assert log.log_end_offset == batches[-2][1].base_offset
    assert _records(tmp_path) == before


@pytest.mark.parametrize("tail", [b"\0" * 500, b"\0" * 5, b"x" * 5])
def test_an_incomplete_batch_is_cut_in_place(closed, tmp_path, tail):
    path = _path(closed, -1)
    with path.open("ab") as file:
        file.write(tail)
    log = open_log(tmp_path, clean=False, recovery_point=closed.log_end_offset)
    assert log.log_end_offset == closed.log_end_offset
    assert not list(tmp_path.glob("*.cut"))


class _WatchedDisk(Disk):
    """Notes what is truncated and fsynced, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []

    def truncate(self, file: OpenFile, size: int) -> None:
        self.calls.append(("truncate", str(file.path)))
        super().truncate(file, size)

    def fsync(self, file: OpenFile) -> None:
        self.calls.append(("fsync", str(file.path)))
        super().fsync(file)


def test_the_copy_is_durable_before_the_cut_and_that_before_the_log_opens(closed, tmp_path):
    path, disk = _path(closed, -1), _WatchedDisk()
    at, _ = list(iter_batches(path.read_bytes()))[-2]
    _flip(path, at + 70)
    open_log(tmp_path, clean=False, disk=disk, recovery_point=0)
    copy = str(path) + f".1.{at}.cut.tmp"
    cut = disk.calls.index(("truncate", str(path)))
    assert disk.calls.index(("fsync", copy)) < cut
    assert ("fsync", str(path)) in disk.calls[cut:]


# -- files that are not where they belong ------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_swapped_segments_are_refused(tmp_path, clean):
    log = filled(tmp_path)
    log.close()
    one, other = _path(log, 0), _path(log, 2)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    facts = refused(tmp_path, clean=clean, recovery_point=log.log_end_offset)
    assert FaultKind.DAMAGE in _kinds(facts)


@pytest.mark.parametrize("point", [0, 60])
def test_segments_that_overlap_are_refused(closed, tmp_path, point):
    second, third = closed.segments.all[1:3]
    with second.path(".log").open("ab") as file:
        file.write(third.path(".log").read_bytes()[:500])
    facts = refused(tmp_path, clean=False, recovery_point=point)
    assert FaultKind.OVERLAP in _kinds(facts)
    accept(tmp_path, facts)
    log = open_log(tmp_path, clean=False, recovery_point=point)
    assert log.log_end_offset == closed.log_end_offset


@pytest.mark.parametrize("clean", [True, False])
def test_missing_middle_segment_is_refused(closed, tmp_path, clean):
    _path(closed, 2).unlink()
    facts = refused(tmp_path, clean=clean, recovery_point=closed.log_end_offset)
    assert _kinds(facts) == [FaultKind.HOLE]


def test_lost_first_segment_is_refused_if_the_checkpoint_starts_in_it(closed, tmp_path):
    _path(closed, 0).unlink()
    end = closed.log_end_offset
    facts = refused(tmp_path, clean=False, recovery_point=end, log_start=2)
    assert _kinds(facts) == [FaultKind.FIRST_SEGMENT_LOST]
    accept(tmp_path, facts)
    log = open_log(tmp_path, clean=False, recovery_point=end, log_start=2)
    assert log.log_start_offset == closed.segments.all[1].base_offset


def test_half_finished_swap_leaves_no_segments_that_overlap(closed, tmp_path):
    """A cleaner had made one segment of two, and had not taken the old ones away."""
    first, second = closed.segments.all[0], closed.segments.all[1]
    data = first.path(".log").read_bytes() + second.path(".log").read_bytes()
    (tmp_path / f"{0:020d}.log.swap").write_bytes(data)
    end, before = closed.log_end_offset, _records(tmp_path)
    config = with_config(SMALL, cleanup_policy=frozenset({"compact"}))
    log = open_log(tmp_path, clean=False, config=config, recovery_point=end)
    assert (len(log.segments.all), log.log_end_offset) == (len(closed.segments.all) - 1, end)
    assert _records(tmp_path) == before + len(data)
    assert not list(tmp_path.glob("*.swap"))


# -- an unknown recovery point -----------------------------------------------------------------


def test_an_unknown_recovery_point_reads_all_and_cuts_only_the_tail(closed, tmp_path):
    path = _path(closed, -1)
    path.write_bytes(path.read_bytes()[:-3])
    work = tmp_path / "torn"
    shutil.copytree(tmp_path, work, ignore=shutil.ignore_patterns("torn"))
    log = open_log(work, clean=False, recovery_point=None)
    assert log.recovery_point == 0
    _flip(_path(closed, 0), 80)
    shutil.rmtree(work)
    assert _kinds(refused(tmp_path, clean=False, recovery_point=None)) == [FaultKind.DAMAGE]


def test_with_an_unknown_recovery_point_the_high_watermark_must_be_there(closed, tmp_path):
    end = closed.log_end_offset
    _drop_last_batch(_path(closed, -1))
    facts = refused(tmp_path, clean=False, recovery_point=None, high_watermark=end)
    assert (_kinds(facts), facts.recovery_point) == ([FaultKind.ENDS_TOO_EARLY], None)


# -- what is accepted --------------------------------------------------------------------------


def test_other_facts_than_the_accepted_ones_are_refused_again(closed, tmp_path):
    end = closed.log_end_offset
    _drop_last_batch(_path(closed, -1))
    accept(tmp_path, refused(tmp_path, clean=False, recovery_point=end))
    _drop_last_batch(_path(closed, -1))
    assert refused(tmp_path, clean=False, recovery_point=end).log_end < end - 1


def test_damaged_file_accepts_nothing(closed, tmp_path):
    end = closed.log_end_offset
    _drop_last_batch(_path(closed, -1))
    accept(tmp_path, refused(tmp_path, clean=False, recovery_point=end))
    _flip(tmp_path / ACCEPTED, 3)
    refused(tmp_path, clean=False, recovery_point=end)


def test_kill_at_each_step_of_an_accepted_start_is_accepted_still(closed, tmp_path):
    """Damage in the middle, set aside step by step: each state left behind opens."""
    bases = [segment.base_offset for segment in closed.segments.all]
    at, _ = list(iter_batches(_path(closed, 1).read_bytes()))[2]
    _flip(_path(closed, 1), at + 70)
    known = {"clean": False, "recovery_point": bases[2] - 1}
    accept(tmp_path, refused(tmp_path, **known))
    start, step = files_of(tmp_path), 0
    while True:
        for path in tmp_path.iterdir():
            path.unlink()
        for name, data in start.items():
            (tmp_path / name).write_bytes(data)
        disk = _DyingDisk(step)
        try:
            open_log(tmp_path, disk=disk, **known)
        except OSError:
            assert open_log(tmp_path, **known).log_end_offset == closed.log_end_offset
            step += 1
        else:
            break
    assert step > 5


class _DyingDisk(Disk):
    """Fails permanently at the change number `left`."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self._left = left

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError(5, "killed here")

    def truncate(self, file, size):
        self._step()
        super().truncate(file, size)

    def write_at(self, file, position, data):
        self._step()
        super().write_at(file, position, data)

    def rename(self, source, target, *, durable=False):
        self._step()
        super().rename(source, target, durable=durable)

    def unlink(self, path, *, missing_ok=True):
        self._step()
        super().unlink(path, missing_ok=missing_ok)
