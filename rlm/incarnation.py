"""The tier incarnation: second half of every fence, and never the same twice in a leader epoch.

A number is the highest of: the fsynced counter + 1, the wall clock's milliseconds, and what the
caller knows to be taken already (+ 1); it is fsynced before it is used. So a counter that is lost,
cut or damaged costs nothing while the clock is right. Where the clock is wrong, too, our records
are refused for the higher pair that was read, and the next number is above that one.

The file is `<number> <seen> <claimed> <CRC32C of all before the last space, 8 hex digits>` and a
line end. `claimed` is the number that these files last put, or were about to put, into the store as
their claim (`-`: not judged yet, see `rlm.claim`), `seen` what lay there when they noted it (`-`:
nothing). Claims are not only rising but also unlike those of a copy of these files that begins at
the same number at the same time: dice add up to a second.

Earlier versions wrote `<number> <claimed> <CRC32C>`, `<number> <CRC32C>` or the number alone, and
kept it in the first log directory: the highest counts, and what they had claimed, or without that
taken, counts as seen, too.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from crc32c import crc32c

from runtime.clock import Clock
from runtime.dice import Dice
from runtime.disk import Disk

log = logging.getLogger(__name__)

FILE_NAME = "tier-incarnation"
NUMBER_MAX = 2**63 - 2
"""The remover's pair holds the one above (int64 in the records)."""

CLAIM_SPREAD = 1_000
"""So many numbers the dice choose a claim from."""

_NUMBER = re.compile(rb"\d{1,19}")
_CLAIM = re.compile(rb"\d{1,19}|-")
_CRC = re.compile(rb"[0-9a-f]{8}")


class Counter(NamedTuple):
    """What the file says.

    Attributes:
        number: the highest that was taken; 0: none.
        claimed: the last claim of these files, written to the store or about to be; None: nothing
            is known of it.
        seen: what lay in the store when `claimed` was noted; None: nothing did.
    """

    number: int
    claimed: int | None = None
    seen: int | None = None


NO_COUNTER = Counter(0)


def parse(content: bytes) -> Counter | None:
    """The counter in a file of this or an earlier version; None where it is damaged."""
    text, end = content[:-1], content[-1:]
    number, *claims = text.split(b" ")
    if end != b"\n" or len(claims) > 3 or not _NUMBER.fullmatch(number):
        return None
    if claims:
        crc = claims.pop()
        if not _CRC.fullmatch(crc) or int(crc, 16) != crc32c(text.rpartition(b" ")[0]):
            return None
    if not all(_CLAIM.fullmatch(claim) for claim in claims):
        return None
    known = [None if claim == b"-" else int(claim) for claim in claims or [number]]
    seen, claimed = known[0], known[-1]  # of an earlier version both are the only one
    highest_known = max(int(number), claimed or 0, seen or 0)
    return Counter(int(number), claimed, seen) if highest_known <= NUMBER_MAX else None


def dump(counter: Counter) -> bytes:
    """The file that holds `counter`."""
    claims = ("-" if one is None else str(one) for one in (counter.seen, counter.claimed))
    text = " ".join((str(counter.number), *claims)).encode()
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
    numbers, claimed, seen = zip(*counters, strict=True)
    return Counter(max(numbers), _highest(claimed), _highest(seen))


def _highest(claims: Iterable[int | None]) -> int | None:
    return max((claim for claim in claims if claim is not None), default=None)


class Incarnations:
    """Gives out incarnation numbers; from several threads."""

    def __init__(
        self,
        disk: Disk,
        state_dir: Path,
        clock: Clock,
        dice: Dice,
        old_dirs: Iterable[Path] = (),
    ) -> None:
        """Nothing is read or written before it is asked.

        Args:
            disk: files.
            state_dir: where the counter lies, the directory of the metadata log.
            clock: its wall time is the least that is given out.
            dice: make claims differ from those of a copy of these files.
            old_dirs: where earlier versions may have left theirs.
        """
        self._disk, self._path, self._clock = disk, state_dir / FILE_NAME, clock
        self._old = [path / FILE_NAME for path in old_dirs if path != state_dir]
        self._lock = Lock()
        self._dice = dice
        self._known: Counter | None = None
        self._unwritten: int | None = None

    @property
    def counter(self) -> Counter:
        """What the files say now."""
        with self._lock:
            return self._counter()

    def take(self, above: int = -1) -> int:
        """The next number, durably taken; also above `above`.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            number = self._next(above)
            self._write(self._counter()._replace(number=number))
            return number

    def claim(self, found: int | None) -> int:
        """The next claim, noted durably: before it is written to the store.

        One whose write did not end well is given out again: that write may still arrive, and what
        is in the store must be known here.

        Args:
            found: what lies in the store; None: nothing.

        Raises:
            OSError: it cannot be noted.
        """
        with self._lock:
            above = -1 if found is None else found
            if self._unwritten is None or self._unwritten <= above:
                number = self._next(above) + int(self._dice.random() * CLAIM_SPREAD)
                seen = _highest((found, self._counter().seen))
                self._write(Counter(number, number, seen))
                self._unwritten = number
            return self._unwritten

    def claim_written(self, number: int) -> None:
        """The store holds `number` now."""
        with self._lock:
            if self._unwritten == number:
                self._unwritten = None

    def _next(self, above: int) -> int:
        number = max(self._counter().number + 1, above + 1, self._clock.wall_ms())
        if number > NUMBER_MAX - CLAIM_SPREAD:
            raise OSError(f"no tier incarnation is left: {number} is near {NUMBER_MAX}")
        return number

    def _write(self, counter: Counter) -> None:
        self._disk.atomic_write(self._path, dump(counter))
        self._known = counter

    def _counter(self) -> Counter:
        if self._known is None:
            self._known = highest(read(self._disk, path) for path in (self._path, *self._old))
        return self._known
