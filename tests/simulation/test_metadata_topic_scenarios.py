"""Stories about owners, late writers and lost records; B* are of the model's findings."""

import pytest

from rlmm import records
from rlmm.api import (
    Fence,
    MetadataError,
    MetadataNotReadyError,
    MetadataRefusedError,
    MetadataWriteTimeoutError,
)
from rlmm.events import SegmentAdded, Stamp
from rlmm.testing import PARTITION, segment, update
from rlmm.topic_based.topic_port import metadata_partition_for
from rsm_plugins.segment import SegmentState
from tests.support.sim.clock import ManualClock
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tier.metadata_topic import (
    A1,
    A2,
    B2,
    DELETING,
    FINISHED,
    S0,
    S1,
    WRITE_WAIT_MS,
    Node,
    copied,
    known,
    truth,
)


def test_a_write_is_done_only_when_it_was_read_back(a: Node) -> None:
    a.own(A1)
    a.port.deaf = True
    done = a.manager.add(S0, A1, 5)
    a.turn()
    assert not done.done()  # it is in the topic, and nobody here has read it
    a.port.deaf = False
    a.turn()
    assert done.exception(0) is None
    assert a.segments() == [S0]


def test_a_write_whose_answer_is_lost_ends_the_ownership_after_its_time(
    a: Node, clock: ManualClock
) -> None:
    a.own(A1)
    a.port.silent = True
    done = a.manager.add(S0, A1, 5)
    a.turn()
    assert not done.done()
    clock.advance(WRITE_WAIT_MS)
    a.turn()
    assert isinstance(done.exception(0), MetadataWriteTimeoutError)
    assert not a.manager.is_ready(PARTITION)
    late = a.manager.update(update(S0, FINISHED), A1, 5)
    assert isinstance(late.exception(0), MetadataNotReadyError)


def test_after_a_time_out_only_the_next_barrier_tells_what_landed(
    a: Node, clock: ManualClock
) -> None:
    a.own(A1)
    a.manager.add(S0, A1, 5)
    a.turn()
    a.port.held = True
    finished = a.manager.update(update(S0, FINISHED), A1, 5)
    clock.advance(WRITE_WAIT_MS)
    a.turn()
    assert isinstance(finished.exception(0), MetadataWriteTimeoutError)
    owned = a.manager.own(PARTITION, A2)
    a.turn()
    assert not owned.done()  # FINISHED and the barrier lie in the queue, in this order
    a.port.land_waiting()
    a.turn()
    assert owned.exception(0) is None
    assert [one.state for one in a.segments()] == [FINISHED]


def test_what_lands_after_the_barrier_is_refused(a: Node, clock: ManualClock) -> None:
    a.own(A1)
    a.manager.add(S0, A1, 5)
    a.turn()
    a.port.held = True
    a.manager.update(update(S0, FINISHED), A1, 5)
    a.kill()
    (ghost,) = a.ghosts
    assert a.own(A2).exception(0) is None
    ghost.land_waiting()
    a.turn()
    assert a.segments()[0].state is SegmentState.COPY_SEGMENT_STARTED


def test_a_barrier_that_is_stale_when_it_lands_fences_all_the_same(a: Node, b: Node) -> None:
    a.own(A1)
    a.manager.add(S0, A1, 5)
    a.turn()
    b.manager.follow(PARTITION)
    b.turn()
    b.port.held = True
    owned = b.manager.own(PARTITION, B2)
    b.turn()  # "S0 is STARTED" waits in the queue
    finished = a.manager.update(update(S0, FINISHED), A1, 5)
    a.turn()
    a.port.held = True
    deletion = a.manager.update(update(S0, DELETING), A1, 5)
    b.port.land_waiting()
    b.turn()
    assert owned.exception(0) is None
    a.port.land_waiting()
    a.turn()
    b.turn()
    assert finished.exception(0) is None
    assert isinstance(deletion.exception(0), MetadataRefusedError)
    assert [one.state for one in b.segments()] == [FINISHED]


def test_an_owner_whose_barrier_names_what_is_forgotten_by_then_is_ready(a: Node, b: Node) -> None:
    a.own(A1)
    a.manager.add(S0, A1, 5)
    a.turn()
    b.manager.follow(PARTITION)
    b.turn()
    b.port.held = True
    owned = b.manager.own(PARTITION, B2)
    b.turn()  # "S0 is STARTED" waits in the queue
    for state in (DELETING, SegmentState.DELETE_SEGMENT_FINISHED):
        a.manager.update(update(S0, state), A1, 5)
        a.turn()
    b.port.land_waiting()
    b.port.held = False
    b.turn()
    assert owned.exception(0) is None
    assert b.segments() == []
    started = b.manager.add(S0, B2, 5)
    b.turn()
    assert started.exception(0) is None


def test_a_deposed_leaders_first_copy_comes_too_late(a: Node, b: Node) -> None:
    a.own(A1)
    a.port.held = True
    started = a.manager.add(S0, A1, 5)
    assert b.own(B2).exception(0) is None
    a.port.land_waiting()
    a.turn()
    assert isinstance(started.exception(0), MetadataRefusedError)
    b.turn()
    assert b.segments() == []


def test_a_deposed_owner_is_not_ready_any_more(a: Node, b: Node) -> None:
    a.own(A1)
    assert b.own(B2).exception(0) is None
    a.turn()
    assert not a.manager.is_ready(PARTITION)
    refused = a.manager.add(S0, A1, 5)
    assert isinstance(refused.exception(0), MetadataNotReadyError)


def test_an_owner_below_the_fence_is_refused_without_writing(
    a: Node, b: Node, topic: MemoryTopic
) -> None:
    b.own(B2)
    before = len(topic.logs[0])
    assert isinstance(a.own(A1).exception(0), MetadataRefusedError)
    assert len(topic.logs[0]) == before


def test_nobody_is_ready_before_it_has_caught_up(a: Node, b: Node) -> None:
    a.own(A1)
    copied(a, A1)
    b.port.deaf = True
    followed = b.manager.follow(PARTITION)
    b.turn()
    assert not followed.done()
    with pytest.raises(MetadataNotReadyError):
        b.manager.segment_for(PARTITION, 3, 0)
    b.port.deaf = False
    b.turn()
    assert followed.exception(0) is None
    assert b.manager.segment_for(PARTITION, 3, 0) is not None


def test_a_restart_continues_where_it_was(a: Node) -> None:
    a.own(A1)
    copied(a, A1)
    a.kill()
    assert a.own(A2).exception(0) is None
    assert a.manager.counts()["read"] == 1  # the barrier alone
    assert [one.state for one in a.segments()] == [FINISHED]


def test_started_seen_and_first_finished_survive_a_restart(a: Node, clock: ManualClock) -> None:
    a.own(A1)
    seen_ms = clock.wall_ms()
    copied(a, A1)
    order = a.manager.finished_order(S0.id)
    clock.advance(100_000)
    a.kill()
    a.own(A2)
    assert a.manager.started_seen_ms(S0.id) == seen_ms
    assert a.manager.finished_order(S0.id) == order


def test_after_lost_records_the_cache_is_reread_and_the_owner_asks_again(
    a: Node, topic: MemoryTopic
) -> None:
    a.own(A1)
    copied(a, A1, S0, S1)
    end = len(topic.logs[0])
    topic.lose(0, end - 2)
    a.turn()
    assert not a.manager.is_ready(PARTITION)
    assert [one.id for one in a.segments()] == [S0.id]
    assert a.own(A2).exception(0) is None
    assert a.manager.is_ready(PARTITION)
    assert known(a.store) == known(truth(topic)[0])


def test_lost_records_are_noticed_also_when_the_log_has_grown_past_them(
    a: Node, b: Node, topic: MemoryTopic
) -> None:
    a.own(A1)
    copied(a, A1, S0)
    a.port.deaf = True
    topic.lose(0, 0)
    assert b.own(B2).exception(0) is None
    copied(b, B2, S1, segment(3, 20, 29))
    a.port.deaf = False
    a.turn()
    assert [one.id for one in a.segments()] == [S1.id, segment(3, 20, 29).id]
    assert not a.manager.is_ready(PARTITION)


def test_lost_records_are_noticed_at_the_next_start(a: Node, topic: MemoryTopic) -> None:
    a.own(A1)
    copied(a, A1)
    topic.lose(0, 0)
    a.kill()
    assert a.own(A2).exception(0) is None
    assert a.segments() == []


def test_writes_under_way_when_records_are_lost_have_an_unknown_outcome(
    a: Node, topic: MemoryTopic
) -> None:
    a.own(A1)
    a.port.held = True
    done = a.manager.add(S0, A1, 5)
    topic.lose(0, 0)
    a.turn()
    assert isinstance(done.exception(0), MetadataWriteTimeoutError)


def test_followers_are_ready_again_by_themselves_after_lost_records(
    a: Node, b: Node, topic: MemoryTopic
) -> None:
    a.own(A1)
    copied(a, A1)
    b.manager.follow(PARTITION)
    b.turn()
    topic.lose(0, len(topic.logs[0]) - 1)
    b.turn()
    assert b.manager.is_ready(PARTITION)
    assert [one.state for one in b.segments()] == [SegmentState.COPY_SEGMENT_STARTED]


def test_damaged_and_unknown_records_are_skipped_counted_and_said_once(
    a: Node, topic: MemoryTopic, caplog: pytest.LogCaptureFixture
) -> None:
    for value in (b"garbage", b"more", b"", None, None, b"\x01\x63\x00later"):
        topic.land(0, value)
    assert a.own(A1).exception(0) is None
    copied(a, A1)
    assert a.manager.counts()["skipped damaged"] == 1
    assert a.manager.counts()["skipped tombstone"] == 2
    assert a.manager.counts()["skipped unknown"] == 3
    said = [line for line in caplog.messages if "skipped a record" in line]
    assert len(said) == 3


def test_illegal_moves_are_dropped_counted_and_said(
    a: Node, topic: MemoryTopic, caplog: pytest.LogCaptureFixture
) -> None:
    a.own(A1)
    stray = records.encode(SegmentAdded(S0, Stamp(Fence(0, 0))))
    topic.land(0, stray)
    copied(a, A1)
    assert a.manager.counts()["refused fenced"] == 1
    assert [line for line in caplog.messages if "refused a record" in line]


def test_only_metadata_partitions_of_assigned_user_partitions_are_read(clock: ManualClock) -> None:
    node = Node(MemoryTopic(50), clock, 1)
    node.turn()
    assert node.port.assigned == set()
    one, two = PARTITION, PARTITION._replace(partition=1)
    node.manager.follow(one)
    node.manager.follow(two)
    node.turn()
    assert node.port.assigned == {metadata_partition_for(p, 50) for p in (one, two)}
    node.manager.release(one)
    node.turn()
    assert node.port.assigned == {metadata_partition_for(two, 50)}


def test_roles_asked_for_before_the_topic_exists_are_taken_when_it_does(
    clock: ManualClock,
) -> None:
    topic = MemoryTopic(1)
    topic.exists = False
    node = Node(topic, clock, 1)
    owned = node.own(A1)
    assert not owned.done()
    topic.exists = True
    for _ in range(4):
        clock.advance(1_000)
        node.turn()
    assert owned.exception(0) is None


def test_a_topic_that_stays_away_is_a_loud_failure(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    topic = MemoryTopic(1)
    topic.exists = False
    node = Node(topic, clock, 1)
    owned = node.own(A1)
    for _ in range(40):
        clock.advance(10_000)
        node.turn()
    assert isinstance(owned.exception(0), MetadataError)
    assert node.manager.failure() is not None
    assert isinstance(node.manager.follow(PARTITION).exception(0), MetadataError)
    assert any(record.levelname == "ERROR" for record in caplog.records)


def test_a_write_that_surely_failed_leaves_the_ownership(a: Node) -> None:
    a.own(A1)
    a.port.held = True
    done = a.manager.add(S0, A1, 5)
    a.port.drop_waiting(maybe_written=False)
    a.turn()
    assert type(done.exception(0)) is MetadataError
    assert a.manager.is_ready(PARTITION)


def test_a_write_that_perhaps_failed_ends_it(a: Node) -> None:
    a.own(A1)
    a.port.held = True
    done = a.manager.add(S0, A1, 5)
    a.port.drop_waiting()
    a.turn()
    assert isinstance(done.exception(0), MetadataWriteTimeoutError)
    assert not a.manager.is_ready(PARTITION)


def test_closing_ends_what_is_pending(a: Node) -> None:
    a.own(A1)
    a.port.held = True
    done = a.manager.add(S0, A1, 5)
    a.manager.close()
    assert isinstance(done.exception(0), MetadataWriteTimeoutError)
    assert a.port.closed
