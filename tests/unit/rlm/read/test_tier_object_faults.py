"""A remote object that is missing, short or foreign is named in the health answer until it is well.

Beside the answer to the client (docs/tiering.md §6).
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.primitives import uuid_to_text
from rlm.link.endpoint import LinkFailureError
from rlm.link.messages import (
    AuxiliaryState,
    AuxiliaryStateAnswer,
    Health,
    OffsetForTimestamp,
    PartitionHealth,
    TimestampAnswer,
    Unassign,
)
from rlm.read.object_faults import LOG, NAMED_MAX, REMEMBERED_MAX, ObjectFaults
from rlmm.api import MetadataNotReadyError
from rsm_plugins.api import RemoteObjectDamagedError, RemoteResourceNotFoundError
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from rsm_plugins.testing import Body, Operation, segment
from tests.support.tier.log_in_memory import PARTITION, values_of
from tests.support.tier.pair import NAMES, Pair, bytes_of, error_of


def unhealthy(pair: Pair) -> list[PartitionHealth]:
    pair.scheduler.advance(1_000)
    pair.pump()
    return next(each for each in reversed(pair.told) if isinstance(each, Health)).unhealthy


def first_segment(pair: Pair) -> RemoteLogSegmentMetadata:
    return min(pair.metadata.list_segments(PARTITION), key=lambda each: each.start_offset)


def finished(number: int = 1) -> RemoteLogSegmentMetadata:
    return replace(segment(number), state=SegmentState.COPY_SEGMENT_FINISHED)


def objects(pair: Pair, suffix: str) -> Path:
    return min(pair.store.rglob(f"*{suffix}"))


def only_reason(pair: Pair) -> str:
    (found,) = unhealthy(pair)
    assert (found.topic_id, found.partition) == NAMES
    name = uuid_to_text(first_segment(pair).id.id)
    assert found.reason.startswith(f"remote segment {name} from offset 0: its ")
    return found.reason


def forget_what_is_cached(pair: Pair) -> None:
    pair.reads.chunks._chunks.clear()
    pair.reads.indexes._parsed.clear()
    fresh = LocalFsRemoteStorageManager()  # remembers no manifest
    fresh.configure({"dir": str(pair.store)})
    pair.storage._inner = fresh


@pytest.mark.parametrize(
    ("suffix", "named"),
    [
        (".log", "log is missing in the store"),
        (".indexes", "offset index is missing in the store"),
        (".manifest", "offset index is missing in the store"),
    ],
)
def test_a_missing_object_gives_56_and_is_named_until_it_is_read_again(
    pair: Pair, suffix: str, named: str
) -> None:
    forget_what_is_cached(pair)
    path = objects(pair, suffix)
    data = path.read_bytes()
    path.unlink()
    assert error_of(pair.read(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    reason = only_reason(pair)
    assert named in reason
    assert path.name in reason, "the plugin knows the object's key"
    path.write_bytes(data)
    assert unhealthy(pair), "nobody has read it yet"
    pair.scheduler.advance(10_000)
    assert bytes_of(pair.read(0))
    assert unhealthy(pair) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-10],
        lambda data: bytes(len(data)),
        lambda data: bytes(data[:150]) + bytes((data[150] ^ 1,)) + bytes(data[151:]),
    ],
    ids=["short", "foreign", "flipped"],
)
def test_a_damaged_log_gives_2_and_is_named_until_it_is_read_again(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    pair = Pair(tmp_path, chunk_bytes=100_000)
    pair.log.fill(3, records=20)
    pair.assign()
    path = objects(pair, ".log")
    data = path.read_bytes()
    path.write_bytes(spoil(data))
    assert error_of(pair.read(0)) == ErrorCode.CORRUPT_MESSAGE
    assert "log is damaged in the store" in only_reason(pair)
    path.write_bytes(data)
    pair.scheduler.advance(10_000)
    assert bytes_of(pair.read(0))
    assert unhealthy(pair) == []


def test_another_part_of_a_damaged_log_does_not_make_it_well(pair: Pair) -> None:
    path = objects(pair, ".log")
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    assert error_of(pair.read(18)) == ErrorCode.CORRUPT_MESSAGE
    assert bytes_of(pair.read(0, max_bytes=100))
    assert "log is damaged" in only_reason(pair)


def test_damaged_indexes_give_2_and_are_named(pair: Pair) -> None:
    forget_what_is_cached(pair)
    path = objects(pair, ".indexes")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes((data[-1] ^ 1,)))
    assert error_of(pair.read(0)) == ErrorCode.CORRUPT_MESSAGE
    assert "offset or time index is damaged in the store" in only_reason(pair)
    path.write_bytes(data)
    pair.scheduler.advance(10_000)
    assert bytes_of(pair.read(0))
    assert unhealthy(pair) == []


def test_one_bad_transfer_is_fetched_again_and_nothing_is_unhealthy(pair: Pair) -> None:
    pair.storage.damage_next(Operation.FETCH, Body(flip_at=150))
    assert bytes_of(pair.read(0))
    assert unhealthy(pair) == []


def test_an_outage_of_the_store_names_no_object(pair: Pair) -> None:
    pair.storage.down = True
    assert error_of(pair.read(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert [each.reason.partition(",")[0] for each in unhealthy(pair)] == [
        "reads of the store fail"
    ]


def test_an_object_that_is_not_in_another_store_is_not_lost(pair: Pair) -> None:
    """Else it is named until it is read again, when the right store has long been mounted."""
    objects(pair, ".log").unlink()
    pair.tier.calls.store_is_missing = True
    assert error_of(pair.read(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert unhealthy(pair) == []
    pair.tier.calls.store_is_missing = False
    pair.scheduler.advance(10_000)
    assert error_of(pair.read(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert "missing in the store" in only_reason(pair)


def test_the_objects_of_a_segment_that_is_deleted_may_be_missing(pair: Pair) -> None:
    path = objects(pair, ".log")
    path.unlink()
    assert error_of(pair.read(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(unhealthy(pair)) == 1
    pair.log.delete_records(20)
    pair.scheduler.advance(60_000)
    pair.pump()
    assert unhealthy(pair) == []


def test_a_deletion_between_look_up_and_fetch_is_no_fault(pair: Pair) -> None:
    faults = ObjectFaults(lambda which: None)
    faults.failed(first_segment(pair), LOG, RemoteResourceNotFoundError("gone"))
    assert len(faults) == 0


def test_a_partition_that_is_hosted_elsewhere_is_not_told_of(pair: Pair) -> None:
    objects(pair, ".log").unlink()
    assert error_of(pair.read(0)) == ErrorCode.KAFKA_STORAGE_ERROR
    pair.ask(Unassign(*NAMES, 1))
    assert unhealthy(pair) == []


def test_a_search_by_time_names_the_damaged_log(pair: Pair) -> None:
    path = objects(pair, ".log")
    path.write_bytes(bytes(len(path.read_bytes())))
    question = OffsetForTimestamp(
        *NAMES, 1, timestamp_ms=1_003, log_start_offset=0, chain=[(1, 0)], wait_ms=500
    )
    answer = pair.ask(question, 600).message
    assert isinstance(answer, TimestampAnswer)
    assert answer.error == ErrorCode.CORRUPT_MESSAGE
    assert "log is damaged in the store" in only_reason(pair)


def test_a_damaged_producer_snapshot_is_not_given_to_a_follower(pair: Pair) -> None:
    question = AuxiliaryState(*NAMES, 1, offset=5, epoch=1)
    for spoilt in (1, 2):
        forget_what_is_cached(pair)
        healthy = Body()
        bodies = [healthy] + [Body(flip_at=3)] * spoilt  # the first answer is the epoch chain
        for body in bodies:
            pair.storage.damage_next(Operation.FETCH_INDEX, body)
        if spoilt == 1:
            assert isinstance(pair.ask(question).message, AuxiliaryStateAnswer)
            assert unhealthy(pair) == []
        else:
            with pytest.raises(LinkFailureError) as raised:
                pair.ask(question)
            assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
            assert "producer snapshot is damaged" in only_reason(pair)
    assert isinstance(pair.ask(question).message, AuxiliaryStateAnswer)
    assert unhealthy(pair) == []


def test_a_bounded_number_is_named_and_the_rest_counted() -> None:
    known: dict[bytes, RemoteLogSegmentMetadata] = {}
    faults = ObjectFaults(lambda which: known[which.id])
    for number in range(REMEMBERED_MAX + 50):
        one = finished(number)
        known[one.id.id] = one
        faults.failed(one, LOG, RemoteObjectDamagedError("cut"), (0, 10))
    found = faults.unhealthy()
    assert len(found) == NAMED_MAX + 1
    more = f"and {REMEMBERED_MAX - NAMED_MAX} more remote objects are missing or damaged"
    assert found[-1].reason.startswith(f"{more}. Remedy: ")


def test_a_damaged_stretch_is_well_when_all_of_it_was_read_well() -> None:
    one = finished()
    faults = ObjectFaults(lambda which: one)
    faults.failed(one, LOG, RemoteObjectDamagedError("cut"), (100, 200))
    for span, left in (((0, 100), 1), ((120, 150), 1), ((150, 300), 1), ((90, 130), 0)):
        faults.read_well(one, LOG, span)
        assert len(faults) == left, span


def test_each_damaged_stretch_of_a_log_must_be_read_well() -> None:
    faults, one = ObjectFaults(lambda _id: finished()), finished()
    for span in ((100, 200), (400, 500)):
        faults.failed(one, LOG, RemoteObjectDamagedError("bad"), span)
    for span, left in (((400, 500), 1), ((0, 50), 1), ((300, 350), 1), ((100, 200), 0)):
        faults.read_well(one, LOG, span)
        assert len(faults) == left, span


def test_a_stretch_that_was_read_well_makes_no_other_one_bad() -> None:
    faults, one = ObjectFaults(lambda _id: finished()), finished()
    faults.failed(one, LOG, RemoteObjectDamagedError("bad"), (100, 200))
    faults.read_well(one, LOG, (0, 50))
    faults.read_well(one, LOG, (100, 200))
    assert len(faults) == 0


def test_without_ready_metadata_the_last_known_faults_stay_unhealthy() -> None:
    def segment_of(_id: object) -> RemoteLogSegmentMetadata:
        if not is_ready:
            raise MetadataNotReadyError("starting")
        return finished()

    faults, is_ready = ObjectFaults(segment_of), True
    faults.failed(finished(), LOG, RemoteResourceNotFoundError("gone"))
    is_ready = False
    assert len(faults.unhealthy()) == 1
    assert len(faults) == 1


def three_epochs(root: Path, log_start: int) -> Pair:
    """One closed segment: offsets 0 to 4 of epoch 1, 5 to 9 of epoch 2, 10 to 14 of epoch 3."""
    pair = Pair(root, chunk_bytes=100_000)
    pair.log.append(5)
    for _ in range(2):
        pair.log.new_epoch()
        pair.log.append(5)
    pair.log.roll()
    pair.log.delete_records(log_start)
    pair.assign()
    pair.log.expire_local()
    assert pair.log.local_start == 15
    return pair


@pytest.mark.parametrize("log_start", [0, 2, 5, 7, 10, 12, 14])
def test_everything_from_the_log_start_on_is_served(tmp_path: Path, log_start: int) -> None:
    pair = three_epochs(tmp_path, log_start)
    for offset in range(log_start, 15):
        epoch = 1 + offset // 5
        received = pair.read(offset, epoch=epoch, epoch_end=5 * epoch)
        assert error_of(received) == ErrorCode.NONE, offset
        expected = {(epoch, n): pair.log.truth[epoch, n] for n in range(offset, 5 * epoch)}
        assert values_of(bytes_of(received)) == expected
