"""Runs functions on Spark's executors: with a name in Spark's UI, and progress while they run."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as NotYetError
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from pipeline.errors import PipelineError
from pipeline.shipping import packed_task, shipped
from runtime.executors import ThreadPool

T = TypeVar("T")
R = TypeVar("R")

_POLL_S: Final = 0.5
_RAISED: Final = re.compile(
    r"^((?:\w+\.)+_?[A-Z]\w*|\w*(?:Error|Exception|Exit|Interrupt|Iteration|Warning))"
    r"(?:: (.*))?$",
    re.MULTILINE,
)
"""How Python ends a trace. Classes have a module in front of them, but for Python's own."""


class JobFailedError(PipelineError):
    """A task failed on an executor, as often as Spark tries it."""


class Watch(Protocol):
    """Hears how far a job is."""

    def __call__(self, done: int, total: int) -> None:
        """So many of all tasks have ended."""
        ...


def run_job(
    spark: Any, label: str, tasks: Sequence[T], function: Callable[[T], R], watch: Watch
) -> list[R]:
    """Run a function on each task; the answers come in the order of the tasks.

    Args:
        spark: a SparkSession.
        label: what Spark's UI shows; also the job's group, so it is unique.
        tasks: each goes to an executor alone, and is never shown.
        function: importable on executors.
        watch: called about twice a second in the caller's thread.

    Raises:
        JobFailedError: the error of a task, in one line.
    """
    if not tasks:
        return []
    context = spark.sparkContext
    pool = ThreadPool("spark-job", 1)

    def collect() -> list[R]:
        context.setJobGroup(label, label, interruptOnCancel=True)
        packed = [packed_task(task) for task in tasks]
        answers = context.parallelize(packed, len(packed)).map(shipped(function))
        found: list[R] = answers.collect()
        return found

    try:
        answer = pool.submit(collect)
        while True:
            try:
                found = answer.result(timeout=_POLL_S)
            except NotYetError:
                watch(_tasks_done(context, label), len(tasks))
            else:
                watch(len(tasks), len(tasks))
                return found
    except BaseException as error:
        with suppress(Exception):  # of any kind: Spark itself may be gone
            context.cancelJobGroup(label)  # tasks would continue without anybody who waits for them
        said = _one_line(error)
        if said is None:
            raise
        raise JobFailedError(said) from error
    finally:
        pool.shutdown(wait=False)


def _tasks_done(context: Any, group: str) -> int:
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage)


def _one_line(error: BaseException) -> str | None:
    """The error that a task raised, without Spark's wrappers; None if Spark has no part in it."""
    java = getattr(error, "java_exception", None)
    if java is None and not type(error).__module__.startswith("pyspark."):
        return None
    return last_error(str(error if java is None else java.getMessage()))


def last_error(text: str) -> str:
    """The message of the error that ends the last trace of a text; else its first line."""
    found: list[tuple[str, str]] = _RAISED.findall(text)
    if found:
        kind, message = found[-1]
        return message.strip() or kind
    lines = text.strip().splitlines() or ["Spark gave no reason"]
    return lines[0].strip()
