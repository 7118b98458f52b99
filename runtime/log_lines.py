"""Log lines of a process: one form for all processes of a node, as text or as JSON.

A text line has Kafka's form, with the time zone that Kafka leaves out:

    [2026-11-30 19:58:00,092+00:00] INFO started: node_id=1 (broker.broker)
    [2026-11-30 19:58:00,110+00:00] INFO tier: the claim is taken: number=3 (rlm.maintenance.claim)
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self, TextIO

from runtime.override import override

LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "DEBUG": logging.DEBUG,
        "INFO": logging.INFO,
        "WARN": logging.WARNING,
        "WARNING": logging.WARNING,
        "ERROR": logging.ERROR,
    }
)
FORMATS: Final = ("text", "json")
_SAY_SECRETS: Final = ("boto3", "botocore", "s3transfer", "urllib3")
"""Libraries that write whole answers at DEBUG, with credentials: only by their own names."""
FILE_BYTES_MAX: Final = 4 << 20


class _Lines(logging.Formatter):
    """Makes one line of a record; a stack follows a line of text, and is inside one of JSON.

    Args:
        process: name of the process, empty for the main one of a node.
    """

    def __init__(self, process: str, *, as_json: bool = False) -> None:
        super().__init__()
        self._process, self._is_json = process, as_json

    def in_form(self, form: str) -> "_Lines":
        """The same formatter for another of FORMATS."""
        return _Lines(self._process, as_json=form == "json")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  (logging's name)
        at = datetime.fromtimestamp(record.created).astimezone()
        text = at.isoformat("T" if self._is_json else " ", "milliseconds")
        return text if self._is_json else text.replace(".", ",")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        process = f"{self._process}: " if self._process else ""
        return f"[{record.asctime}] {record.levelname} {process}{record.message} ({record.name})"

    def usesTime(self) -> bool:  # noqa: N802  (logging's name)
        return True

    def format(self, record: logging.LogRecord) -> str:
        if not self._is_json:
            return super().format(record)
        facts = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "process": self._process or "main",
            "message": record.getMessage(),
        }
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return json.dumps(facts)  # all of it ASCII: a name may be no UTF-8, or end a line


def log_to(stream: TextIO, *, process: str = "") -> None:
    """Send this process's log to a stream, at INFO and as text until `apply_log_settings`.

    Does nothing where the root logger has a handler already.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Lines(process))
    root.addHandler(handler)
    root.setLevel(logging.INFO)


@contextmanager
def also_logged_to(path: Path) -> Iterator[None]:
    """Send this process's log also to a file within the block, in the present form.

    The file is begun again when it would exceed `FILE_BYTES_MAX`, and the one before it is kept as
    `NAME.1`. An existing file is continued.
    """
    root = logging.getLogger()
    handler = RotatingFileHandler(
        path, maxBytes=FILE_BYTES_MAX, backupCount=1, encoding="utf-8", errors="backslashreplace"
    )
    handler.setFormatter(
        next((one.formatter for one in root.handlers if isinstance(one.formatter, _Lines)), None)
    )
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


class QuietStart(logging.Filter):
    """Keeps INFO lines of some packages from the present handlers, until `is_over` is called.

    A context, whose end calls `is_over`, also after an error: the handlers outlive the command.
    Warnings pass, and so do the lines of `progress`, which show how far a long start is.
    """

    def __init__(self, packages: Sequence[str], progress: Sequence[str]) -> None:
        super().__init__()
        self._packages, self._progress = tuple(packages), tuple(progress)
        for handler in logging.getLogger().handlers:
            handler.addFilter(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over()

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        name = record.name
        return (
            record.levelno != logging.INFO
            or not name.startswith(self._packages)
            or name.startswith(self._progress)
        )

    def is_over(self) -> None:
        """Remove the filter: all lines pass from now on."""
        for handler in logging.getLogger().handlers:
            handler.removeFilter(self)


def apply_log_settings(levels: Iterable[str], form: str) -> None:
    """Apply `tidemark.log.level` and `tidemark.log.format`, which were checked.

    Does nothing where the log belongs to another program: `log_to` was not called, or did nothing.

    Args:
        levels: `LEVEL` for all loggers, `PACKAGE=LEVEL` for those below a package.
        form: One of FORMATS.
    """
    ours = [
        (handler, handler.formatter)
        for handler in logging.getLogger().handlers
        if isinstance(handler.formatter, _Lines)
    ]
    if not ours:
        return
    for name in _SAY_SECRETS:
        logging.getLogger(name).setLevel(logging.INFO)
    for name, level in (parse_level(one) for one in levels):
        logging.getLogger(name).setLevel(level)
    for handler, lines in ours:
        handler.setFormatter(lines.in_form(form))


def parse_level(text: str) -> tuple[str, int]:
    """Read `LEVEL` or `PACKAGE=LEVEL`; returns the logger's name, empty for the root, and level.

    Raises:
        ValueError: it is neither; says what is allowed.
    """
    name, sign, level = text.rpartition("=")
    if level.strip().upper() not in LEVELS or bool(sign) is not bool(name.strip()):
        raise ValueError(
            f"{text!r}: must be LEVEL or PACKAGE=LEVEL, such as INFO,rlm.maintenance=DEBUG; "
            f"levels are {', '.join(LEVELS)}"
        )
    return name.strip(), LEVELS[level.strip().upper()]
