"""`tidemark-accepted`: faults of a log that an operator accepted, and its valid holes.

The file is one JSON line, then its CRC32C. Holes, `sparse` and the adopted epoch stay as long as
the log exists. An accepted validation stays until a start finds no fault, an adopted end until a
start finds that the log has reached it. A damaged file counts as missing: then nothing is accepted,
and a log that needs it is refused again.
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
from runtime.incidents import Incident

log = logging.getLogger(__name__)

ACCEPTED: Final = "tidemark-accepted"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Adopted:
    """A log end above the batches: offsets below it were given out, as the remote tier proves.

    Attributes:
        begin: Offset at which the log restarts, with its segments set aside, because their records
            are remote. None: its segments stay.
        end: The log end (exclusive); offsets without batches below it are a gap.
        chain: The epoch chain up to there.
    """

    begin: int | None
    end: int
    chain: tuple[EpochEntry, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """Content of the file.

    Attributes:
        validation: Faults that an operator accepted; None without any.
        holes: (first, end) of ranges of missing offsets, end exclusive.
        is_sparse: Offsets may be missing anywhere: this log, or the leader's, was cleaned.
        adopted: Order of `tidemark remote adopt`, until it is executed.
        adopted_epoch: Highest leader epoch that was used before it; -1 for none.
    """

    validation: RefusalFacts | None = None
    holes: tuple[tuple[int, int], ...] = ()
    is_sparse: bool = False
    adopted: Adopted | None = None
    adopted_epoch: int = -1

    def covers(self, faults: tuple[Fault, ...]) -> bool:
        """True if an operator accepted every one of these faults."""
        known = () if self.validation is None else self.validation.faults
        return set(faults) <= set(known)

    def knows_hole(self, first: int, end: int) -> bool:
        """True if the absence of [first, end) was accepted."""
        return any(low <= first and end <= high for low, high in self.holes)

    def with_holes(self, holes: tuple[tuple[int, int], ...]) -> "Accepted":
        """Return a copy with more holes."""
        return replace(self, holes=tuple(sorted({*self.holes, *holes})))


NOTHING: Final = Accepted()


def dump(accepted: Accepted) -> bytes:
    """Encode the file."""
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
    """Decode the file.

    Raises:
        ValueError: Cut, changed, or of another version.
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
    """Read the file of the log in `directory`.

    Raises:
        OSError: The disk failed.
    """
    path = directory / ACCEPTED
    try:
        return parse(disk.read_file(path))
    except FileNotFoundError:
        return NOTHING
    except (ValueError, KeyError, TypeError) as error:
        log.error(Incident.ACCEPTED_DAMAGED.line(path=path, error=str(error)))  # noqa: TRY400
        return NOTHING


def write_accepted(disk: Disk, directory: Path, accepted: Accepted) -> None:
    """Write the file; durable on return.

    Raises:
        OSError: The disk failed.
    """
    disk.atomic_write(directory / ACCEPTED, dump(accepted))


def note_sparse(disk: Disk, directory: Path) -> None:
    """Write that offsets may be missing anywhere; durable on return.

    Raises:
        OSError: The disk failed.
    """
    accepted = read_accepted(disk, directory)
    if not accepted.is_sparse:
        write_accepted(disk, directory, replace(accepted, is_sparse=True))
