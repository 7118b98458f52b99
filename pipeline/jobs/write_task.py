"""The work of one task of an export on its executor: splits in, Parquet files out."""

from dataclasses import dataclass, field, replace

import pyarrow as pa

from pipeline.columns import TYPES, schema_of
from pipeline.jobs.day_files import RAW_VALUE, DayFiles, FileLimits, FileNames
from pipeline.jobs.json_values import JsonValues
from pipeline.jobs.place import Place
from pipeline.jobs.values import DataFile
from pipeline.read.lost import LostOffsets
from pipeline.read.split import read_split
from pipeline.values import Source, Split

COLUMNS = tuple(TYPES)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Splits of one partition, ascending, and where their rows go.

    Attributes:
        source: may hold secrets: never shown.
        value_type: how values are decoded from JSON; None: they stay bytes.
    """

    splits: tuple[Split, ...] = field(repr=False)
    source: Source = field(repr=False)
    place: Place
    names: FileNames
    limits: FileLimits
    value_type: pa.StructType | None


@dataclass(frozen=True, slots=True)
class TaskDone:
    """The result of a task.

    Attributes:
        lost: offsets that could not be read and were skipped; `reasons` has a sentence for each.
        read_bytes: stored bytes of the batches that were read, of segments and of brokers' answers.
    """

    files: tuple[DataFile, ...]
    lost: int
    reasons: tuple[str, ...]
    read_bytes: int


def file_schema(value_type: pa.StructType | None) -> pa.Schema:
    """The columns of the files."""
    schema = schema_of(COLUMNS)
    if value_type is None:
        return schema
    at = schema.get_field_index("value")
    schema = schema.set(at, pa.field("value", value_type))
    return schema.insert(at + 1, pa.field(RAW_VALUE, pa.binary()))


def write_task(task: WriteTask) -> TaskDone:
    """Write the files of a task; each attempt writes files of its own.

    Raises:
        PipelineError: as `read_split`.
        OSError: the target does not take the files.
    """
    pa.set_cpu_count(1)  # Spark counts on one core a task
    lost, sizes = LostOffsets(), list[int]()
    decode = None if task.value_type is None else JsonValues(task.value_type)
    partition = task.splits[0].partition.partition
    files = DayFiles(task.place, replace(task.names, attempt=_attempt()), partition, task.limits)
    for split in task.splits:
        for batch in read_split(split, task.source, COLUMNS, lost=lost, read=sizes.append):
            files.add(batch if decode is None else decode(batch))
    return TaskDone(tuple(files.close()), lost.count, lost.reasons, sum(sizes))


def _attempt() -> str:
    """Differs between all attempts of all tasks of a session."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return "t0" if context is None else f"t{context.taskAttemptId()}"
