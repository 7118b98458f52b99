"""Exports a topic to Parquet: executors write the files, the driver commits them.

A command makes one run after the other, each with one commit, so that a kill costs a run at most.
What there is to export is fixed when it begins, and again where another export came between.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from kafka_protocol.types import TopicPartition
from pipeline.errors import OptionError, PipelineError
from pipeline.jobs.day_files import FileLimits, FileNames
from pipeline.jobs.delta_table import (
    DeltaLakeTable,
    OffsetFiles,
    make_delta,
    offsets_name,
    place_name,
)
from pipeline.jobs.directory_ledger import DirectoryLedger
from pipeline.jobs.iceberg_catalog import open_iceberg
from pipeline.jobs.json_schema import value_type_of
from pipeline.jobs.ledger import Ledger
from pipeline.jobs.place_fsspec import open_place
from pipeline.jobs.planning import (
    Bounds,
    Step,
    after,
    check_lineage,
    deleted_text,
    first_run,
    only_brokers,
    ranges_left,
    steps,
    tasks,
    text_of_work,
)
from pipeline.jobs.spark_job import run_job
from pipeline.jobs.table_ledger import COMMIT_DEADLINE_S, TableLedger
from pipeline.jobs.values import Committed, DataFile, Identity, OvertakenError, new_run_name
from pipeline.jobs.write_task import TaskDone, WriteTask, file_schema, write_task
from pipeline.log import TieredLog
from pipeline.opening import open_log
from pipeline.store import shared_store
from pipeline.values import OffsetRange, RemotePiece, SplitLimits, Where

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The source and the form of an export.

    Attributes:
        tail: also what only the brokers have; else up to the remote end.
        value_type: values are JSON of this type; None: they stay bytes.
        run_bytes: stored bytes that one commit covers, about; whole segments.
        task_bytes: stored bytes that one task reads, about.
    """

    topic: str
    where: Where
    tail: bool = False
    value_type: pa.StructType | None = None
    run_bytes: int = 64 << 30
    task_bytes: int = 512 << 20
    files: FileLimits = field(default_factory=FileLimits)


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of a command.

    Attributes:
        size_bytes: of the files; Parquet keeps what repeats once, and may be much smaller.
        read_bytes: stored bytes of the log that they were made of.
        unparsed: values that are no JSON of the schema; their bytes were kept.
        lost: offsets that were skipped because they are gone.
        notes: sentences for the user.
        ends: by partition, the end (exclusive) of what the target holds now; none where nothing was
            ever exported.
        only_brokers: by partition, how many offsets are behind that and in no remote tier; those
            that have none, and all of a bucket that is read alone, are excluded.
    """

    runs: int = 0
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    read_bytes: int = 0
    unparsed: int = 0
    lost: int = 0
    notes: tuple[str, ...] = ()
    ends: Mapping[int, int] = field(default_factory=dict)
    only_brokers: Mapping[int, int] = field(default_factory=dict)


def export(spark: Any, options: ExportOptions, ledger: Ledger, say: Say | None = None) -> Exported:
    """Append to a target what it does not have yet; safe to be killed, and to be run again.

    Args:
        spark: a SparkSession whose executors have this package.
        options: what and how.
        ledger: the target; see `pipeline.jobs.export.open_target`.
        say: hears lines of progress.

    Raises:
        DataLossError: offsets were deleted before they were exported.
        OvertakenError: another export to this target began; the runs before are committed.
        JobFailedError: a task failed.
        OptionError: the target holds something else, or no broker is named that knows the tail.
    """
    _check_tail(options)
    with closing(open_log(options.where)) as log:
        return _Export(lambda: spark, options, ledger, log, say or (lambda _line: None)).run()


def export_to(
    start: Callable[[], Any],
    options: ExportOptions,
    target: "Target",
    schema: str | None,
    say: Say,
) -> Exported:
    """Export for a command: Spark, which takes 10 s, starts once all else is checked.

    Args:
        start: gives the SparkSession, the same each time. It is not called where nothing is new.
        options: what and how. The type of values comes of `schema`.
        target: opened, and made if there is none, when the topic is found.
        schema: of values, as DDL, which Spark alone can read; None: they stay bytes.
        say: hears lines of progress.

    Raises:
        UnknownTopicError: there is no such topic.
        OptionError, PipelineError: see `export` and `open_target`.
    """
    _check_tail(options)
    with closing(open_log(options.where)) as log:
        log.topic_id(options.topic)
        if schema is not None:
            start()
            options = replace(options, value_type=value_type_of(schema))
        with closing(open_target(target, options.topic, options.value_type)) as ledger:
            return _Export(start, options, ledger, log, say).run()


def _check_tail(options: ExportOptions) -> None:
    if options.tail and options.where.cluster is None:
        raise OptionError("the tail is to be exported: name brokers, a bucket alone has none of it")


class _Export:
    """One command."""

    def __init__(
        self,
        start: Callable[[], Any],
        options: ExportOptions,
        ledger: Ledger,
        log: TieredLog,
        say: Say,
    ) -> None:
        self._start, self._options, self._ledger = start, options, ledger
        self._log, self._say = log, say
        self._bounds: dict[int, Bounds] = {}
        self._done = Exported()
        self._gone: dict[int, OffsetRange] = {}  # of the plan; until a run covers the partition
        self._warnings: tuple[str, ...] = ()  # of the plan; until a run of it is committed

    def run(self) -> Exported:
        held = self._ledger.look()
        identity = self._identity()
        if held is not None:  # `begin` looks again, but there may be nothing to begin
            identity.check(held.identity, self._ledger.target)
        self._bounds = _bounds(self._log, self._options)  # after: so no export is beyond the end
        left = self._left(held)
        if not left and self._ledger.has_leftovers():
            self._sweep(identity)
        while left:
            self._see_store(left)
            self._start()
            run = new_run_name()
            found = self._ledger.begin(run, identity)
            if found != (held or Committed(identity)):  # another one ended since, perhaps further
                self._bounds = _bounds(self._log, self._options)
                left = self._left(found)
            count = first_run(left, self._options.run_bytes)
            now, left = left[:count], left[count:]
            held = after(found, now)
            self._one_run(run, now, held)
        self._count_deleted(self._bounds)
        ends = {} if held is None else held.offsets
        return replace(self._done, ends=dict(ends), only_brokers=only_brokers(ends, self._bounds))

    def _see_store(self, left: list[Step]) -> None:
        """Check that the store that is read can be used from here, before Spark starts.

        Raises:
            OptionError, StoreUnreachableError: see `pipeline.store.open_store`.
        """
        source = self._log.source
        splits = [split for step in left for split in step.splits]
        pieces = [piece for split in splits for piece in split.pieces]
        if source.store is not None and any(isinstance(one, RemotePiece) for one in pieces):
            shared_store(source.store, source.cluster_id)

    def _left(self, held: Committed | None) -> list[Step]:
        """Plan what is to be done; what was said of a plan before this one counts no more."""
        self._gone, self._warnings = {}, ()
        topic = self._options.topic
        offsets = {} if held is None else held.offsets
        left = ranges_left(
            topic,
            offsets,
            self._bounds,
            fail_on_data_loss=self._options.where.fail_on_data_loss,
        )
        known = {} if held is None else held.epochs
        epochs = self._epochs({one: offsets[one] for one in known if one in self._bounds})
        check_lineage(topic, offsets, known, epochs)
        ranges = {TopicPartition(topic, number): one for number, one in left.ranges.items()}
        if not ranges:
            return []
        end_epochs = self._epochs({number: one.end for number, one in left.ranges.items()})
        plan = self._log.plan(
            ranges, SplitLimits(target_bytes=min(self._options.task_bytes, 128 << 20))
        )
        self._gone, self._warnings = dict(left.gone), plan.facts.warnings
        return steps(plan.splits, left.ranges, end_epochs)

    def _epochs(self, offsets: Mapping[int, int]) -> dict[int, int | None]:
        """Leader epochs of the records before these offsets."""
        topic = self._options.topic
        asked = {TopicPartition(topic, number): offset for number, offset in offsets.items()}
        return {one.partition: epoch for one, epoch in self._log.epochs_before(asked).items()}

    def _identity(self) -> Identity:
        """The topic of the rows, and their form."""
        topic = self._options.topic
        kind = self._options.value_type
        return Identity(
            topic,
            self._log.topic_id(topic).hex(),
            self._options.where.isolation.name.lower(),
            "bytes" if kind is None else f"json {kind}",
        )

    def _one_run(self, run: str, now: list[Step], committed: Committed) -> None:
        try:
            done = self._write(run, now)
        except BaseException:
            self._abandon(run)
            raise
        files = [file for one in done for file in one.files]
        self._commit(run, committed, files)
        reasons = tuple(reason for one in done for reason in one.reasons)
        self._add(
            Exported(
                runs=1,
                files=len(files),
                rows=sum(one.rows for one in files),
                size_bytes=sum(one.size_bytes for one in files),
                read_bytes=sum(one.read_bytes for one in done),
                unparsed=sum(one.unparsed for one in files),
                lost=sum(one.lost for one in done),
                notes=reasons,
            )
        )
        self._count_deleted({step.partition for step in now})
        self._say(f"committed run {run}: {len(files)} files, {self._done.rows} rows in all so far")

    def _write(self, run: str, now: list[Step]) -> list[TaskDone]:
        work = tasks(now, self._options.task_bytes)
        names = FileNames(self._ledger.staging(run), self._ledger.suffix, run, "")
        jobs = [
            WriteTask(
                splits,
                self._log.source,
                self._ledger.place,
                names,
                self._options.files,
                self._options.value_type,
            )
            for splits in work
        ]
        text = text_of_work(now)
        label = f"Tidemark export of {self._options.topic}, run {run}"

        def watch(done: int, total: int) -> None:
            self._say(f"run {run}: {done} of {total} tasks, {text}")

        return run_job(self._start(), label, jobs, write_task, watch)

    def _commit(self, run: str, committed: Committed, files: list[DataFile]) -> None:
        """Commit; tried again where the store fails, as the first try may have succeeded.

        After an error that stays, nothing is removed: a commit may be on its way still.
        """
        retrying = Retrying(
            stop=stop_after_delay(COMMIT_DEADLINE_S),
            wait=wait_random_exponential(multiplier=0.2, max=10),
            retry=retry_if_exception_type(OSError),
            reraise=True,
        )
        try:
            retrying(self._ledger.commit, run, committed, files)
        except OvertakenError:
            self._abandon(run)
            raise

    def _abandon(self, run: str) -> None:
        """Remove what a run left where that is possible; else the next run does it."""
        with suppress(OSError, PipelineError):  # the reason why it ended is what counts
            self._ledger.abandon(run)

    def _sweep(self, identity: Identity) -> None:
        """Remove what killed runs left, though there is nothing to export."""
        run = new_run_name()
        self._ledger.begin(run, identity)
        self._ledger.abandon(run)

    def _count_deleted(self, partitions: Collection[int]) -> None:
        """Note what the plan excluded from partitions that are exported now, and its warnings."""
        for partition in sorted(set(self._gone) & set(partitions)):
            gone = self._gone.pop(partition)
            note = deleted_text(self._options.topic, partition, gone)
            self._add(Exported(lost=gone.end - gone.start, notes=(note,)))
        said = set(self._done.notes)
        self._add(Exported(notes=tuple(one for one in self._warnings if one not in said)))
        self._warnings = ()

    def _add(self, more: Exported) -> None:
        done = self._done
        self._done = Exported(
            done.runs + more.runs,
            done.files + more.files,
            done.rows + more.rows,
            done.size_bytes + more.size_bytes,
            done.read_bytes + more.read_bytes,
            done.unparsed + more.unparsed,
            done.lost + more.lost,
            done.notes + more.notes,
        )


def _bounds(log: TieredLog, options: ExportOptions) -> dict[int, Bounds]:
    partitions = log.partitions([options.topic])
    starts = log.earliest(partitions)
    remote_ends = log.remote_ends(partitions)
    log_ends = None if options.where.cluster is None else log.latest(partitions)
    if options.tail and log_ends is not None:
        ends: Mapping[TopicPartition, int] = log_ends
    else:
        ends = remote_ends
    return {
        one.partition: Bounds(starts[one], ends[one], None if log_ends is None else log_ends[one])
        for one in partitions
    }


@dataclass(frozen=True, slots=True)
class Target:
    """Exactly one of these.

    Attributes:
        directory: a directory or URL of plain Parquet files.
        iceberg: `CATALOG.NAMESPACE.TABLE`.
        delta: directory or URL of a Delta table.
    """

    directory: str | None = None
    iceberg: str | None = None
    delta: str | None = None


def open_target(target: Target, topic: str, value_type: pa.StructType | None = None) -> Ledger:
    """The ledger of a target; a table is made if there is none.

    Raises:
        OptionError: none or several are named, or a name is wrong.
        MissingPackageError: the library of a table or a store is not installed.
    """
    named = [one for one in (target.directory, target.iceberg, target.delta) if one]
    if len(named) != 1:
        raise OptionError("say where to export to: one of a directory, --iceberg and --delta")
    if target.directory:
        return DirectoryLedger(open_place(target.directory))
    schema = file_schema(value_type)
    if target.iceberg:
        table = open_iceberg(target.iceberg, topic, schema)
        return TableLedger(table, open_place(f"{table.location}/{place_name(topic)}"))
    url = str(target.delta).rstrip("/")
    place = open_place(f"{url}/{place_name(topic)}")
    offsets = OffsetFiles(open_place(f"{url}/{offsets_name(topic)}"))
    return TableLedger(DeltaLakeTable(url, topic, make_delta(url, schema), place, offsets), place)
