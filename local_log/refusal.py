"""Facts for which a log is refused; they are shown, written down and compared. Pure.

No file can prove how a log lost records. So a log that contradicts the known facts stays unchanged
until an operator decides. The operator accepts exactly these facts: a start that finds another
fault refuses again.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum


class FaultKind(Enum):
    """Kind of a fault; the values are written to `tidemark-accepted`, so they never change."""

    ENDS_TOO_EARLY = "ends-too-early"
    EVERY_SEGMENT_LOST = "every-segment-lost"
    ENDS_BELOW_ITS_START = "ends-below-its-start"
    HOLE = "hole"
    DAMAGE = "damage"
    OVERLAP = "overlap"
    FIRST_SEGMENT_LOST = "first-segment-lost"


@dataclass(frozen=True, slots=True)
class Fault:
    """One contradiction between a log and the known facts.

    Attributes:
        file: Name inside the partition directory; empty if no segment is concerned.
        position: Byte of that file where the fault begins; 0 if it concerns offsets alone.
        offset: First offset (inclusive) that is lost or in doubt.
        limit: Offset (exclusive) that the log or segment should reach: the recovery point, the
            log start, or the base offset of the next segment.
    """

    kind: FaultKind
    file: str
    position: int
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class RefusalFacts:
    """All facts against opening a log; equal facts are the same validation.

    Attributes:
        faults: At least one, in the order in which the checks found them.
        log_start: From the checkpoint, None if it has none.
        log_end: End of the batches that were found (exclusive).
        recovery_point: None if it is unknown.
        flushed_end: Every offset below this (exclusive) was flushed, as far as is known. It is the
            recovery point. A higher high watermark counts too after a clean stop, or if the
            recovery point is unknown. A manager that refused the log keeps this value as the
            recovery point, so that later starts find the same facts.
    """

    faults: tuple[Fault, ...]
    log_start: int | None
    log_end: int
    recovery_point: int | None
    flushed_end: int

    def to_json(self) -> dict[str, object]:
        """Return the facts as JSON values."""
        values = asdict(self)
        values["faults"] = [{**asdict(fault), "kind": fault.kind.value} for fault in self.faults]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> "RefusalFacts":
        """Read values of `to_json`.

        Raises:
            ValueError: A value is missing or has another type.
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
    """Return a description of the fault, for the log and the CLI."""
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
