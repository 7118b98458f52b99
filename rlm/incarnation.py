"""The tier incarnation: second half of every fence, and never the same twice in a leader epoch.

A number is the highest of: the fsynced counter + 1, the wall clock's milliseconds, and what the
caller knows to be taken already (+ 1); it is fsynced before it is used. So a counter that is lost,
cut or damaged costs nothing while the clock is right. Where the clock is wrong, too, our records
are refused for the higher pair that was read, and the next number is above that one.

The file is `<number> <CRC32C of the number's digits, 8 hex digits>` and a line end.
Earlier versions wrote the number alone, and kept it in the first log directory: the highest counts.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from crc32c import crc32c

from runtime.clock import Clock
from runtime.disk import Disk

log = logging.getLogger(__name__)

FILE_NAME = "tier-incarnation"
NUMBER_MAX = 2**63 - 2
"""The remover's pair holds the one above (int64 in the records)."""

_FORM = re.compile(rb"(\d{1,19})(?: ([0-9a-f]{8}))?\n")


def parse(content: bytes) -> int | None:
    """The number in a file of this or an earlier version; None where it is damaged."""
    found = _FORM.fullmatch(content)
    if found is None:
        return None
    digits, crc = found.groups()
    if crc is not None and int(crc, 16) != crc32c(digits):
        return None
    return int(digits) if int(digits) <= NUMBER_MAX else None


def dump(number: int) -> bytes:
    """The file that holds `number`."""
    digits = b"%d" % number
    return b"%s %08x\n" % (digits, crc32c(digits))


class Incarnations:
    """Gives out incarnation numbers."""

    def __init__(
        self, disk: Disk, state_dir: Path, clock: Clock, old_dirs: Iterable[Path] = ()
    ) -> None:
        """Nothing is read or written before the first `take`.

        Args:
            disk: files.
            state_dir: where the counter lies, the directory of the metadata log.
            clock: its wall time is the least that is given out.
            old_dirs: where earlier versions may have left theirs.
        """
        self._disk, self._path, self._clock = disk, state_dir / FILE_NAME, clock
        self._old = [path / FILE_NAME for path in old_dirs if path != state_dir]
        self._lock = Lock()
        self._last: int | None = None

    def take(self, above: int = -1) -> int:
        """The next number, durably taken; also above `above`.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            if self._last is None:
                self._last = max(map(self._read, (self._path, *self._old)))
            number = max(self._last + 1, above + 1, self._clock.wall_ms())
            if number > NUMBER_MAX:
                raise OSError(f"no tier incarnation is left: {number} is above {NUMBER_MAX}")
            self._disk.atomic_write(self._path, dump(number))
            self._last = number
            return number

    def _read(self, path: Path) -> int:
        """The counter, 0 where there is none to read: then the clock and the topic decide."""
        try:
            content = self._disk.read_file(path)
        except FileNotFoundError:
            return 0
        except OSError as error:
            log.warning("the incarnation cannot be read, it goes on by the clock: %s", error)
            return 0
        number = parse(content)
        if number is None:
            log.error(
                "the tier's incarnation is damaged, it goes on by the clock: file=%s content=%r",
                path,
                content[:40],
            )
            return 0
        return number
