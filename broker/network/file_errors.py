"""Files that could not be read while an answer was sent from them.

The client's connection ends with the answer half sent, so it is the broker that must say what is
wrong: the file by its name at ERROR, once a file; a metric, each time; and whoever owns the file
hears of it, to take its directory offline as a failing read does elsewhere.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from runtime.disk_errors import is_of_exhaustion
from runtime.metrics import Registry

log = logging.getLogger(__name__)

NAMED_MAX = 1_000

OnFailure = Callable[[Path, OSError], None]


def _nobody(path: Path, error: OSError) -> None:
    """Nobody owns the files."""


class ReadFailures:
    """Counts and says them.

    Attributes:
        on_failure: called on the loop with the file and why it cannot be read; not where the
            process has merely used up descriptors or memory.
    """

    def __init__(self, metrics: Registry) -> None:
        self.on_failure: OnFailure = _nobody
        self._named: set[str] = set()
        self._count = metrics.counter(
            "tidemark_file_read_failures_total",
            "Answers that broke off because a file could not be read.",
        )

    def note(self, path: Path | str, error: OSError) -> None:
        """A file could not be read."""
        self._count.inc()
        if is_of_exhaustion(log, f"file {path}", error):
            return
        if str(path) not in self._named and len(self._named) < NAMED_MAX:
            self._named.add(str(path))
            log.error("file cannot be read: path=%s error=%s", path, error)
        self.on_failure(Path(path), error)
