"""Who may try a store that fails."""

from contextlib import suppress

import pytest

from kafka_protocol.types import TopicIdPartition
from rlm.maintenance.ownership import CallHangsError
from rlm.maintenance.store_gate import StoreGate
from rlm.plugin_calls import StoreClosedError, TaskCancelledError
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


def test_failed_probes_are_counted_until_a_success(closed: StoreGate) -> None:
    assert closed.failed_probes == 0, "it was open for this one"
    for count in (1, 2):
        closed.let_probe()
        tried(closed, B, AWAY)
        assert closed.failed_probes == count
    closed.failed(A, AWAY)
    assert closed.failed_probes == 2, "it had begun before"
    closed.let_probe()
    assert tried(closed, C)
    assert closed.failed_probes == 0


def test_hanging_calls_of_one_partition_keep_the_gate_open_until_another() -> None:
    gate, hangs = StoreGate(), CallHangsError("a call of the plugin hangs")
    for _ in range(3):
        gate.failed(A, hangs)
        assert gate.is_open
    gate.failed(B, hangs)
    assert not gate.is_open
