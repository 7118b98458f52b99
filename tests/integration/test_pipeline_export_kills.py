"""An export that is killed again and again, with all its processes, and in the end has each row."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest

from tests.support.brokers.process import ROOT, until
from tests.support.lake.bucket import Bucket
from tests.support.lake.rows import Row, rows_of_arrow
from tests.support.lake.stories import an_unclean_election, every_kind_of_record
from tests.support.spark.session import spark_environment, why_no_spark

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=40), pytest.mark.timeout(900)]


class Command:
    """`tidemark pipeline export` of a bucket to a directory; each run is committed by itself."""

    def __init__(self, bucket: Bucket, to: Path) -> None:
        self._to = to
        self._arguments = [
            *(sys.executable, "-m", "tidemark.cli", "pipeline", "export", "orders"),
            *("--bucket", bucket.address.settings["dir"], "--to", str(to), "--run-bytes", "1"),
            *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.memory=512m", "--conf", "spark.driver.host=127.0.0.1"),
        ]

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[bytes]"]:
        environment = os.environ | spark_environment()
        with subprocess.Popen(
            self._arguments, cwd=ROOT, env=environment, start_new_session=True
        ) as process:
            try:
                yield process
            finally:
                family = [pid for pid in psutil.pids() if _session(pid) == process.pid]
                for pid in family:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def run_until(self, reached: Callable[[], bool], what: str) -> None:
        with self.running() as process:
            until(lambda: reached() or process.poll() is not None, what, deadline_s=180)

    def run_to_end(self) -> None:
        with self.running() as process:
            assert process.wait(180) == 0

    def entries(self) -> int:
        return len(list(self._to.glob("_tidemark/log/*.json")))

    def staged(self) -> int:
        return len(list(self._to.glob("_tidemark/staging/*/*")))

    def rows(self) -> list[Row]:
        paths = [str(path) for path in self._to.glob("day=*/*.parquet")]
        if not paths:
            return []
        table = ds.dataset(paths).to_table()
        order = [("partition", "ascending"), ("offset", "ascending")]
        return list(rows_of_arrow(table.sort_by(order).to_batches()))


def _session(pid: int) -> int:
    with suppress(ProcessLookupError):
        return os.getsid(pid)
    return -1


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.long(seconds=60))])
def test_rows_are_there_once_after_kills_at_several_moments(kills: int, tmp_path: Path) -> None:
    reason = why_no_spark()
    if reason:
        pytest.skip(reason)
    with Bucket(tmp_path / "lake") as bucket:
        every_kind_of_record(bucket.partition("orders", 0))
        an_unclean_election(bucket.partition("orders", 1))
        for number in (2, 3):
            bucket.partition("orders", number).batches(5).roll().copy()
        command = Command(bucket, tmp_path / "export")
        expected = bucket.rows()

        moments: list[tuple[Callable[[], bool], str]] = [
            (lambda: command.staged() > 0, "a file is staged"),
            (lambda: command.entries() % 2 == 0 and command.entries() > 2, "a commit is made"),
            (lambda: command.staged() > 0 and command.entries() > 4, "another file is staged"),
        ]
        for reached, what in moments[:kills]:
            command.run_until(reached, what)
            seen = command.rows()
            assert len(seen) == len(set(seen))
            assert set(seen) <= set(expected)
        command.run_to_end()
        assert command.rows() == expected
        assert command.staged() == 0
