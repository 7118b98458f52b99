"""Runs the nodes of a broker for a process that may be killed, and cleans up after all of them.

A program of the standard library alone, started with `python -I -S`: it stands between a test's
process and the nodes. It ends when the test's process does, in whatever way that ends: it watches
it by a descriptor of the process, not of the thread that started it, and reads its standard input,
which the end of the process closes. Then it kills the nodes with all their children and removes the
directory that it made. If it is killed itself, the kernel kills the nodes, and the directory goes
with the test's process, or, where that was killed as well, with the end of the next guardian: a
lock says whether anybody is there for a directory.

    guardian.py OWNER_PID [--own-directory]

Requests are lines of JSON on stdin, {"do": ..., "node": ..., "number": ...}; each is answered by
{"done": ...} or {"error": ...} with its number on stdout, but for "end", the last one. There come
events, too: {"event": "here"} first, {"event": "ended", "node": ...} when a node is gone, with all
its children; and what the nodes themselves write.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
GONE_S_MAX = 10.0
BUFFER_BYTES = 1 << 16
PREFIX = "tidemark-"
MARK = ".guardian"


class Node:
    """One process with its process group; it runs, or has ended and is not collected yet."""

    def __init__(self, node_id: int, child: "subprocess.Popen[bytes]") -> None:
        self._node_id, self.child = node_id, child
        self.fd = os.pidfd_open(child.pid)

    def signal(self, number: int) -> None:
        """To the node and its children; none of them need be there any more."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, number)

    def pause(self) -> None:
        """Return when it stands still, or has ended; nothing is collected."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def collect(self) -> None:
        """It has ended: its children end, too, before anybody is told."""
        group, code = self.child.pid, self.child.wait()
        os.close(self.fd)
        gives_up_at = time.monotonic() + GONE_S_MAX
        while time.monotonic() < gives_up_at:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                break
            with contextlib.suppress(ChildProcessError):  # its children are ours now
                os.waitpid(-group, os.WNOHANG)
            time.sleep(0.002)
        tell({"event": "ended", "node": self._node_id, "code": code})


class Guardian:
    """The nodes that run, by their ids, and a directory."""

    def __init__(self, owner_fd: int, directory: str) -> None:
        self._owner_fd = owner_fd
        self._directory = directory
        self._nodes: dict[int, Node] = {}
        self._input = b""

    def run(self) -> None:
        """Serve the owner until it is gone."""
        while True:
            poll = select.poll()
            for fd in (0, self._owner_fd, *(node.fd for node in self._nodes.values())):
                poll.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll()}
            if self._owner_fd in ready:
                return
            for node_id, node in list(self._nodes.items()):
                if node.fd in ready:
                    del self._nodes[node_id]
                    node.collect()
            if 0 in ready and not self._read():
                return

    def clean_up(self) -> None:
        """Leave nothing: no process, no directory that was made here."""
        for node in self._nodes.values():
            node.signal(signal.SIGKILL)
        for node in self._nodes.values():
            node.collect()
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _read(self) -> bool:
        """Take what the owner wrote; False when it wants no more."""
        data = os.read(0, BUFFER_BYTES)
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["do"] == "end":
                return False
            answer = {"number": request["number"]}
            try:
                tell({**answer, "done": request["do"], **self._carry_out(request)})
            except OSError as error:
                tell({**answer, "error": str(error)})
        return bool(data)

    def _carry_out(self, request: dict[str, Any]) -> dict[str, Any]:
        do, node_id = request["do"], request["node"]
        if do == "start":
            return {"pid": self._start(node_id, request)}
        node = self._nodes.get(node_id)
        if node is None:
            raise ProcessLookupError("it does not run")
        if do == "stop":
            node.signal(signal.SIGCONT)
            node.child.send_signal(signal.SIGTERM)
        elif do == "pause":
            node.pause()
        else:
            node.signal({"kill": signal.SIGKILL, "resume": signal.SIGCONT}[do])
        return {}

    def _start(self, node_id: int, request: dict[str, Any]) -> int:
        if node_id in self._nodes:
            raise FileExistsError("it runs already")
        with open(request["log"], "ab") as log:
            child = subprocess.Popen(
                [*request["command"], str(os.getpid()), "1"],
                stdin=subprocess.PIPE,
                stdout=1,  # events; the log goes to stderr
                stderr=log,
                env=request["environment"],
                process_group=0,
            )
        self._nodes[node_id] = Node(node_id, child)
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already; its log says why
            child.stdin.write(json.dumps(request["input"]).encode())
            child.stdin.close()
        return child.pid


def tell(message: dict[str, Any]) -> None:
    """Write one line to the owner; fine when it is gone."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


def make_directory() -> str:
    """Make a directory that is marked and locked for as long as this process lives."""
    directory = tempfile.mkdtemp(prefix=PREFIX)
    mark = os.path.join(directory, MARK)
    # It has its name when it is locked: a mark is never found before it is locked.
    fd = os.open(mark + ".new", os.O_CREAT | os.O_WRONLY, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.rename(mark + ".new", mark)
    return directory


def sweep() -> None:
    """Remove what guardians have left that were killed; only what has a mark that is not locked."""
    with os.scandir(tempfile.gettempdir()) as found:
        names = [one.path for one in found if one.name.startswith(PREFIX)]
    for directory in names:
        try:
            if os.lstat(directory).st_uid != os.getuid() or os.path.islink(directory):
                continue
            fd = os.open(os.path.join(directory, MARK), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue  # somebody else's, or gone
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            pass  # its guardian lives
        finally:
            os.close(fd)


def main() -> None:
    """Watch the owner, and clean up when it is gone."""
    owner_pid = int(sys.argv[1])
    owner_fd = os.pidfd_open(owner_pid)
    if os.getppid() != owner_pid:
        return  # it is gone already, and its number may be somebody else's
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # The children of a dead broker become ours, so that their end can be waited for.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    own = "--own-directory" in sys.argv
    directory = make_directory() if own else ""
    guardian = Guardian(owner_fd, directory)
    try:
        tell({"event": "here", "directory": directory})
        guardian.run()
    finally:
        guardian.clean_up()
        with contextlib.suppress(OSError):
            sweep()


if __name__ == "__main__":
    main()
