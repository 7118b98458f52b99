"""Nodes of a development cluster as processes, which end with the process that started them."""

import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from runtime.child_process import own_pid
from runtime.clock import SystemClock
from runtime.disk import Disk
from tidemark.dev.settings import LOG

_CLOCK: Final = SystemClock()
_TAIL_BYTES: Final = 4_096


class NodeProcess:
    """One process of `tidemark start`, in a directory of its own.

    Attributes:
        name: as a person calls it, "controller 2".
        home: its directory: `server.properties`, `server.log`, and what it keeps.
    """

    def __init__(
        self, name: str, home: Path, entries: Mapping[str, str], overrides: Sequence[str] = ()
    ) -> None:
        """Nothing is started yet.

        Args:
            name: as a person calls it.
            home: its directory.
            entries: of its server.properties.
            overrides: `key=value` each.
        """
        self.name, self.home = name, home
        self.entries, self._overrides = entries, tuple(overrides)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_begins_at = 0

    @property
    def config_file(self) -> Path:
        """Its server.properties, written when it is started."""
        return self.home / "server.properties"

    @property
    def log_file(self) -> Path:
        """The log file of a node, with all its starts."""
        return self.home / LOG

    @property
    def pid(self) -> int:
        """Its process; it was started."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, own_session: bool) -> None:
        """Start it; the kernel kills it when this thread of this process ends.

        Args:
            own_session: Ctrl-C in a terminal does not reach it.

        Raises:
            OSError: its files cannot be written.
        """
        text = "".join(f"{key}={value}\n" for key, value in self.entries.items())
        Disk().atomic_write(self.config_file, text.encode())
        # -P: a `runtime` or `broker` in the working directory is somebody else's.
        command = [sys.executable, "-P", "-m", "tidemark.cli", "start"]
        command += ["--config", str(self.config_file), "--parent-pid", str(own_pid())]
        for pair in self._overrides:
            command += ["--override", pair]
        with self.log_file.open("ab") as output:
            self._log_begins_at = output.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=own_session,
            )  # fmt: skip

    def exit_code(self) -> int | None:
        """None while it runs, negative where a signal killed it."""
        return None if self._process is None else self._process.poll()

    def last_words(self) -> str:
        """Of this start: the message of a failure, else the last line of its log."""
        try:
            with self.log_file.open("rb") as log:
                log.seek(self._log_begins_at)
                lines = log.read()[-_TAIL_BYTES:].decode(errors="replace").splitlines()
        except FileNotFoundError:  # its directory was removed: a person tries the loss of a disk
            return "(its log is gone)"
        failures = [line for line in lines if line.startswith("tidemark: ")]
        return (failures or lines or ["(it said nothing)"])[-1]

    def ask_to_stop(self) -> None:
        """SIGTERM; nothing happens where it has ended."""
        if self._process is not None:
            self._process.terminate()

    def wait(self, ends_ms: int) -> None:
        """Wait for its end, until then at most, by the monotonic clock."""
        if self._process is not None:
            try:
                self._process.wait(max(0, ends_ms - _CLOCK.monotonic_ms()) / 1000)
            except subprocess.TimeoutExpired:
                return

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def stop_in_order(groups: Sequence[Iterable[NodeProcess]], limits_ms: Sequence[int]) -> None:
    """Stop one group after the other; none is left.

    Brokers come before controllers, which they ask to let them go.

    Args:
        groups: the nodes of a group stop at the same time.
        limits_ms: how long each group may take until it is killed.

    Raises:
        KeyboardInterrupt: a person does not want to wait; all have been killed.
    """
    try:
        for nodes, limit_ms in zip(groups, limits_ms, strict=True):
            ends_ms = _CLOCK.monotonic_ms() + limit_ms
            for node in nodes:
                node.ask_to_stop()
            for node in nodes:
                node.wait(ends_ms)
            for node in nodes:
                node.kill()
    finally:
        for nodes in groups:
            for node in nodes:
                node.kill()
