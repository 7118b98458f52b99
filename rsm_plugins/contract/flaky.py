"""A store some of whose requests fail, for the promises about repeating them.

The author of a plugin lets each request of the plugin's store pass through a `FlakyRequests`, at
the lowest place that can be reached: around a call of the store's library, in a proxy before its
server. A promise then says which requests fail.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from rsm_plugins.api import RemoteStorageManager


class Failure(Enum):
    """How a request fails."""

    NOT_DONE = "it is refused"
    ANSWER_LOST = "it is done, and its answer is lost"


class FlakyRequests:
    """Counts requests and says which fail. Safe for threads.

    Attributes:
        seen: requests since `calm` or `fail`.
        failed: how many of them failed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calm()

    def calm(self) -> None:
        """Let no request fail; the counts begin at zero."""
        self.fail(0, times=0)

    def fail(self, first: int, *, times: int = 1, how: Failure = Failure.NOT_DONE) -> None:
        """Let `times` requests fail from number `first` on; the next one is number 0."""
        with self._lock:
            self._failing, self._how = range(first, first + times), how
            self.seen = self.failed = 0

    def next(self) -> Failure | None:
        """Count a request that begins, and say how it is to fail."""
        with self._lock:
            fails = self.seen in self._failing
            self.seen += 1
            self.failed += fails
            return self._how if fails else None

    @contextmanager
    def request(self, error: Callable[[], Exception]) -> Iterator[None]:
        """Put around a request: raises `error()` before or after it, where it is to fail."""
        failure = self.next()
        if failure is Failure.NOT_DONE:
            raise error()
        yield
        if failure is Failure.ANSWER_LOST:
            raise error()


@dataclass(frozen=True, slots=True)
class FlakyStore:
    """What an author hands in.

    Attributes:
        manager: a configured plugin; with as short waits between attempts as it allows.
        requests: asked by each of its requests.
    """

    manager: RemoteStorageManager
    requests: FlakyRequests
