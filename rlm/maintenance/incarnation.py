"""The tier incarnation: second half of every fence, and never the same twice in a leader epoch.

A number is the highest of: the fsynced counter + 1, the wall clock's milliseconds, and what the
caller knows to be taken already (+ 1); it is fsynced before it is used. So a counter that is lost,
cut or damaged costs nothing while the clock is right. Where the clock is wrong, too, our records
are refused for the higher pair that was read, and the next number is above that one.

The file is `<number> <claims> <CRC32C of all before the last space, 8 hex digits>` and a line end.
`claims` are the numbers that the store may hold as the claim of these files, rising, with commas
between them (`-`: not validated yet, see `rlm.maintenance.claim`). A random part of up to a second
is added to each, so that it is unlike that of a copy of these files which notes one at the same
time.
"""

import logging
import re
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from crc32c import crc32c

from kafka_protocol.errors import TidemarkError
from runtime.clock import Clock
from runtime.disk import Disk
from runtime.rng import Rng

log = logging.getLogger(__name__)

FILE_NAME = "tier-incarnation"
NUMBER_MAX = 2**63 - 2
"""The remover's pair holds the one above (int64 in the records)."""

CLAIMS_MAX = 16
"""In the file. A write of a claim does not come about after fourteen later ones were tried."""

WRITTEN = 1
"""As the floor of the claims. No claim is that low: each is at least the clock's milliseconds."""

CLAIM_SPREAD = 1_000
"""So many numbers the rng chooses a claim from."""

_FORM = re.compile(rb"((\d{1,19}) (\d{1,19}(?:,\d{1,19})*|-)) ([0-9a-f]{8})\n")

_OLDER = re.compile(rb"(\d{1,19})(?: ([0-9a-f]{8}))?\n")
"""Of unreleased versions: only the number, with its checksum or without."""


class OlderFormError(TidemarkError):
    """The file is whole and of a form that is not read any more; names file and remedy."""


class Counter(NamedTuple):
    """What the file says.

    Attributes:
        number: the highest that was taken; 0: none.
        claimed: the last number noted for the store; None: nothing is known of a claim.
        before: what the store may hold instead, rising. First the floor: the highest claim that was
            found when these files noted one (0: none, `WRITTEN`: none, and one was written since).
            Then what was noted since and perhaps never written.
    """

    number: int
    claimed: int | None
    before: tuple[int, ...] = ()

    @property
    def was_there(self) -> bool:
        """Whether the store is known to have held a claim of this broker: found, or written."""
        return self.before[:1] > (0,)

    def noted(self, number: int, found: int | None) -> "Counter":
        """With `number` noted as the next claim, where the store holds `found`.

        The floor never falls: an early claim may land late, and after it one between it and later
        ones that were found, of which nothing is known any more.
        """
        floor = max(found or 0, *self.before[:1], 0)
        known = self.before if self.claimed is None else (*self.before, self.claimed)
        unwritten = [each for each in known if each > floor]
        return Counter(number, number, (floor, *unwritten[-(CLAIMS_MAX - 2) :]))

    def written(self) -> "Counter":
        """With the store's word that it holds a claim; a floor that was found says so already.

        The floor does not rise to the number: a claim of another machine between the one found and
        this number may land late, and is none of these files.
        """
        return self._replace(before=(max(*self.before[:1], WRITTEN), *self.before[1:]))


NO_COUNTER = Counter(0, None)


def parse(content: bytes) -> Counter | None:
    """The counter in a file; None where it is damaged."""
    found = _FORM.fullmatch(content)
    if found is None or int(found[4], 16) != crc32c(found[1]):
        return None
    number, claims = int(found[2]), found[3]
    if claims == b"-":
        counter = Counter(number, None)
    else:
        *before, last = (int(each) for each in claims.split(b","))
        counter = Counter(number, last, tuple(before))
    return counter if max(number, counter.claimed or 0) <= NUMBER_MAX else None


def dump(counter: Counter) -> bytes:
    """The file that holds `counter`."""
    known = () if counter.claimed is None else (*counter.before, counter.claimed)
    text = f"{counter.number} {','.join(map(str, known)) or '-'}".encode()
    return b"%s %08x\n" % (text, crc32c(text))


def read(disk: Disk, path: Path) -> Counter:
    """The counter of a file, `NO_COUNTER` where there is none that can be read.

    Raises:
        OlderFormError: it says a number, and nothing of the claim on the store.
    """
    try:
        content = disk.read_file(path)
    except FileNotFoundError:
        return NO_COUNTER
    except OSError as error:
        log.warning("the incarnation cannot be read, it continues by the clock: %s", error)
        return NO_COUNTER
    counter = parse(content)
    older = _OLDER.fullmatch(content)
    if older is not None and (older[2] is None or int(older[2], 16) == crc32c(older[1])):
        raise OlderFormError(
            f"{path} is of a version before 0.1.0 and does not say whether the claim on the remote "
            "store is that of these directories: put the directories of the newest start back, or, "
            "if these are the newest and no other machine writes to this store, remove the file"
        )
    if counter is None:
        log.error(
            "the tier's incarnation is damaged, it continues by the clock: file=%s content=%r",
            path,
            content[:40],
        )
    return counter or NO_COUNTER


def check_forms(disk: Disk, state_dir: Path, first_dir: Path) -> None:
    """Make sure that nothing is passed by which unreleased versions have written.

    They kept the file in the first log directory.

    Raises:
        OlderFormError: the file is of an older form, or lies there and not in `state_dir`.
    """
    path, older = state_dir / FILE_NAME, first_dir / FILE_NAME
    read(disk, path)
    try:
        is_older = not disk.exists(path) and disk.exists(older)
    except OSError:  # of a disk that fails; a start may continue without the first directory
        return
    if is_older:
        raise OlderFormError(
            f"{older} is where versions before 0.1.0 kept the tier's incarnation, and {path} is not"
            " there: put the directories of the newest start back, or, if these are the newest and "
            "no other machine writes to this store, remove the file"
        )


class Incarnations:
    """Gives out incarnation numbers; from several threads."""

    def __init__(self, disk: Disk, state_dir: Path, clock: Clock, rng: Rng) -> None:
        """Nothing is read or written before it is asked.

        Args:
            disk: files.
            state_dir: where the counter lies, the directory of the metadata log.
            clock: its wall time is the least that is given out.
            rng: make claims differ from those of a copy of these files.
        """
        self._disk, self._path, self._clock = disk, state_dir / FILE_NAME, clock
        self._lock, self._rng = Lock(), rng
        self._known: Counter | None = None

    @property
    def counter(self) -> Counter:
        """What the file says."""
        with self._lock:
            return self._counter()

    def take(self, above: int = -1) -> int:
        """The next number, durably taken; also above `above`.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            last = self._counter()
            return self._keep(last._replace(number=self._next(last, above)))

    def claim(self, found: int | None) -> int:
        """As `take`, above the claim found, and noted as claimed: before it is written there.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            last = self._counter()
            number = self._next(last, -1 if found is None else found, CLAIM_SPREAD)
            return self._keep(last.noted(number, found))

    def written(self) -> None:
        """Note that the store holds a claim; durable when it returns, once in the file's life.

        Raises:
            OSError: it cannot be written.
        """
        with self._lock:
            last = self._counter()
            if not last.was_there:
                self._keep(last.written())

    def _next(self, last: Counter, above: int, spread: int = 0) -> int:
        number = max(last.number + 1, above + 1, self._clock.wall_ms())
        number += int(self._rng.random() * spread)
        if number > NUMBER_MAX:
            raise OSError(f"no tier incarnation is left: {number} is above {NUMBER_MAX}")
        return number

    def _keep(self, counter: Counter) -> int:
        self._disk.atomic_write(self._path, dump(counter))
        self._known = counter
        return counter.number

    def _counter(self) -> Counter:
        if self._known is None:
            self._known = read(self._disk, self._path)
        return self._known
