"""Which Python Spark's workers are on this machine."""

import sys

import pytest

from pipeline.jobs.session import name_workers_python


@pytest.mark.parametrize(
    ("master", "settings", "before", "after"),
    [
        ("local[2]", {}, None, sys.executable),
        ("local", {"spark.pyspark.python": "/other"}, None, "/other"),
        ("local[*]", {"spark.pyspark.python": "/other"}, "/mine", "/mine"),
        ("spark://h:7077", {}, None, None),
        (None, {}, None, None),
    ],
)
def test_workers_here_are_this_python_unless_one_is_named(
    master: str | None, settings: dict[str, str], before: str | None, after: str | None
) -> None:
    environ = {} if before is None else {"PYSPARK_PYTHON": before}
    name_workers_python(master, settings, environ)
    assert environ.get("PYSPARK_PYTHON") == after
