"""Log directories of small logs, and what one start makes of them after one file was damaged.

Filled once, in both ways a life can end; then written again for every case. What was acknowledged
is kept beside the files, as lists: nothing here knows how a log is recovered.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from broker.node.directories import DirectoryError
from kafka_protocol.errors import CorruptFileError, KafkaError
from kafka_protocol.files import offset_checkpoint
from kafka_protocol.records.control import ControlType, end_transaction_batch
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicPartition
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError
from local_log.recovery.acceptance import Accepted, write_accepted
from metadata_topic.image.image import MetadataImage
from runtime.disk import Disk
from tests.support.damage.whole_starts import FIRST, NOW_MS, SECOND, WholeStart, format_directories
from tests.support.worlds.local_log import read_bytes

Lane = tuple[str, int]
PLAIN, PLAIN_1, TIERED, HOLES, SWAPPED = (
    ("orders", 0),
    ("orders", 1),
    ("tiered", 0),
    ("holes", 0),
    ("swapped", 0),
)
COMMON: tuple[Lane, ...] = (PLAIN, PLAIN_1, TIERED)
RARE: tuple[Lane, ...] = (HOLES, SWAPPED)
"""What lies together in one pair of log directories: fewer partitions make quicker starts."""
_SMALL = LogConfig(index_interval_bytes=100, segment_index_bytes=48)
_TIERED = replace(_SMALL, remote_storage_enable=True, local_retention_bytes=1)
CONFIGS = {"orders": _SMALL, "tiered": _TIERED, "holes": _SMALL, "swapped": _SMALL, "gone": _SMALL}
PRODUCER = 7


@dataclass(frozen=True)
class Batch:
    """One acknowledged batch as it was written.

    Attributes:
        offset, next_offset: of its first record, and after its last one.
        file: below the root.
    """

    offset: int
    next_offset: int
    data: bytes
    file: str
    position: int

    @property
    def end(self) -> int:
        return self.position + len(self.data)


@dataclass
class Promised:
    """What was acknowledged of one partition.

    Attributes:
        flushed: below this offset (exclusive) nothing may be lost, whatever was damaged.
        is_sparse: a cleaner works here, so that offsets may be missing.
    """

    home: str
    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    flushed: int = 0
    aborted: tuple[tuple[int, int], ...] = ()
    last_sequence: int = -1
    is_sparse: bool = False

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset

    def in_file(self, file: str) -> list[Batch]:
        return [batch for batch in self.batches if batch.file == file]


@dataclass
class Base:
    """Files by path below the root, and the metadata of their last moment."""

    files: dict[str, bytes]
    image: MetadataImage
    promised: dict[Lane, Promised]
    is_clean: bool


@dataclass
class Served:
    """A partition that is open."""

    start: int
    is_start_known: bool
    end: int
    batches: list[bytes]
    aborted: tuple[tuple[int, int], ...]
    last_sequence: int
    epochs: tuple[int | None, ...]


@dataclass
class Found:
    """What one start did.

    Attributes:
        refused: why there was no start; empty: there was one.
        partitions: open, why not, or what reading it raised.
    """

    refused: str
    partitions: dict[Lane, Served | str | Exception]
    files: dict[str, bytes]


# ------------------------------------------------------------------ filling


def make_bases(root: Path, lanes: Sequence[Lane]) -> tuple[Base, Base]:
    """The directories after a clean stop, and after a kill at the same moment."""
    format_directories(root)
    first = WholeStart(root, configs=CONFIGS)
    first.start()
    for topic in dict.fromkeys(lane[0] for lane in lanes):
        first.create(topic, sum(lane[0] == topic for lane in lanes))
    promised = {lane: Promised(_home(root, lane)) for lane in lanes}
    for lane, known in promised.items():
        _fill(first, root, lane, known)
    first.stop(clean=True)
    if HOLES in promised:
        _make_hole(root, promised[HOLES])
    second = WholeStart(root, first.image, configs=CONFIGS, life=2)
    second.start()
    second.create("gone")
    _fill(second, root, ("gone", 0), Promised(_home(root, ("gone", 0))))
    second.remove("gone")
    for lane, known in promised.items():
        append(second, root, lane, known, "plain")
        log = log_of(second, lane)
        log.flush()
        known.flushed = known.end
        log.update_high_watermark(known.flushed)
    if TIERED in promised:
        _drop_copied(second, promised[TIERED])
    for write in ("recovery_points", "log_starts", "high_watermarks"):
        getattr(second.logs, f"checkpoint_{write}")()
    for lane, known in promised.items():
        append(second, root, lane, known, "plain")
        log_of(second, lane).update_high_watermark(known.end)
    if SWAPPED in promised:
        promised[SWAPPED].is_sparse = True
    listed = offset_checkpoint.dump({TopicPartition(*SWAPPED): 3})
    (root / SECOND / offset_checkpoint.CLEANER_OFFSETS).write_bytes(listed)
    killed = Base(read_files(root), second.image, promised, is_clean=False)
    _add_leftovers(killed.files, promised)
    second.stop(clean=True)
    everything_flushed = {
        lane: replace(known, flushed=known.end) for lane, known in promised.items()
    }
    clean = Base(read_files(root), second.image, everything_flushed, is_clean=True)
    return clean, killed


def _fill(life: WholeStart, root: Path, lane: Lane, known: Promised) -> None:
    for step in ("begin", "abort", "plain"):
        append(life, root, lane, known, step)
    log_of(life, lane).roll(NOW_MS)
    append(life, root, lane, known, "plain")
    if lane == HOLES:
        log_of(life, lane).roll(NOW_MS)
        append(life, root, lane, known, "plain")
    if lane == PLAIN_1:
        log_of(life, lane).raise_log_start(1)
        known.start = 1


def _home(root: Path, lane: Lane) -> str:
    name = f"{lane[0]}-{lane[1]}"
    [place] = [one for one in (FIRST, SECOND) if (root / one / name).is_dir()]
    return f"{place}/{name}"


def log_of(life: WholeStart, lane: Lane) -> Any:
    return life.replicas.require(*lane).log


def append(life: WholeStart, root: Path, lane: Lane, known: Promised, step: str) -> None:
    """One batch: of a transaction, the marker that aborts it, or a plain one of two records."""
    partition = life.replicas.require(*lane)
    log, epoch = partition.log, partition.leader_epoch
    offset = log.log_end_offset
    path = max((root / known.home).glob("*.log"))
    position = path.stat().st_size
    if step == "abort":
        batch = end_transaction_batch(
            ControlType.ABORT,
            base_offset=0,
            leader_epoch=0,
            timestamp_ms=NOW_MS,
            producer_id=PRODUCER,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        known.aborted = ((PRODUCER, known.batches[-1].offset),)
    else:
        value = f"{lane[0]}/{lane[1]}/{offset}".encode()
        batch = build_batch(
            [(NOW_MS + offset, b"k", value, [])] * (1 if step == "begin" else 2),
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=known.last_sequence + 1,
            is_transactional=step == "begin",
        )
    log.append_as_leader(batch, leader_epoch=epoch, now_ms=NOW_MS, from_client=step != "abort")
    if step != "abort":
        known.last_sequence += 1 if step == "begin" else 2
    end = log.log_end_offset
    log.update_high_watermark(end)
    written = path.read_bytes()[position:]
    known.batches.append(Batch(offset, end, written, str(path.relative_to(root)), position))


def _make_hole(root: Path, known: Promised) -> None:
    """The segment in the middle was set aside, and that was accepted."""
    middle = sorted({batch.file for batch in known.batches})[1]
    gone = known.in_file(middle)
    known.batches = [batch for batch in known.batches if batch.file != middle]
    for path in (root / known.home).glob(f"{Path(middle).stem}.*"):
        if path.suffix == ".log":
            path.rename(path.with_name(f"{path.name}.0.0.cut"))
        elif path.suffix != ".snapshot":
            path.unlink()
    hole = (gone[0].offset, gone[-1].next_offset)
    write_accepted(Disk(), root / known.home, Accepted(holes=(hole,)))


def _drop_copied(life: WholeStart, known: Promised) -> None:
    """The closed segment is remote only; its files wait for their removal."""
    log = log_of(life, TIERED)
    closed = known.in_file(known.batches[0].file)
    epoch = log.epochs.epoch_for(closed[-1].next_offset - 1)
    assert log.set_copied_through(closed[-1].next_offset - 1, epoch)
    life.logs.run_retention(NOW_MS)
    assert log.local_log_start_offset == closed[-1].next_offset
    known.batches = known.batches[len(closed) :]
    known.aborted = ()


def _add_leftovers(files: dict[str, bytes], promised: Mapping[Lane, Promised]) -> None:
    """A compaction that was renaming its files, and one that was not so far."""
    for lane, suffix in ((SWAPPED, ".swap"), (PLAIN, ".cleaned")):
        if lane not in promised:
            continue
        stem = promised[lane].batches[0].file.removesuffix(".log")
        for kind in (".log", ".index", ".timeindex", ".txnindex"):
            files[stem + kind + suffix] = files[stem + kind]


def read_files(root: Path) -> dict[str, bytes]:
    """Of all files below a root; by bare calls, as there are thousands of starts."""
    found = {}
    for place, _, names in os.walk(root):
        for name in names:
            path = f"{place}/{name}"
            with open(path, "rb", buffering=0) as file:
                found[path.removeprefix(f"{root}/")] = file.read()
    return found


# ------------------------------------------------------------------ starting


def write_files(root: Path, files: Mapping[str, bytes]) -> None:
    """Make these the only files below a root."""
    wanted = {f"{root}/{name}": data for name, data in files.items()}
    for place, _, names in os.walk(root, topdown=False):
        for name in names:
            if f"{place}/{name}" not in wanted:
                os.unlink(f"{place}/{name}")
        if place != str(root) and not any(path.startswith(f"{place}/") for path in wanted):
            os.rmdir(place)
    for place in {path.rpartition("/")[0] for path in wanted}:
        os.makedirs(place, exist_ok=True)
    for path, data in wanted.items():
        with open(path, "wb", buffering=0) as file:
            file.write(data)


def start(root: Path, base: Base, changed: Mapping[str, bytes]) -> Found:
    """Write the files, start on them, look at every partition, and end as a kill does."""
    write_files(root, {**base.files, **changed})
    life = WholeStart(root, base.image, configs=CONFIGS, life=3)
    partitions: dict[Lane, Served | str | Exception] = {}
    refused = ""
    try:
        life.start()
        partitions = {lane: look(life, lane, known) for lane, known in base.promised.items()}
    except DirectoryError as error:
        refused = str(error)
    finally:
        life.stop()
    return Found(refused, partitions, read_files(root))


def look(life: WholeStart, lane: Lane, known: Promised) -> Served | str | Exception:
    try:
        log = log_of(life, lane)
        end = log.log_end_offset
        return Served(
            log.log_start_offset,
            log.log_start_known,
            end,
            list(_batches(log, max(log.log_start_offset, log.local_log_start_offset), end)),
            tuple(log.aborted_transactions(log.local_log_start_offset, end)),
            _last_sequence(log),
            tuple(log.epochs.epoch_for(batch.offset) for batch in known.batches),
        )
    except KafkaStorageError as error:
        return str(error)
    except (CorruptFileError, KafkaError) as error:
        return error


def _last_sequence(log: Any) -> int:
    state = log.producers.states.producers.get(PRODUCER)
    return -1 if state is None else int(state.last_sequence)


def _batches(log: Any, position: int, end: int) -> Iterator[bytes]:
    """What a client gets that asks again after the last record of each answer."""
    while position < end:
        data = read_bytes(log, position, 1 << 20)
        following = position
        for one in split(data):
            yield one
            delta = int.from_bytes(one[23:27], "big", signed=True)
            following = int.from_bytes(one[:8], "big", signed=True) + delta + 1
        if following <= position:
            return
        position = following


def split(data: bytes) -> Sequence[bytes]:
    """Batches by their lengths; a rest that is none is dropped, as clients do."""
    found, at = [], 0
    while at + 61 <= len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + 12
        if size < 61 or at + size > len(data):
            break
        found.append(data[at : at + size])
        at += size
    return found
