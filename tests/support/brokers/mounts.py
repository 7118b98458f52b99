"""Mounts that nobody else sees, and that vanish with the test.

A child process holds a mount namespace open; brokers and commands enter it. Their files are reached
from here through the child's root directory in /proc.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.brokers.process import until


def why_no_mounts() -> str:
    """Why this process may not mount anything; empty: it may."""
    for program in ("unshare", "nsenter", "mount"):
        if shutil.which(program) is None:
            return f"the program {program} is missing"
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False, capture_output=True
    )
    return tried.stderr.decode().strip() if tried.returncode else ""


class MountNamespace:
    """A mount namespace, open for as long as its holder lives."""

    def __init__(self, holder: int) -> None:
        self._root = Path(f"/proc/{holder}/root")
        self.prefix = ["nsenter", "-t", str(holder), "-m"]

    def seen(self, path: Path) -> Path:
        """A path within the namespace as this process reaches it."""
        return self._root / path.relative_to("/")

    def run(self, *command: str) -> None:
        """Run a command within the namespace; its failure fails the test."""
        done = subprocess.run([*self.prefix, *command], check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


@contextmanager
def mount_namespace() -> Iterator[MountNamespace]:
    """A namespace of its own; its mounts go when the last process in it ends."""
    holder = subprocess.Popen(["unshare", "-m", "cat"], stdin=subprocess.PIPE)
    try:
        until(
            lambda: os.readlink(f"/proc/{holder.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"),
            "the holder has a namespace of its own",
        )
        yield MountNamespace(holder.pid)
    finally:
        assert holder.stdin is not None
        holder.stdin.close()  # the holder ends with this process, too
        holder.wait(30)
