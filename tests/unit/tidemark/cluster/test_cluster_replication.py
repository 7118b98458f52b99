"""How many replicas partitions get, and which of them need a broker."""

import pytest

from kafka_client.blocking import ClusterError
from tidemark.cluster.asking import BrokerState, PartitionState, Reassigning, TargetReplicas
from tidemark.cluster.replication import endangered, progress, raised_factor


def brokers(*racks: str, fenced: tuple[int, ...] = ()) -> dict[int, BrokerState]:
    return {
        one: BrokerState(one, (f"h{one}", 9092), rack, one in fenced)
        for one, rack in enumerate(racks, 1)
    }


def partition(
    index: int, replicas: tuple[int, ...], isr: tuple[int, ...] | None = None, topic: str = "t"
) -> PartitionState:
    members = replicas if isr is None else isr
    return PartitionState(topic, index, members[0] if members else -1, replicas, members)


def test_new_replicas_go_to_other_racks_and_then_where_there_are_fewest() -> None:
    there = [partition(one, (1,)) for one in range(4)] + [partition(0, (2, 4), topic="u")]
    plan = raised_factor(there, brokers("a", "a", "b", "b"), 2, {"t"}, {})
    assert [one.replicas for one in plan.wanted] == [(1, 3), (1, 3), (1, 4), (1, 3)]
    assert (plan.topics, plan.enough) == ({"t": 4}, ())


def test_replicas_of_one_rack_are_spread_evenly() -> None:
    there = [partition(one, (1 + one % 4,)) for one in range(40)]
    plan = raised_factor(there, brokers("", "", "", ""), 3, {"t"}, {})
    hosts = [replica for one in plan.wanted for replica in one.replicas]
    counts = [hosts.count(one) for one in (1, 2, 3, 4)]
    assert sum(counts) == 120
    assert max(counts) - min(counts) <= 2


def test_only_what_is_missing_is_asked_for() -> None:
    there = [partition(0, (1, 2, 3)), partition(1, (2,)), partition(0, (1,), topic="other")]
    plan = raised_factor(there, brokers("", "", ""), 2, {"t"}, {})
    assert plan.wanted == (TargetReplicas("t", 1, (2, 3)),)
    again = [partition(0, (1, 2, 3)), partition(1, (2, 3))]
    assert raised_factor(again, brokers("", "", "", fenced=(2, 3)), 2, {"t"}, {}).wanted == ()


def test_replicas_that_are_leaving_do_not_count_and_are_not_called_back() -> None:
    there = [partition(0, (2, 1))]
    going = {("t", 0): Reassigning((2,), (1,))}
    plan = raised_factor(there, brokers("", "", ""), 2, {"t"}, going)
    assert plan.wanted == (TargetReplicas("t", 0, (2, 3)),)


@pytest.mark.parametrize(
    ("fenced", "way"),
    [
        ((3,), "Start broker(s) 3, which are fenced, or ask for 2 at most; nothing was changed"),
        ((), "Start another broker, or ask for 3 at most; nothing was changed"),
    ],
)
def test_a_factor_that_cannot_be_is_refused(fenced: tuple[int, ...], way: str) -> None:
    with pytest.raises(ClusterError) as error:
        raised_factor([partition(0, (1,))], brokers("", "", "", fenced=fenced), 4, {"t"}, {})
    assert str(error.value).startswith("t-0 cannot have 4 replicas: brokers 1,2")
    assert str(error.value).endswith(way)


def test_a_replica_on_a_fenced_broker_counts() -> None:
    plan = raised_factor([partition(0, (3, 1))], brokers("", "", "", fenced=(3,)), 3, {"t"}, {})
    assert [one.replicas for one in plan.wanted] == [(3, 1, 2)]


def test_what_copying_waits_for_is_named() -> None:
    ongoing = {("t", 0): Reassigning((2, 3)), ("t", 1): Reassigning((3,))}
    assert progress(ongoing, brokers("", "", "")) == "2 partition(s) are being copied"
    assert progress(ongoing, brokers("", "", "", fenced=(3,))) == (
        "2 partition(s) are being copied; start broker 3 (2 of them): fenced"
    )


@pytest.mark.parametrize(
    ("replicas", "isr", "needs"),
    [
        ((1, 2, 3), (1, 2, 3), ""),
        ((2, 3), (2, 3), ""),
        ((1, 2, 3), (1, 2), "t-0 would have 1 in-sync replica(s), 2, and min.insync.replicas=2"),
        ((1, 2), (1, 2), "t-0 would have 1 in-sync replica(s), 2, and min.insync.replicas=2"),
        ((1, 2, 3), (1,), "t-0 would have no leader: no other of replicas 1,2,3 is in sync"),
        ((1, 2, 3), (2,), "t-0 would have 1 in-sync replica(s), 2, and min.insync.replicas=2"),
        ((1,), (1,), "t-0 would have no leader: it has one replica"),
        ((1,), (), "t-0 would have no leader: it has one replica"),
    ],
)
def test_a_partition_that_needs_a_broker_is_named(
    replicas: tuple[int, ...], isr: tuple[int, ...], needs: str
) -> None:
    found = list(endangered(1, [partition(0, replicas, isr)], {"t": 2}, {}))
    assert found == ([needs] if needs else [])


def test_partitions_of_one_replica_may_be_left_out() -> None:
    there = [partition(0, (1,)), partition(1, (1, 2), (1,))]
    (found,) = endangered(1, there, {"t": 1}, {}, may_stop_lone=True)
    assert found == "t-1 would have no leader: no other of replicas 1,2 is in sync"


@pytest.mark.parametrize(
    ("isr", "elr", "is_needed"),
    [((1,), (), False), ((1, 3), (), True), ((1,), (3,), True), ((1, 2, 3), (), False)],
)
def test_a_replica_that_is_being_added_is_needed_once_one_may_lead(
    isr: tuple[int, ...], elr: tuple[int, ...], *, is_needed: bool
) -> None:
    one = PartitionState("t", 0, 1, (1, 2, 3), isr, elr)
    found = list(endangered(3, [one], {"t": 2}, {("t", 0): Reassigning((2, 3))}))
    assert bool(found) is is_needed
