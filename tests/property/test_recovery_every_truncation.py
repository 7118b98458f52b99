"""Whatever is cut off or flipped: a log opens with what was acknowledged, or is left as it is.

What may be lost is said by the recovery point: nothing below it, also when it is unknown.

Places are drawn by a seed, which is printed: a part of them, and all where batches and segments
meet. TIDEMARK_ALL_PLACES=1 takes every place, TIDEMARK_PLACES_SEED=8812 replays a draw.
"""

import itertools
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from kafka_protocol.files import epoch_checkpoint
from kafka_protocol.records.batch import HEADER_SIZE, iter_batches
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.errors import LogRefused
from local_log.log import lookups
from local_log.log.partition_log import PartitionLog
from local_log.producers.state import BatchMeta
from local_log.recovery.survey import OpenRequest
from runtime.disk import Disk, OpenFile

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=120, segment_index_bytes=1200)
END = 18
FIRST_LOG = f"{0:020d}.log"
ALL_PLACES = bool(os.environ.get("TIDEMARK_ALL_PLACES"))
SEED = int(os.environ.get("TIDEMARK_PLACES_SEED", "0")) or Random().randrange(1, 1_000_000)


def _some(places: int, share: int, always: Iterable[int] = ()) -> list[int]:
    """One of `share` places of [0, places), drawn in each run of `share`, and those in `always`."""
    if ALL_PLACES:
        return list(range(places))
    print(f"replay: TIDEMARK_PLACES_SEED={SEED}")
    rng = Random(SEED)
    drawn = {rng.randrange(first, min(first + share, places)) for first in range(0, places, share)}
    return sorted(drawn | set(always))


def _edges(whole: bytes, *, around: int = 1) -> set[int]:
    """Where batches, which are also the segments' ends, meet, and the bytes beside."""
    ends = [0, *(at + header.size_bytes for at, header in iter_batches(whole))]
    near = {end + step for end in ends for step in range(-around, around + 1)}
    return {at for at in near if 0 <= at <= len(whole)}


class _HastyDisk(Disk):
    """Real files that are never fsynced: no power is cut here, and there are are many starts."""

    def fsync(self, file: OpenFile) -> None:
        pass

    def fsync_path(self, path: Path) -> None:
        pass


def _open(directory: Path, **known: object) -> PartitionLog:
    return PartitionLog.open(
        OpenRequest(TopicPartition("t", 0), directory, CONFIG, NOW_MS, **known),
        topic_id=bytes(16),
        disk=_HastyDisk(),
    )


def _write(directory: Path, *, clean: bool = False) -> bytes:
    directory.mkdir()
    log = _open(directory)
    for i in range(12):
        records = [(NOW_MS + i, b"k%d" % i, b"v" * (i * 3), []) for _ in range(1 + i % 2)]
        sequence = sum(1 + j % 2 for j in range(i))
        batch = build_batch(records, producer_id=4, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(batch, leader_epoch=i // 5, now_ms=NOW_MS)
    assert len(log.segments.all) == 3
    assert log.log_end_offset == END
    log.flush()
    log.close(clean=clean)
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def _cut(source: Path, target: Path, length: int) -> None:
    """The files as a kill leaves them: log bytes up to `length`, everything else as it was."""
    shutil.copytree(source, target)
    for path in sorted(target.glob("*.log")):
        data = path.read_bytes()
        if length <= 0 and path.name != FIRST_LOG:
            for sibling in target.glob(f"{path.stem}.*"):
                sibling.unlink()
            continue
        path.write_bytes(data[: max(length, 0)])
        length -= len(data)


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _record_bytes(files: dict[str, bytes]) -> int:
    """Of all that is or was part of the log; the zero tail of nothing counts."""
    return sum(len(data) for name, data in files.items() if name.endswith((".log", ".cut")))


def _check(directory: Path, whole: bytes, length: int, **known: object) -> None:
    headers = [h for at, h in iter_batches(whole) if at + h.size_bytes <= length]
    end = headers[-1].next_offset if headers else 0
    log = _open(directory, **known)
    assert log.log_end_offset == end, f"cut at {length}"
    found = [h for segment in log.segments.all for _, h in segment.batches(0)]
    assert found == headers
    for header in headers:
        assert log.epochs.epoch_for(header.base_offset) == header.partition_leader_epoch
        assert log.read(header.base_offset, 1 << 20).first_batch_offset == header.base_offset
        at = lookups.offset_for_timestamp(log, header.max_timestamp)
        assert at is not None
        assert at.offset <= header.last_offset
    assert log.epochs.latest_epoch == (headers[-1].partition_leader_epoch if headers else None)
    if headers:
        state = BatchMeta._make(log.producers.states.producers[4].batches[-1])
        assert (state.last_sequence, state.last_offset) == (end - 1, end - 1)
    following = build_batch(
        [(NOW_MS, b"k", b"v", [])], producer_id=4, producer_epoch=0, base_sequence=end
    )
    assert log.append_as_leader(following, leader_epoch=9, now_ms=NOW_MS).first_offset == end
    log.close()
    assert _open(directory, is_clean=True).log_end_offset == end + 1


def _refused_unchanged(directory: Path, **known: object) -> bool:
    """Whether the log is refused; then nothing on disk may have changed."""
    before = _files(directory)
    try:
        log = _open(directory, **known)
    except LogRefused:
        assert _files(directory) == before
        return True
    log.close(clean=False)
    return False


def _flips(whole: bytes, share: int) -> list[tuple[int, int]]:
    """Bytes of the log and the bit that flips in each; all of one batch's header are among them."""
    starts = [at for at, _ in iter_batches(whole)]
    rng = Random(SEED + 1)
    header = rng.choice(starts)
    places = _some(len(whole), share, range(header, header + HEADER_SIZE))
    return [(place, rng.randrange(8)) for place in places]


def test_every_length_opens_cut_to_whole_batches(tmp_path):
    whole = _write(tmp_path / "whole")
    for length in _some(len(whole) + 1, 6, _edges(whole)):
        work = tmp_path / "cut"
        _cut(tmp_path / "whole", work, length)
        _check(work, whole, length)
        shutil.rmtree(work)


@pytest.mark.parametrize("known", ["recovery point", "clean", "unknown", "unknown, watermark"])
def test_every_length_is_validated_by_what_was_flushed(known, tmp_path):
    whole = _write(tmp_path / "whole")
    ends = {0: 0} | {at + h.size_bytes: h.next_offset for at, h in iter_batches(whole)}
    flushed = 9
    for length in _some(len(whole) + 1, 10, _edges(whole)):
        work = tmp_path / "cut"
        _cut(tmp_path / "whole", work, length)
        end = ends[max(at for at in ends if at <= length)]
        match known:
            case "recovery point":
                refused = _refused_unchanged(work, recovery_point=flushed)
                assert refused == (end < flushed), length
            case "clean":
                refused = _refused_unchanged(
                    work, recovery_point=0, high_watermark=flushed, is_clean=True
                )
                assert refused == (end < flushed), length
            case "unknown":
                assert not _refused_unchanged(work, recovery_point=None)
            case "unknown, watermark":
                refused = _refused_unchanged(work, recovery_point=None, high_watermark=flushed)
                assert refused == (end < flushed), length
        shutil.rmtree(work)


@pytest.mark.parametrize("point", [0, 9, END, None])
def test_flipped_byte_anywhere_loses_nothing_that_was_flushed(point, tmp_path):
    whole = _write(tmp_path / "whole")
    batches = [(h, whole[at + 16 : at + h.size_bytes]) for at, h in iter_batches(whole)]
    last_size = batches[-1][0].size_bytes
    paths = sorted((tmp_path / "whole").glob("*.log"))
    positions = [(path, at) for path in paths for at in range(path.stat().st_size)]
    for number, bit in _flips(whole, 6 if point == 0 else 12):
        path, position = positions[number]
        work = tmp_path / "flipped"
        shutil.copytree(tmp_path / "whole", work)
        data = bytearray(path.read_bytes())
        data[position] ^= 1 << bit
        (work / path.name).write_bytes(data)
        before = _files(work)
        try:
            log = _open(work, recovery_point=point)
        except LogRefused:
            assert _files(work) == before
            # Not for the last batch alone: a stopped process may have left it so.
            assert point != 0 or number < len(whole) - last_size
            shutil.rmtree(work)
            continue
        # Of what is not known to be flushed a stop may have left the last batch incomplete.
        assert log.log_end_offset >= (batches[-1][0].base_offset if point is None else point)
        found = [
            (header, segment.read_bytes(at, header.size_bytes)[16:])
            for segment in log.segments.all
            for at, header in segment.batches(0)
        ]
        log.close(clean=False)
        lost = _record_bytes(before) - _record_bytes(_files(work))
        assert lost <= (last_size if number >= len(whole) - last_size else 0)
        if point is None or path == paths[-1] or point < int(paths[1].stem):
            # The epoch of a batch is outside its checksum; nothing else may differ.
            same = [(h._replace(partition_leader_epoch=0), body) for h, body in found]
            expected = [(h._replace(partition_leader_epoch=0), body) for h, body in batches]
            assert same == expected[: len(same)]
        else:  # below the recovery point nothing is read that its index does not make doubtful
            assert log.log_end_offset == END or path == paths[1]
        shutil.rmtree(work)


def test_flipped_byte_after_a_clean_stop_loses_nothing(tmp_path):
    whole = _write(tmp_path / "whole", clean=True)
    paths = sorted((tmp_path / "whole").glob("*.log"))
    positions = [(path, at) for path in paths for at in range(path.stat().st_size)]
    for number, bit in _flips(whole, 8):
        path, position = positions[number]
        work = tmp_path / "flipped"
        shutil.copytree(tmp_path / "whole", work)
        data = bytearray(path.read_bytes())
        data[position] ^= 1 << bit
        (work / path.name).write_bytes(data)
        if not _refused_unchanged(work, recovery_point=END, is_clean=True):
            logs = [found.read_bytes() for found in sorted(work.glob("*.log"))]
            assert len(b"".join(logs)) == len(whole)
        shutil.rmtree(work)


@pytest.mark.parametrize("point", [0, END])
def test_flipped_or_cut_epoch_chain_is_made_from_the_batches(point, tmp_path):
    _write(tmp_path / "whole")
    chain = (tmp_path / "whole" / "leader-epoch-checkpoint").read_bytes()
    wanted = epoch_checkpoint.parse(chain)
    changed = [chain[:length] for length in range(len(chain))]
    for position, bit in itertools.product(range(len(chain)), range(8)):
        data = bytearray(chain)
        data[position] ^= 1 << bit
        changed.append(bytes(data))
    for data in changed:
        work = tmp_path / "changed"
        shutil.copytree(tmp_path / "whole", work)
        (work / "leader-epoch-checkpoint").write_bytes(data)
        log = _open(work, recovery_point=point)
        if point == 0:
            assert log.epochs.entries() == wanted, data
        # Segments below the recovery point are not read: there its own checksum must tell.
        assert log.epochs.latest_epoch == wanted[-1].epoch, data
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
        found = [h for segment in log.segments.all for _, h in segment.batches(0)]
        assert found == [h for _, h in iter_batches(whole)]
        log.close()
        assert path.read_bytes() == content, name
        shutil.rmtree(work)
