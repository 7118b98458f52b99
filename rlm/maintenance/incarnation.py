"""The tier incarnation: second half of every fence, never used twice in a leader epoch.

A number is the highest of: the fsynced counter + 1, the wall clock's milliseconds, and 1 above the
highest number that the caller knows to be taken. It is fsynced before it is used. So a counter that
is lost, cut or damaged costs nothing while the clock is right. If the clock is wrong too, our
records are refused because of a higher fence, and the next number is above that one.

The file is `<number> <claims> <CRC32C of all before the last space, 8 hex
digits>` and a line end. `claims` are the numbers that the store may have as the claim of these
files, ascending, with commas between them. `-` means not validated yet, see
`rlm.maintenance.claim`. Each has a random part of up to a second. So a copy of these files does not
note the same number at the same time.
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
"""The remover's fence has the number above it (int64 in the records)."""

CLAIMS_MAX = 16
"""Bound of the claims in the file. A delayed write of a claim cannot land after fourteen later
ones."""

WRITTEN = 1
"""A floor of claims below any claim: each claim is at least the clock's milliseconds."""

CLAIM_SPREAD = 1_000
"""Range of the random part of a claim."""

_FORM = re.compile(rb"((\d{1,19}) (\d{1,19}(?:,\d{1,19})*|-)) ([0-9a-f]{8})\n")

_OLDER = re.compile(rb"(\d{1,19})(?: ([0-9a-f]{8}))?\n")
"""Format of unreleased versions: only the number, with its checksum or without."""


class OlderFormError(TidemarkError):
    """The file is intact and of an older format; the message names file and remedy."""


class Counter(NamedTuple):
    """Content of the file.

    Attributes:
        number: The highest that was taken; 0: none.
        claimed: The last number noted for the store; None: no claim is known.
        before: Numbers that the store may hold instead, ascending. The first is the floor: the
            highest claim that was found when these files noted one (0: none, `WRITTEN`: none, and
            one was written since). The others were noted since, and perhaps never written.
    """

    number: int
    claimed: int | None
    before: tuple[int, ...] = ()

    @property
    def was_there(self) -> bool:
        """True if the store is known to have held a claim of this broker: found, or written."""
        return self.before[:1] > (0,)

    def noted(self, number: int, found: int | None) -> "Counter":
        """With `number` noted as the next claim, where the store holds `found`.

        The floor never falls. An early claim may land late, after claims between it and later ones
        were found and forgotten here.
        """
        floor = max(found or 0, *self.before[:1], 0)
        known = self.before if self.claimed is None else (*self.before, self.claimed)
        unwritten = [each for each in known if each > floor]
        return Counter(number, number, (floor, *unwritten[-(CLAIMS_MAX - 2) :]))

    def written(self) -> "Counter":
        """With proof that the store holds a claim; a floor that was found is such proof already.

        The floor does not rise to the number. A claim of another machine between the found one and
        this number may land late, and does not belong to these files.
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
        OlderFormError: It says a number, and nothing of the claim on the store.
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
        log.warning(
            "the tier's incarnation is damaged, it continues by the clock: file=%s content=%r",
            path,
            content[:40],
        )
    return counter or NO_COUNTER


def check_forms(disk: Disk, state_dir: Path, first_dir: Path) -> None:
    """Refuse files of unreleased versions, which kept them in the first log directory.

    They kept the file in the first log directory.

    Raises:
        OlderFormError: The file is of an older form, or lies there and not in `state_dir`.
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
    """Assigns incarnation numbers; from any thread."""

    def __init__(self, disk: Disk, state_dir: Path, clock: Clock, rng: Rng) -> None:
        """Read and write nothing before the first call.

        Args:
            disk: Files.
            state_dir: Directory of the counter, that of the metadata log.
            clock: Its wall time is a lower bound of each number.
            rng: Makes claims differ from those of a copy of these files.
        """
        self._disk, self._path, self._clock = disk, state_dir / FILE_NAME, clock
        self._lock, self._rng = Lock(), rng
        self._known: Counter | None = None

    @property
    def counter(self) -> Counter:
        """Content of the file."""
        with self._lock:
            return self._counter()

    def take(self, above: int = -1) -> int:
        """The next number, above `above`, durably taken.

        Raises:
            OSError: The file cannot be written.
        """
        with self._lock:
            last = self._counter()
            return self._keep(last._replace(number=self._next(last, above)))

    def claim(self, found: int | None) -> int:
        """The next number, above the found claim, noted as claimed before it is written there.

        Raises:
            OSError: It cannot be written.
        """
        with self._lock:
            last = self._counter()
            number = self._next(last, -1 if found is None else found, CLAIM_SPREAD)
            return self._keep(last.noted(number, found))

    def written(self) -> None:
        """Note durably that the store holds a claim; the file is written at most once for that.

        Raises:
            OSError: The file cannot be written.
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
