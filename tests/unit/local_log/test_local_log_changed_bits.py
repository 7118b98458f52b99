"""Changed bits of closed segments that no checksum covers, and of what is made from them."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_protocol.records.batch import iter_batches, read_header
from kafka_protocol.records.control import ControlType, end_transaction_batch
from local_log.errors import CorruptMessage
from local_log.log.partition_log import PartitionLog
from local_log.refusal import FaultKind
from tests.support.worlds.local_log import (
    NOW_MS,
    append,
    filled,
    open_log,
    refused,
    with_config,
)

PRODUCER = 7


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def with_an_aborted_transaction(directory: Path) -> PartitionLog:
    log = open_log(directory)
    of_producer = {"producer_id": PRODUCER, "producer_epoch": 0}
    append(log, base_sequence=0, is_transactional=True, **of_producer)
    append(log)
    marker = end_transaction_batch(
        ControlType.ABORT,
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=NOW_MS,
        coordinator_epoch=0,
        **of_producer,
    )
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, from_client=False)
    log.roll(NOW_MS)
    append(log)
    log.close()
    return log


def test_no_changed_transaction_index_is_believed(tmp_path: Path) -> None:
    """An entry that speaks of other batches hides records, or shows what was aborted."""
    end = with_an_aborted_transaction(tmp_path / "log").log_end_offset
    path = tmp_path / "log" / f"{0:020}.txnindex"
    sound = path.read_bytes()
    changed = [sound[:length] for length in range(len(sound))]
    for bit in range(8 * len(sound)):
        flip(path, bit // 8, bit % 8)
        changed.append(path.read_bytes())
        path.write_bytes(sound)
    for data in changed:
        path.write_bytes(data)
        log = open_log(tmp_path / "log", recovery_point=end)
        assert log.aborted_transactions(0, end) == [(PRODUCER, 0)], data
        log.close()


def test_no_bit_of_the_newest_index_entry_takes_the_disk_for_broken(tmp_path: Path) -> None:
    """A position below 0 cannot be read, whatever state the disk is in."""
    log = filled(tmp_path)
    end, path = log.log_end_offset, log.segments.all[0].path(".index")
    log.close()
    sound = path.read_bytes()
    for bit in range(8 * len(sound) - 64, 8 * len(sound)):
        flip(path, bit // 8, bit % 8)
        log = open_log(tmp_path, recovery_point=end)
        assert log.log_end_offset == end
        assert path.read_bytes() == sound
        log.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", [0, -1])
def test_an_epoch_bit_of_one_batch_does_not_change_the_epoch_chain(
    tmp_path: Path, number: int, clean: bool
) -> None:
    log = filled(tmp_path)
    append(log, epoch=4)
    chain, end = log.epochs.entries(), log.log_end_offset
    closed = log.segments.all[1]
    path = closed.path(".log")
    log.close()
    position, _ = list(iter_batches(path.read_bytes()))[number]
    flip(path, position + 15, 1)  # epoch 0 becomes 2
    log = open_log(tmp_path, clean=clean, recovery_point=end)
    assert log.epochs.entries() == chain
    assert log.log_end_offset == end


def test_an_epoch_bit_of_a_flushed_batch_takes_nothing_with_it(tmp_path: Path) -> None:
    """The batch behind it was not flushed; it has the lower epoch, and is sound."""
    log = filled(tmp_path)
    path = log.segments.all[-1].path(".log")
    log.close(clean=False)
    (position, changed), (_, behind), *_ = list(iter_batches(path.read_bytes()))[2:]
    flip(path, position + 15, 1)
    [fault] = refused(tmp_path, clean=False, recovery_point=behind.base_offset).faults
    assert (fault.kind, fault.offset) == (FaultKind.DAMAGE, changed.base_offset)


@pytest.mark.parametrize("was_compacted", [False, True])
def test_the_segment_that_is_appended_to_begins_at_its_name(
    tmp_path: Path, *, was_compacted: bool
) -> None:
    """No checksum covers a base offset. Where a cleaner has worked a truncation may leave this."""
    log = filled(tmp_path)
    end, path = log.log_end_offset, log.segments.all[-1].path(".log")
    log.close()
    _, first = next(iter_batches(path.read_bytes()))
    bit = next(bit for bit in range(8) if not first.base_offset >> bit & 1)
    flip(path, 7, bit)
    if was_compacted:
        assert open_log(tmp_path, recovery_point=end, was_compacted=True).log_end_offset == end
    else:
        faults = refused(tmp_path, recovery_point=end).faults
        assert faults[0].offset == first.base_offset


def test_a_compacted_segment_does_not_replace_the_active_one(tmp_path: Path) -> None:
    """No cleaner touches the active segment: the base offset of the last batch was changed."""
    log = filled(tmp_path)
    end, closed = log.log_end_offset, log.segments.all[0]
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        path = closed.path(suffix)
        shutil.copy(path, path.with_name(f"{path.name}.swap"))
    swap = closed.path(".log").with_name(f"{closed.path('.log').name}.swap")
    position, _ = list(iter_batches(swap.read_bytes()))[-1]
    flip(swap, position + 4)  # 2^24 offsets further
    faults = refused(tmp_path, clean=False, recovery_point=end).faults
    assert FaultKind.OVERLAP in [fault.kind for fault in faults]


@pytest.mark.parametrize("number", [0, 1, -1], ids=["first", "second", "last"])
@pytest.mark.parametrize("field", [8, 23], ids=["length", "last offset"])
def test_no_bit_of_a_batchs_header_lets_a_reader_pass_over_its_records(
    tmp_path: Path, number: int, field: int
) -> None:
    """Wherever in the batch it begins: it gets the batch, or is told that it is damaged."""
    log = filled(tmp_path)
    path = log.segments.all[1].path(".log")
    position, header = list(iter_batches(path.read_bytes()))[number]
    for bit in range(32):
        flip(path, position + field + bit // 8, bit % 8)
        for offset in range(header.base_offset, header.next_offset):
            with suppress(CorruptMessage):
                [region] = log.read(offset, 1 << 20).regions
                assert region.file.path == path
                found = read_header(path.read_bytes(), region.position)
                assert region.position <= position < region.position + region.size_bytes, bit
                assert found.last_offset >= offset, "else a client asks for ever"
        flip(path, position + field + bit // 8, bit % 8)


def test_a_damaged_batch_at_the_log_end_is_met_too(tmp_path: Path) -> None:
    filled(tmp_path, batches=60).close()
    log = open_log(tmp_path, recovery_point=120)
    path = log.segments.all[-1].path(".log")
    position, header = list(iter_batches(path.read_bytes()))[-1]
    assert (header.record_count, log.log_end_offset) == (3, header.next_offset)
    flip(path, position + 26, 1)  # it claims one offset of its three
    assert log.read(header.base_offset, 1 << 20).first_batch_offset == header.base_offset
    for offset in (header.base_offset + 1, header.base_offset + 2):
        with pytest.raises(CorruptMessage, match=f"at byte {position} of"):
            log.read(offset, 1 << 20)


def test_what_follows_a_length_that_is_none_is_refused_not_empty(tmp_path: Path) -> None:
    log = filled(tmp_path, config=with_config(index_interval_bytes=1 << 20))
    path = log.segments.all[1].path(".log")
    batches = list(iter_batches(path.read_bytes()))
    position, header = batches[1]
    flip(path, position + 8, 7)  # below 0
    end = batches[-1][1].next_offset
    for offset in range(header.base_offset, end):
        with pytest.raises(CorruptMessage, match=f"at byte {position} of .*: offset {offset}$"):
            log.read(offset, 1 << 20)
    assert log.read(end, 1 << 20).first_batch_offset == end


def test_a_damaged_batch_is_met_before_and_behind_a_hole(tmp_path: Path) -> None:
    """Headers alone: batches of two records, of which a cleaner took every second one."""
    log = open_log(tmp_path, config=with_config(index_interval_bytes=1 << 20))
    for _ in range(8):
        append(log, 2)
    log.update_high_watermark(log.log_end_offset)
    log.roll(NOW_MS)
    segment = log.segments.all[0]
    path, data = segment.path(".log"), segment.path(".log").read_bytes()
    batches = list(iter_batches(data))
    kept = b"".join(data[at : at + header.size_bytes] for at, header in batches[::2])
    path.write_bytes(kept)
    segment.size_bytes = len(kept)
    (second, header), *_ = list(iter_batches(kept))[1:]
    assert log.read(2, 1 << 20).first_batch_offset == header.base_offset == 4
    flip(path, second + 23, 7)  # it ends before it begins
    for offset in (2, 4, 6):
        with pytest.raises(CorruptMessage, match=f"at byte {second} of"):
            log.read(offset, 1 << 20)
    assert log.read(8, 1 << 20).first_batch_offset == 8


def test_a_length_that_is_no_batchs_is_refused_at_its_own_offset(tmp_path: Path) -> None:
    log = filled(tmp_path)
    path = log.segments.all[0].path(".log")
    position, header = list(iter_batches(path.read_bytes()))[1]
    data = bytearray(path.read_bytes())
    data[position + 8 : position + 12] = (2).to_bytes(4, "big")  # above 0, and less than a header
    path.write_bytes(data)
    with pytest.raises(CorruptMessage, match=f"at byte {position} of"):
        log.read(header.base_offset, 1 << 20)
