"""Who may try a store that fails."""

from contextlib import suppress

import pytest

from kafka_protocol.types import TopicIdPartition
from rlm.plugin_calls import StoreClosedError, TaskCancelledError
from rlm.upkeep.ownership import CallHangsError
from rlm.upkeep.store_gate import StoreGate
from rsm_plugins.api import RemoteStorageError, RetriableRemoteStorageError

A, B, C = (TopicIdPartition(b"T" * 16, number, "orders") for number in range(3))
AWAY = RetriableRemoteStorageError("away")


def tried(gate: StoreGate, who: TopicIdPartition, error: Exception | None = None) -> bool:
    """Whether it may; then the store works, or fails with the error."""
    with suppress(RemoteStorageError, TaskCancelledError), gate.trying(who) as may_try:
        if may_try and error is not None:
            raise error
        if may_try:
            gate.worked()
    return may_try


@pytest.fixture
def closed() -> StoreGate:
    gate = StoreGate()
    assert tried(gate, A, AWAY)
    assert (gate.is_open, gate.reason) == (False, "away")
    return gate


def test_after_a_retriable_error_nobody_tries(closed: StoreGate) -> None:
    assert [tried(closed, who) for who in (A, B, C)] == [False] * 3


def test_one_probes_and_its_failure_needs_another_permission(closed: StoreGate) -> None:
    closed.let_probe()
    with closed.trying(B) as may_try:
        assert may_try
        assert closed.is_probed
        assert not tried(closed, C)
        closed.let_probe()  # too early
        assert not closed.probe_is_due
    assert not closed.is_probed
    assert not tried(closed, C)
    closed.let_probe()
    assert tried(closed, C, RetriableRemoteStorageError("still"))
    assert closed.reason == "still"
    assert not tried(closed, A)


def test_a_success_opens_it_whoever_had_it(closed: StoreGate) -> None:
    closed.let_probe()
    with closed.trying(B):
        assert closed.worked(), "one that had begun before"
        assert not closed.worked()
    assert closed.is_open
    assert tried(closed, A)


def test_a_probe_that_is_cancelled_makes_room_for_another(closed: StoreGate) -> None:
    closed.let_probe()
    assert tried(closed, B, TaskCancelledError("gone"))
    assert not closed.is_open
    closed.let_probe()
    assert tried(closed, C)


def test_another_error_of_one_partition_alone_closes_nothing() -> None:
    gate, odd = StoreGate(), RemoteStorageError("odd")
    assert [tried(gate, A, odd) for _ in range(3)] == [True] * 3
    assert tried(gate, B)
    assert tried(gate, C, odd)
    assert gate.is_open
    assert tried(gate, A, odd)
    assert not gate.is_open, "two of them, with no success between"


def test_where_the_store_was_not_asked_nothing_is_known_of_it() -> None:
    gate = StoreGate()
    assert tried(gate, A, StoreClosedError("no claim"))
    assert gate.is_open


def test_opened_by_hand_all_try(closed: StoreGate) -> None:
    closed.open()
    assert tried(closed, B)
    assert tried(closed, A)


def test_permission_to_probe_an_open_one_is_none_for_later() -> None:
    gate = StoreGate()
    gate.let_probe()
    tried(gate, A, AWAY)
    assert not tried(gate, B)


def waits(gate: StoreGate, who: TopicIdPartition, since: int = 0) -> bool:
    return gate.may_wait(who, f"not found: {who.partition}", since)


def test_one_copy_that_is_not_shown_is_waited_for_and_the_others_are_not() -> None:
    gate = StoreGate()
    with gate.trying(A), gate.trying(B):
        assert waits(gate, A)
        assert not waits(gate, B)
        assert waits(gate, A)
        assert gate.reason == "not found: 0"
    assert not tried(gate, B)


def test_beside_the_copy_that_is_waited_for_one_probes_at_a_time() -> None:
    gate = StoreGate()
    with gate.trying(A):
        waits(gate, A)
        for _ in range(3):
            gate.let_probe()
            with suppress(RetriableRemoteStorageError), gate.trying(B) as may_try:
                assert may_try
                assert gate.is_probed
                assert not tried(gate, C)
                assert not waits(gate, B)
                raise AWAY
            assert not tried(gate, C)
            assert waits(gate, A)


def test_a_probe_that_is_not_shown_lets_others_probe_while_it_is_waited_for(
    closed: StoreGate,
) -> None:
    closed.let_probe()
    with closed.trying(B):
        assert waits(closed, B)
        closed.let_probe()
        assert tried(closed, C)


@pytest.mark.parametrize("has_waited", [False, True])
def test_a_copy_is_lost_when_the_store_has_worked_for_another_since(has_waited: bool) -> None:
    gate = StoreGate()
    with gate.trying(A):
        if has_waited:
            assert waits(gate, A)
            gate.let_probe()
        assert tried(gate, B)
        assert not waits(gate, A)
        assert gate.is_open, "a store that works is not closed for what it has lost"
    with gate.trying(A):
        assert waits(gate, A, since=gate.successes), "the next copy"


def test_opened_by_hand_nothing_is_known_of_the_copy_that_is_waited_for() -> None:
    gate = StoreGate()
    with gate.trying(A):
        waits(gate, A)
        gate.open()
        assert waits(gate, A)


@pytest.mark.parametrize("ends", ["found", "fails", "cancelled"])
def test_when_the_wait_is_over_another_copy_may_be_waited_for(ends: str) -> None:
    gate = StoreGate()
    with suppress(RemoteStorageError, TaskCancelledError), gate.trying(A):
        waits(gate, A)
        if ends == "fails":
            raise RemoteStorageError("lost")
        if ends == "cancelled":
            raise TaskCancelledError("gone")
        gate.worked()
    assert gate.is_open is (ends == "found")
    gate.let_probe()
    with gate.trying(B):
        assert waits(gate, B, since=gate.successes)


def test_a_call_that_hangs_is_of_one_partition_alone_until_another_ones_does() -> None:
    gate, hangs = StoreGate(), CallHangsError("a call of the plugin hangs")
    for _ in range(3):
        gate.failed(A, hangs)
        assert gate.is_open
    gate.failed(B, hangs)
    assert not gate.is_open
