"""What the driver of an export decides, with tasks that run in this process."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_protocol.types import TopicPartition
from pipeline.cluster.cluster import UnknownTopicError
from pipeline.errors import DataLossError, OptionError, StoreUnreachableError
from pipeline.jobs.directory_ledger import STAGING, DirectoryLedger
from pipeline.jobs.export import Exported, ExportOptions, Target, _bounds, export, export_to
from pipeline.jobs.place import LocalPlace
from pipeline.jobs.planning import Bounds
from pipeline.jobs.values import Committed, DataFile, Identity, OvertakenError
from pipeline.store import close_stores
from pipeline.values import ClusterAddress, Isolation, Where
from tests.support.lake.bucket import Bucket
from tests.support.source.said_log import SaidLog

pytest.importorskip("pyspark", reason="tasks ask it for their number")


class HereSpark:
    """As much of a session as `run_job` needs: tasks run one after the other, here."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        """Take what happens before the first task of each job."""
        self.before, self.labels = before, list[str]()

    @property
    def sparkContext(self) -> "HereSpark":
        return self

    def setJobGroup(self, group: str, *_: str, **__: bool) -> None:
        self.labels.append(group)

    def statusTracker(self) -> "HereSpark":
        return self

    def getJobIdsForGroup(self, _group: str) -> list[int]:
        return []

    def cancelJobGroup(self, _group: str) -> None:
        """Nothing runs any more."""

    def parallelize(self, tasks: Sequence[Any], _slices: int) -> "_Tasks":
        return _Tasks(tasks, self.before)


class _Tasks:
    def __init__(self, tasks: Iterable[Any], before: Callable[[], object]) -> None:
        self._tasks, self._before = tasks, before

    def map(self, function: Callable[[Any], Any]) -> "_Tasks":
        return _Tasks(map(function, self._tasks), self._before)

    def collect(self) -> list[Any]:
        self._before()
        return list(self._tasks)


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    """Two partitions of two segments each: offsets 0 to 11 and 0 to 5."""
    threads = pa.cpu_count()
    with Bucket(tmp_path / "bucket") as made:
        for number, batches in ((0, 2), (1, 1)):
            partition = made.partition("orders", number)
            partition.batches(batches).roll().batches(batches).roll().copy()
        yield made
    close_stores()
    pa.set_cpu_count(threads)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def rows_in(target: Path) -> list[tuple[int, int]]:
    tables = [pq.ParquetFile(path).read() for path in target.rglob("*.parquet")]
    found = [(row["partition"], row["offset"]) for one in tables for row in one.to_pylist()]
    return sorted(found)


def rows_of(bucket: Bucket) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in bucket.rows())


def exported(
    bucket: Bucket,
    target: Path,
    *,
    spark: HereSpark | None = None,
    ledger: DirectoryLedger | None = None,
    strict: bool = True,
    run_bytes: int = 1,
    say: Callable[[str], None] | None = None,
) -> Exported:
    where = Where(store=bucket.address, fail_on_data_loss=strict)
    options = ExportOptions("orders", where, run_bytes=run_bytes, task_bytes=150)
    ledger = ledger or DirectoryLedger(LocalPlace(target))
    return export(spark or HereSpark(), options, ledger, say)


def staged(target: Path) -> list[Path]:
    return [path for path in (target / STAGING).rglob("*") if path.is_file()]


def test_each_commit_keeps_what_those_before_it_said(bucket: Bucket, target: Path) -> None:
    spark, said = HereSpark(), list[str]()
    done = exported(bucket, target, spark=spark, say=said.append)
    assert (done.runs, done.rows, done.lost, done.unparsed) == (4, 18, 0, 0)
    assert done.files == len(list(target.rglob("*.parquet")))
    logs = Path(bucket.address.settings["dir"]).rglob("*.log")
    assert done.read_bytes == sum(path.stat().st_size for path in logs)
    assert (done.ends, done.only_brokers) == ({0: 12, 1: 6}, {})
    assert rows_in(target) == rows_of(bucket)
    held = DirectoryLedger(LocalPlace(target)).look()
    assert held is not None
    assert held.offsets == {0: 12, 1: 6}
    assert len(set(spark.labels)) == 4
    assert said[-1].endswith("18 rows in all so far")


def test_what_is_there_is_not_exported_again(bucket: Bucket, target: Path) -> None:
    exported(bucket, target)
    again = exported(bucket, target)
    assert (again.runs, again.rows, again.ends) == (0, 0, {0: 12, 1: 6})
    bucket.partitions[0].batches(1).roll().copy()
    done = exported(bucket, target, run_bytes=1 << 30)
    assert (done.runs, done.rows) == (1, 3)
    assert rows_in(target) == rows_of(bucket)


def test_what_a_killed_run_left_is_removed_though_nothing_is_new(
    bucket: Bucket, target: Path
) -> None:
    exported(bucket, target)
    ledger = DirectoryLedger(LocalPlace(target))
    held = ledger.look()
    assert held is not None
    ledger.begin("killed", held.identity)
    with ledger.place.writing(f"{ledger.staging('killed')}/left") as file:
        file.write(b"half")
    assert staged(target)
    exported(bucket, target)
    assert not staged(target)


def test_only_a_tail_export_goes_to_the_end_of_the_log() -> None:
    """A said log has nothing remote."""
    log, cluster = SaidLog({TopicPartition("orders", 0): (3, 9)}), ClusterAddress("nowhere:1")
    for tail, end in ((False, 3), (True, 9)):
        options = ExportOptions("orders", Where(cluster=cluster), tail=tail)
        assert _bounds(log, options) == {0: Bounds(3, end, 9)}
    alone = ExportOptions("orders", Where(), tail=True)
    assert _bounds(log, alone) == {0: Bounds(3, 3, None)}


def test_bytes_are_counted_as_they_are_read_and_not_as_a_plan_guesses(
    bucket: Bucket, target: Path
) -> None:
    """A plan takes a part of the bytes for a part of the offsets; whole batches are read."""
    where = Where(store=bucket.address, log_starts={TopicPartition("orders", 0): 5})
    done = export(HereSpark(), ExportOptions("orders", where), DirectoryLedger(LocalPlace(target)))
    logs = Path(bucket.address.settings["dir"]).rglob("*.log")
    assert done.read_bytes == sum(path.stat().st_size for path in logs)
    assert done.rows == 13


@pytest.mark.parametrize(
    ("topic", "schema", "named"),
    [
        ("ordres", None, Target()),
        ("ordres", "id BIGINT", Target()),
        ("orders", None, Target()),
        ("orders", None, Target(iceberg="a.b")),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(
    bucket: Bucket, target: Path, topic: str, schema: str | None, named: Target
) -> None:
    if topic == "orders" and named == Target():
        exported(bucket, target)
        where = Where(store=bucket.address, isolation=Isolation.READ_COMMITTED)
    else:
        where = Where(store=bucket.address)
    named = named if named.iceberg else Target(directory=str(target))
    options = ExportOptions(topic, where)
    with pytest.raises((OptionError, UnknownTopicError)):
        export_to(_not_needed, options, named, schema, lambda _line: None)
    assert target.exists() == (topic == "orders" and not named.iceberg)


def test_a_store_that_cannot_be_used_is_said_before_spark_starts(
    bucket: Bucket, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster's log plans without its store."""

    def refuse(*_: object) -> None:
        raise StoreUnreachableError("no credentials")

    monkeypatch.setattr("pipeline.jobs.export.shared_store", refuse)
    options = ExportOptions("orders", Where(store=bucket.address))
    with pytest.raises(StoreUnreachableError):
        export_to(_not_needed, options, Target(directory=str(target)), None, lambda _line: None)


def test_spark_does_not_start_where_nothing_is_new(bucket: Bucket, target: Path) -> None:
    exported(bucket, target)
    options = ExportOptions("orders", Where(store=bucket.address))
    named = Target(directory=str(target))
    assert export_to(_not_needed, options, named, None, lambda _line: None).runs == 0


def _not_needed() -> None:
    pytest.fail("Spark was started")


def test_a_tail_that_nobody_has_is_refused(bucket: Bucket, target: Path) -> None:
    options = ExportOptions("orders", Where(store=bucket.address), tail=True)
    with pytest.raises(OptionError, match="name brokers, a bucket alone has none of it"):
        export(HereSpark(), options, DirectoryLedger(LocalPlace(target)))


def test_a_commit_whose_answer_is_lost_is_made_once(bucket: Bucket, target: Path) -> None:
    class Deaf(DirectoryLedger):
        commits = 0

        def commit(self, run: str, committed: Committed, files: Sequence[DataFile]) -> None:
            super().commit(run, committed, files)
            self.commits += 1
            if self.commits == 1:
                raise TimeoutError("no answer")

    ledger = Deaf(LocalPlace(target))
    done = exported(bucket, target, ledger=ledger, run_bytes=1 << 30)
    assert (ledger.commits, done.runs) == (2, 1)
    assert rows_in(target) == rows_of(bucket)


def test_an_overtaken_run_removes_its_files(bucket: Bucket, target: Path) -> None:
    exported(bucket, target)
    bucket.partitions[0].batches(1).roll().copy()
    held = DirectoryLedger(LocalPlace(target)).look()
    assert held is not None
    other = HereSpark(lambda: DirectoryLedger(LocalPlace(target)).begin("other", held.identity))
    with pytest.raises(OvertakenError, match="another export began meanwhile"):
        exported(bucket, target, spark=other)
    assert not staged(target)


def test_what_another_export_committed_meanwhile_is_not_exported_twice(
    bucket: Bucket, target: Path
) -> None:
    class Late(DirectoryLedger):
        def look(self) -> Committed | None:
            found = super().look()
            exported(bucket, target)
            return found

    ledger = Late(LocalPlace(target))
    exported(bucket, target)
    bucket.partitions[1].batches(1).roll().copy()
    exported(bucket, target, ledger=ledger)
    assert rows_in(target) == rows_of(bucket)


@pytest.mark.parametrize("lenient", [False, True])
def test_a_log_whose_exported_end_was_replaced_is_refused(
    bucket: Bucket, target: Path, lenient: bool
) -> None:
    orders = bucket.partitions[0]
    exported(bucket, target)
    orders.elect(3, at=12).batches(2).roll().copy()
    assert exported(bucket, target).rows == 6
    orders.elect(7, at=15).batches(2).roll().copy()
    with pytest.raises(DataLossError, match="orders-0: exported up to offset 18, the last under"):
        exported(bucket, target, strict=not lenient)
    assert len(rows_in(target)) == 24


@pytest.mark.parametrize("error", [PermissionError, StoreUnreachableError])
def test_the_error_of_a_task_is_told_though_its_files_cannot_be_removed(
    bucket: Bucket, target: Path, error: type[Exception]
) -> None:
    class Stuck(DirectoryLedger):
        abandoned = 0

        def abandon(self, run: str) -> None:
            self.abandoned += 1
            raise error(run)

    def fail() -> None:
        raise ArithmeticError("of the task")

    ledger = Stuck(LocalPlace(target))
    with pytest.raises(ArithmeticError, match="of the task"):
        exported(bucket, target, spark=HereSpark(fail), ledger=ledger)
    assert ledger.abandoned == 1


def test_offsets_that_vanish_while_tasks_run_are_counted(bucket: Bucket, target: Path) -> None:
    kept = [row for row in rows_of(bucket) if row not in [(0, n) for n in range(6)]]
    gone = HereSpark(lambda: bucket.partitions[0].delete(0))
    done = exported(bucket, target, spark=gone, strict=False, run_bytes=1 << 30)
    assert done.lost == 6
    assert any("was deleted after the plan was made" in note for note in done.notes)
    assert rows_in(target) == kept


@pytest.mark.parametrize("begin", [1, 2])
def test_deleted_offsets_count_once_although_the_plan_is_made_again(
    bucket: Bucket, target: Path, begin: int
) -> None:
    """Runs take partition 0, then 1; before one of them another export commits something."""

    class Shared(DirectoryLedger):
        begins = 0

        def begin(self, run: str, identity: Identity) -> Committed:
            self.begins += 1
            if self.begins == begin:
                other = DirectoryLedger(LocalPlace(target))
                held = other.begin("other", identity)
                said = Committed(identity, {**held.offsets, 2: begin}, held.epochs)
                other.commit("other", said, [])
            return super().begin(run, identity)

    exported(bucket, target)
    bucket.partitions[0].batches(1).roll().copy()
    bucket.partitions[1].batches(1).roll().batches(1).roll().copy()
    for segment in range(3):
        bucket.partitions[1].delete(segment)
    done = exported(bucket, target, ledger=Shared(LocalPlace(target)), strict=False)
    assert (done.runs, done.rows, done.lost) == (2, 6, 3)
    assert done.notes == ("orders-1: offsets 6 to 8 were deleted before they were exported",)


def test_offsets_that_another_export_has_counted_are_not_counted_again(
    bucket: Bucket, target: Path
) -> None:
    class Late(DirectoryLedger):
        def look(self) -> Committed | None:
            found = super().look()
            assert exported(bucket, target, strict=False).lost == 3
            return found

    exported(bucket, target)
    bucket.partitions[1].batches(1).roll().batches(1).roll().copy()
    for segment in range(3):
        bucket.partitions[1].delete(segment)
    done = exported(bucket, target, ledger=Late(LocalPlace(target)), strict=False)
    assert (done.rows, done.lost, done.notes) == (0, 0, ())


def test_rows_of_a_topic_made_again_are_not_mixed_in(bucket: Bucket, target: Path) -> None:
    exported(bucket, target)
    held = DirectoryLedger(LocalPlace(target)).look()
    assert held is not None
    for name in ("topic", "topic_id", "isolation", "value"):
        other = Identity(**{**_fields(held.identity), name: "another"})
        with pytest.raises(ValueError, match=f"with {name}="):
            DirectoryLedger(LocalPlace(target)).begin("again", other)


@pytest.mark.parametrize("name", ["topic", "topic_id", "isolation", "value"])
def test_a_target_of_something_else_is_refused_though_nothing_is_new(
    bucket: Bucket, target: Path, name: str
) -> None:
    exported(bucket, target)
    ledger = DirectoryLedger(LocalPlace(target))
    held = ledger.look()
    assert held is not None
    other = DirectoryLedger(LocalPlace(target.with_name("other")))
    identity = Identity(**{**_fields(held.identity), name: "another"})
    other.begin("run", identity)
    other.commit("run", Committed(identity, held.offsets), [])
    with pytest.raises(OptionError, match=f"holds an export with {name}=another"):
        exported(bucket, target, ledger=other)


def _fields(identity: Identity) -> dict[str, str]:
    names = ("topic", "topic_id", "isolation", "value")
    return {name: str(getattr(identity, name)) for name in names}
