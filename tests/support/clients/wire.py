"""What the Python programs share: commands from stdin by a thread, events to stdout."""

import json
import queue
import sys
import threading
from typing import Any

END = {"do": "end"}
"""The command that comes after the last: whoever started the program is gone."""

_lock = threading.Lock()


def say(event: str, **facts: Any) -> None:
    """Write one event; whole lines, whichever thread it is."""
    with _lock:
        sys.stdout.write(json.dumps({"event": event} | facts) + "\n")
        sys.stdout.flush()


class Commands:
    """Commands as they come."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        say("ready")

    def _read(self) -> None:
        for line in sys.stdin:
            self._queue.put(json.loads(line))
        self._queue.put(END)

    def next(self) -> dict[str, Any] | None:
        """The oldest command, or None where there is none."""
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    def wait(self) -> dict[str, Any]:
        """The oldest command, when it comes."""
        return self._queue.get()


class Owned:
    """Which partitions are read, and from where each continues."""

    def __init__(self) -> None:
        self.partitions: set[tuple[str, int]] = set()
        self.positions: dict[tuple[str, int], int] = {}

    def assigned(self, new: list[tuple[str, int]], **place: Any) -> None:
        """Take more; `place` is the member's id and generation, as far as the library tells."""
        self.partitions |= set(new)
        say("assigned", new=sorted(new), owned=sorted(self.partitions), **place)

    def gone(self, event: str, gone: list[tuple[str, int]]) -> None:
        """Give some away; `event` is `revoked` or `lost`."""
        self.partitions -= set(gone)
        for one in gone:
            self.positions.pop(one, None)
        say(event, gone=sorted(gone), owned=sorted(self.partitions))

    def record(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        """A record was read; of a partition that was given away meanwhile it is no position."""
        if (topic, partition) in self.partitions:
            self.positions[topic, partition] = offset + 1
        text = None if value is None else value.decode(errors="replace")
        say("record", topic=topic, partition=partition, offset=offset, value=text)

    def to_commit(self, command: dict[str, Any]) -> list[tuple[str, int, int, str]]:
        """What a command `commit` commits."""
        if "offsets" in command:
            return [(t, p, o, m) for t, p, o, m in command["offsets"]]
        return [(t, p, o, "") for (t, p), o in sorted(self.positions.items())]
