"""A SparkSession for a command, which no user has made."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pipeline.errors import need
from pipeline.java_home import provide_java


@contextmanager
def spark_session(name: str, master: str | None, settings: Mapping[str, str]) -> Iterator[Any]:
    """A session, stopped at the end; workers run this Python unless a setting names another.

    Args:
        name: what Spark's UI shows.
        master: `local[4]`, `spark://host:7077`, ...; None: what Spark's own settings say.
        settings: of Spark; they win.

    Raises:
        MissingPackageError: pyspark or a Java is missing.
    """
    need("spark", "pyspark", "pyarrow", "numpy")
    provide_java()
    from pyspark.sql import SparkSession

    ours = {"spark.pyspark.python": sys.executable, "spark.ui.showConsoleProgress": "false"}
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (ours | dict(settings)).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
