"""A leader that sends consumers to a replica in their rack (KIP-392)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.fetch import FetchHandler, FetchLimits
from broker.handlers.fetch_read import read_in_slices
from broker.replica.fetch_types import FetchParams, FetchPartition, FetchPass
from broker.replica.nearest import BACK_WITHIN_MS, STAYS_MS
from broker.topics.cluster import BrokerAddress
from kafka_protocol.errors import ErrorCode
from runtime.work import at_once
from tests.support.worlds.data_plane import NODE, World, finish, start, values_of
from tests.support.worlds.fetch import ask, parts

FOLLOWER, OTHER = 2, 3
RACKS = {NODE: "a", FOLLOWER: "b", OTHER: "c"}
AT_LEADER, SENT = (0, -1, [b"1"]), (0, FOLLOWER, [])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """One record, at the leader and a follower in rack b; the one in rack c is not in sync."""
    made = World(tmp_path)
    made.add_topic("t")
    replicas = (NODE, FOLLOWER, OTHER)
    made.change("t", replicas=replicas, isr=(NODE, FOLLOWER))
    made.append("t", b"1")
    made.replicas.require("t", 0).followers.fetched(
        FOLLOWER, broker_epoch=-1, offset=1, log_start_offset=0
    )
    yield made
    made.logs.close()


def handler(world: World, *, is_on: bool = True, racks: dict[int, str] = RACKS) -> FetchHandler:
    def addresses(listener: str) -> list[BrokerAddress]:
        del listener
        return [BrokerAddress(one, "h", 9092, rack, is_fenced=False) for one, rack in racks.items()]

    limits = FetchLimits(selects_by_rack=is_on)
    return FetchHandler(world.replicas, world.ports, limits=limits, addresses=addresses)


def answered(made: FetchHandler, world: World, version: int = 12, **more: Any) -> Any:
    """Error, preferred replica and values."""
    fields = {"rack_id": "b"} | more
    partition = {name: fields.pop(name) for name in ("fetch_offset",) if name in fields}
    asked = ask(world, version, ("t", [partition]), **fields)
    one = parts(finish(made, version, start(made, version, asked)))[0]
    return one.error_code, one.preferred_read_replica, values_of(one.records or b"")


@pytest.mark.parametrize("version", [11, 12, 18])
def test_it_names_the_replica_and_sends_no_records(world: World, version: int) -> None:
    assert answered(handler(world), world, version) == SENT


def test_read_committed_does_not_change_that(world: World) -> None:
    assert answered(handler(world), world, isolation_level=1) == SENT


@pytest.mark.parametrize("rack", ["", "a", "c", "elsewhere"])
def test_consumers_of_other_racks_are_answered_by_the_leader(world: World, rack: str) -> None:
    """Nobody is in sync there with this record, or the leader itself is there."""
    assert answered(handler(world), world, rack_id=rack) == AT_LEADER


def test_a_leader_in_the_rack_is_near_enough(world: World) -> None:
    assert answered(handler(world, racks={NODE: "b", FOLLOWER: "b"}), world) == AT_LEADER


def test_without_the_setting_all_are_answered_by_the_leader(world: World) -> None:
    assert answered(handler(world, is_on=False), world) == AT_LEADER


def test_old_versions_say_no_rack(world: World) -> None:
    made = handler(world)
    asked = {**ask(world, 10, ("t", [{}]))}
    one = parts(finish(made, 10, start(made, 10, asked)))[0]
    assert values_of(one.records) == [b"1"]


def test_a_replica_is_never_sent_elsewhere(world: World) -> None:
    made = handler(world)
    asked = ask(world, 12, ("t", [{}]), rack_id="b", replica_id=OTHER)
    one = parts(finish(made, 12, start(made, 12, asked)))[0]
    assert (one.preferred_read_replica, values_of(one.records)) == (-1, [b"1"])


def test_an_offset_that_nobody_has_is_out_of_range(world: World) -> None:
    found = answered(handler(world), world, fetch_offset=2)
    assert found == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, [])


def test_a_consumer_at_the_end_is_sent_at_once(world: World) -> None:
    """It would wait here for records that it is to read elsewhere."""
    found = answered(handler(world), world, fetch_offset=1, max_wait_ms=60_000)
    assert found == SENT


def test_a_consumer_that_comes_back_at_once_stays_for_a_while(world: World) -> None:
    """The replica nearby has refused it: it would be sent to and fro for ever."""
    made = handler(world)
    assert answered(made, world) == SENT
    world.clock.advance(BACK_WITHIN_MS - 1)
    assert answered(made, world) == AT_LEADER
    world.clock.advance(STAYS_MS - 1)
    assert answered(made, world) == AT_LEADER
    world.clock.advance(1)
    assert answered(made, world) == SENT
    world.clock.advance(BACK_WITHIN_MS)
    assert answered(made, world) == SENT


def test_a_consumer_that_has_read_meanwhile_is_sent_again(world: World) -> None:
    made = handler(world)
    assert answered(made, world) == SENT
    assert answered(made, world, fetch_offset=1) == SENT


def test_what_the_leader_has_deleted_is_out_of_range(world: World) -> None:
    partition = world.replicas.require("t", 0)
    partition.log.update_high_watermark(1)
    partition.log.raise_log_start(1)
    found = answered(handler(world), world)
    assert found == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, [])


def test_a_second_look_at_the_same_fetch_does_not_count_as_coming_back(world: World) -> None:
    """Another partition of it lies on a cold disk."""
    made = handler(world)
    fetched = FetchPartition(("t", 0), "t", None, 0, 0, 1 << 20)
    params = FetchParams(12, -1, 0, 1, 1 << 20, read_committed=False, near=frozenset({FOLLOWER}))
    for _ in range(2):
        looked = FetchPass()
        at_once(read_in_slices(world.replicas, params, [fetched], looked))
        assert looked.reads[0].nearer == FOLLOWER
    assert answered(made, world) == SENT


def test_a_session_is_told_even_where_nothing_else_is_new(world: World) -> None:
    made = handler(world)
    first = ask(world, 12, ("t", [{"fetch_offset": 1}]), session_epoch=0)
    session = finish(made, 12, start(made, 12, first))
    assert parts(session)[0].preferred_read_replica == -1
    again = ask(world, 12, session_id=session.session_id, session_epoch=1, rack_id="b")
    told = parts(finish(made, 12, start(made, 12, again)))
    assert [one.preferred_read_replica for one in told] == [FOLLOWER]
