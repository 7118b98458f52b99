"""Faults of a store around a real plugin: what a caller gets, and what the store has then."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rsm_plugins.api import (
    ClaimKeeper,
    RemoteResourceNotFoundError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.contract.samples import LOG_BYTES, copy, read, segment
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import IndexType
from rsm_plugins.settings import public_names
from rsm_plugins.store_faults import StoreCall, StoreFault, StoreFaultKind, StoreFaults, with_faults

PATIENCE_S = 20
Kind = StoreFaultKind


class World:
    def __init__(self, root: Path) -> None:
        self.plain = LocalFsRemoteStorageManager()
        self.plain.configure({"dir": str(root)})
        self.faults = StoreFaults()
        self.hits: list[tuple[int, StoreCall, str]] = []
        self.faults.on_hit = lambda *hit: self.hits.append(hit)
        self.store = with_faults(self.plain, self.faults)

    def fail(self, kind: StoreFaultKind, **fault: object) -> None:
        self.faults.set([StoreFault(id=5, kind=kind, **fault)])  # type: ignore[arg-type]

    def has(self, number: int) -> bool:
        try:
            return read(self.plain.fetch_log_segment(segment(number), 0)) == LOG_BYTES
        except RemoteResourceNotFoundError:
            return False


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class Running:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=[call], daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            self.error = error

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def ends(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


def calls_of(store: RemoteStorageManager) -> dict[StoreCall, Callable[[], object]]:
    return {
        StoreCall.COPY: lambda: copy(store, segment(2)),
        StoreCall.READ: lambda: read(store.fetch_log_segment(segment(1), 0)),
        StoreCall.INDEX: lambda: read(store.fetch_index(segment(1), IndexType.OFFSET)),
        StoreCall.DELETE: lambda: store.delete_log_segment_data(segment(3)),
    }


@pytest.mark.parametrize("call", list(StoreCall))
def test_only_calls_of_the_kind_are_refused(world: World, call: StoreCall) -> None:
    copy(world.store, segment(1))
    world.fail(Kind.REFUSE, call=call)
    for kind, run in calls_of(world.store).items():
        if kind is call:
            with pytest.raises(RetriableRemoteStorageError, match=f"fault 5: {call} is refused"):
                run()
        else:
            run()
    assert world.hits == [(5, call, "orders")]
    assert world.has(2) is (call is not StoreCall.COPY)


def test_a_lost_answer_leaves_the_segment_there(world: World) -> None:
    world.fail(Kind.LOSE_PUT_ANSWER, count=1)
    with pytest.raises(RetriableRemoteStorageError, match="the answer is lost"):
        copy(world.store, segment(1))
    assert world.has(1)
    copy(world.store, segment(1))
    calls_of(world.store)[StoreCall.READ]()
    assert len(world.hits) == 1


def test_a_call_hangs_until_its_fault_is_removed(world: World) -> None:
    world.fail(Kind.HANG, count=1)
    call = Running(lambda: copy(world.store, segment(1)))
    while not world.hits:
        assert call.is_running
    copy(world.store, segment(2))  # the count is used up
    assert call.is_running
    assert not world.has(1)
    world.faults.set([])
    call.ends()
    assert world.has(1)


def test_a_slow_call_begins_late_or_when_its_fault_is_removed(world: World) -> None:
    world.fail(Kind.SLOW, delay_ms=3_600_000)
    call = Running(lambda: copy(world.store, segment(1)))
    while not world.hits:
        assert call.is_running
    assert not world.has(1)
    world.faults.set([])
    call.ends()
    assert world.has(1)
    world.fail(Kind.SLOW, delay_ms=1)
    copy(world.store, segment(2))


def test_closing_lets_go_of_what_hangs(world: World) -> None:
    world.fail(Kind.HANG)
    call = Running(lambda: copy(world.store, segment(1)))
    while not world.hits:
        assert call.is_running
    world.store.close()
    call.ends()


def test_other_topics_are_not_hit(world: World) -> None:
    world.fail(Kind.REFUSE, topic="bills")
    copy(world.store, segment(1))
    with pytest.raises(RetriableRemoteStorageError):
        copy(world.store, segment(2, topic="bills"))
    assert world.hits == [(5, StoreCall.COPY, "bills")]


def test_a_fault_that_is_set_again_continues_where_it_is(world: World) -> None:
    fault = StoreFault(id=1, kind=Kind.REFUSE, count=2)
    for others in ([], [StoreFault(id=2, kind=Kind.REFUSE, topic="none")]):
        world.faults.set([fault, *others])
        with pytest.raises(RetriableRemoteStorageError):
            copy(world.store, segment(1))
    world.faults.set([fault])
    copy(world.store, segment(1))


def test_the_same_seed_hits_the_same_calls(tmp_path: Path) -> None:
    def hits(seed: int, name: str) -> list[bool]:
        world = World(tmp_path / name)
        world.fail(Kind.REFUSE, probability=0.5, seed=seed)
        found = []
        for _ in range(40):
            before = len(world.hits)
            with contextlib.suppress(RetriableRemoteStorageError):
                world.store.delete_log_segment_data(segment(1))
            found.append(len(world.hits) > before)
        return found

    assert hits(1, "a") == hits(1, "b") != hits(2, "c")


def test_what_a_plugin_has_beside_its_interface_is_there(world: World) -> None:
    assert isinstance(world.plain, ClaimKeeper)
    assert isinstance(world.store, ClaimKeeper)
    world.fail(Kind.REFUSE)
    world.store.write_claim("c", 1, 7)
    assert world.store.read_claim("c", 1) == 7
    world.store.delete_claim("c", 1)
    assert world.plain.read_claim("c", 1) is None
    assert public_names(world.store) == public_names(world.plain)


class NoClaims(LocalFsRemoteStorageManager):
    read_claim = None  # type: ignore[assignment]


def test_claims_are_not_made_up() -> None:
    assert not isinstance(NoClaims(), ClaimKeeper)
    assert not isinstance(with_faults(NoClaims(), StoreFaults()), ClaimKeeper)
