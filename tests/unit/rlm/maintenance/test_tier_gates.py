"""From the moment in which the claim is found refused nothing is copied or deleted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm.link.endpoint import Received
from rlm.link.messages import Ack, Connect, Stop, Unassign
from rlm.maintenance.claim import FIRST_ANSWER_MS, ClaimState
from rlm.plugin_calls import PluginCalls, StoreClosedError
from rlmm.api import PartitionDeleteState
from rsm_plugins.testing import Operation
from tests.support.sim.clock import ManualClock
from tests.support.tier.claiming import INTERVAL_MS, NOW_MS, claims, passes, start, stop, unhealthy
from tests.support.tier.log_in_memory import PARTITION
from tests.support.tier.pair import NAMES, ClaimStorage, Pair
from tests.support.tier.removals import GRACE_MS, Removals, WithRemover, state_of, wake

LATER = NOW_MS + 10**9


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def put_claim(pair: Pair, number: int) -> None:
    """Another machine claims the store."""
    assert isinstance(pair.storage, ClaimStorage)
    pair.storage.write_claim(pair.config.cluster_id, pair.config.node_id, number)


def hang_next_look(pair: Pair, meanwhile: Callable[[Callable[[], int | None]], int | None]) -> None:
    """Let `meanwhile` run in the next look at the claim; it gets the look, returns the answer."""
    storage = pair.storage
    assert isinstance(storage, ClaimStorage)
    read = storage.read_claim

    def hang(cluster_id: str, node_id: int) -> int | None:
        storage.read_claim = read  # type: ignore[method-assign]
        return meanwhile(lambda: read(cluster_id, node_id))

    storage.read_claim = hang  # type: ignore[method-assign]


def outlast_the_limit(pair: Pair) -> None:
    """The call that runs is given up."""
    pair.scheduler.advance(1_500)
    pair.workers.turn()


def claimed_by_another(pair: Pair) -> None:
    """Another machine claims the store; ours reads it in a pool, and nobody was told yet."""
    put_claim(pair, LATER)
    pair.workers.held.add("post")
    pair.tier.claim.take()
    pair.workers.turn()


def told(pair: Pair) -> None:
    pair.workers.held.clear()
    pair.pump()


class During:
    """Has something happen in the midst of a call, once, and counts the calls from then on."""

    def __init__(self, of: object, name: str, number: int, happens: Callable[[], None]) -> None:
        inner: Callable[..., Any] = getattr(of, name)
        self.count = 0

        def call(*args: Any) -> Any:
            self.count += 1
            if self.count == number:
                happens()
            return inner(*args)

        setattr(of, name, call)


def test_a_store_that_is_closed_takes_no_call_that_writes() -> None:
    calls = PluginCalls(ManualClock())
    with calls.call("p", "copy", 1_000, writes=True):
        calls.let_write(False)
        assert calls.running == 1
    with pytest.raises(StoreClosedError), calls.call("p", "copy", 1_000, writes=True):
        raise AssertionError("must not start")
    with calls.call("p", "fetch", 1_000):
        assert calls.running == 1
    calls.let_write(True)
    with calls.call("p", "copy", 1_000, writes=True):
        assert calls.running == 1


@pytest.mark.parametrize("is_told", [False, True])
def test_copying_ends_with_the_call_that_runs(root: Path, is_told: bool) -> None:
    pair = start(root)

    def refused() -> None:
        claimed_by_another(pair)
        if is_told:
            told(pair)

    copies = During(pair.storage, "copy_log_segment_data", 1, refused)
    pair.log.fill(3, records=20)
    passes(pair, 60_000)
    assert copies.count == 1
    told(pair)
    assert "older copy" in unhealthy(pair)[0]
    passes(pair, 120_000)
    assert copies.count == 1


@pytest.mark.parametrize("is_told", [False, True])
def test_deleting_ends_with_the_call_that_runs(root: Path, is_told: bool) -> None:
    pair = start(root, copy_max_ms=1_000)

    def refused() -> None:
        claimed_by_another(pair)
        if is_told:
            told(pair)

    deletions = During(pair.storage, "delete_log_segment_data", 1, refused)
    pair.log.delete_records(60)
    passes(pair, 60_000)
    assert deletions.count == 1
    told(pair)
    passes(pair, 120_000)
    assert deletions.count == 1


class ClaimedWithRemover(WithRemover):
    """A tier with claims and the remover, whose topic is removed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, Removals(PARTITION.topic_id), kind=ClaimStorage)

    def remove_all(self) -> None:
        self.log.fill(3, records=20)
        assert self.ask(Connect()).message == Ack()
        self.assign()
        passes(self, 1_000)
        assert self.calls(Operation.COPY) == 3
        self.ask(Unassign(*NAMES, self.log.leader_epoch))
        self.log.topic_ids.clear()
        wake(self)
        self.scheduler.advance(GRACE_MS)


def test_a_pass_of_the_remover_that_runs_ends_with_the_call_that_runs(root: Path) -> None:
    pair = ClaimedWithRemover(root)
    pair.remove_all()
    deletions = During(pair.storage, "delete_log_segment_data", 1, lambda: claimed_by_another(pair))
    records = During(pair.metadata, "update", 10**6, lambda: None)
    wake(pair)
    assert deletions.count == 1
    assert records.count == 1, "DELETE_SEGMENT_STARTED of the first"
    told(pair)
    for _ in range(3):
        passes(pair, 40_000)
        wake(pair)
    assert (deletions.count, records.count) == (1, 1)
    assert state_of(pair, PARTITION) is PartitionDeleteState.DELETE_PARTITION_STARTED


def test_a_stop_ends_the_pass_of_the_remover_that_runs(root: Path) -> None:
    pair = ClaimedWithRemover(root)
    pair.remove_all()

    def stopped() -> None:
        pair.workers.held.add("rlm-expiration")
        pair.tier.take(Received(Stop()), lambda _: None)

    deletions = During(pair.storage, "delete_log_segment_data", 1, stopped)
    wake(pair)
    assert deletions.count == 1


def test_no_barrier_that_is_on_its_way_is_written_after_the_refusal(root: Path) -> None:
    pair = start(root)
    follows = During(pair.metadata, "follow", 1, lambda: None)
    claimed_by_another(pair)
    pair.workers.held.add("rlm-validation")  # the broker is not told yet
    pair.workers.held.discard("post")
    pair.workers.turn()
    assert follows.count == 1


def test_a_claim_that_hung_writes_nothing_after_another_was_refused(root: Path) -> None:
    pair = start(root, call_max_ms=1_000)

    def refused_meanwhile(look: Callable[[], int | None]) -> int | None:
        found = look()
        outlast_the_limit(pair)
        claimed_by_another(pair)
        return found

    hang_next_look(pair, refused_meanwhile)
    passes(pair, INTERVAL_MS)
    told(pair)
    assert "older copy" in unhealthy(pair)[0]
    assert [each for each in claims(pair) if each[0] == "write"][-1] == ("write", LATER)


def test_a_later_claim_that_a_hung_call_finds_counts(root: Path) -> None:
    pair = start(root, call_max_ms=1_000)

    def finds_a_later_one(look: Callable[[], int | None]) -> int | None:
        put_claim(pair, LATER)
        found = look()
        put_claim(pair, NOW_MS)  # as if nothing had been
        outlast_the_limit(pair)
        return found

    hang_next_look(pair, finds_a_later_one)
    passes(pair, INTERVAL_MS + 1_000)
    assert "older copy" in unhealthy(pair)[0]
    assert not pair.tier.calls.may_write


def test_a_hung_claim_that_returns_is_not_renewed_beside_the_next(
    root: Path,
) -> None:
    pair = start(root, call_max_ms=1_000)

    def comes_through(look: Callable[[], int | None]) -> int | None:
        outlast_the_limit(pair)
        return look()

    hang_next_look(pair, comes_through)
    passes(pair, INTERVAL_MS)
    before = len(claims(pair))
    passes(pair, 3 * INTERVAL_MS)
    assert [what for what, _ in claims(pair)[before:]] == ["read", "write"] * 3


def test_a_missed_renewal_is_made_up_for_by_the_next(root: Path) -> None:
    pair = start(root)
    pair.storage.down = True
    passes(pair, INTERVAL_MS)
    assert unhealthy(pair) == [], "the claim is still its own"
    pair.storage.down = False
    before = len(claims(pair))
    passes(pair, 2 * INTERVAL_MS)
    assert [what for what, _ in claims(pair)[before:]] == ["read", "write"] * 2


@pytest.mark.parametrize("is_told_first", [False, True])
def test_a_hung_call_that_finds_a_later_claim_opens_nothing(
    root: Path, is_told_first: bool
) -> None:
    pair = Pair(root, kind=ClaimStorage, store=root.parent / "store", call_max_ms=1_000)

    def finds_a_later_one(look: Callable[[], int | None]) -> int | None:
        outlast_the_limit(pair)
        pair.workers.held.add("post")
        pair.scheduler.advance(FIRST_ANSWER_MS)
        pair.workers.turn()  # the next try claims, and the tier's thread does not know of it yet
        assert claims(pair)[-1][0] == "write"
        put_claim(pair, LATER)
        return look()

    hang_next_look(pair, finds_a_later_one)
    pair.broker.ask(Connect())
    pair.pump()
    calls = pair.tier.calls
    pair.workers.held.clear()
    if is_told_first:
        pair.workers.queue.reverse()
    claim, manager = pair.tier.claim, pair.tier.manager
    changed, told_with = manager.claim_changed, []

    def change() -> None:
        told_with.append((claim.state, calls.may_write))
        changed()

    manager.claim_changed = change  # type: ignore[method-assign]
    pair.pump()
    assert told_with == [(ClaimState.HELD, False), (ClaimState.REFUSED, False)][is_told_first:]
    assert "older copy" in unhealthy(pair)[0]


def test_a_first_answer_after_the_wait_opens_the_store(root: Path) -> None:
    pair = Pair(root, kind=ClaimStorage)
    pair.workers.held.add("rlm-expiration")
    pair.broker.ask(Connect())
    passes(pair, FIRST_ANSWER_MS + 500)
    calls = pair.tier.calls
    assert not calls.may_write
    pair.workers.held.clear()
    passes(pair, 1_000)
    assert calls.may_write
    stop(pair)
    assert not calls.may_write


def test_a_claim_that_is_taken_after_a_stop_began_opens_nothing(root: Path) -> None:
    pair = Pair(root, kind=ClaimStorage)
    pair.workers.held.add("rlm-expiration")
    pair.broker.ask(Connect())
    passes(pair, FIRST_ANSWER_MS + 500)
    pair.tier.take(Received(Stop()), lambda _: None)
    pair.workers.held.clear()
    pair.pump()
    assert [what for what, _ in claims(pair)] == ["read", "write"]
    assert not pair.tier.calls.may_write
