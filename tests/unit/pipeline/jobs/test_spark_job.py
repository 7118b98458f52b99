"""What a failed job says."""

from pipeline.jobs.spark_job import last_error

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
