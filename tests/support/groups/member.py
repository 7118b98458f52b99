"""A member of a group as a process: commands in, events out.

The protocol is that of `tests/support/clients/README.md`.
"""

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.support.brokers.process import ROOT, environment, until
from tests.support.groups.clients import Client

Partition = tuple[str, int]
Event = dict[str, Any]
ANSWER_S = 40.0
_CHANGES = ("assigned", "revoked", "lost")


class Member:
    """One process; `with` ends it whatever happens."""

    def __init__(self, client: Client, bootstrap: str, directory: Path, name: str = "") -> None:
        self.client, self.name = client, name or client.name
        self.events: list[Event] = []
        self.paused = False
        directory.mkdir(parents=True, exist_ok=True)
        self.errors = directory / f"{self.name}-{time.monotonic_ns()}.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                client.command(bootstrap),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=environment(),
                start_new_session=True,  # kcat is a child of its program
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(json.JSONDecodeError):  # a library prints something of its own
                event = json.loads(line)
                event["at"] = time.monotonic()
                self.events.append(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def do(self, command: str, **fields: Any) -> None:
        """Send a command."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": command} | fields) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"{self.name} is gone: {self.said()}") from None

    def subscribe(self, group: str, *topics: str, **more: Any) -> Self:
        """Join a group."""
        self.do("subscribe", group=group, topics=list(topics), **more)
        return self

    def ask(self, command: str, answer: str, **fields: Any) -> Event:
        """Send a command, and wait for its event."""
        before = len(self.of(answer))
        self.do(command, **fields)
        self.wait(lambda: len(self.of(answer)) > before, f"{command} is answered")
        return self.of(answer)[before]

    def commit(self, offsets: list[Any] | None = None) -> Event:
        """Commit positions, or these offsets."""
        fields = {} if offsets is None else {"offsets": offsets}
        return self.ask("commit", "committed", **fields)

    def committed(self, *partitions: Partition) -> dict[Partition, int]:
        """What the group has committed, as this client sees it."""
        event = self.ask("committed", "offsets", partitions=list(partitions))
        return {(t, p): offset for t, p, offset, _ in event["offsets"]}

    def admin(self, what: str, **fields: Any) -> Event:
        """Ask the library's admin."""
        return self.ask("admin", "admin", what=what, **fields)

    def wait(self, condition: Any, what: str, deadline_s: float = ANSWER_S) -> None:
        """Until something holds; fails with what the member said."""

        def holds() -> bool:
            if condition():
                return True
            code = self.process.poll()
            assert code is None or self.paused, f"{self.name} ended with {code}: {self.said()}"
            return False

        try:
            until(holds, f"{self.name}: {what}", deadline_s=deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    def of(self, *kinds: str) -> list[Event]:
        """The events of these kinds so far."""
        return [event for event in list(self.events) if event["event"] in kinds]

    @property
    def owned(self) -> set[Partition]:
        """What it reads now."""
        changes = self.of(*_CHANGES)
        return {(t, p) for t, p in changes[-1]["owned"]} if changes else set()

    @property
    def changes(self) -> list[Event]:
        """Each time that something was given or taken."""
        return self.of(*_CHANGES)

    @property
    def records(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of what it read, in order."""
        return [(e["topic"], e["partition"], e["offset"]) for e in self.of("record")]

    def said(self, last: int = 12) -> str:
        """The end of what it said, for a failure."""
        errors = self.errors.read_text(errors="replace")[-1500:]
        shown = [event for event in self.events if event["event"] != "record"][-last:]
        return f"{len(self.records)} records; {shown}; stderr: {errors}"

    def close(self) -> None:
        """Leave politely, and end."""
        self.do("close")
        self.wait(lambda: self.of("closed") or self.process.poll() == 0, "closed")
        self.process.wait(20)
        self.kill()

    def pause(self) -> None:
        """SIGSTOP: it neither reads nor sends heartbeats."""
        self.paused = True
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.killpg(self.process.pid, signal.SIGCONT)
        self.paused = False

    def kill(self) -> None:
        """SIGKILL, its children included; fine if it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
