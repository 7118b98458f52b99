"""Calls of the storage plugin that one partition's tasks have given up, and that still run.

Each holds a thread. A pass whose call hangs is tried again, as another connection to the store may
do better; but not without end, or one partition would take half of the pool, and the tier end
itself over it (`rlm.service`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from rsm_plugins.api import RemoteStorageError

HANGING_MAX: Final = 2


class CallHangsError(RemoteStorageError):
    """A call of the plugin was given up, and with it the run; or too many hang to begin another.

    Not a retriable error: of one partition alone it says nothing of the store.
    """


class HangingCalls:
    """Those of one ownership; from any thread."""

    __slots__ = ("_count", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0

    def check(self) -> None:
        """Raise CallHangsError where so many hang that no further one may begin."""
        if self._count >= HANGING_MAX:
            raise CallHangsError(f"{self._count} calls of the plugin hang, and no other begins")

    @contextmanager
    def watched(self, on_hang: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Run a call in the block, which gets what is to be called when it is given up.

        Then the call counts, and `on_hang` is called; nothing happens once the block has ended.
        """
        has_ended = is_counted = False

        def hangs() -> None:
            nonlocal is_counted
            with self._lock:
                if has_ended or is_counted:
                    return
                is_counted = True
                self._count += 1
            on_hang()

        try:
            yield hangs
        finally:
            with self._lock:
                has_ended = True
                self._count -= is_counted
