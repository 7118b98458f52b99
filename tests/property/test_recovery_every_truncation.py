"""A kill leaves any prefix of the bytes: every length must open, cut to whole batches."""

import shutil
from pathlib import Path

import pytest

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.partition_log import PartitionLog
from runtime.disk import Disk

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=120, segment_index_bytes=1200)


def _open(directory: Path, **known: object) -> PartitionLog:
    return PartitionLog.open(
        directory,
        topic_partition=TopicPartition("t", 0),
        topic_id=bytes(16),
        config=CONFIG,
        disk=Disk(),
        now_ms=NOW_MS,
        **known,  # type: ignore[arg-type]
    )


def _write(directory: Path) -> bytes:
    directory.mkdir()
    log = _open(directory)
    for i in range(12):
        records = [(NOW_MS + i, b"k%d" % i, b"v" * (i * 3), []) for _ in range(1 + i % 2)]
        sequences = [sum(1 + j % 2 for j in range(i))]
        batch = build_batch(records, producer_id=4, producer_epoch=0, base_sequence=sequences[0])
        log.append_as_leader(batch, leader_epoch=i // 5, now_ms=NOW_MS)
    assert log.segment_count == 3
    log.close(clean=False)
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def _cut(source: Path, target: Path, length: int) -> None:
    """The files as a kill leaves them: log bytes up to `length`, everything else as it was."""
    shutil.copytree(source, target)
    for path in sorted(target.glob("*.log")):
        data = path.read_bytes()
        if length <= 0 and path.name != f"{0:020d}.log":
            for sibling in target.glob(f"{path.stem}.*"):
                sibling.unlink()
            continue
        path.write_bytes(data[: max(length, 0)])
        length -= len(data)


def _check(directory: Path, whole: bytes, length: int, **known: object) -> None:
    headers = [h for at, h in iter_batches(whole) if at + h.size_bytes <= length]
    end = headers[-1].next_offset if headers else 0
    log = _open(directory, **known)
    assert log.log_end_offset == end, f"cut at {length}"
    found = [h for segment in log.segments for _, h in segment.batches(0)]
    assert found == headers
    for header in headers:
        assert log.epochs.epoch_for(header.base_offset) == header.partition_leader_epoch
        assert log.read(header.base_offset, 1 << 20).first_batch_offset == header.base_offset
        at = log.offset_for_timestamp(header.max_timestamp)
        assert at is not None
        assert at.offset <= header.last_offset
    assert log.epochs.latest_epoch == (headers[-1].partition_leader_epoch if headers else None)
    if headers:
        state = log.producers.producers[4].batches[-1]
        assert (state.last_sequence, state.last_offset) == (end - 1, end - 1)
    following = build_batch(
        [(NOW_MS, b"k", b"v", [])], producer_id=4, producer_epoch=0, base_sequence=end
    )
    assert log.append_as_leader(following, leader_epoch=9, now_ms=NOW_MS).first_offset == end
    log.close()
    assert _open(directory, is_clean=True).log_end_offset == end + 1


def test_every_length_opens_cut_to_whole_batches(tmp_path):
    whole = _write(tmp_path / "whole")
    for length in range(len(whole) + 1):
        work = tmp_path / "cut"
        _cut(tmp_path / "whole", work, length)
        _check(work, whole, length)
        shutil.rmtree(work)


@pytest.mark.parametrize("stride", [1])
def test_every_length_of_the_last_segment_opens_from_the_recovery_point(stride, tmp_path):
    whole = _write(tmp_path / "whole")
    sizes = [path.stat().st_size for path in sorted((tmp_path / "whole").glob("*.log"))]
    last_base = int(max((tmp_path / "whole").glob("*.log")).stem)
    for length in range(sum(sizes[:-1]) + 1, len(whole) + 1, stride):
        work = tmp_path / "cut"
        _cut(tmp_path / "whole", work, length)
        _check(work, whole, length, recovery_point=last_base)
        shutil.rmtree(work)


def test_flipped_byte_anywhere_cuts_the_log_before_its_batch(tmp_path):
    whole = _write(tmp_path / "whole")
    first = tmp_path / "whole" / f"{0:020d}.log"
    size = first.stat().st_size
    for position in range(0, size, 7):
        work = tmp_path / "flipped"
        shutil.copytree(tmp_path / "whole", work)
        data = bytearray(first.read_bytes())
        data[position] ^= 0x55
        (work / first.name).write_bytes(data)
        log = _open(work)
        starts = [(at, h) for at, h in iter_batches(whole) if at + h.size_bytes <= size]
        hit = next((at, h) for at, h in starts if at + h.size_bytes > position)
        # Base offset and epoch are outside the checksum: a flip there may pass as a hole.
        if position - hit[0] >= 16 or 8 <= position - hit[0] < 12:
            assert log.log_end_offset == hit[1].base_offset
        log.close()
        shutil.rmtree(work)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", ["missing", "empty", "cut", "zeros"])
def test_lost_indexes_are_made_again(how, clean, tmp_path):
    whole = _write(tmp_path / "whole")
    log = _open(tmp_path / "whole")
    log.close()
    golden = {
        path.name: path.read_bytes()
        for path in (tmp_path / "whole").iterdir()
        if path.suffix in (".index", ".timeindex") and path.stat().st_size
    }
    for name, content in golden.items():
        work = tmp_path / "lost"
        shutil.copytree(tmp_path / "whole", work)
        path = work / name
        match how:
            case "missing":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "cut":
                path.write_bytes(content[:-5])
            case "zeros":
                path.write_bytes(bytes(len(content)))
        log = _open(work, is_clean=clean)
        found = [h for segment in log.segments for _, h in segment.batches(0)]
        assert found == [h for _, h in iter_batches(whole)]
        log.close()
        assert path.read_bytes() == content, name
        shutil.rmtree(work)
