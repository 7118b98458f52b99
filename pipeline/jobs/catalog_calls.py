"""Calls to a catalog of tables, each with a deadline, and their errors as one line of ours.

Which errors there are depends on the catalog: pyiceberg passes on those of the libraries below it.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from pipeline.errors import StoreUnreachableError
from runtime.executors import spawn_thread

T = TypeVar("T")

CALL_S: Final = 120.0
_FAMILIES: Final = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("google.api_core.exceptions", "GoogleAPIError"),
    ("sqlalchemy.exc", "SQLAlchemyError"),
    ("thrift.Thrift", "TException"),
)
"""Errors that are of no class of pyiceberg's; a module that is not loaded raised none."""

_Queue = SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]


class CatalogCalls:
    """Makes calls in one thread; one that does not come back in time is left there.

    The thread stays the same as long as all come back, for SQLite's connections are a thread's own.
    """

    def __init__(self, name: str) -> None:
        """No thread is started yet.

        Args:
            name: of table or catalog, for messages.
        """
        self._name = name
        self._queue: _Queue | None = None

    def __call__(self, call: Callable[[], T], *, within_s: float = CALL_S) -> T:
        """The call's result, or its error as it is.

        Raises:
            StoreUnreachableError: it did not come back in time; it may succeed later.
        """
        if self._queue is None:
            self._queue = SimpleQueue()
            spawn_thread("pipeline-catalog", partial(_serve, self._queue))
        future: Future[T] = Future()
        self._queue.put((call, future))
        try:
            return future.result(within_s)
        except TimeoutError as error:
            if future.done():
                return future.result()  # just now, or the error is the call's own
            self.close()
            raise StoreUnreachableError(
                f"{self._name}: the catalog did not answer within {within_s:.0f} s; see whether it"
                " runs and can be reached from here, then run this again"
            ) from error

    def translated(self, call: Callable[[], T], *, within_s: float = CALL_S) -> T:
        """The same, with errors of libraries as ours.

        Raises:
            StoreUnreachableError: the catalog or the table's store failed or refused.
        """
        with translated(self._name):
            return self(call, within_s=within_s)

    def close(self) -> None:
        """End the thread, once it is free."""
        if self._queue is not None:
            self._queue.put(None)
            self._queue = None


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Tell errors of pyiceberg and of what is below it in one line.

    Raises:
        StoreUnreachableError: in their place.
    """
    try:
        yield
    except library_errors() as error:
        raise StoreUnreachableError(f"{name}: the catalog failed: {said(error)}") from error


def library_errors() -> tuple[type[Exception], ...]:
    """The errors that pyiceberg may raise; a refusal of a value (ValueError) is not among them."""
    from pyiceberg import exceptions

    own = [one for one in vars(exceptions).values() if isinstance(one, type)]
    below = [
        getattr(sys.modules[module], name) for module, name in _FAMILIES if module in sys.modules
    ]
    return (*(one for one in own if issubclass(one, Exception)), *below, OSError)


def said(error: Exception) -> str:
    """An error of a library in one line; some have no text of their own."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def _serve(queue: _Queue) -> None:
    while (one := queue.get()) is not None:
        call, future = one
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)
        else:
            future.set_result(result)
