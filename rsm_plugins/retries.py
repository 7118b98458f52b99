"""Repeated requests to a store, for failures that pass within seconds.

For plugins whose library does not repeat requests by itself (boto3 does). The waits grow
exponentially up to `WAIT_MAX_S` and are random, so that the callers of an overloaded store do not
return together. No attempt begins after the deadline, nor after `close`. Repeated requests must be
idempotent: perhaps only the answer of a failed attempt was lost.

Must not know: which store it is; which of its errors pass.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)

from rsm_plugins.api import RetriableRemoteStorageError

log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

WAIT_FIRST_S = 0.2
"""Upper bound of the wait before the second attempt; doubled for each later one."""
WAIT_MAX_S = 5.0


def passes_by_name(error: BaseException) -> bool:
    """The default of `passes`, for plugins that raise only the errors of the interface."""
    return isinstance(error, RetriableRemoteStorageError)


class Retries:
    """Repeats requests, from many threads at once."""

    def __init__(
        self,
        passes: Callable[[BaseException], bool] = passes_by_name,
        *,
        timeout_s: float,
        attempts: int,
        shown: Callable[[BaseException], str] = repr,
    ) -> None:
        """Make it.

        Args:
            passes: True if an error may be gone within seconds. Never true for a missing object, a
                missing permission, or a bad argument.
            timeout_s: No attempt of a request begins after this time.
            attempts: Of one request, the first included.
            shown: Text of an error for the log, without secrets.
        """
        self._passes, self._timeout_s, self._attempts = passes, timeout_s, attempts
        self._shown = shown
        self._closed = threading.Event()
        self._is_outage = False  # a request was given up, and none has succeeded since

    def call(self, what: str, request: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Make a request; a repeated one is logged as one WARNING, successful or not.

        In a row of requests that are given up only the first is logged: the caller's own log
        reports the failing store. The next success ends the row.

        Args:
            what: For the log, such as "copy of orders-x/0/1.log".
            request: May be called again from its beginning.
            timeout_s: Replaces that of all requests.

        Raises:
            RetriableRemoteStorageError: `close` was called between two attempts. Otherwise the
                error of the last attempt is passed on.
        """
        failures: list[str] = []
        began_s = time.monotonic()
        attempts = 0

        def attempt() -> T:
            nonlocal attempts
            attempts += 1
            return request()

        def say(level: int, outcome: str, done: str) -> None:
            if failures:
                took_ms = (time.monotonic() - began_s) * 1_000
                text = "a request was %s: what=%s%s took_ms=%d error=%s"
                log.log(level, text, outcome, what, done, took_ms, failures[-1])

        try:
            seconds = self._timeout_s if timeout_s is None else timeout_s
            answer = self._retrying(failures, seconds)(attempt)
        except Exception as error:
            level = logging.DEBUG if self._is_outage else logging.WARNING
            say(level, f"given up after {attempts} attempts", "")
            # An error that does not pass is an answer: the store is reachable.
            self._is_outage = self._passes(error) and (self._is_outage or bool(failures))
            raise
        self._is_outage = False
        say(logging.WARNING, "repeated", f" outcome=done repeated={len(failures)}")
        return answer

    def repeated(self, method: Callable[P, T]) -> Callable[P, T]:
        """A decorator: each call of `method` is one request of `call`."""

        @wraps(method)
        def request(*args: P.args, **kwargs: P.kwargs) -> T:
            return self.call(method.__qualname__, partial(method, *args, **kwargs))

        return request

    def close(self) -> None:
        """Begin no further attempts; waits between two of them end now."""
        self._closed.set()

    def _retrying(self, failures: list[str], timeout_s: float) -> Retrying:
        def note(state: RetryCallState) -> None:
            assert state.outcome is not None
            error = state.outcome.exception()
            assert error is not None
            failures.append(self._shown(error))  # the error itself would keep its frames

        return Retrying(
            # Never of a KeyboardInterrupt or a cancellation.
            retry=retry_if_exception(lambda e: isinstance(e, Exception) and self._passes(e)),
            stop=stop_after_attempt(self._attempts) | stop_before_delay(timeout_s),
            wait=wait_random_exponential(multiplier=WAIT_FIRST_S, max=WAIT_MAX_S),
            before_sleep=note,
            sleep=self._wait,
            reraise=True,
        )

    def _wait(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise RetriableRemoteStorageError("the store was closed between two attempts")
