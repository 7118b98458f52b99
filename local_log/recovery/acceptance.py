"""`tidemark-accepted`: what a person accepted of a log, and the holes that are known to be right.

One JSON line, then its CRC32C. Holes, `sparse` and the adopted epoch are remembered for as long as
the log lives; an accepted validation only until a start that finds nothing wrong, an adopted end
until one that finds the log there. A damaged file counts as missing: then nothing is accepted, and
a log that needs it is refused again.
"""

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c

from kafka_protocol.types import EpochEntry
from local_log.refusal import Fault, RefusalFacts
from runtime.disk import Disk

log = logging.getLogger(__name__)

ACCEPTED: Final = "tidemark-accepted"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Adopted:
    """An end above the log's own: offsets below it were given, as the remote tier proves.

    Attributes:
        begin: where the log begins again, its segments set aside: what they hold is remote. None:
            its segments stay.
        end: where the log is to end (exclusive); what is between is a gap.
        chain: the epoch chain up to there.
    """

    begin: int | None
    end: int
    chain: tuple[EpochEntry, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What is remembered.

    Attributes:
        validation: what a person looked at and took as it is; None if there is nothing.
        holes: (first, end) of ranges of offsets that are missing, end exclusive.
        is_sparse: offsets may be missing anywhere: a cleaner worked here, or on the leader's log.
        adopted: what `tidemark remote adopt` ordered, until it is done.
        adopted_epoch: the highest leader epoch that was used before it; -1 if there was none.
    """

    validation: RefusalFacts | None = None
    holes: tuple[tuple[int, int], ...] = ()
    is_sparse: bool = False
    adopted: Adopted | None = None
    adopted_epoch: int = -1

    def covers(self, faults: tuple[Fault, ...]) -> bool:
        """Whether a person accepted every one of these faults."""
        known = () if self.validation is None else self.validation.faults
        return set(faults) <= set(known)

    def knows_hole(self, first: int, end: int) -> bool:
        """Whether it was accepted that [first, end) is missing."""
        return any(low <= first and end <= high for low, high in self.holes)

    def with_holes(self, holes: tuple[tuple[int, int], ...]) -> "Accepted":
        """The same, with more holes."""
        return replace(self, holes=tuple(sorted({*self.holes, *holes})))


NOTHING: Final = Accepted()


def dump(accepted: Accepted) -> bytes:
    """Write the file."""
    validation = accepted.validation
    content: dict[str, object] = {
        "version": _VERSION,
        "judgement": None if validation is None else validation.to_json(),
        "holes": [list(hole) for hole in accepted.holes],
        "sparse": accepted.is_sparse,
    }
    if accepted.adopted is not None:
        adopted = accepted.adopted
        content["adopted"] = {
            "begin": adopted.begin,
            "end": adopted.end,
            "chain": adopted.chain,
        }
    if accepted.adopted_epoch >= 0:
        content["adoptedEpoch"] = accepted.adopted_epoch
    line = json.dumps(content).encode()
    return line + b"\n%08x\n" % crc32c(line)


def parse(data: bytes) -> Accepted:
    """Read the file.

    Raises:
        ValueError: cut, changed, or of another version.
    """
    line, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % crc32c(line):
        raise ValueError("its checksum is wrong")
    values = json.loads(line)
    if values["version"] != _VERSION:
        raise ValueError(f"version {values['version']}")
    validation = values["judgement"]
    return Accepted(
        None if validation is None else RefusalFacts.from_json(validation),
        tuple((int(first), int(end)) for first, end in values["holes"]),
        bool(values["sparse"]),
        _adopted(values.get("adopted")),
        int(values.get("adoptedEpoch", -1)),
    )


def _adopted(values: dict[str, Any] | None) -> Adopted | None:
    if values is None:
        return None
    begin = values["begin"]
    return Adopted(
        None if begin is None else int(begin),
        int(values["end"]),
        tuple(EpochEntry(int(epoch), int(start)) for epoch, start in values["chain"]),
    )


def read_accepted(disk: Disk, directory: Path) -> Accepted:
    """What is remembered of the log in `directory`.

    Raises:
        OSError: the disk failed.
    """
    path = directory / ACCEPTED
    try:
        return parse(disk.read_file(path))
    except FileNotFoundError:
        return NOTHING
    except (ValueError, KeyError, TypeError) as error:
        log.error("file is damaged, nothing counts as accepted: path=%s reason=%s", path, error)  # noqa: TRY400
        return NOTHING


def write_accepted(disk: Disk, directory: Path, accepted: Accepted) -> None:
    """Remember it; returns when that survives a power cut.

    Raises:
        OSError: the disk failed.
    """
    disk.atomic_write(directory / ACCEPTED, dump(accepted))


def note_sparse(disk: Disk, directory: Path) -> None:
    """Remember that offsets may be missing anywhere; returns when that survives a power cut.

    Raises:
        OSError: the disk failed.
    """
    accepted = read_accepted(disk, directory)
    if not accepted.is_sparse:
        write_accepted(disk, directory, replace(accepted, is_sparse=True))
