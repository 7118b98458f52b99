"""A store without the claim that was there: not mounted, another, or emptied."""

import shutil
from pathlib import Path

import pytest

from broker.replica.validation import Validation
from rlm.maintenance.claim import ClaimState, validate
from rlm.maintenance.incarnation import FILE_NAME, WRITTEN, Counter, Incarnations, dump, parse
from rsm_plugins.api import RetriableRemoteStorageError
from rsm_plugins.testing import Operation
from runtime.disk import Disk
from tests.support.sim.clock import ManualClock
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.rng import SeededRng
from tests.support.tier.claiming import INTERVAL_MS, NOW_MS, claims, passes, start, stop, unhealthy
from tests.support.tier.pair import ClaimStorage, Pair


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def unmount(root: Path) -> None:
    (root.parent / "store").rename(root.parent / "unmounted")
    (root.parent / "store").mkdir()


def mount(root: Path) -> None:
    (root.parent / "store").rmdir()
    (root.parent / "unmounted").rename(root.parent / "store")


def is_missing(pair: Pair) -> bool:
    return any("is the store mounted" in each and "number" in each for each in unhealthy(pair))


def test_a_claim_that_is_missing_counts_only_where_one_was_there() -> None:
    assert not validate(None, Counter(9, None))
    assert not validate(None, Counter(9, 7)), "the form says nothing of it"
    assert not validate(None, Counter(9, 7, (0, 5))), "two were noted, perhaps none was written"
    assert validate(None, Counter(9, 7, (0, 5)).written())
    assert validate(None, Counter(9, 7, (3, 5))), "3 was found"
    assert not validate(7, Counter(9, 7, (0, 5)).written())


def test_what_is_known_of_foreign_claims_stays_when_one_is_written() -> None:
    """The floor of the claims is what makes a claim of another machine that lands late foreign."""
    before = Counter(90, 70, (0, 50))
    after = before.written()
    assert [validate(n, after) == "" for n in range(2, 90)] == [
        validate(n, before) == "" for n in range(2, 90)
    ]
    assert Counter(90, 70, (50,)).written() == Counter(90, 70, (50,))
    assert parse(dump(after)) == after
    assert after.noted(80, None).was_there, "an emptied store is no new one"


def test_the_first_written_claim_is_noted_durably_and_once(root: Path) -> None:
    written = list[Path]()

    class Counting(Disk):
        def atomic_write(self, path: Path, *data: object, **more: object) -> None:
            written.append(path)
            super().atomic_write(path, *data, **more)  # type: ignore[arg-type]

    given = Incarnations(Counting(), root, ManualClock(wall_ms=NOW_MS), SeededRng(1))
    number = given.claim(None)
    given.written()
    given.written()
    assert len(written) == 2
    assert parse((root / FILE_NAME).read_bytes()) == Counter(number, number, (WRITTEN,))


def test_a_kill_between_note_and_write_leaves_a_healthy_start(root: Path) -> None:
    pair = start(root, down=True)
    pair.tier.claim._incarnations.claim(None)  # noted, and killed then
    again = start(root)
    assert unhealthy(again) == []
    assert again.calls(Operation.COPY) == 3


def test_a_claim_written_and_not_noted_so_is_tried_again(root: Path) -> None:
    disk = FaultyDisk()
    pair = Pair(root, store=root.parent / "store", kind=ClaimStorage, disk=disk)
    assert isinstance(pair.storage, ClaimStorage)
    pair.storage.put = lambda _: disk.fail(["rename"], path_part=FILE_NAME)
    pair.tier.claim.begin()
    passes(pair, 1_000)
    assert pair.tier.claim.state is ClaimState.AWAY
    pair.storage.put = lambda _: None
    disk.heal()
    passes(pair, 60_000)
    assert pair.tier.claim.state is ClaimState.HELD


@pytest.mark.parametrize("stops", [True, False], ids=["after a clean stop", "after a kill"])
def test_a_start_without_its_store_writes_nothing_until_it_is_mounted(
    root: Path, stops: bool
) -> None:
    first = start(root)
    if stops:
        stop(first)
    unmount(root)
    pair = start(root)
    pair.log.fill(3, records=20)
    passes(pair, 120_000)
    assert is_missing(pair)
    assert list((root.parent / "store").iterdir()) == []
    assert (pair.log.verdict, pair.log.copied) == (Validation.SOUND, -1), "local work continues"
    mount(root)
    passes(pair, 61_000)
    assert unhealthy(pair) == []
    assert pair.log.copied > 59
    assert pair.calls(Operation.COPY) > 0


def test_a_store_unmounted_while_the_tier_runs_is_found_by_the_renewal(root: Path) -> None:
    pair = start(root)
    assert pair.log.copied == 59
    unmount(root)
    passes(pair, INTERVAL_MS)
    assert is_missing(pair)
    assert pair.log.copied == -1, "the local segments may be the last"
    pair.log.fill(3, records=20)
    passes(pair, 120_000)
    stop(pair)
    assert list((root.parent / "store").iterdir()) == []
    mount(root)
    assert unhealthy(start(root)) == []


def test_between_two_claims_no_copy_goes_to_the_bare_mount_point(root: Path) -> None:
    pair = start(root)
    copied = len(list((root.parent / "store").rglob("*.manifest")))
    unmount(root)
    pair.log.fill(3, records=20)
    passes(pair, 60_000)
    assert list((root.parent / "store").iterdir()) == []
    assert any(
        "copying waits" in each and "is the store mounted" in each for each in unhealthy(pair)
    )
    mount(root)
    passes(pair, 61_000)
    assert unhealthy(pair) == []
    assert len(list((root.parent / "store").rglob("*.manifest"))) > copied


def test_a_store_that_fails_while_the_claim_is_missing_holds_it_no_sooner(root: Path) -> None:
    stop(start(root))
    unmount(root)
    pair = start(root)
    assert is_missing(pair)
    assert isinstance(pair.storage, ClaimStorage)
    pair.storage.claim_error = RetriableRemoteStorageError("the mount hangs")
    passes(pair, 60_000)
    assert is_missing(pair)
    assert pair.log.copied == -1
    pair.storage.claim_error = None
    mount(root)
    passes(pair, 61_000)
    assert unhealthy(pair) == []


def test_an_emptied_store_is_named_once_in_the_log(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = start(root)
    shutil.rmtree(root.parent / "store")
    (root.parent / "store").mkdir()
    passes(pair, 2 * INTERVAL_MS)
    said = [each for each in caplog.records if "holds no claim" in each.message]
    assert [each.levelname for each in said] == ["ERROR"]
    assert [what for what, _ in claims(pair)].count("write") == 1
