"""What readers without a barrier trust, and what owners carry; H* are of the model's findings."""

from rlmm import records
from rlmm.api import (
    Fence,
    MetadataNotReadyError,
    MetadataRefusedError,
    MetadataWriteTimeoutError,
)
from rlmm.testing import PARTITION, segment, update
from tests.support.sim.clock import ManualClock
from tests.support.tier.memory_topic import MemoryTopic
from tests.support.tier.metadata_topic import (
    A1,
    A2,
    A3,
    B2,
    DELETING,
    FINISHED,
    MARKED,
    S0,
    S1,
    Node,
    copied,
)


def test_a_follower_is_ready_at_the_end_that_was_there_when_it_began(a: Node, b: Node) -> None:
    other = PARTITION._replace(partition=1)
    a.own(A1)
    following = b.manager.follow(other)
    b.turn()
    assert following.exception(0) is None
    b.port.deaf = True  # the end was reached once; the topic continues
    copied(a, A1)
    followed = b.manager.follow(PARTITION)
    again = b.manager.catch_up(other)
    b.turn()
    assert not followed.done()
    assert not again.done()
    assert b.manager.is_ready(other), "it continues with what it knew"
    assert not b.manager.is_ready(PARTITION)
    b.port.deaf = False
    b.turn()
    assert followed.exception(0) is None
    assert again.exception(0) is None
    assert b.manager.segment_for(PARTITION, 3, 0) is not None


def test_catching_up_waits_for_what_was_there_at_the_call_and_for_no_more(a: Node, b: Node) -> None:
    a.own(A1)
    b.manager.follow(PARTITION)
    b.turn()
    copied(a, A1)
    b.port.read_max = 1
    caught_up = b.manager.catch_up(PARTITION)
    b.turn(1)
    assert not caught_up.done()
    copied(a, A1, S1)
    b.turn(1)
    assert caught_up.exception(0) is None
    assert [one.state for one in b.segments()] == [FINISHED]


def test_an_end_that_nobody_tells_is_asked_for_again(
    a: Node, b: Node, topic: MemoryTopic, clock: ManualClock
) -> None:
    a.own(A1)
    b.manager.follow(PARTITION._replace(partition=1))
    b.turn()
    topic.answers = False
    followed = b.manager.follow(PARTITION)
    b.turn()
    topic.answers = True
    assert not followed.done()
    clock.advance(1_000)
    b.turn()
    assert followed.exception(0) is None


def test_an_end_below_what_was_read_proves_nothing(a: Node, b: Node, topic: MemoryTopic) -> None:
    a.own(A1)
    copied(a, A1)
    b.manager.follow(PARTITION._replace(partition=1))
    b.turn()
    topic.lose(0, 0)
    b.port.deaf = True  # that the log was cut is not seen so far
    followed = b.manager.follow(PARTITION)
    b.turn()
    assert not followed.done()
    b.port.deaf = False
    b.turn()
    assert followed.exception(0) is None
    assert b.segments() == []


def test_catching_up_ends_with_the_role(a: Node, b: Node, topic: MemoryTopic) -> None:
    a.own(A1)
    a.port.deaf = True
    b.own(B2)
    waiting = a.manager.catch_up(PARTITION)
    a.turn()
    a.manager.release(PARTITION)
    a.turn()
    assert isinstance(waiting.exception(0), MetadataNotReadyError)
    lost = b.manager.catch_up(PARTITION)
    topic.lose(0, 0)
    b.turn()
    assert isinstance(lost.exception(0), MetadataWriteTimeoutError)


def test_a_remover_that_becomes_leader_is_not_ready_by_an_earlier_read(a: Node, b: Node) -> None:
    a.own(A1)
    b.manager.follow(PARTITION)
    b.turn()
    b.port.deaf = True
    copied(a, A1)
    b.manager.lead([0])
    b.turn()
    assert b.manager.led_partitions() == []
    late = b.manager.put_partition_delete(PARTITION, MARKED)
    assert isinstance(late.exception(0), MetadataNotReadyError)
    b.port.deaf = False
    b.turn()
    assert [one.partition for one in b.manager.led_partitions()] == [PARTITION]
    b.manager.lead([])
    assert b.manager.led_partitions() == []


def test_after_lost_records_a_remover_is_not_ready_before_it_reads_again(
    a: Node, topic: MemoryTopic
) -> None:
    a.manager.lead([0])
    a.own(A1)
    a.turn()
    assert a.manager.led_partitions() != []
    topic.lose(0, 1)
    a.port.read_max = 0  # the loss is seen, and no record so far
    a.turn()
    assert a.manager.led_partitions() == []
    a.port.read_max = 10
    a.turn()
    assert a.manager.led_partitions() != []


def test_after_lost_records_a_remover_is_ready_only_at_a_newer_log_end(
    a: Node, b: Node, topic: MemoryTopic, clock: ManualClock
) -> None:
    a.manager.lead([0])
    a.own(A1)
    topic.lose(0, 1)
    a.port.tells_ends = False

    def is_refused() -> bool:
        late = a.manager.put_partition_delete(PARTITION, MARKED)
        a.turn()
        return late.done() and isinstance(late.exception(0), MetadataNotReadyError)

    a.turn()
    assert a.manager.deletion(PARTITION) is not None, "an end was reached, of whatever time"
    assert a.manager.led_partitions() == []
    assert is_refused()
    a.port.deaf = True
    b.own(B2)
    copied(b, B2)
    a.port.tells_ends = True
    clock.advance(1_000)
    a.turn()
    assert a.manager.led_partitions() == [], "a newer owner's records are still unread"
    assert is_refused()
    a.port.deaf = False
    a.turn()
    assert [one.partition for one in a.manager.led_partitions()] == [PARTITION]


def test_h2_an_owner_does_not_inherit_the_log_start_of_an_ended_lineage(a: Node, b: Node) -> None:
    a.own(A1)
    a.manager.carry(PARTITION, A1, 5)
    copied(a, A1)
    assert a.history().log_starts == {1: 5}
    assert b.own(B2, unclean_epoch=2).exception(0) is None
    assert b.history().log_starts == {1: 5}, "the barrier repeats none"
    assert b.history().last_unclean_epoch == 2
    copied(b, B2, S1)
    assert b.history().log_starts == {1: 5}
    b.kill()
    a.turn()  # it has read all of b's before it begins
    c3 = Fence(3, 1)
    assert a.own(c3).exception(0) is None
    copied(a, c3, segment(3, 20, 29))
    stamps = [records.decode(stored.value).stamp for stored in a.topic.logs[0]]
    assert [stamp.unclean_epoch for stamp in stamps if stamp.fence >= B2] == [2, 2, 2, 2, 2, 2]
    assert [stamp.log_start for stamp in stamps if stamp.fence >= B2] == [-1] * 6


def test_h10_after_lost_records_no_owner_continues_under_the_same_pair(
    a: Node, topic: MemoryTopic
) -> None:
    a.own(A1)
    a.manager.add(S0, A1, 5)
    a.turn()
    a.port.held = True
    a.manager.update(update(S0, FINISHED), A1, 5)
    a.kill()
    (ghost,) = a.ghosts
    a.own(A2)
    a.port.held = True
    a.manager.update(update(S0, DELETING), A2, 5)  # a dangling id, it seems
    topic.lose(0, len(topic.logs[0]) - 1)  # the barrier
    ghost.land_waiting()
    a.turn()
    assert a.lost == [PARTITION]
    assert not a.manager.is_ready(PARTITION)
    assert [one.state for one in a.segments()] == [FINISHED]
    in_flight = a.port.orphan_waiting()
    a.port.held = False
    refused = a.own(A2).exception(0)
    assert isinstance(refused, MetadataRefusedError)
    assert refused.fence == A2, "the next incarnation must go above it"
    assert a.own(A3).exception(0) is None
    in_flight.land_waiting()
    a.turn()
    assert [one.state for one in a.segments()] == [FINISHED]


def test_h10_an_owner_that_had_only_begun_again_does_not_either(
    a: Node, topic: MemoryTopic
) -> None:
    a.own(A1)
    a.port.deaf = True
    a.manager.own(PARTITION, A1)
    topic.lose(0, 0)
    a.port.deaf = False
    owned = a.own(A1)
    assert isinstance(owned.exception(0), MetadataRefusedError)
    assert a.own(A2).exception(0) is None


def test_a_new_owner_that_has_written_nothing_continues_after_lost_records(
    a: Node, topic: MemoryTopic
) -> None:
    a.own(A1)
    copied(a, A1)
    a.kill()
    topic.lose(0, 0)
    assert a.own(A2).exception(0) is None
    assert a.lost == [PARTITION], "others may have been told what is true no more"


def test_catching_up_continues_where_a_follower_reads_anew(
    a: Node, b: Node, topic: MemoryTopic
) -> None:
    """Those who wait are told: nobody asks a second time before that."""
    a.own(A1)
    b.manager.follow(PARTITION)
    b.turn()
    waiting = b.manager.catch_up(PARTITION)
    topic.lose(0, 0)
    b.turn()
    assert waiting.exception(0) is None
    assert b.manager.is_ready(PARTITION)
