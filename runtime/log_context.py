"""Log lines that say whom they are about, and outside text made safe to print."""

import logging
from typing import Any


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


class Outage:
    """Says once that something fails and once that it works again, however often it is tried."""

    __slots__ = ("_failing", "_log", "_what")

    def __init__(self, log: logging.Logger | PrefixLogger, what: str) -> None:
        self._log = log
        self._what = what
        self._failing = 0

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failing > 0

    def failed(self, reason: object) -> None:
        """Note a failed attempt; only the first of an outage is logged."""
        self._failing += 1
        if self._failing == 1:
            self._log.error("%s fails: reason=%s", self._what, reason)

    def succeeded(self) -> None:
        """Note a good attempt; the first after an outage is logged."""
        if self._failing:
            self._log.warning("%s works again: failed_attempts=%d", self._what, self._failing)
            self._failing = 0
