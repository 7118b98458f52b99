"""Runs a broker, as `tidemark start` does, on a disk that fails or kills when told to.

    python run_broker.py --config FILE [--faults FILE] [--steps FILE] [--kill-before N]
        [--read-ms N]

Faults are a JSON list of the arguments of `FaultyDisk.fail`. Steps are the operations that change
the disk, counted from 1 over all threads: each is written to the steps file, and before step N the
process gets a SIGKILL. With `--read-ms` each read of a partition's `.log` file takes so long.
"""

import argparse
import asyncio
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import broker.app
from kafka_protocol.types import CLUSTER_METADATA_TOPIC
from runtime.disk import OpenFile
from runtime.ports import Ports, system_ports
from tests.support.sim.faulty_disk import FaultyDisk
from tidemark.node_files.loading import load, log_to_stdout

CHANGING = frozenset(
    {
        "append",
        "atomic_write",
        "create_private",
        "fsync",
        "fsync_path",
        "lock",
        "make_dirs",
        "open_append",
        "open_empty",
        "open_write",
        "remove_dir",
        "remove_tree",
        "rename",
        "set_modified_ms",
        "truncate",
        "unlink",
        "write_at",
    }
)
"""Methods of `Disk` that change what is on the disk, or make a change survive a power cut."""

NOT_CHANGING = frozenset(
    {
        "boot_id",
        "exists",
        "free_bytes",
        "is_dir",
        "is_resident",
        "list_dir",
        "memfd",
        "modified_ms",
        "open_read",
        "permissions",
        "read_at",
        "read_file",
        "read_into",
        "read_resident",
        "send_file",
        "size",
        "total_bytes",
    }
)


class SteppingDisk(FaultyDisk):
    """Counts the steps, and ends the process before one of them.

    Attributes:
        read_s: how long a read of a `.log` file takes, but for the metadata log's.
    """

    read_s = 0.0

    def __init__(self, steps: Path | None, kill_before: int | None) -> None:
        super().__init__()
        self._mutex = threading.Lock()
        self._step = 0
        self._kill_before = kill_before
        self._file = None if steps is None else os.open(steps, os.O_WRONLY | os.O_CREAT, 0o644)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return functools.partial(self.step, name, found) if name in CHANGING else found

    def step(self, name: str, call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """Count one operation, then do it, unless the process ends here."""
        with self._mutex:
            self._step += 1
            if self._file is not None:
                path = getattr(arguments[0], "path", arguments[0])
                os.write(self._file, f"{self._step} {name} {path}\n".encode())
            if self._step == self._kill_before:
                os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **more)

    def read_at(self, file: OpenFile, position: int, size: int) -> bytes:
        """Read, as slowly as this disk is."""
        path = str(file.path)
        if self.read_s and path.endswith(".log") and CLUSTER_METADATA_TOPIC not in path:
            time.sleep(self.read_s)
        return super().read_at(file, position, size)

    def read_faults(self, file: Path) -> None:
        """Take the rules of a file."""
        for rule in json.loads(file.read_text()):
            self.fail(rule.pop("operations"), **rule)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--faults", type=Path)
    parser.add_argument("--steps", type=Path)
    parser.add_argument("--kill-before", type=int)
    parser.add_argument("--read-ms", type=int, default=0)
    given = parser.parse_args()
    log_to_stdout()
    disk = SteppingDisk(given.steps, given.kill_before)
    disk.read_s = given.read_ms / 1000
    if given.faults is not None:
        disk.read_faults(given.faults)

    def on_this_disk(loop: asyncio.AbstractEventLoop) -> Ports:
        return replace(system_ports(loop), disk=disk)

    sys.exit(broker.app.run(load(given.config, ()), on_this_disk))


if __name__ == "__main__":
    main()
