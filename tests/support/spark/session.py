"""A SparkSession for tests, or the reason why there is none."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from pipeline.errors import MissingPackageError
from pipeline.java_home import provide_java
from tests.support.brokers.process import ROOT
from tests.support.stores.s3 import CREDENTIALS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.log.level": "ERROR",
}


def why_no_spark() -> str | None:
    """Why a test cannot have Spark here, None where it can."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed (extra `spark`)"
    try:
        provide_java()
    except MissingPackageError as error:
        return str(error)
    return None


def spark_environment() -> dict[str, str]:
    """What the JVM and its Python workers must find: this interpreter, and this tree."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def spark_session(master: str = "local[2]", **settings: str) -> "Iterator[SparkSession]":
    """A session of this process, stopped at the end; skips the test where there is no Spark.

    One at a time: Spark has one context a process. Its JVM stays for the next one.

    Args:
        master: where it runs.
        settings: more of Spark's settings, with `_` for `.`.
    """
    reason = why_no_spark()
    if reason:
        pytest.skip(reason)
    from pyspark.sql import SparkSession  # loads slowly, most tests need none

    os.environ.update(spark_environment())  # before the JVM starts: its workers inherit it
    builder = SparkSession.builder.master(master).appName("tests")
    more = {key.replace("_", "."): value for key, value in settings.items()}
    for key, value in (SETTINGS | more).items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():  # its workers inherit them, in every later test
            patch.setenv(name, value)
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
