"""The claim on the store: validated before the first write, taken again, its outages survived."""

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.replica.validation import Validation
from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlm.link.messages import Connect, ReadAnswer, Stop
from rlm.maintenance.claim import FIRST_ANSWER_MS, validate
from rlm.maintenance.incarnation import (
    CLAIM_SPREAD,
    FILE_NAME,
    WRITTEN,
    Counter,
    Incarnations,
    dump,
    parse,
)
from rlmm.api import Fence, MetadataWriteTimeoutError
from rlmm.events import SegmentAdded, Stamp
from rsm_plugins.api import RemoteObjectDamagedError, RetriableRemoteStorageError
from rsm_plugins.layout.claim_object import claim_key
from rsm_plugins.testing import Operation, segment
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.rng import SeededRng
from tests.support.tier.claiming import INTERVAL_MS, NOW_MS, claims, passes, start, stop, unhealthy
from tests.support.tier.log_in_memory import PARTITION
from tests.support.tier.pair import ClaimStorage, Pair, bytes_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def counter(root: Path) -> Counter | None:
    return parse((root / FILE_NAME).read_bytes())


def writes(pair: Pair) -> int:
    return pair.calls(Operation.COPY) + pair.calls(Operation.DELETE)


def test_a_claim_is_refused_only_where_it_is_above_a_known_one() -> None:
    known = Counter(9, 7)
    assert validate(8, known)
    assert not validate(7, known)
    assert not validate(6, known)
    assert not validate(None, known)
    assert not validate(8, Counter(9, None))
    assert not validate(None, Counter(9, None))


def test_the_claim_is_taken_before_anything_is_copied(root: Path) -> None:
    pair = start(root)
    (_, found), (_, number) = claims(pair)
    assert found is None
    assert number is not None
    assert NOW_MS <= number < NOW_MS + CLAIM_SPREAD
    assert counter(root) == Counter(number + 1, number, (WRITTEN,)), (
        "the barrier's pair is above the claim"
    )
    assert pair.calls(Operation.COPY) == 3
    assert unhealthy(pair) == []


def test_a_restart_continues_above_its_claim(root: Path) -> None:
    stop(start(root))
    again = start(root, wall_ms=5)
    assert unhealthy(again) == []
    (_, found), (_, written) = claims(again)
    assert found is not None
    assert written is not None
    assert written > found


def older_copy(root: Path, **more: object) -> Path:
    """Directories copied while the tier ran, which then continued and was stopped."""
    pair = start(root, **more)
    copy = root.parent / "copy"
    shutil.copytree(root, copy)
    stop(pair)
    return copy


def test_an_older_copy_writes_nothing_and_reads(root: Path) -> None:
    copy = older_copy(root)
    pair = start(copy, wall_ms=NOW_MS + 10**9)
    passes(pair, 120_000)
    assert writes(pair) == 0
    assert [what for what, _ in claims(pair)] == ["read"]
    [reason] = unhealthy(pair)
    assert "older copy" in reason
    assert "tidemark remote claim" in reason
    answer = pair.read(0).message
    assert isinstance(answer, ReadAnswer)
    assert answer.error == ErrorCode.KAFKA_STORAGE_ERROR, "looked for, not held back"


def test_an_older_copy_stays_unhealthy_at_every_start(root: Path) -> None:
    copy = older_copy(root)
    for start_number in range(1, 4):
        pair = start(copy, wall_ms=NOW_MS + start_number * 10**9)
        passes(pair, 60_000)
        assert writes(pair) == 0
        assert "older copy" in unhealthy(pair)[0]


def test_an_older_copy_is_unhealthy_once_its_absent_store_answers(
    root: Path,
) -> None:
    copy = older_copy(root)
    for start_number in (1, 2):  # the first takes incarnations far above the claim
        pair = start(copy, wall_ms=NOW_MS + start_number * 10**9, down=True)
        passes(pair, 60_000)
        assert writes(pair) == 0
    pair.storage.down = False
    passes(pair, 60_000)
    assert writes(pair) == 0
    assert any("older copy" in reason for reason in unhealthy(pair))


def test_an_outage_at_the_start_delays_the_claim_and_no_ownership(root: Path) -> None:
    pair = start(root, down=True)
    assert pair.metadata.is_ready(PARTITION)
    assert any("claim" in reason for reason in unhealthy(pair))
    pair.storage.down = False
    passes(pair, 31_000)
    assert [what for what, _ in claims(pair)] == ["read", "write"]
    assert pair.calls(Operation.COPY) == 3
    assert unhealthy(pair) == []


def test_an_outage_is_logged_once_and_its_end(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    def logged() -> list[tuple[str, bool]]:
        """Level of each line about taking the claim, and whether it ends an outage."""
        return [
            (each.levelname, "works again" in each.message)
            for each in caplog.records
            if "taking the claim" in each.message
        ]

    pair = start(root, down=True)
    passes(pair, 120_000)
    assert logged() == [("ERROR", False)]
    pair.storage.down = False
    passes(pair, 60_000)
    assert logged() == [("ERROR", False), ("WARNING", True)]
    caplog.clear()
    pair.storage.down = True
    passes(pair, 3 * INTERVAL_MS)
    assert logged() == [("ERROR", False)], "a claim that is held is not taken again"


def test_a_silent_store_is_awaited_no_longer_than_a_deadline(root: Path) -> None:
    pair = Pair(root, kind=ClaimStorage)
    pair.log.fill(3, records=20)
    pair.workers.held.add("rlm-expiration")
    pair.broker.ask(Connect())
    pair.assign()
    passes(pair, FIRST_ANSWER_MS - 500)
    assert not (root / FILE_NAME).exists(), "a barrier was written before the claim was validated"
    passes(pair, 1_000)
    assert counter(root) == Counter(NOW_MS + FIRST_ANSWER_MS, None)
    assert any("not answered" in reason for reason in unhealthy(pair))
    assert pair.calls(Operation.COPY) == 0
    pair.workers.held.clear()
    passes(pair, 60_000)
    assert pair.calls(Operation.COPY) == 3
    assert unhealthy(pair) == []


class CountingDisk(Disk):
    """Counts what becomes durable under the counter's name."""

    def __init__(self) -> None:
        self.counters = 0

    def atomic_write(self, path: Path, *data: Any, **more: Any) -> None:
        self.counters += path.name == FILE_NAME
        super().atomic_write(path, *data, **more)


def test_ownerships_that_end_together_take_one_incarnation(root: Path) -> None:
    disk = CountingDisk()
    pair = start(root, disk=disk)
    own, fences = pair.metadata.own, list[Fence]()

    def fails_once(
        partition: TopicIdPartition,
        fence: Fence,
        metadata_offset: int = -1,
        unclean_epoch: int = -1,
    ) -> "Future[None]":
        fences.append(fence)
        if len(fences) > 20:
            return own(partition, fence, metadata_offset)
        failed: Future[None] = Future()
        failed.set_exception(MetadataWriteTimeoutError("nobody knows"))
        return failed

    pair.metadata.own = fails_once  # type: ignore[method-assign]
    before = disk.counters
    for number in range(1, 21):
        pair.assign(topic_id=bytes([number]) * 16)
    passes(pair, 5_000)
    first, again = fences[:20], fences[20:40]
    assert len(again) == 20
    [first_one] = {fence.incarnation for fence in first}
    [next_one] = {fence.incarnation for fence in again}
    assert next_one > first_one
    assert disk.counters == before + 1


@pytest.mark.parametrize(
    "error", [RemoteObjectDamagedError("cut"), RetriableRemoteStorageError("slow down")]
)
def test_a_claim_that_cannot_be_read_is_unhealthy_and_nothing_is_copied(
    root: Path, error: Exception
) -> None:
    pair = Pair(root, kind=ClaimStorage)
    assert isinstance(pair.storage, ClaimStorage)
    pair.storage.claim_error = error
    pair.log.fill(3, records=20)
    pair.ask(Connect())
    pair.assign()
    passes(pair, 60_000)
    assert pair.calls(Operation.COPY) == 0
    assert any(str(error) in reason for reason in unhealthy(pair))
    pair.storage.claim_error = None
    passes(pair, 60_000)
    assert pair.calls(Operation.COPY) == 3


class NotedRemover:
    """Notes when it is asked to look, and finds nothing."""

    def __init__(self, looks: list[int]) -> None:
        self.looks = looks

    def look(self) -> Sequence[TopicIdPartition]:
        self.looks.append(1)
        return ()

    def remove(self, partition: TopicIdPartition, on_given_up: Callable[[], None]) -> bool:
        raise AssertionError("nothing was found")


def test_nothing_is_deleted_before_the_claim_is_ours(root: Path) -> None:
    stop(start(root))
    removals: list[int] = []
    pair = Pair(
        root,
        store=root.parent / "store",
        kind=ClaimStorage,
        remover=NotedRemover(removals),
    )
    assert isinstance(pair.storage, ClaimStorage)
    pair.storage.claim_error = RetriableRemoteStorageError("away")
    pair.log.fill(6, records=20)
    left_by_a_dead_copy = replace(segment(topic="orders"), leader_epochs=(EpochEntry(1, 0),))
    pair.metadata.land(SegmentAdded(left_by_a_dead_copy, Stamp(Fence(1, 1), -1)))
    pair.ask(Connect())
    pair.assign()
    passes(pair, 61_000)
    assert (pair.calls(Operation.DELETE), removals) == (0, [])
    pair.storage.claim_error = None
    passes(pair, 61_000)
    assert pair.calls(Operation.DELETE) > 0
    assert removals


def test_a_number_that_cannot_be_noted_is_not_claimed(root: Path) -> None:
    disk = FaultyDisk()
    disk.fail(["rename"], path_part=FILE_NAME)
    pair = start(root, disk=disk)
    assert {what for what, _ in claims(pair)} == {"read"}
    assert writes(pair) == 0
    disk.heal()
    passes(pair, 61_000)
    assert [what for what, _ in claims(pair)][-1] == "write"
    assert writes(pair) == 3


@pytest.mark.parametrize("content", [None, b"", b"\0" * 30])
def test_a_lost_counter_is_not_validated_and_continues_above_the_claim(
    root: Path, content: bytes | None
) -> None:
    high = NOW_MS + 10**12
    first = start(root, wall_ms=high)
    stop(first)
    path = root / FILE_NAME
    path.unlink() if content is None else path.write_bytes(content)
    pair = start(root)
    assert unhealthy(pair) == []
    found, written = claims(pair)[0][1], claims(pair)[1][1]
    assert found is not None
    assert found >= high
    assert written is not None
    assert 0 < written - found <= CLAIM_SPREAD


def test_the_claim_is_taken_again_every_interval_and_at_a_stop(root: Path) -> None:
    pair = start(root)
    passes(pair, INTERVAL_MS)
    assert [what for what, _ in claims(pair)] == ["read", "write"] * 2
    stop(pair)
    assert [what for what, _ in claims(pair)] == ["read", "write"] * 3
    numbers = [number for what, number in claims(pair) if what == "write"]
    assert numbers == sorted(set(numbers))  # type: ignore[type-var]


def test_an_outage_does_not_end_a_claim_that_is_held(root: Path) -> None:
    pair = start(root)
    assert isinstance(pair.storage, ClaimStorage)
    pair.storage.claim_error = RetriableRemoteStorageError("away")
    passes(pair, 2 * INTERVAL_MS)
    assert unhealthy(pair) == []
    pair.log.fill(2, records=20)
    passes(pair, 60_000)
    assert pair.calls(Operation.COPY) > 3
    stop(pair)


def test_a_tier_whose_clone_has_started_stops_writing(root: Path) -> None:
    one = start(root)
    clone = root.parent / "clone"
    shutil.copytree(root, clone)
    other = start(clone, wall_ms=NOW_MS + 10_000)
    assert unhealthy(other) == [], "the first to start after the copy"
    assert (one.log.verdict, one.log.copied >= 0) == (Validation.SOUND, True)
    passes(one, INTERVAL_MS)
    assert "another machine" in unhealthy(one)[0]
    assert one.log.copied == -1, "the clone may delete what was copied"
    assert one.log.verdict is Validation.OPEN, "these files may be the older ones"
    assert bytes_of(one.read(0)), "remote reads continue"
    before = writes(one)
    one.log.fill(3, records=20)
    passes(one, 120_000)
    assert writes(one) == before


def refuses(_: int) -> None:
    raise RetriableRemoteStorageError("no PUT is answered")


def test_a_number_that_was_never_put_hides_no_claim_of_another_machine(root: Path) -> None:
    stop(start(root))
    clone = root.parent / "clone"
    shutil.copytree(root, clone)
    # The clone's clock is an hour ahead; it notes numbers that never reach the store.
    other = Pair(clone, store=root.parent / "store", kind=ClaimStorage, wall_ms=NOW_MS + 3_600_000)
    assert isinstance(other.storage, ClaimStorage)
    other.storage.put = refuses
    other.log.fill(3, records=20)
    other.ask(Connect())
    other.assign()
    passes(other, 10_000)
    noted = counter(clone)
    assert noted is not None
    assert len(noted.before) > 1
    machine = start(root, wall_ms=NOW_MS + 10_000)
    assert unhealthy(machine) == []
    other.storage.put = lambda _: None
    passes(other, 60_000)
    assert "another machine" in unhealthy(other)[0], "the second to claim"
    assert writes(other) == 0
    passes(machine, INTERVAL_MS)
    assert unhealthy(machine) == []


def test_a_number_whose_put_lands_late_is_ones_own(root: Path) -> None:
    pair = Pair(root, kind=ClaimStorage)
    assert isinstance(pair.storage, ClaimStorage)
    lost: list[int] = []

    def hangs(number: int) -> None:
        lost.append(number)
        refuses(number)

    pair.storage.put = hangs
    pair.log.fill(3, records=20)
    pair.ask(Connect())
    pair.assign()
    passes(pair, 3_000)
    assert len(lost) > 1
    pair.storage.put = lambda _: None
    passes(pair, 31_000)
    assert unhealthy(pair) == []
    owner = pair.config.cluster_id, pair.config.node_id
    pair.storage.write_claim(*owner, lost[0])
    passes(pair, INTERVAL_MS)
    assert unhealthy(pair) == []


def test_a_renewal_that_runs_at_a_clean_stop_is_not_the_last_claim(root: Path) -> None:
    pair, copy = start(root), root.parent / "copy"
    assert isinstance(pair.storage, ClaimStorage)
    passes(pair, INTERVAL_MS - 2_000)
    pair.workers.held.add("rlm-expiration")
    passes(pair, 2_000)

    def copies_the_directories(_: int) -> None:
        """Between note and PUT of the renewal; what is written later, the copy does not know."""
        if not copy.exists():
            shutil.copytree(root, copy)

    pair.storage.put = copies_the_directories
    pair.broker.ask(Stop())
    pair.pump()
    pair.workers.held.clear()
    passes(pair, 3_000)
    older = start(copy)
    assert "older copy" in unhealthy(older)[0]
    assert writes(older) == 0


def test_other_clusters_and_brokers_of_one_store_have_their_own(root: Path) -> None:
    for node_id, cluster_id in ((1, "c"), (2, "c"), (1, "d")):
        directory = root / f"{cluster_id}{node_id}"
        directory.mkdir()
        pair = start(directory, node_id=node_id, cluster_id=cluster_id)
        assert unhealthy(pair) == []
        assert (root / "store" / claim_key(cluster_id, node_id)).exists()


def test_a_plugin_without_claims_is_used_as_ever(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Pair(root)
    pair.log.fill(3, records=20)
    pair.ask(Connect())
    pair.assign()
    passes(pair, INTERVAL_MS)
    assert pair.calls(Operation.COPY) == 3
    assert [
        record.message for record in caplog.records if "keeps no claims" in record.message
    ] != []
    assert unhealthy(pair) == []


def test_a_claim_once_made_stays_known_over_later_incarnations(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    first = Incarnations(Disk(), tmp_path, clock, SeededRng(1))
    assert first.counter.claimed is None
    found = NOW_MS + 50
    number = first.claim(found)
    assert 0 < number - found <= CLAIM_SPREAD
    last = first.take(above=number + 20)
    again = Incarnations(Disk(), tmp_path, clock, SeededRng(1))
    assert again.counter == Counter(last, number, (found,))
    assert again.take() == last + 1
    assert parse(dump(Counter(5, None))) == Counter(5, None)
