"""Why a log was not opened: facts that can be shown, written down and compared. Pure.

What is missing, empty, old or contradictory proves nothing, so a log that contradicts what is known
of it is left as it is until a person has looked. That person accepts these facts and no others: a
start that finds a fault that was not accepted refuses again.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum


class FaultKind(Enum):
    """The fault that refuses the log; the values are written to `tidemark-accepted`."""

    ENDS_TOO_EARLY = "ends-too-early"
    EVERY_SEGMENT_LOST = "every-segment-lost"
    ENDS_BELOW_ITS_START = "ends-below-its-start"
    HOLE = "hole"
    DAMAGE = "damage"
    OVERLAP = "overlap"
    FIRST_SEGMENT_LOST = "first-segment-lost"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that contradicts what is known of a log.

    Attributes:
        file: name inside the partition directory.
        position: byte in that file where it begins; 0 where it is about offsets alone.
        offset: first offset (inclusive) that is lost or in doubt.
        limit: the offset that it should reach to (exclusive): the recovery point, the log start,
            or where the next segment begins.
    """

    kind: FaultKind
    file: str
    position: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class RefusalFacts:
    """Everything that speaks against opening a log; equal facts are the same validation.

    Attributes:
        faults: at least one, in the order of their offsets.
        log_start: from the checkpoint, None if it has none.
        recovery_point: None if it is unknown.
        flushed_end: below this (exclusive) all was flushed, as far as is known: the recovery point
            and, after a clean stop, the high watermark. A manager that refused the log keeps this
            as its recovery point, so that later starts come to the same validation.
    """

    faults: tuple[Fault, ...]
    log_start: int | None
    log_end: int
    recovery_point: int | None
    flushed_end: int

    def to_json(self) -> dict[str, object]:
        """The facts as JSON values."""
        values = asdict(self)
        values["faults"] = [{**asdict(fault), "kind": fault.kind.value} for fault in self.faults]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "RefusalFacts":
        """Read what `to_json` made.

        Raises:
            ValueError: it is something else.
        """
        try:
            faults = values["faults"]
            assert isinstance(faults, list)
            return cls(
                tuple(Fault(**{**one, "kind": FaultKind(one["kind"])}) for one in faults),
                log_start=_offset_or_none(values["log_start"]),
                log_end=_offset(values["log_end"]),
                recovery_point=_offset_or_none(values["recovery_point"]),
                flushed_end=_offset(values["flushed_end"]),
            )
        except (AssertionError, KeyError, TypeError) as error:
            raise ValueError(f"no validation of a log: {error!r}") from error


def describe(fault: Fault) -> str:
    """The fault, in words for people."""
    file, offset, limit = fault.file or "every segment", fault.offset, fault.limit
    match fault.kind:
        case FaultKind.ENDS_TOO_EARLY:
            return f"the log ends at offset {offset}, but was flushed up to {limit} ({file})"
        case FaultKind.EVERY_SEGMENT_LOST:
            return f"no segment is there, and how far the log reached from {offset} is not known"
        case FaultKind.ENDS_BELOW_ITS_START:
            return f"the log ends at offset {offset}, below its log start {limit}"
        case FaultKind.HOLE:
            return f"offsets {offset} to {limit - 1} are missing before {file}"
        case FaultKind.DAMAGE:
            return (
                f"{file} is damaged at byte {fault.position}: offsets {offset} to "
                f"{max(offset, limit - 1)} are in doubt"
            )
        case FaultKind.OVERLAP:
            return (
                f"{file} reaches at byte {fault.position} into the segment that begins at offset "
                f"{limit}"
            )
        case FaultKind.FIRST_SEGMENT_LOST:
            return f"the log starts at offset {offset}, but its first segment is {file}"


def _offset(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no offset")
    return value


def _offset_or_none(value: object) -> int | None:
    return None if value is None else _offset(value)
