"""What a Delta table keeps of exports beside its own log."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import DamagedDataError
from pipeline.jobs.values import Committed, OvertakenError
from tests.support.export.real_tables import Delta, export_rows, write
from tests.support.export.topics import IDENTITY

deltalake = pytest.importorskip("deltalake")


@pytest.fixture
def world(tmp_path: Path) -> Delta:
    return Delta(tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of transactions whose version was asked; each is a walk through Delta's log."""
    names: list[str] = []
    real = deltalake.DeltaTable.transaction_version

    def counting(table: object, app_id: str) -> int | None:
        names.append(app_id)
        version: int | None = real(table, app_id)
        return version

    monkeypatch.setattr(deltalake.DeltaTable, "transaction_version", counting)
    return names


@pytest.fixture
def before_commit(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Calls that are made once each, after the last look at the table and before the commit."""
    calls: list[Callable[[], None]] = []
    real = deltalake.DeltaTable.create_write_transaction

    def committing(*args: object, **named: object) -> None:
        while calls:
            calls.pop()()
        real(*args, **named)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", committing)
    return calls


def offset_files(world: Delta) -> list[Path]:
    return sorted(Path(world.url, "_tidemark/orders/offsets").glob("*.json"))


def restore_as_spark_does(world: Delta, version: int, dropped: int) -> None:
    """Restore to the version before `dropped`: its files are removed, and nothing else is said."""
    log = Path(world.url, "_delta_log")
    lines = (log / f"{dropped:020}.json").read_text().splitlines()
    added = [one["add"] for line in lines if "add" in (one := json.loads(line))]
    about = {"timestamp": 1, "operation": "RESTORE", "operationParameters": {"version": version}}
    entry = [{"commitInfo": about}] + [
        {"remove": {"path": one["path"], "deletionTimestamp": 1, "dataChange": True}}
        for one in added
    ]
    with (log / f"{dropped + 1:020}.json").open("x") as file:
        file.write("\n".join(json.dumps(one) for one in entry))


@pytest.mark.parametrize("partitions", [3, 300])
def test_a_look_asks_for_two_transactions_however_many_partitions(
    world: Delta, asked: list[str], partitions: int
) -> None:
    ledger = world.ledger()
    ledger.begin("one", IDENTITY)
    offsets = {one: 1000 + one for one in range(partitions)}
    said = Committed(IDENTITY, offsets, dict.fromkeys(offsets, 7))
    ledger.commit("one", said, [])
    asked.clear()
    assert world.ledger().look() == said
    assert asked == ["tidemark/orders/epoch", "tidemark/orders/run"]


def test_offsets_that_are_gone_are_an_error_and_not_an_empty_table(world: Delta) -> None:
    export_rows(world.ledger(), "one", 0, 10)
    export_rows(world.ledger(), "two", 10, 20)
    lost = offset_files(world)[-1]
    lost.unlink()
    with pytest.raises(DamagedDataError, match=f"{lost.name} is not there.* bring the file back"):
        world.ledger().look()
    world.roll_back()
    assert world.ledger().look() == Committed(IDENTITY, {0: 10})


def test_a_run_killed_before_its_commit_leaves_a_file_without_effect(
    world: Delta, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    export_rows(world.ledger(), "one", 0, 10)
    with monkeypatch.context() as patched:
        patched.setattr(deltalake.DeltaTable, "create_write_transaction", die)
        ledger = world.ledger()
        ledger.begin("killed", IDENTITY)
        with pytest.raises(Killed):
            ledger.commit("killed", Committed(IDENTITY, {0: 20}), write(ledger, "killed", 10, 20))
    left = offset_files(world)
    assert len(left) == 2
    assert world.ledger().look() == Committed(IDENTITY, {0: 10})
    export_rows(world.ledger(), "two", 10, 15)
    assert world.offsets() == list(range(15))
    assert set(left) < set(offset_files(world))


def test_a_vacuum_of_all_that_the_table_does_not_name_keeps_the_offsets(world: Delta) -> None:
    export_rows(world.ledger(), "one", 0, 10)
    table = deltalake.DeltaTable(world.url)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert world.ledger().look() == Committed(IDENTITY, {0: 10})
    assert world.offsets() == list(range(10))


def test_a_table_restored_to_before_all_exports_is_filled_from_offset_0(world: Delta) -> None:
    export_rows(world.ledger(), "one", 0, 10)
    deltalake.DeltaTable(world.url).restore(0)
    assert world.ledger().look() is None
    export_rows(world.ledger(), "two", 0, 10)
    assert world.offsets() == list(range(10))


def test_a_restore_just_before_a_commit_makes_it_fail(
    world: Delta, before_commit: list[Callable[[], None]]
) -> None:
    export_rows(world.ledger(), "one", 0, 10)
    export_rows(world.ledger(), "two", 10, 20)
    before_commit.append(lambda: restore_as_spark_does(world, 1, 2))
    with pytest.raises(OvertakenError, match="the table was rolled back meanwhile"):
        export_rows(world.ledger(), "three", 20, 25)
    assert world.offsets() == list(range(10))


def test_another_writer_just_before_a_commit_does_not_end_the_run(
    world: Delta, before_commit: list[Callable[[], None]]
) -> None:
    export_rows(world.ledger(), "one", 0, 10)
    before_commit.append(world.other_writer)
    export_rows(world.ledger(), "two", 10, 20)
    assert world.offsets() == [*range(20), 1000]
