"""Log lines with their subject as a prefix, and text from outside made safe to print."""

import logging
import sys
import threading
from collections import OrderedDict
from typing import Any, Final

from runtime.clock import Clock, SystemClock
from runtime.incidents import Incident

REPEAT_MS: Final = 60_000
"""The least time between two lines of one call about one subject."""
SUBJECTS_MAX: Final = 1_000
"""Most subjects that one `LimitedLog` remembers; the one logged longest ago goes first."""


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

    The next line says how many were left out. Safe for all threads.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock, self._lock = clock or SystemClock(), threading.Lock()
        self._left_out: OrderedDict[tuple[str, int, object], list[int]] = OrderedDict()
        """(file, line, subject) to [time of the next line in ms, lines left out]."""

    def error(self, log: logging.Logger, line: str, subject: object = "") -> None:
        """Log a line at ERROR, or count it as left out."""
        self._limit(log, logging.ERROR, line, subject)

    def warning(self, log: logging.Logger, line: str, subject: object = "") -> None:
        """Log a line at WARNING, or count it as left out."""
        self._limit(log, logging.WARNING, line, subject)

    def _limit(self, log: logging.Logger, level: int, line: str, subject: object) -> None:
        caller = sys._getframe(2)
        key = (caller.f_code.co_filename, caller.f_lineno, subject)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            next_ms, left_out = self._left_out.get(key, (now_ms, 0))
            if now_ms < next_ms:
                self._left_out[key][1] += 1
                return
            self._left_out[key] = [now_ms + REPEAT_MS, 0]
            self._left_out.move_to_end(key)
            if len(self._left_out) > SUBJECTS_MAX:
                self._left_out.popitem(last=False)
        text = f"{line} (lines left out: {left_out})" if left_out else line
        log.log(level, "%s", text, stacklevel=3)


class Outage:
    """Logs once that something fails and once that it works again, for any number of attempts.

    Attempts may end in several threads.

    Attributes:
        reason: Of the last failed attempt; None: the last one succeeded, or there was none.
    """

    __slots__ = ("_failed_attempts", "_lock", "_log", "_what", "reason")

    def __init__(self, log: logging.Logger | PrefixLogger, what: str) -> None:
        self._log, self._what = log, what
        self._lock = threading.Lock()
        self._failed_attempts = 0
        self.reason: object = None

    @property
    def failed_attempts(self) -> int:
        """Number of failures since the last success."""
        return self._failed_attempts

    def failed(self, reason: object) -> None:
        """Note a failed attempt; only the first of an outage is logged."""
        with self._lock:
            self._failed_attempts += 1
            self.reason = reason
            is_first = self._failed_attempts == 1
        if is_first:
            self._log.error(Incident.OUTAGE.line(what=self._what, reason=reason))

    def succeeded(self) -> None:
        """Note a successful attempt; the first after an outage is logged."""
        if not self._failed_attempts:  # nearly always, and then without the lock
            return
        with self._lock:
            count, self._failed_attempts, self.reason = self._failed_attempts, 0, None
        if count:
            self._log.warning("%s works again: failed_attempts=%d", self._what, count)
