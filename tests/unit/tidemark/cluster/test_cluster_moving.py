"""Plans that move replicas away from a broker, or to one that is new."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_client.blocking import ClusterError
from tests.unit.tidemark.cluster.test_cluster_replication import brokers, partition
from tidemark.cluster.asking import PartitionState, Reassigning
from tidemark.cluster.moving import Facts, Move, drained, filled, summary

MB = 1 << 20


def sizes(everything: Sequence[PartitionState], each: int = 10 * MB) -> dict[int, dict]:  # type: ignore[type-arg]
    found: dict[int, dict[tuple[str, int], int]] = {}
    for one in everything:
        for replica in one.replicas:
            found.setdefault(replica, {})[one.topic, one.index] = each
    return found


def wanted(moves: Sequence[Move]) -> list[tuple[int, tuple[int, ...]]]:
    return [(one.wanted.index, one.wanted.replicas) for one in moves]


def test_the_new_replica_takes_the_place_of_the_old_one() -> None:
    there = [partition(0, (1, 2)), partition(1, (2, 1)), partition(2, (2, 3))]
    moves = drained(1, Facts(there, brokers("", "", ""), sizes(there), {}))
    assert wanted(moves) == [(0, (3, 2)), (1, (2, 3))]
    assert list(summary(moves)) == [(1, 3, 2, 20 * MB)]


def test_it_goes_to_another_rack_first_and_then_where_there_is_least() -> None:
    there = [partition(0, (1, 2)), partition(1, (3, 4))]
    full = sizes(there)
    full[4]["t", 1] = full[3]["t", 1] = 99 * MB
    racks = brokers("a", "b", "a", "c", "c")
    # 3 is in rack a with nobody else of partition 0; 4 and 5 are in a rack that it has not.
    assert wanted(drained(2, Facts(there, racks, full, {}))) == [(0, (1, 5))]
    # Without another rack the emptiest of the racks that are least used.
    same = brokers("", "", "", "", "")
    assert wanted(drained(2, Facts(there, same, full, {}))) == [(0, (1, 5))]


def test_what_takes_longest_begins_first() -> None:
    there = [partition(one, (1,)) for one in range(3)]
    full = sizes(there)
    full[1]["t", 1] = 50 * MB
    moves = drained(1, Facts(there, brokers("", ""), full, {}))
    assert [one.wanted.index for one in moves] == [1, 0, 2]
    assert moves[0].size_bytes == 50 * MB


def test_what_is_leaving_already_is_passed_over() -> None:
    there = [partition(0, (3, 2, 1)), partition(1, (1, 2))]
    going = {("t", 0): Reassigning((3,), (1,))}
    assert Facts(there, {}, {}, going).leaving(1) == going
    assert Facts(there, {}, {}, going).leaving(2) == {}
    assert wanted(drained(1, Facts(there, brokers("", "", ""), {}, going))) == [(1, (3, 2))]
    # Broker 3 gets partition 0: whoever drains it now changes that.
    assert wanted(drained(3, Facts(there, brokers("", "", "", ""), {}, going))) == [(0, (4, 2))]


@pytest.mark.parametrize("fenced", [(), (3,)])
def test_too_few_brokers_are_refused(fenced: tuple[int, ...]) -> None:
    there = [partition(0, (1, 2))] if fenced else [partition(0, (1, 2, 3))]
    with pytest.raises(ClusterError, match=r"t-0 cannot leave broker 1: it has .* Start another"):
        drained(1, Facts(there, brokers("", "", "", fenced=fenced), {}, {}))


def test_a_last_copy_that_cannot_be_read_is_refused() -> None:
    lost = PartitionState("t", 0, -1, (1,), (1,))
    with pytest.raises(ClusterError, match=r"only replica .* Start broker 1, and give"):
        drained(1, Facts([lost], brokers("", "", fenced=(1,)), {}, {}))


def test_a_new_broker_gets_its_share_from_the_fullest() -> None:
    there = [partition(one, (1 + one % 2, 3)) for one in range(12)]
    moves = filled(4, Facts(there, brokers("", "", "", ""), sizes(there), {}))
    assert Counter(one.source for one in moves) == {3: 6}
    assert all(one.wanted.replicas[1] == 4 for one in moves)
    others = filled(4, Facts(there, brokers("", "", "", "", fenced=(3,)), sizes(there), {}))
    assert Counter(one.source for one in others) == {1: 2, 2: 2}


def test_a_new_broker_gets_its_share_of_few_large_partitions() -> None:
    there = [partition(one, (1, 2, 3)) for one in range(3)]
    moves = filled(4, Facts(there, brokers("", "", "", ""), sizes(there, 100 * MB), {}))
    assert len(moves) == 2
    assert len({one.source for one in moves}) == 2


def test_a_broker_that_already_gets_replicas_gets_only_its_share() -> None:
    known = brokers("", "", "", "")
    there = [partition(one, (1 + one % 3,)) for one in range(30)]
    first = filled(4, Facts(there, known, sizes(there), {}))
    assert len(first) == 7
    going = {("t", one.wanted.index): Reassigning((4,), (one.source,)) for one in first}
    moving = [
        partition(one.index, (4, *one.replicas), one.replicas) if ("t", one.index) in going else one
        for one in there
    ]
    assert Facts(moving, known, {}, going).arriving(4) == going
    assert filled(4, Facts(moving, known, sizes(there), going)) == []


def test_a_new_broker_takes_no_rack_from_a_partition() -> None:
    there = [partition(one, (1, 2)) for one in range(8)]
    moves = filled(3, Facts(there, brokers("a", "b", "a"), sizes(there), {}))
    assert {one.source for one in moves} == {1}


def test_what_is_being_reassigned_does_not_go_to_a_new_broker() -> None:
    there = [partition(one, (1,)) for one in range(4)]
    going = {("t", one): Reassigning((2,), ()) for one in range(3)}
    moves = filled(2, Facts(there, brokers("", ""), sizes(there), going))
    assert [one.wanted.index for one in moves] == [3]


PLANS = st.integers(3, 6).flatmap(
    lambda count: st.tuples(
        st.lists(st.sampled_from("abc"), min_size=count, max_size=count),
        st.lists(
            st.tuples(
                st.lists(st.integers(1, count), min_size=1, max_size=2, unique=True),
                st.integers(0, 100 * MB),
            ),
            max_size=30,
        ),
    )
)


@given(PLANS, st.integers(1, 3))
def test_plans_keep_factors_and_racks_and_bring_brokers_nearer(
    plan: tuple[list[str], list[tuple[list[int], int]]], broker: int
) -> None:
    names, placed = plan
    known = brokers(*names)
    there = [partition(index, tuple(replicas)) for index, (replicas, _) in enumerate(placed)]
    full = {
        each: {
            ("t", index): size for index, (replicas, size) in enumerate(placed) if each in replicas
        }
        for each in known
    }
    gone = drained(broker, Facts(there, known, full, {}))
    assert {one.wanted.index for one in gone} == {
        one.index for one in there if broker in one.replicas
    }
    for move in (*gone, *filled(broker, Facts(there, known, full, {}))):
        old, new = there[move.wanted.index].replicas, move.wanted.replicas
        assert len(new) == len(set(new)) == len(old)
        assert set(old) - set(new) == {move.source}
        assert set(new) - set(old) == {move.target}
        if move.target == broker:
            racks = [{names[one - 1] for one in replicas} for replicas in (old, new)]
            assert len(racks[1]) >= len(racks[0])
    load = Counter[int]()
    for replicas, size in placed:
        load.update(dict.fromkeys(replicas, size + MB))
    before = load[broker]
    average = sum(load.values()) // len(known)
    for move in filled(broker, Facts(there, known, full, {})):
        weight = move.size_bytes + MB
        assert load[move.source] - weight >= load[broker]
        load[move.source] -= weight
        load[broker] += weight
    assert load[broker] <= max(average, before)
