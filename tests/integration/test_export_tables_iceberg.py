"""What commits to an Iceberg table read and leave as it grows."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.values import Committed
from tests.support.export.real_tables import Iceberg, export_rows, write
from tests.support.export.topics import IDENTITY

pytest.importorskip("pyiceberg")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Iceberg]:
    with closing(Iceberg(tmp_path)) as made:
        yield made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often lists of manifests, manifests, and snapshots by their id were read."""
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.table.snapshots import Snapshot

    found: Counter[str] = Counter()

    def count(kind: Any, name: str) -> None:
        real = getattr(kind, name)

        def counting(*args: Any, **named: Any) -> Any:
            found[name] += 1
            return real(*args, **named)

        monkeypatch.setattr(kind, name, counting)

    count(Snapshot, "manifests")
    count(ManifestFile, "fetch_manifest_entry")
    count(TableMetadataV2, "snapshot_by_id")
    return found


def export_runs(world: Iceberg, count: int) -> None:
    for run in range(count):
        export_rows(world.ledger(), f"run{run}", run * 10, run * 10 + 10)


@pytest.mark.parametrize("runs", [2, 6])
def test_a_commit_opens_no_manifest_however_many_there_are(
    world: Iceberg, reads: Counter[str], runs: int
) -> None:
    export_runs(world, runs)
    ledger = world.ledger()
    ledger.begin("new", IDENTITY)
    files = write(ledger, "new", runs * 10, runs * 10 + 10)
    reads.clear()
    ledger.commit("new", Committed(IDENTITY, {0: runs * 10 + 10}), files)
    assert reads["fetch_manifest_entry"] == 0
    assert world.offsets() == list(range(runs * 10 + 10))


@pytest.mark.parametrize("runs", [2, 6])
def test_what_a_killed_run_left_is_found_without_reading_all_snapshots(
    world: Iceberg, reads: Counter[str], runs: int
) -> None:
    export_runs(world, runs)
    killed = world.ledger()
    killed.begin("killed", IDENTITY)
    write(killed, "killed", runs * 10, runs * 10 + 10)
    later = world.ledger()
    reads.clear()
    later.begin("later", IDENTITY)
    # One list by pyiceberg for the fence; the fence's own, and that of the last run's snapshot.
    assert (reads["manifests"], reads["fetch_manifest_entry"]) == (3, 0)
    assert not later.place.files(killed.staging("killed"))
    assert len(later.place.files("data")) == 3 * runs
    assert world.offsets() == list(range(runs * 10))


def test_files_that_only_a_state_before_a_roll_back_names_are_kept(world: Iceberg) -> None:
    export_runs(world, 2)
    ledger = world.ledger()
    ledger.begin("killed", IDENTITY)
    marker = ledger.place.names("_tidemark/open")[0]
    ledger.commit("killed", Committed(IDENTITY, {0: 30}), write(ledger, "killed", 20, 30))
    newest = world.catalog.load_table("ns.orders").current_snapshot().snapshot_id
    ledger.place.create(f"_tidemark/open/{marker}", b"")  # as if it had not come to remove it
    world.roll_back()
    for run in ("a", "b"):
        export_rows(world.ledger(), run, {"a": 10, "b": 11}[run], {"a": 11, "b": 12}[run])
    assert world.offsets() == list(range(12))
    assert not ledger.has_leftovers()
    table = world.catalog.load_table("ns.orders")
    table.manage_snapshots().set_current_snapshot(newest).commit()
    assert world.offsets() == list(range(30))


@pytest.mark.parametrize("others", [2, 6])
def test_a_look_behind_other_writers_searches_no_snapshot_by_its_id(
    world: Iceberg, reads: Counter[str], others: int
) -> None:
    export_runs(world, 1)
    for _ in range(others):
        world.other_writer()
    ledger = world.ledger()
    reads.clear()
    assert ledger.look() == Committed(IDENTITY, {0: 10})
    assert reads["snapshot_by_id"] == 0


def test_a_table_that_is_made_here_keeps_twenty_old_files_of_metadata(world: Iceberg) -> None:
    export_runs(world, 25)
    where = Path(world.catalog.load_table("ns.orders").location().removeprefix("file://"))
    assert len(list((where / "metadata").glob("*.metadata.json"))) == 21
    assert world.ledger().look() == Committed(IDENTITY, {0: 250})


def test_manifests_of_a_table_that_is_made_here_are_merged(world: Iceberg) -> None:
    export_runs(world, 1)
    table = world.catalog.load_table("ns.orders")
    with table.transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "3"})  # 100 if not given
    for run in range(1, 8):
        left = world.ledger()
        left.begin(f"killed{run}", IDENTITY)
        write(left, f"killed{run}", run * 10, run * 10 + 10)
        export_rows(world.ledger(), f"run{run}", run * 10, run * 10 + 10)
    assert world.offsets() == list(range(80))
    table = world.catalog.load_table("ns.orders")
    assert len(table.current_snapshot().manifests(table.io)) < 4
    assert len(world.ledger().place.files("data")) == 3 * 8
