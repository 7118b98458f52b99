"""Loading a partition of `__consumer_offsets`: all that can be read is read, damage is named."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from broker.coordinator.group.records import CommittedOffset, offset_key, offset_value
from broker.coordinator.group.state import GroupLimits, GroupState
from broker.coordinator.loading import Load
from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.batch import Codec
from kafka_protocol.records.control import ControlType, decode_control, end_transaction_batch
from kafka_protocol.records.records import Record, build_batch, iter_records
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import message, request
from local_log.config import LogConfig
from local_log.log.partition_log import PartitionLog
from local_log.recovery.survey import OpenRequest
from runtime.disk import Disk
from runtime.executors import InlinePool
from tests.support.worlds.local_log import NOW_MS, open_log, retain

P = ParamSpec("P")
T = TypeVar("T")
GOLDEN = Path(__file__).parents[3] / "golden" / "consumer-offsets"
CONFIG = LogConfig(segment_bytes=4_000)
CHUNK_BYTES = 100_000


def commit(partition: int, offset: int, group: str = "g") -> tuple[int, bytes, bytes, tuple[()]]:
    value = offset_value(CommittedOffset(offset, -1, "", NOW_MS))
    return NOW_MS, offset_key(group, "t", partition), value, ()


def written(directory: Path, batches: list[bytearray], config: LogConfig = CONFIG) -> PartitionLog:
    log = open_log(directory, config=config, topic="__consumer_offsets")
    for batch in batches:
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, from_client=False)
    return log


def loaded(log: PartitionLog, chunk_bytes: int = CHUNK_BYTES) -> tuple[GroupState, Load]:
    state = GroupState(GroupLimits())
    load = Load(log, state, disk=Disk(), chunk_bytes=chunk_bytes)
    asyncio.run(load.run(InlinePool(), lambda: True))
    return state, load


def offsets(state: GroupState, group: str = "g") -> dict[tuple[str, int], int]:
    asked = request(ApiKey.OFFSET_FETCH).cls.Groups(group_id=group, topics=None)
    slot = state.fetch_offsets(asked, require_stable=False)
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in slot.topics
        for one in topic.partitions
    }


def many(count: int = 60, codec: int = Codec.NONE) -> list[bytearray]:
    return [
        build_batch([commit(number, 100 + number), commit(99, number)], codec=codec)
        for number in range(count)
    ]


WANTED = {("t", number): 100 + number for number in range(60)} | {("t", 99): 59}


@pytest.mark.parametrize("codec", list(Codec))
def test_everything_is_read_over_all_segments(tmp_path: Path, codec: int) -> None:
    log = written(tmp_path, many(codec=codec))
    assert len(log.segments.all) > 1
    state, load = loaded(log)
    assert offsets(state) == WANTED
    assert (load.report.records, load.report.damaged) == (120, 0)


@pytest.mark.parametrize("chunk_bytes", [1, 61, 100, 333, 4_001])
def test_however_many_bytes_are_read_at_once(tmp_path: Path, chunk_bytes: int) -> None:
    state, load = loaded(written(tmp_path, many()), chunk_bytes)
    assert offsets(state) == WANTED
    assert load.report.damaged == 0


def test_what_lies_below_the_log_start_is_not_read(tmp_path: Path) -> None:
    log = written(tmp_path, many())
    log.update_high_watermark(log.log_end_offset)
    log.raise_log_start(21)  # in the middle of a batch
    state, _ = loaded(log)
    assert offsets(state) == {("t", n): 100 + n for n in range(11, 60)} | {("t", 99): 59}


def test_what_is_appended_during_the_load_is_not_part_of_it(tmp_path: Path) -> None:
    log = written(tmp_path, many())
    state = GroupState(GroupLimits())
    load = Load(log, state, disk=Disk(), chunk_bytes=CHUNK_BYTES)
    later = build_batch([commit(7, 1)])
    log.append_as_leader(later, leader_epoch=0, now_ms=NOW_MS, from_client=False)
    asyncio.run(load.run(InlinePool(), lambda: True))
    assert offsets(state) == WANTED


class InterruptedPool(InlinePool):
    """Something happens after so many calls."""

    def __init__(self, calls: int, happens: Callable[[], object]) -> None:
        super().__init__()
        self._left, self._happens = calls, happens

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result = await super().run(fn, *args, **kwargs)
        self._left -= 1
        if self._left == 0:
            self._happens()
        return result


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_segments_that_are_replaced_meanwhile_are_read_to_their_end(
    tmp_path: Path, calls: int
) -> None:
    log = written(tmp_path, many())
    log.update_high_watermark(log.log_end_offset)
    count = len(log.segments.all)

    def expire() -> None:
        log.raise_log_start(log.segments.all[2].base_offset)
        retain(log, NOW_MS)
        assert len(log.segments.all) < count
        for path in tmp_path.glob("*.deleted"):
            path.unlink()

    state = GroupState(GroupLimits())
    load = Load(log, state, disk=Disk(), chunk_bytes=1_000)
    asyncio.run(load.run(InterruptedPool(calls, expire), lambda: True))
    found = offsets(state)
    assert load.report.damaged == 0
    # Those of the expired segments may be there or not; they were read where the files were open.
    assert found == (WANTED if calls > 1 else {key: WANTED[key] for key in found})
    assert {("t", number) for number in range(log.log_start_offset // 2, 60)} <= set(found)


# -- damage


def change(log: PartitionLog, batch: int, position: int, data: bytes) -> None:
    """Change bytes of a batch of the only segment."""
    [segment] = log.segments.all
    places = [at for at, _ in segment.batches(0)]
    with segment.path(".log").open("r+b") as file:
        file.seek(places[batch] + position)
        file.write(data)


ONE_SEGMENT = LogConfig(segment_bytes=1 << 20)
WITHOUT_7 = {key: value for key, value in WANTED.items() if key != ("t", 7)}


@pytest.mark.parametrize(
    ("position", "data"),
    [
        pytest.param(70, b"\xff", id="a record"),
        pytest.param(17, b"\0\0\0\0", id="the checksum"),
        pytest.param(8, b"\x7f\xff\xff\xff", id="a length beyond the file"),
        pytest.param(8, b"\0\0\0\1", id="a length below a header's"),
        pytest.param(8, b"\xff\xff\xff\xff", id="a negative length"),
        pytest.param(16, b"\7", id="the magic"),
        pytest.param(0, os.urandom(61), id="the header"),
        pytest.param(0, b"\0" * 100, id="zeros"),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [150, CHUNK_BYTES])
def test_a_damaged_batch_costs_what_is_in_it_and_is_named(
    tmp_path: Path, position: int, data: bytes, chunk_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = written(tmp_path, many(), ONE_SEGMENT)
    change(log, 7, position, data)
    state, load = loaded(log, chunk_bytes)
    assert offsets(state) == WITHOUT_7
    assert load.report.damaged >= 1
    assert "__consumer_offsets-0" in caplog.text


@pytest.mark.parametrize("chunk_bytes", [150, CHUNK_BYTES])
@pytest.mark.parametrize("claimed", [-3, 0, 12, 16, 110, 119, 120, 1 << 40])
def test_the_place_in_the_file_counts_where_a_base_offset_is_damaged(
    tmp_path: Path, claimed: int, chunk_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = written(tmp_path, many(), ONE_SEGMENT)
    change(log, 7, 0, claimed.to_bytes(8, "big", signed=True))
    state, load = loaded(log, chunk_bytes)
    assert offsets(state) == WANTED
    assert load.report.damaged == 1
    assert "counts where it lies" in caplog.text


def test_a_damaged_base_offset_below_the_log_start_brings_nothing_back(tmp_path: Path) -> None:
    log = written(tmp_path, many(), ONE_SEGMENT)
    log.update_high_watermark(log.log_end_offset)
    log.raise_log_start(21)
    change(log, 3, 0, (1 << 40).to_bytes(8, "big"))
    change(log, 20, 0, (2).to_bytes(8, "big"))
    state, load = loaded(log)
    assert offsets(state) == {("t", n): 100 + n for n in range(11, 60)} | {("t", 99): 59}
    assert load.report.damaged == 2


class CountingPool(InlinePool):
    """Counts its calls."""

    calls = 0

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.calls += 1
        return await super().run(fn, *args, **kwargs)


def test_a_file_that_has_become_short_is_read_to_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = written(tmp_path, many(), ONE_SEGMENT)
    [segment] = log.segments.all
    places = [at for at, _ in segment.batches(0)]
    os.truncate(segment.path(".log"), places[30] + 10)
    state, pool = GroupState(GroupLimits()), CountingPool()
    load = Load(log, state, disk=Disk(), chunk_bytes=1_000)
    asyncio.run(load.run(pool, lambda: True))
    assert pool.calls < 20
    assert offsets(state) == {("t", n): 100 + n for n in range(30)} | {("t", 99): 29}
    assert load.report.damaged == 1
    assert "bytes are missing" in caplog.text


def test_a_record_that_is_no_commit_costs_its_key_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = (NOW_MS, offset_key("g", "t", 5), b"\0\4\1", ())
    log = written(tmp_path, [build_batch([commit(1, 11), bad, commit(2, 12)])])
    state, load = loaded(log)
    assert offsets(state) == {("t", 1): 11, ("t", 2): 12}
    assert load.report.damaged == 1
    assert "offset 1 of __consumer_offsets" in caplog.text


def test_very_many_damages_are_counted_and_not_all_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [(NOW_MS, offset_key("g", "t", number), b"\0\4\1", ()) for number in range(200)]
    _, load = loaded(written(tmp_path, [build_batch(bad)]))
    assert load.report.damaged == 200
    assert len(caplog.records) < 30
    assert "damage found: 200 records and batches in all" in caplog.text


# -- transactions


@pytest.mark.parametrize("end", [ControlType.COMMIT, ControlType.ABORT, None])
def test_what_a_transaction_wrote_counts_when_it_was_committed(
    tmp_path: Path, end: ControlType | None
) -> None:
    batches = [
        build_batch([commit(1, 11)]),
        build_batch([commit(1, 12)], producer_id=5, producer_epoch=0, is_transactional=True),
    ]
    log = written(tmp_path, batches)
    if end is not None:
        marker = end_transaction_batch(
            end,
            base_offset=2,
            leader_epoch=0,
            timestamp_ms=NOW_MS,
            producer_id=5,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        log.append_batches(marker, now_ms=NOW_MS)
    state, _ = loaded(log)
    assert offsets(state) == {("t", 1): 12 if end is ControlType.COMMIT else 11}


def stable(state: GroupState) -> dict[int, tuple[int, int]]:
    """Error and offset by partition, for a reader that asks for stable offsets."""
    cls = request(ApiKey.OFFSET_FETCH).cls.Groups
    asked = cls(group_id="g", topics=[cls.Topics(name="t", partition_indexes=[0, 1, 2])])
    slot = state.fetch_offsets(asked, require_stable=True)
    return {
        one.partition_index: (one.error_code, one.committed_offset)
        for topic in slot.topics
        for one in topic.partitions
    }


def test_a_transaction_without_marker_is_open_until_offsets_are_deleted(
    tmp_path: Path,
) -> None:
    """Answers of Apache Kafka 4.3.1 to a log of these batches."""
    batches = [
        build_batch([commit(0, 10)]),
        build_batch(
            [commit(0, 99), commit(1, 77)],
            producer_id=5,
            producer_epoch=0,
            is_transactional=True,
        ),
    ]
    log = written(tmp_path, batches)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 1  # where compaction ends
    state, _ = loaded(log)
    unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert stable(state) == {0: unstable, 1: unstable, 2: (0, -1)}
    assert offsets(state) == {("t", 0): 10}
    state.replay(*commit(1, 5)[1:3], offset=3)
    assert stable(state)[1] == unstable
    state.replay(commit(1, 0)[1], None, offset=4)
    assert stable(state) == {0: unstable, 1: (0, -1), 2: (0, -1)}
    assert list(state.unload(ErrorCode.NOT_COORDINATOR)) == []
    assert list(state.let_go()) is not None


def test_a_batch_of_a_producer_without_transaction_waits_for_no_marker(tmp_path: Path) -> None:
    batch = build_batch([commit(1, 11)], producer_id=5, producer_epoch=0, base_sequence=0)
    state, _ = loaded(written(tmp_path, [batch]))
    assert offsets(state) == {("t", 1): 11}
    assert state.counts.pending_offsets == 0


# -- what Apache Kafka wrote


def golden_log(name: str, work: Path) -> PartitionLog:
    directory = work / name
    shutil.copytree(GOLDEN / name, directory)
    for path in (directory, *directory.iterdir()):
        path.chmod(0o755)
    topic, _, number = name.rpartition("-")
    return PartitionLog.open(
        OpenRequest(
            TopicPartition(topic, int(number)), directory, LogConfig(), NOW_MS, is_clean=True
        ),
        topic_id=bytes(16),
        disk=Disk(),
    )


Place = tuple[str, str, int]


def committed_in(record: Record) -> tuple[Place, int | None] | None:
    """Group, topic, partition and offset of a record, by the schemas alone."""
    assert record.key is not None
    if int.from_bytes(record.key[:2], "big") not in (0, 1):
        return None
    key, _ = message("OffsetCommitKey").decode(record.key, 0, 2)
    place = (key.group, key.topic, key.partition)
    if record.value is None:
        return place, None
    version = int.from_bytes(record.value[:2], "big")
    value, _ = message("OffsetCommitValue").decode(record.value, version, 2)
    return place, value.offset


def by_hand(log: PartitionLog) -> dict[str, dict[tuple[str, int], int]]:
    """The last commit of each key; what is pending at the end is excluded."""
    found: dict[Place, int | None] = {}
    pending: dict[int, list[tuple[Place, int | None]]] = {}
    for segment in log.segments.all:
        data = segment.read_bytes(0, segment.size_bytes)
        for position, header in segment.batches(0):
            records = list(iter_records(data, position))
            if header.is_control:
                ended = pending.pop(header.producer_id, [])
                if decode_control(records[0])[0] is ControlType.COMMIT:
                    found.update(ended)
                continue
            commits = [each for each in map(committed_in, records) if each is not None]
            if header.is_transactional:
                pending.setdefault(header.producer_id, []).extend(commits)
            else:
                found.update(commits)
    groups: dict[str, dict[tuple[str, int], int]] = {}
    for (group, topic, partition), offset in found.items():
        if offset is not None:
            groups.setdefault(group, {})[topic, partition] = offset
    return groups


@pytest.mark.parametrize(
    "name", sorted(path.name for path in GOLDEN.iterdir() if path.name.startswith("__consumer"))
)
def test_a_directory_of_kafka_is_loaded_whole(name: str, tmp_path: Path) -> None:
    log = golden_log(name, tmp_path)
    state, load = loaded(log)
    assert load.report.damaged == 0
    wanted = by_hand(log)
    assert {group: offsets(state, group) for group in wanted} == wanted
    assert state.counts.offsets == sum(map(len, wanted.values()))
