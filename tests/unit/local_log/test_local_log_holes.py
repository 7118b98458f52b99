"""A power cut may take whole batches, or a whole file, and leave no torn byte behind.

docs/decisions/holes-after-a-power-cut.md
"""

import logging
import shutil

import pytest

from kafka_protocol.files import offset_checkpoint
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.types import TopicPartition
from local_log.manager.log_dirs import LogManager
from local_log.recovery.acceptance import Accepted, read_accepted
from local_log.refusal import Fault, FaultKind
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import simulated
from tests.support.worlds.local_log import (
    GOLDEN,
    NOW_MS,
    SMALL,
    accept,
    append,
    files_of,
    filled,
    open_log,
    refused,
    with_config,
)


def _lose_the_last_batch(log, number):
    """Cut segment `number` at a batch border; returns where it ends now."""
    path = log.segments.all[number].path(".log")
    batches = list(iter_batches(path.read_bytes()))
    path.write_bytes(path.read_bytes()[: batches[-1][0]])
    return batches[-1][1].base_offset


def _offsets(log):
    return [
        offset
        for segment in log.segments.all
        for _, header in segment.batches(0)
        for offset in range(header.base_offset, header.next_offset)
    ]


@pytest.mark.parametrize("number", [0, 2])
def test_lost_batches_without_a_torn_byte_discard_the_later_segments(tmp_path, number):
    log = filled(tmp_path)
    log.close(clean=False)
    end = _lose_the_last_batch(log, number)
    log = open_log(tmp_path, clean=False)
    assert log.log_end_offset == end
    assert _offsets(log) == list(range(end))
    assert append(log).first_offset == end
    assert len(log.segments.all) == number + 1


def test_torn_bytes_take_the_later_segments_with_them(tmp_path):
    log = filled(tmp_path)
    log.close(clean=False)
    path = log.segments.all[1].path(".log")
    path.write_bytes(path.read_bytes()[:-3])
    log = open_log(tmp_path, clean=False)
    assert len(log.segments.all) == 2
    assert _offsets(log) == list(range(log.log_end_offset))


@pytest.mark.parametrize("flushed", [False, True])
def test_lost_segment_takes_the_later_ones_with_it(tmp_path, flushed):
    log = filled(tmp_path)
    bases = [segment.base_offset for segment in log.segments.all]
    log.close(clean=False)
    for suffix in (".log", ".index", ".timeindex"):
        log.segments.all[2].path(suffix).unlink()
    known = {"recovery_point": bases[2]} if flushed else {}
    log = open_log(tmp_path, clean=False, **known)
    assert log.log_end_offset == bases[2]
    assert _offsets(log) == list(range(bases[2]))


def test_hole_in_what_was_flushed_is_refused_and_once_accepted_kept(tmp_path, caplog):
    log = filled(tmp_path)
    end, bases = log.log_end_offset, [segment.base_offset for segment in log.segments.all]
    log.close(clean=False)
    first = _lose_the_last_batch(log, 1)
    facts = refused(tmp_path, clean=False, recovery_point=bases[3])
    name = f"{bases[2]:020d}.log"
    assert facts.faults == (Fault(FaultKind.HOLE, name, 0, first, bases[2]),)
    accept(tmp_path, facts)
    log = open_log(tmp_path, clean=False, recovery_point=bases[3])
    assert log.log_end_offset == end
    log.close()
    for _ in range(2):
        caplog.clear()
        log = open_log(tmp_path, recovery_point=end)
        assert (log.log_end_offset, _offsets(log)[first]) == (end, bases[2])
        log.close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert read_accepted(Disk(), tmp_path) == Accepted(holes=((first, bases[2]),))


def test_hole_beside_an_accepted_one_is_refused(tmp_path):
    log = filled(tmp_path)
    end, bases = log.log_end_offset, [segment.base_offset for segment in log.segments.all]
    log.close(clean=False)
    _lose_the_last_batch(log, 1)
    accept(tmp_path, refused(tmp_path, clean=False, recovery_point=end))
    open_log(tmp_path, clean=False, recovery_point=end).close()
    _lose_the_last_batch(log, 2)
    (fault,) = refused(tmp_path, clean=False, recovery_point=end).faults
    assert (fault.kind, fault.limit) == (FaultKind.HOLE, bases[3])


def test_nothing_is_told_of_a_whole_log(tmp_path, caplog):
    filled(tmp_path).close(clean=False)
    open_log(tmp_path, clean=False).close()
    open_log(tmp_path).close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_compacted_topic_keeps_its_holes(tmp_path, caplog):
    config = with_config(cleanup_policy=frozenset({"compact"}))
    log = filled(tmp_path, config=SMALL)
    end = log.log_end_offset
    log.close(clean=False)
    _lose_the_last_batch(log, 1)
    opened = open_log(tmp_path, clean=False, config=config, recovery_point=end)
    assert opened.log_end_offset == end
    opened.close()
    # It is remembered: the policy may change, the holes stay.
    assert open_log(tmp_path, recovery_point=end).log_end_offset == end
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]


def test_a_cleaned_log_keeps_its_holes_under_any_policy(tmp_path):
    tp = TopicPartition("orders", 0)
    log = filled(tmp_path / "orders-0")
    end = log.log_end_offset
    log.close(clean=False)
    _lose_the_last_batch(log, 1)
    cleaned = offset_checkpoint.dump({tp: end})
    (tmp_path / "cleaner-offset-checkpoint").write_bytes(cleaned)
    manager = LogManager([tmp_path], lambda _topic: SMALL, simulated(clock=ManualClock(NOW_MS)))
    manager.load()
    assert manager.get(tp).log_end_offset == end


def test_kafkas_partitions_lose_nothing_by_a_recovery_without_checkpoints(tmp_path):
    found = sorted({path.parent for path in GOLDEN.rglob("*.log")})
    assert len(found) > 5
    for number, directory in enumerate(found):
        clean, torn = tmp_path / f"clean-{number}", tmp_path / f"torn-{number}"
        shutil.copytree(directory, clean)
        shutil.copytree(directory, torn)
        expected = open_log(clean).log_end_offset
        assert open_log(torn, clean=False).log_end_offset == expected, directory
        logs = {name: data for name, data in files_of(clean).items() if name.endswith(".log")}
        assert logs.items() <= files_of(torn).items(), directory


def test_a_base_offset_that_was_changed_is_no_work_of_a_cleaner(tmp_path):
    """The batch after it falls back below it, which no cleaner leaves."""
    log = filled(tmp_path)
    path = log.segments.all[0].path(".log")
    log.close(clean=False)
    data = bytearray(path.read_bytes())
    position, header = list(iter_batches(bytes(data)))[3]
    data[position + 7] ^= 8  # 6 becomes 14, which is still in this segment
    path.write_bytes(data)
    log = open_log(tmp_path, clean=False)
    assert log.log_end_offset == header.base_offset
    assert _offsets(log) == list(range(header.base_offset))


def test_a_changed_base_offset_in_a_compacted_log_hides_no_flushed_batch(tmp_path):
    """The batches after it lie below the offset that it claims."""
    config = with_config(cleanup_policy=frozenset({"compact"}))
    log = filled(tmp_path, config=config)
    path = log.segments.all[-1].path(".log")
    log.close(clean=False)
    data = bytearray(path.read_bytes())
    (position, changed), (_, behind), *_ = list(iter_batches(bytes(data)))[1:]
    data[position + 4] ^= 1  # 2^24 offsets further
    path.write_bytes(data)
    known = {"config": config, "clean": False, "recovery_point": behind.base_offset}
    [fault] = refused(tmp_path, **known).faults
    assert (fault.kind, fault.offset) == (FaultKind.DAMAGE, changed.base_offset)
