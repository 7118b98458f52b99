"""A stream into the Parquet sink whose processes are killed at named moments, and start again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.brokers.process import ROOT, alive, until
from tests.support.spark.session import spark_environment

MOMENTS = ("offsets", "_spark_metadata", "commits")
"""Files of which a stream writes one a batch, in this order: the batch is planned; its rows are in
the sink; it is done."""

_LIMITS = {"maxOffsetsPerTrigger"}


class KilledStream:
    """One stream; its checkpoint and its rows outlive its drivers."""

    def __init__(self, directory: Path, options: dict[str, str], *, format: str = "tidemark"):
        self.path, self.checkpoint = directory / "rows", directory / "checkpoint"
        self._options, self._format = options, format
        self._log = directory / "driver.log"
        directory.mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(self, *, to_end: bool = False, master: str = "local[2,4]") -> Iterator[int]:
        """A driver, killed at the end with all its processes if it still runs; gives its pid.

        Args:
            to_end: it reads all that is there in one batch, and stops by itself.
            master: with the tries of a task, which may lose its worker.
        """
        limited = {k: v for k, v in self._options.items() if not (to_end and k in _LIMITS)}
        asked: dict[str, Any] = {
            "master": master,
            "format": self._format,
            "options": limited,
            "path": str(self.path),
            "checkpoint": str(self.checkpoint),
            "available_now": to_end,
        }
        program = [sys.executable, "-m", "tests.support.spark.stream_driver", json.dumps(asked)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                program,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=os.environ | spark_environment(),
                start_new_session=True,
            )
        try:
            yield self.process.pid
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL the driver: Python, JVM, and whatever they started; wait for their end."""
        assert self.process is not None
        if self.process.poll() is not None and not self._family():
            return
        family = self._family()
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        until(lambda: not any(alive(pid) for pid in family), f"the driver's {family} are gone")

    def run_to_end(self) -> None:
        """Read all that is there now, and stop by itself."""
        with self.running(to_end=True):
            assert self.process is not None
            code = self.process.wait(300)
            assert code == 0, self.log_tail()

    def is_over(self) -> bool:
        """Whether the driver ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def count(self, moment: str) -> int:
        """How many batches came as far as one of `MOMENTS`."""
        folder = (self.path if moment.startswith("_") else self.checkpoint) / moment
        numbers = [int(name.split(".")[0]) for name in _names(folder) if name[0].isdigit()]
        return max(numbers, default=-1) + 1

    def wait_for(self, moment: str, count: int) -> None:
        """Wait until so many batches came that far; fails where the driver ends before."""

        def there() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log_tail()
            return self.count(moment) >= count

        until(there, f"{count} batches have {moment}", deadline_s=400)

    def workers(self) -> list[int]:
        """Python workers that run tasks or plan for the source."""
        return [pid for pid in self._family() if _is_worker(pid)]

    def _family(self) -> list[int]:
        """All processes of the driver's session."""
        assert self.process is not None
        return [pid for pid in _pids() if _session(pid) == self.process.pid]

    def log_tail(self, size: int = 6_000) -> str:
        """The end of what the drivers said."""
        return self._log.read_text(errors="replace")[-size:]


def kill_workers(stream: KilledStream) -> None:
    """SIGKILL a driver's Python workers; the task is tried again, or the stream ends."""
    batches = stream.count("commits")
    workers = until(stream.workers, "a Python worker runs")
    for pid in workers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(
        lambda: stream.is_over() or stream.count("commits") > batches,
        "the stream continues, or ends",
        deadline_s=400,
    )


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _session(pid: int) -> int:
    """The session of a process that runs; -1 where it does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] == "Z" else int(fields[3])


def _is_worker(pid: int) -> bool:
    """Whether it is a Python process of Spark's that was started for one purpose."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        above = Path(f"/proc/{parent}/cmdline").read_bytes()
    except OSError:
        return False
    # A daemon of Spark's forks its workers: theirs are the same words as their parent's.
    return b"pyspark.daemon" in words and b"pyspark.daemon" in above
