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
    ],
)
def test_workers_here_are_this_python_unless_one_is_named(
    master: str | None, settings: dict[str, str], before: str | None, after: str | None
) -> None:
    environ = {} if before is None else {"PYSPARK_PYTHON": before}
    name_workers_python(master, settings, environ)
    assert environ.get("PYSPARK_PYTHON") == after


@pytest.mark.parametrize(
    ("settings", "environ", "is_ours"),
    [
        ({}, {}, True),
        ({"spark.master": "local[2]"}, {}, True),
        ({"spark.master": "spark://h:7077"}, {}, False),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}, False),
        ({"spark.master": "local"}, {"SPARK_CONF_DIR": "/etc/spark"}, True),
    ],
)
def test_without_a_master_it_is_what_spark_itself_takes(
    settings: dict[str, str], environ: dict[str, str], *, is_ours: bool
) -> None:
    name_workers_python(None, settings, environ)
    assert ("PYSPARK_PYTHON" in environ) is is_ours
