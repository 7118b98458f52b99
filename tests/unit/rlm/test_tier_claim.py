"""The claim on the store: judged before the first write, taken again, its outages survived."""

import shutil
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tier_pair import ClaimStorage, Pair, bytes_of

from kafka_protocol.errors import ErrorCode
from kafka_protocol.types import TopicIdPartition
from rlm.claim import FIRST_ANSWER_MS, judge
from rlm.incarnation import CLAIM_SPREAD, FILE_NAME, Counter, Incarnations, dump, parse
from rlm.judgement import Judgement
from rlm.messages import Ack, Connect, Health, ReadAnswer, Stop
from rlm.testing import PARTITION
from rlmm.api import Fence, MetadataWriteTimeoutError
from rlmm.events import SegmentAdded, Stamp
from rsm_plugins.api import RemoteObjectDamagedError, RetriableRemoteStorageError
from rsm_plugins.claim_object import claim_key
from rsm_plugins.testing import Operation, segment
from runtime.clock import ManualClock
from runtime.dice import SeededDice
from runtime.disk import Disk, FaultyDisk

NOW_MS = 10_000_000
INTERVAL_MS = 300_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def start(root: Path, *, wall_ms: int = NOW_MS, down: bool = False, **more: object) -> Pair:
    """A tier with a partition of three closed segments, up for a second."""
    store = root.parent / "store"
    pair = Pair(root, store=store, kind=ClaimStorage, wall_ms=wall_ms, **more)  # type: ignore[arg-type]
    pair.storage.down = down
    pair.log.fill(3, records=20)
    assert pair.ask(Connect()).message == Ack()
    pair.assign()
    passes(pair, 1_000)
    return pair


def passes(pair: Pair, ms: int) -> None:
    for _ in range(ms // 250):
        pair.scheduler.advance(250)
        pair.pump()


def stop(pair: Pair) -> None:
    assert pair.ask(Stop(), 3_000).message == Ack()


def red(pair: Pair) -> list[str]:
    passes(pair, 1_000)
    health = next(each for each in reversed(pair.told) if isinstance(each, Health))
    return [each.reason for each in health.red]


def counter(root: Path) -> Counter | None:
    return parse((root / FILE_NAME).read_bytes())


def claims(pair: Pair) -> list[tuple[str, int | None]]:
    assert isinstance(pair.storage, ClaimStorage)
    return pair.storage.claims


def writes(pair: Pair) -> int:
    return pair.calls(Operation.COPY) + pair.calls(Operation.DELETE)


def test_a_claim_is_refused_only_where_it_is_above_a_known_one() -> None:
    of_an_earlier_version = Counter(9, 7)
    assert judge(8, of_an_earlier_version)
    assert not judge(7, of_an_earlier_version)
    assert not judge(6, of_an_earlier_version)
    assert not judge(None, of_an_earlier_version)
    assert not judge(8, Counter(9, None))
    assert not judge(None, Counter(9, None))


def test_a_claim_between_two_noted_numbers_is_not_of_these_files() -> None:
    known = Counter(9, 7, (2, 5))
    assert [found for found in range(10) if judge(found, known)] == [3, 4, 6, 8, 9]


def test_what_the_store_may_hold_is_what_was_found_and_all_that_was_noted_since() -> None:
    known = Counter(9, 7, (2, 5))
    assert known.noted(20, 2) == Counter(20, 20, (2, 5, 7)), "neither has come about yet"
    assert known.noted(20, 5) == Counter(20, 20, (5, 7))
    assert known.noted(20, 7) == Counter(20, 20, (7,))
    assert known.noted(20, None) == Counter(20, 20, (2, 5, 7))
    assert Counter(9, None).noted(20, None) == Counter(20, 20, (0,))
    assert Counter(9, 7).noted(20, 5) == Counter(20, 20, (5, 7))
    for number in range(30, 100):
        known = known.noted(number, 2)
        assert parse(dump(known)) == known
    assert known.before == (2, *range(85, 99))


def test_the_claim_is_taken_before_anything_is_copied(root: Path) -> None:
    pair = start(root)
    (_, found), (_, number) = claims(pair)
    assert found is None
    assert number is not None
    assert NOW_MS <= number < NOW_MS + CLAIM_SPREAD
    assert counter(root) == Counter(number + 1, number, (0,)), (
        "the barrier's pair is above the claim"
    )
    assert pair.calls(Operation.COPY) == 3
    assert red(pair) == []


def test_a_restart_goes_on_above_its_claim(root: Path) -> None:
    stop(start(root))
    again = start(root, wall_ms=5)
    assert red(again) == []
    (_, found), (_, written) = claims(again)
    assert found is not None
    assert written is not None
    assert written > found


def older_copy(root: Path, **more: object) -> Path:
    """Directories copied while the tier ran, which then went on and was stopped."""
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
    [reason] = red(pair)
    assert "older copy" in reason
    assert "tidemark remote claim" in reason
    answer = pair.read(0).message
    assert isinstance(answer, ReadAnswer)
    assert answer.error == ErrorCode.KAFKA_STORAGE_ERROR, "looked for, not held back"


def test_an_older_copy_stays_red_at_every_start(root: Path) -> None:
    copy = older_copy(root)
    for start_number in range(1, 4):
        pair = start(copy, wall_ms=NOW_MS + start_number * 10**9)
        passes(pair, 60_000)
        assert writes(pair) == 0
        assert "older copy" in red(pair)[0]


def test_an_older_copy_that_first_starts_without_the_store_is_red_once_it_answers(
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
    assert any("older copy" in reason for reason in red(pair))


def test_an_outage_at_the_start_delays_the_claim_and_no_ownership(root: Path) -> None:
    pair = start(root, down=True)
    assert pair.metadata.is_ready(PARTITION)
    assert any("claim" in reason for reason in red(pair))
    pair.storage.down = False
    passes(pair, 31_000)
    assert [what for what, _ in claims(pair)] == ["read", "write"]
    assert pair.calls(Operation.COPY) == 3
    assert red(pair) == []


def test_a_store_that_does_not_answer_is_waited_for_no_longer_than_a_deadline(root: Path) -> None:
    pair = Pair(root, kind=ClaimStorage)
    pair.log.fill(3, records=20)
    pair.workers.held.add("rlm-expiration")
    pair.broker.ask(Connect())
    pair.assign()
    passes(pair, FIRST_ANSWER_MS - 500)
    assert not (root / FILE_NAME).exists(), "a barrier was written before the claim was judged"
    passes(pair, 1_000)
    assert counter(root) == Counter(NOW_MS + FIRST_ANSWER_MS, None)
    assert any("not answered" in reason for reason in red(pair))
    assert pair.calls(Operation.COPY) == 0
    pair.workers.held.clear()
    passes(pair, 60_000)
    assert pair.calls(Operation.COPY) == 3
    assert red(pair) == []


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
def test_a_claim_that_cannot_be_read_is_red_and_nothing_is_copied(
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
    assert any(str(error) in reason for reason in red(pair))
    pair.storage.claim_error = None
    passes(pair, 60_000)
    assert pair.calls(Operation.COPY) == 3


def test_nothing_is_deleted_before_the_claim_is_ours(root: Path) -> None:
    stop(start(root))
    pair = Pair(root, store=root.parent / "store", kind=ClaimStorage)
    assert isinstance(pair.storage, ClaimStorage)
    assert pair.service._parts is not None
    removals: list[int] = []
    pair.service._parts._plugins = replace(
        pair.service._parts._plugins, remove_deleted=lambda _: removals.append(1)
    )
    pair.storage.claim_error = RetriableRemoteStorageError("away")
    pair.log.fill(6, records=20)
    left_by_a_dead_copy = SegmentAdded(segment(topic="orders"), Stamp(Fence(1, 1), -1))
    pair.metadata.land(left_by_a_dead_copy)
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
def test_a_lost_counter_is_not_judged_and_goes_on_above_the_claim(
    root: Path, content: bytes | None
) -> None:
    high = NOW_MS + 10**12
    first = start(root, wall_ms=high)
    stop(first)
    path = root / FILE_NAME
    path.unlink() if content is None else path.write_bytes(content)
    pair = start(root)
    assert red(pair) == []
    found, written = claims(pair)[0][1], claims(pair)[1][1]
    assert found is not None
    assert found >= high
    assert written is not None
    assert 0 < written - found <= CLAIM_SPREAD


def test_the_counter_of_an_earlier_version_is_judged_by_its_number(root: Path) -> None:
    stop(start(root))
    (root / FILE_NAME).write_bytes(b"%d\n" % (NOW_MS - 1))
    assert "older copy" in red(start(root))[0]
    (root / FILE_NAME).write_bytes(b"%d\n" % (NOW_MS + 10**6))
    assert red(start(root)) == []


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
    assert red(pair) == []
    pair.log.fill(2, records=20)
    passes(pair, 60_000)
    assert pair.calls(Operation.COPY) > 3
    stop(pair)


def test_a_tier_whose_clone_has_started_stops_writing(root: Path) -> None:
    one = start(root)
    clone = root.parent / "clone"
    shutil.copytree(root, clone)
    other = start(clone, wall_ms=NOW_MS + 10_000)
    assert red(other) == [], "the first to start after the copy"
    assert (one.log.verdict, one.log.copied >= 0) == (Judgement.SOUND, True)
    passes(one, INTERVAL_MS)
    assert "another machine" in red(one)[0]
    assert one.log.copied == -1, "the clone may delete what was copied"
    assert one.log.verdict is Judgement.OPEN, "these files may be the older ones"
    assert bytes_of(one.read(0)), "remote reads go on"
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
    assert red(machine) == []
    other.storage.put = lambda _: None
    passes(other, 60_000)
    assert "another machine" in red(other)[0], "the second to claim"
    assert writes(other) == 0
    passes(machine, INTERVAL_MS)
    assert red(machine) == []


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
    assert red(pair) == []
    owner = pair.config.cluster_id, pair.config.node_id
    pair.storage.write_claim(*owner, lost[0])
    passes(pair, INTERVAL_MS)
    assert red(pair) == []


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
    assert "older copy" in red(older)[0]
    assert writes(older) == 0


def test_other_clusters_and_brokers_of_one_store_have_their_own(root: Path) -> None:
    for node_id, cluster_id in ((1, "c"), (2, "c"), (1, "d")):
        directory = root / f"{cluster_id}{node_id}"
        directory.mkdir()
        pair = start(directory, node_id=node_id, cluster_id=cluster_id)
        assert red(pair) == []
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
    assert red(pair) == []


def test_a_claim_once_made_stays_known_over_later_incarnations(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=NOW_MS)
    first = Incarnations(Disk(), tmp_path, clock, SeededDice(1))
    assert first.counter.claimed is None
    found = NOW_MS + 50
    number = first.claim(found)
    assert 0 < number - found <= CLAIM_SPREAD
    last = first.take(above=number + 20)
    again = Incarnations(Disk(), tmp_path, clock, SeededDice(1))
    assert again.counter == Counter(last, number, (found,))
    assert again.take() == last + 1
    assert parse(dump(Counter(5, None))) == Counter(5, None)
