"""The tier incarnation: second half of every fence, and never the same twice in a leader epoch.

A number is the highest of: the fsynced counter + 1, the wall clock's milliseconds, and what the
caller knows to be taken already (+ 1); it is fsynced before it is used. So a counter that is lost,
cut or damaged costs nothing while the clock is right. Where the clock is wrong, too, our records
are refused for the higher pair that was read, and the next number is above that one.

The file is `<number> <claimed> <CRC32C of all before the last space, 8 hex digits>` and a line end.
`claimed` is the highest number that these files have put into the store as their claim (`-`: not
judged yet, see `rlm.claim`). Earlier versions wrote `<number> <CRC32C>` or the number alone, and
kept it in the first log directory: the highest counts, and what they had taken counts as claimed.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from crc32c import crc32c

from runtime.clock import Clock
from runtime.disk import Disk

log = logging.getLogger(__name__)

FILE_NAME = "tier-incarnation"
NUMBER_MAX = 2**63 - 2
"""The remover's pair holds the one above (int64 in the records)."""

_FORM = re.compile(rb"(\d{1,19})(?: (\d{1,19}|-))?(?: ([0-9a-f]{8}))?\n")


class Counter(NamedTuple):
    """What the file says.

    Attributes:
        number: the highest that was taken; 0: none.
        claimed: a claim in the store above it is not of these files; None: nothing is known of it.
    """

    number: int
    claimed: int | None


NO_COUNTER = Counter(0, None)


def parse(content: bytes) -> Counter | None:
    """The counter in a file of this or an earlier version; None where it is damaged."""
    found = _FORM.fullmatch(content)
    if found is None:
        return None
    digits, claimed, crc = found.groups()
    if crc is None and claimed is not None:
        return None
    if crc is not None and int(crc, 16) != crc32c(content.rpartition(b" ")[0]):
        return None
    number = int(digits)
    known = None if claimed == b"-" else number if claimed is None else int(claimed)
    return Counter(number, known) if max(number, known or 0) <= NUMBER_MAX else None


def dump(counter: Counter) -> bytes:
    """The file that holds `counter`."""
    claimed = "-" if counter.claimed is None else str(counter.claimed)
    text = f"{counter.number} {claimed}".encode()
    return b"%s %08x\n" % (text, crc32c(text))


def read(disk: Disk, path: Path) -> Counter:
    """The counter of a file, `NO_COUNTER` where there is none that can be read."""
    try:
        content = disk.read_file(path)
    except FileNotFoundError:
        return NO_COUNTER
    except OSError as error:
        log.warning("the incarnation cannot be read, it goes on by the clock: %s", error)
        return NO_COUNTER
    counter = parse(content)
    if counter is None:
        log.error(
            "the tier's incarnation is damaged, it goes on by the clock: file=%s content=%r",
            path,
            content[:40],
        )
    return counter or NO_COUNTER


def highest(counters: Iterable[Counter]) -> Counter:
    """What several files say together."""
    known = list(counters)
    claimed = [counter.claimed for counter in known if counter.claimed is not None]
    return Counter(max(counter.number for counter in known), max(claimed, default=None))


class Incarnations:
    """Gives out incarnation numbers; from several threads."""

    def __init__(
        self, disk: Disk, state_dir: Path, clock: Clock, old_dirs: Iterable[Path] = ()
    ) -> None:
        """Nothing is read or written before it is asked.

        Args:
            disk: files.
            state_dir: where the counter lies, the directory of the metadata log.
            clock: its wall time is the least that is given out.
            old_dirs: where earlier versions may have left theirs.
        """
        self._disk, self._path, self._clock = disk, state_dir / FILE_NAME, clock
        self._old = [path / FILE_NAME for path in old_dirs if path != state_dir]
        self._lock = Lock()
        self._known: Counter | None = None

    @property
    def claimed(self) -> int | None:
        """The highest number that these files have claimed; None: nothing is known of it."""
        with self._lock:
            return self._counter().claimed

    def take(self, above: int = -1) -> int:
        """The next number, durably taken; also above `above`.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            return self._next(above, is_claim=False)

    def claim(self, above: int = -1) -> int:
        """As `take`, and noted as claimed: before it is written to the store.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            return self._next(above, is_claim=True)

    def _next(self, above: int, *, is_claim: bool) -> int:
        last = self._counter()
        number = max(last.number + 1, above + 1, self._clock.wall_ms())
        if number > NUMBER_MAX:
            raise OSError(f"no tier incarnation is left: {number} is above {NUMBER_MAX}")
        counter = Counter(number, number if is_claim else last.claimed)
        self._disk.atomic_write(self._path, dump(counter))
        self._known = counter
        return number

    def _counter(self) -> Counter:
        if self._known is None:
            self._known = highest(read(self._disk, path) for path in (self._path, *self._old))
        return self._known
