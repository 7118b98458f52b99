"""PySpark 4.0.0 in a Python of its own: the version whose Kafka source and sink can be had."""

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.brokers.process import ROOT

PYTHON = os.environ.get("TIDEMARK_PYSPARK_400", "")
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
needs_pyspark_400 = pytest.mark.skipif(
    not PYTHON, reason="TIDEMARK_PYSPARK_400 names no Python with PySpark 4.0.0"
)


def run_stream(asked: Mapping[str, Any], *, connector: bool) -> None:
    """Run a stream to its end.

    Args:
        asked: for `stream_driver`, without master and trigger.
        connector: Spark's Kafka source and sink are needed; the first time, Spark fetches them.
    """
    settings = {"spark.jars.packages": CONNECTOR} if connector else {}
    document = {"master": "local[2]", "available_now": True, "settings": settings, **asked}
    done = subprocess.run(
        [PYTHON, "-m", "tests.support.spark.stream_driver", json.dumps(document)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": PYTHON},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
