"""What a failed job says, and what becomes of it."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pipeline.jobs.spark_job import last_error, run_job

TRACE = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: Traceback:
  File "a.py", line 3, in read
rsm_plugins.api.RetriableRemoteStorageError: the store hangs

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 4, in work
pipeline.errors.DataLossError: orders-0: offsets 5 to 7 cannot be read

\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)
"""


def test_the_last_error_of_a_trace_is_what_happened() -> None:
    assert last_error(TRACE) == "orders-0: offsets 5 to 7 cannot be read"


def test_an_error_of_python_itself_counts_too() -> None:
    assert last_error("Traceback\nFileNotFoundError: [Errno 2] /x\n\tat b") == "[Errno 2] /x"


def test_without_a_trace_the_first_line_is_kept() -> None:
    assert last_error("Executor lost\n at x") == "Executor lost"
    assert last_error("") == "Spark gave no reason"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("pyarrow.lib.ArrowInvalid: bad thing", "bad thing"),
        ("botocore.exceptions.NoSuchKey: An error: gone", "An error: gone"),
        ("StopIteration: 5", "5"),
        ("AssertionError", "AssertionError"),
        ("pipeline.decode.group._Hole", "pipeline.decode.group._Hole"),
    ],
)
def test_an_error_may_have_any_name(line: str, wanted: str) -> None:
    text = f"SparkException: Job aborted\nTraceback\n  File x\n{line}\n\nDriver stacktrace:\n\tat a"
    assert last_error(text) == wanted


def test_what_java_adds_behind_a_trace_is_not_the_error() -> None:
    text = "Traceback\n  File x\na.b.DataLossError: lost\nCaused by: java.io.IOError: clean-up"
    assert last_error(text) == "lost"


class SlowSpark:
    """A session whose only job runs until it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    @property
    def sparkContext(self) -> "SlowSpark":
        return self

    def setJobGroup(self, *_: str, **__: bool) -> None: ...

    def statusTracker(self) -> "SlowSpark":
        return self

    def getJobIdsForGroup(self, _group: str) -> list[int]:
        return []

    def parallelize(self, _tasks: Sequence[Any], _slices: int) -> "SlowSpark":
        return self

    def map(self, _function: Callable[[Any], Any]) -> "SlowSpark":
        return self

    def collect(self) -> list[Any]:
        assert self.cancelled.wait(30)
        return []

    def cancelJobGroup(self, _group: str) -> None:
        self.cancelled.set()


@pytest.mark.parametrize("error", [BrokenPipeError, KeyboardInterrupt])
def test_a_job_whose_progress_cannot_be_shown_is_cancelled(error: type[BaseException]) -> None:
    def watch(done: int, total: int) -> None:
        raise error

    spark = SlowSpark()
    with pytest.raises(error):
        run_job(spark, "label", [1], str, watch)
    assert spark.cancelled.is_set()
