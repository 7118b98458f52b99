"""The test's side of the guardian: requests, answers and events, each with a deadline.

A process that was forked from the test's has the same descriptors, and is not the owner: what it
reads would be missing there, and the end of its work is not the end of the broker.
"""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from tidemark.embedded.errors import BrokerError
from tidemark.platforms import why_not_here

__tracebackhide__ = True
_PROGRAM: Final = Path(__file__).with_name("guardian.py")
_PACKAGES_ROOT: Final = Path(__file__).resolve().parents[2]
_ANSWER_S_MAX: Final = 20.0
_END_S_MAX: Final = 30.0
_CHUNK_BYTES: Final = 1 << 16


class Guarded:
    """A guardian process, and through it the processes of the nodes.

    Attributes:
        directory: made by the guardian and removed with it; "" where it was told to make none.
        pids: of the nodes that run, by id.
        paused: ids of nodes that stand still.
    """

    def __init__(self, *, own_directory: bool) -> None:
        """Start the guardian.

        Raises:
            BrokerError: it does not answer, or cannot be here.
        """
        if why := why_not_here("a broker inside a test suite"):
            raise BrokerError(why)
        if not hasattr(os, "pidfd_open"):
            raise BrokerError("a broker inside a test suite needs Linux 5.3 or newer")
        self._owner_pid = os.getpid()
        command = [sys.executable, "-I", "-S", str(_PROGRAM), str(self._owner_pid)]
        # A session of its own: Ctrl-C in a terminal reaches the test's process alone.
        self._process = subprocess.Popen(
            command + ["--own-directory"] * own_directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._unread = b""
        self._events: list[dict[str, Any]] = []
        self._number = 0
        self.pids: dict[int, int] = {}
        self.paused: set[int] = set()
        self.directory = ""
        try:
            self.directory = str(self._next(time.monotonic() + _ANSWER_S_MAX, "here")["directory"])
        except BaseException:
            self.close()
            raise

    def start(self, node_id: int, module: str, given: dict[str, Any], log: Path) -> None:
        """Start the process of a node: `python -m module`, which gets `given` as JSON."""
        environment = dict(os.environ)
        # -P: a `runtime` or `broker` in the working directory is somebody else's.
        path = [str(_PACKAGES_ROOT), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        self._forget(node_id)
        answer = self.request(
            "start",
            node_id,
            command=[sys.executable, "-P", "-m", module],
            input=given,
            environment=environment,
            log=str(log),
        )
        self._forget(
            node_id
        )  # of its former incarnation: what the new one says comes after the answer
        self.pids[node_id] = int(answer["pid"])

    def request(self, do: str, node_id: int, **more: Any) -> dict[str, Any]:
        """Have something done to a node.

        Raises:
            BrokerError: the guardian cannot, or is gone.
        """
        if not self.is_ours:
            raise BrokerError(
                f"cannot {do} node {node_id}: it belongs to the process {self._owner_pid}, "
                "of which this one is a fork"
            )
        self.paused.discard(node_id)
        if do == "pause":
            self.paused.add(node_id)
        self._number += 1
        number = self._number
        asked = {"do": do, "node": node_id, "number": number, **more}
        self._write(json.dumps(asked).encode() + b"\n")
        deadline = time.monotonic() + _ANSWER_S_MAX
        while True:
            message = self._next(deadline, f"the answer to {do}")
            if "event" in message:
                self._take_event(message)
            elif message["number"] != number:
                continue  # of a request that was interrupted, by Ctrl-C or a time-out
            elif "error" in message:
                raise BrokerError(f"cannot {do} node {node_id}: {message['error']}")
            else:
                return message

    def event(self, wanted: str, node_id: int, deadline: float) -> dict[str, Any]:
        """Wait for an event of a node, until `deadline` of `time.monotonic`; its end counts, too.

        Raises:
            TimeoutError: it does not come in time.
            BrokerError: the guardian is gone.
        """
        while True:
            for message in self._events:
                if message["node"] == node_id and message["event"] in (wanted, "ended"):
                    return message
            self._take_event(self._next(deadline, wanted))

    @property
    def is_ours(self) -> bool:
        """Whether this process started the guardian, and is not a fork of the one that did."""
        return os.getpid() == self._owner_pid

    def poll(self) -> None:
        """Take the events that are there."""
        if not self.is_ours:
            return
        with contextlib.suppress(TimeoutError):
            while True:
                self._take_event(self._next(0.0, "nothing"))

    def close(self) -> None:
        """End everything: the broker is killed, its own directory removed.

        In a process that was forked nothing ends: the broker is another's.
        """
        if self.is_ours:
            # Said, too: processes that were forked have the pipe, and do not close it.
            with contextlib.suppress(BrokerError):
                self._write(b'{"do": "end"}\n')
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        if not self.is_ours:
            self.pids.clear()
            return
        try:
            self._process.wait(_END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.pids.clear()
        if self.directory:  # as a guardian leaves it that was killed
            shutil.rmtree(self.directory, ignore_errors=True)

    def _forget(self, node_id: int) -> None:
        self._events = [one for one in self._events if one["node"] != node_id]

    def _take_event(self, message: dict[str, Any]) -> None:
        if "event" not in message:
            return  # the late answer to a request that was interrupted
        self._events.append(message)
        if message["event"] == "ended":
            self.pids.pop(message["node"], None)
            self.paused.discard(message["node"])

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._to, data) :]
        except (OSError, ValueError) as error:
            raise BrokerError(f"the guardian of the broker is gone: {error}") from None

    def _next(self, deadline: float, what: str) -> dict[str, Any]:
        """The next message.

        Raises:
            TimeoutError: none has come by the deadline, of `time.monotonic`.
            BrokerError: the guardian is gone.
        """
        while b"\n" not in self._unread:
            poll = select.poll()
            poll.register(self._from, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError(f"not in time: {what}")
            data = os.read(self._from, _CHUNK_BYTES)
            if not data:
                raise BrokerError("the guardian of the broker has ended")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message
