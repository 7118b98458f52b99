"""A Spark that is interrupted while it starts.

In a process of its own: PySpark leaves its end of a pipe to the collector there.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.brokers.process import alive, environment, until

pytest.importorskip("pyspark")

SUBMIT = """#!/bin/sh
echo $$ > {told}
kill -INT $PPID
exec sleep 600
"""
"""Stands for `spark-submit`, which becomes the JVM."""
START = """
from pipeline.jobs.session import spark_session
with spark_session("test", "local[1]", {}):
    raise SystemExit("Spark has started")
"""


def test_ctrl_c_while_spark_starts_leaves_no_jvm(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    for name, text in (("spark-submit", SUBMIT.format(told=told)), ("java", "#!/bin/sh\n")):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    homes = {"SPARK_HOME": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", START], env=environment() | homes, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    jvm = int(told.read_text())
    try:
        assert "KeyboardInterrupt" in done.stderr
        until(lambda: not alive(jvm), "the child has ended", deadline_s=10)
    finally:
        with suppress(ProcessLookupError):
            os.kill(jvm, signal.SIGKILL)
