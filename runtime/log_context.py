"""Log lines with their subject as a prefix, and text from outside made safe to print."""

import logging
import sys
import threading
from collections.abc import Hashable
from typing import Any, Final

from runtime.clock import Clock, SystemClock
from runtime.incidents import Incident
from runtime.repeats_policy import Repeats, with_left_out


class PrefixLogger(logging.LoggerAdapter[logging.Logger]):
    """Puts a prefix such as `[orders-3 epoch=7]` before each message."""

    def __init__(self, logger: logging.Logger, prefix: str) -> None:
        super().__init__(logger, {})
        self._prefix = f"[{prefix}] "

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log with the prefix; the work is done only for lines that are printed."""
        if self.isEnabledFor(level):
            # With arguments the line is a %-format: the prefix's own percent signs must survive.
            prefix = self._prefix.replace("%", "%%") if args else self._prefix
            text = f"{prefix}{msg}"
            self.logger.log(level, text, *args, **kwargs)


def bind(logger: logging.Logger, prefix: str) -> PrefixLogger:
    """Bind a prefix once per object."""
    return PrefixLogger(logger, prefix)


def escape(text: str | bytes, limit: int = 200) -> str:
    """Make text from outside safe for one log line.

    Control characters (line ends above all: a client id could otherwise forge log lines), quotes
    and non-ASCII characters are backslash-escaped; what is longer than `limit` characters is cut
    and marked.
    """
    if isinstance(text, bytes):
        text = text[: limit + 1].decode("utf-8", "backslashreplace")
    cut = text[:limit]
    shown = cut.encode("unicode_escape").decode("ascii")
    return shown + "..." if len(text) > limit else shown


class LimitedLog:
    """Logs at most one line a minute for each place of a call and each subject.

    The next line says how many were left out. Safe for all threads. `limited` serves a whole
    process; an object with a clock of its own has one of its own.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """Remember nothing yet.

        Args:
            clock: for tests; None: the system's.
        """
        self._clock, self._lock = clock or SystemClock(), threading.Lock()
        self._repeats = Repeats()

    def error(
        self,
        log: logging.Logger,
        line: str,
        subject: Hashable = "",
        *,
        exc_info: BaseException | None = None,
    ) -> None:
        """Log a line at ERROR, with the stack of `exc_info`, or count it as left out."""
        self._limit(log, logging.ERROR, line, subject, exc_info)

    def warning(self, log: logging.Logger, line: str, subject: Hashable = "") -> None:
        """Log a line at WARNING, or count it as left out."""
        self._limit(log, logging.WARNING, line, subject, None)

    def forget(self) -> None:
        """Forget all subjects: the next line of each is logged. For tests."""
        with self._lock:
            self._repeats = Repeats()

    def _limit(
        self,
        log: logging.Logger,
        level: int,
        line: str,
        subject: Hashable,
        exc_info: BaseException | None,
    ) -> None:
        caller = sys._getframe(2)
        key = (caller.f_code.co_filename, caller.f_lineno, subject)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            left_out = self._repeats.occurred(key, now_ms)
        if left_out is not None:
            log.log(level, "%s", with_left_out(line, left_out), exc_info=exc_info, stacklevel=3)


limited: Final = LimitedLog()
"""The filter of this process, for calls that have no clock of their own."""


class Outage:
    """Logs once that something fails and once that it works again, for any number of attempts.

    An operation that fails and succeeds in turn logs two lines a minute: the end is logged only
    after a logged failure. Attempts may end in several threads.

    Attributes:
        reason: Of the last failed attempt; None: the last one succeeded, or there was none.
    """

    __slots__ = ("_clock", "_failed_attempts", "_lock", "_log", "_repeats", "_what", "reason")

    def __init__(
        self, log: logging.Logger | PrefixLogger, what: str, clock: Clock | None = None
    ) -> None:
        """Note that nothing has failed yet.

        Args:
            log: of the lines.
            what: subject of the lines, such as "copying to the remote store".
            clock: for tests; None: the system's.
        """
        self._log, self._what = log, what
        self._clock, self._lock = clock or SystemClock(), threading.Lock()
        self._repeats = Repeats()
        self._failed_attempts = 0
        self.reason: object = None

    @property
    def failed_attempts(self) -> int:
        """Number of failures since the last success."""
        return self._failed_attempts

    def failed(self, reason: object) -> None:
        """Note a failed attempt.

        The first of an outage is logged, or the first that is a minute after the last such line.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._failed_attempts += 1
            self.reason = reason
            left_out = self._repeats.failed(self._what, now_ms)
        if left_out is not None:
            line = Incident.OUTAGE.line(what=self._what, reason=reason)
            self._log.error("%s", with_left_out(line, left_out))

    def succeeded(self) -> None:
        """Note a successful attempt; the first after a logged failure is logged."""
        if not self._failed_attempts:  # nearly always, and then without the lock
            return
        with self._lock:
            count, self._failed_attempts, self.reason = self._failed_attempts, 0, None
            is_logged = self._repeats.ended(self._what)
        if is_logged:
            self._log.warning("%s works again: failed_attempts=%d", self._what, count)
