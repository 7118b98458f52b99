"""A store whose requests fail on demand, for the promises about repeated requests.

The author of a plugin passes each request of the plugin's store through a `FlakyRequests`. The best
place is the lowest that can be reached: around a call of the store's library, or in a proxy before
its server. A promise then sets which requests fail.
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
    """Counts requests and decides which fail. Thread-safe.

    Attributes:
        seen: Requests since `calm` or `fail`.
        failed: Number of those that failed.
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
        """Count a request that begins; returns how it must fail, None if it must not."""
        with self._lock:
            fails = self.seen in self._failing
            self.seen += 1
            self.failed += fails
            return self._how if fails else None

    @contextmanager
    def request(self, error: Callable[[], Exception]) -> Iterator[None]:
        """Wrap a request: raises `error()` before or after it, if it must fail."""
        failure = self.next()
        if failure is Failure.NOT_DONE:
            raise error()
        yield
        if failure is Failure.ANSWER_LOST:
            raise error()


@dataclass(frozen=True, slots=True)
class FlakyStore:
    """The value of the fixture `flaky_store`.

    Attributes:
        manager: A configured plugin, with the shortest waits between attempts that it allows.
        requests: Consulted by each of its requests.
    """

    manager: RemoteStorageManager
    requests: FlakyRequests
