"""Where the replicas of a log directory go that is drained."""

from collections.abc import Mapping

import pytest

from kafka_client.blocking import ClusterError
from tidemark.cluster.asking import BrokerState, LogDirectory
from tidemark.cluster.draining import found_directory, serving, targets

MIB = 1 << 20
Held = Mapping[tuple[str, int], int]
NONE: Held = {}


def directory(
    path: str, replicas: Held = NONE, arriving: Held = NONE, *, usable: int = -1, error: int = 0
) -> LogDirectory:
    return LogDirectory(path, error, usable, replicas, arriving)


def broker(number: int, *, is_fenced: bool = False) -> BrokerState:
    return BrokerState(number, ("host", 9092), "", is_fenced)


def test_large_replicas_come_first_each_to_the_emptiest_directory() -> None:
    drained = directory("/a", {("t", n): size * MIB for n, size in enumerate((5, 20, 30, 10))})
    found = targets("/a", [drained, directory("/b"), directory("/c", {("u", 0): 12 * MIB})])
    assert list(found.items()) == [
        (("t", 2), "/b"),
        (("t", 1), "/c"),
        (("t", 3), "/b"),
        (("t", 0), "/c"),
    ]


def test_empty_replicas_are_spread_too() -> None:
    drained = directory("/a", {("t", n): 0 for n in range(4)})
    found = targets("/a", [drained, directory("/b"), directory("/c")])
    assert sorted(found.values()) == ["/b", "/b", "/c", "/c"]


def test_what_is_on_its_way_counts_where_it_will_be() -> None:
    """And is not asked for again."""
    drained = directory("/a", {("t", 0): 50 * MIB, ("t", 1): MIB})
    others = [directory("/b", arriving={("t", 0): MIB}), directory("/c", {("u", 0): 20 * MIB})]
    assert targets("/a", [drained, *others]) == {("t", 1): "/c"}


def test_a_directory_without_room_or_that_does_not_work_gets_nothing() -> None:
    drained = directory("/a", {("t", 0): 6 * MIB, ("t", 1): 6 * MIB})
    others = [
        directory("/b", usable=5 * MIB),
        directory("/c", error=56),
        directory("/d", {("u", 0): 99 * MIB}, usable=12 * MIB),
    ]
    assert set(targets("/a", [drained, *others]).values()) == {"/d"}
    others[2] = directory("/d", usable=11 * MIB)
    with pytest.raises(ClusterError, match="t-1 has 6291456 bytes, and no other"):
        targets("/a", [drained, *others])


def test_the_only_directory_that_works_is_not_drained() -> None:
    with pytest.raises(ClusterError, match="there is no other"):
        targets("/a", [directory("/a"), directory("/b", error=56)])


def test_the_broker_is_the_one_that_has_the_directory() -> None:
    known = {1: [directory("/a"), directory("/b")], 2: [directory("/b"), directory("/c")]}
    assert found_directory("/a", known, None) == 1
    assert found_directory("/b", known, 2) == 2
    with pytest.raises(ClusterError, match=r"brokers 1, 2 have .* --broker"):
        found_directory("/b", known, None)
    with pytest.raises(ClusterError, match=r"no broker that serves has /c/ .*'/a', '/b', '/c'"):
        found_directory("/c/", known, None)
    with pytest.raises(ClusterError, match="no broker"):
        found_directory("/a", known, 2)


def test_only_brokers_that_serve_are_asked() -> None:
    brokers = {1: broker(1), 2: broker(2, is_fenced=True), 3: broker(3)}
    assert [one.id for one in serving(brokers, None)] == [1, 3]
    assert [one.id for one in serving(brokers, 3)] == [3]
    with pytest.raises(ClusterError, match="broker 2 is fenced"):
        serving(brokers, 2)
    with pytest.raises(ClusterError, match="there is no broker 4; the cluster has 1, 2, 3"):
        serving(brokers, 4)
