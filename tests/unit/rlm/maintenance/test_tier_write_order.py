"""In which order the passes write: the world is a list of what they asked for."""

from io import BytesIO
from typing import Any

import pytest
from msgspec.structs import replace

from rlm.link.messages import OpenedSegment, PartitionSettings
from rlm.maintenance.copy_task import CustomMetadataTooLargeError, copy_pass
from rlm.maintenance.effects import (
    AddStarted,
    BeginCopy,
    Carry,
    DeleteObjects,
    Effect,
    LocalSegment,
    MoveStart,
    OpenLocal,
    PassResult,
    PutObjects,
    Report,
    StartedSeenMs,
    Task,
    UpdateState,
    Validate,
    WallMs,
    WasDeletedOnce,
)
from rlm.maintenance.expiration_task import FOLLOWERS_MS, expiration_pass
from rlm.maintenance.log_facts import LogFacts
from rlm.maintenance.ownership import OwnCopies
from rlm.maintenance.store_gate import StoreGate
from rlmm.api import SegmentUpdate
from rsm_plugins.api import RemoteStorageError
from rsm_plugins.segment import LogSegmentData, RemoteLogSegmentMetadata, SegmentState
from tests.support.tier.facts import facts, local, remote
from tests.support.tier.log_in_memory import PARTITION

NOW_MS = 1_000_000
COPY_MAX_MS = 60_000


def local_segment(base_offset: int) -> LocalSegment:
    answer = OpenedSegment(
        PARTITION.topic_id,
        0,
        1,
        base_offset=base_offset,
        size_bytes=100,
        transaction_index_is_there=False,
        transaction_index_is_empty=True,
        leader_epoch_index=b"",
    )
    streams = [BytesIO() for _ in range(4)]
    return LocalSegment(answer, LogSegmentData(*streams[:3], None, streams[3], b""))


class Script:
    """Answers effects, and keeps those that write.

    Attributes:
        fail: raised in place of an answer to an effect of the given type.
    """

    def __init__(self, given: LogFacts, **answers: Any) -> None:
        self.given, self.answers = given, answers
        self.fail: dict[type[Effect], Exception] = {}
        self.written: list[str] = []
        self.deleted: list[RemoteLogSegmentMetadata] = []
        self.updates: list[SegmentUpdate] = []
        self.carried = -1

    def run(self, task: Task[PassResult], *, validations: int = 1) -> PassResult:
        """Run the pass; the second look at the log ends a copying one."""
        try:
            effect = next(task)
            while True:
                if isinstance(effect, Validate):
                    validations -= 1
                    if validations < 0:
                        task.close()
                        return PassResult()
                if isinstance(effect, Carry):
                    self.carried = effect.log_start
                error = self.fail.get(type(effect))
                if error is None:
                    effect = task.send(self.answer(effect))
                else:
                    self.written.append(f"failed {type(effect).__name__}")
                    effect = task.throw(error)
        except StopIteration as end:
            result: PassResult = end.value
            return result

    def answer(self, effect: Effect) -> Any:
        match effect:
            case Validate():
                return self.given
            case WallMs():
                return NOW_MS
            case OpenLocal(base_offset):
                return local_segment(base_offset)
            case BeginCopy():
                return b"n" * 16
            case AddStarted():
                self.written.append("STARTED")
            case PutObjects():
                self.written.append("objects")
                return self.answers.get("custom")
            case UpdateState(update):
                self.written.append(update.state.name)
                self.updates.append(update)
            case DeleteObjects(metadata):
                self.written.append("delete objects")
                self.deleted.append(metadata)
            case StartedSeenMs():
                return self.answers["seen_ms"]
            case WasDeletedOnce():
                return self.answers.get("deleted_once", False)
            case MoveStart(offset):
                self.written.append(f"log start {offset}")
                return self.answers.get("taken", True)
            case _:
                return isinstance(effect, Report) or None
        return None


def copying(script: Script, *, custom_max: int = 128) -> PassResult:
    task = copy_pass(
        PARTITION,
        PartitionSettings(),
        broker_id=1,
        custom_metadata_bytes_max=custom_max,
        throttle_ms=lambda size: 0,
        gate=StoreGate(),
    )
    return script.run(task)


def expiring(script: Script, **settings: int) -> PassResult:
    task = expiration_pass(
        PartitionSettings(**settings),
        OwnCopies(),
        broker_id=1,
        copy_max_ms=COPY_MAX_MS,
        gate=StoreGate(),
    )
    return script.run(task)


TO_COPY = facts([local(0, 9), local(10, 19)], [], stable=20)


@pytest.mark.parametrize("custom", [None, b"where"])
def test_finished_is_written_once_and_after_the_objects(custom: bytes | None) -> None:
    script = Script(TO_COPY, custom=custom)
    copying(script)
    assert script.written == ["STARTED", "objects", "COPY_SEGMENT_FINISHED"]


@pytest.mark.parametrize(
    ("step", "written"),
    [(AddStarted, ["failed AddStarted"]), (PutObjects, ["STARTED", "failed PutObjects"])],
)
def test_a_copy_that_failed_is_never_finished(step: type[Effect], written: list[str]) -> None:
    script = Script(TO_COPY)
    script.fail[step] = RemoteStorageError("the store failed")
    with pytest.raises(RemoteStorageError):
        copying(script)
    assert script.written == written


def test_a_copy_with_too_much_custom_metadata_is_deleted_and_not_finished() -> None:
    script = Script(TO_COPY, custom=b"12345")
    with pytest.raises(CustomMetadataTooLargeError):
        copying(script, custom_max=4)
    assert script.written == ["STARTED", "objects", "delete objects"]
    assert [metadata.custom_metadata for metadata in script.deleted] == [b"12345"]


EXPIRED = facts([], [remote(1, 0, 9)], start=10, local_start=10)


@pytest.mark.parametrize(
    ("ago_ms", "finished"), [(0, False), (COPY_MAX_MS, False), (COPY_MAX_MS + 1, True)]
)
def test_a_segment_is_forgotten_one_copy_maximum_after_it_was_first_seen(
    ago_ms: int, finished: bool
) -> None:
    """The record's own time is another machine's, and long ago: 0 in these facts."""
    script = Script(EXPIRED, seen_ms=NOW_MS - ago_ms)
    expiring(script)
    expected = ["DELETE_SEGMENT_STARTED", "delete objects"]
    assert script.written == expected + ["DELETE_SEGMENT_FINISHED"] * finished


@pytest.mark.parametrize("state", list(SegmentState)[:2])
def test_a_deletion_names_the_state_by_which_it_was_validated(state: SegmentState) -> None:
    validated = remote(1, 0, 9, state=state)
    script = Script(facts([], [validated], start=10, local_start=10), seen_ms=0)
    expiring(script)
    assert [(update.state.name, update.seen_state) for update in script.updates] == [
        ("DELETE_SEGMENT_STARTED", state),
        ("DELETE_SEGMENT_FINISHED", None),
    ]


def test_objects_are_deleted_again_right_before_the_segment_is_forgotten() -> None:
    deleting = remote(1, 0, 9, state=SegmentState.DELETE_SEGMENT_STARTED)
    given = facts([], [deleting], start=10, local_start=10)
    waiting = Script(given, seen_ms=NOW_MS, deleted_once=True)
    expiring(waiting)
    assert waiting.written == []
    due = Script(given, seen_ms=0, deleted_once=True)
    expiring(due)
    assert due.written == ["delete objects", "DELETE_SEGMENT_FINISHED"]


def test_the_log_start_moves_before_anything_is_deleted() -> None:
    given = facts([], [remote(1, 0, 9), remote(2, 10, 19, at_ms=NOW_MS)], local_start=20)
    script = Script(given, seen_ms=NOW_MS)
    assert expiring(script, retention_ms=1_000).again_in_ms == 0
    assert script.written == ["log start 10"]


@pytest.mark.parametrize(("members", "deletes"), [(-1, False), (9, False), (10, True)])
def test_nothing_goes_that_a_follower_would_miss_if_it_led_next(
    members: int, deletes: bool
) -> None:
    """DeleteRecords moved the log start here, and gave up waiting for the followers."""
    given = facts([], [remote(1, 0, 9)], start=10, local_start=10)
    log = replace(given.log, members_log_start=members)
    script = Script(LogFacts(log, given.remote), seen_ms=NOW_MS)
    expiring(script)
    assert script.written == (["DELETE_SEGMENT_STARTED", "delete objects"] if deletes else [])
    assert script.carried == 10, "records say it from here on"


@pytest.mark.parametrize(
    ("members", "again_in_ms"), [(-1, FOLLOWERS_MS), (9, FOLLOWERS_MS), (10, 0)]
)
def test_a_pass_that_moves_the_log_start_waits_for_no_follower(
    members: int, again_in_ms: int
) -> None:
    """It would keep its thread from other partitions; and one that joins meanwhile may lead next,
    with what this description did not ask it for."""
    given = facts([], [remote(1, 0, 9), remote(2, 10, 19, at_ms=NOW_MS)], local_start=20)
    log = replace(given.log, members_log_start=members)
    script = Script(LogFacts(log, given.remote), seen_ms=NOW_MS)
    result = expiring(script, retention_ms=1_000)
    assert (script.written, result.again_in_ms) == (["log start 10"], again_in_ms)


def test_a_log_start_that_is_not_taken_deletes_nothing() -> None:
    given = facts([], [remote(1, 0, 9), remote(2, 10, 19, at_ms=NOW_MS)], local_start=20)
    script = Script(given, seen_ms=NOW_MS, taken=False)
    result = expiring(script, retention_ms=1_000)
    assert script.written == ["log start 10"]
    assert "refuses" in result.unhealthy


def test_a_delete_that_failed_is_counted_and_never_finished() -> None:
    script = Script(EXPIRED, seen_ms=0)
    script.fail[DeleteObjects] = RemoteStorageError("the store failed")
    assert expiring(script).store_errors == 1
    assert script.written == ["DELETE_SEGMENT_STARTED", "failed DeleteObjects"]
