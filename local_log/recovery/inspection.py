"""Inspection of a log for an operator, and its acceptance.

An inspection changes nothing and needs no lock. An acceptance writes only `tidemark-accepted`. A
broker reads it when it opens the log, so the next start with the same faults opens it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kafka_protocol.types import TopicPartition
from local_log.file_names import DELETED, LOG, segment_file
from local_log.recovery.acceptance import write_accepted
from local_log.recovery.set_aside import is_cut_name
from local_log.recovery.survey import OpenRequest, Surveyor
from local_log.recovery.verdict import LogSurvey, Open, Refused, SegmentSurvey, validate
from local_log.refusal import Fault, FaultKind, describe
from local_log.segment.reading import Ending
from local_log.small_files import PlainFiles, SmallFiles
from runtime.disk import Disk


@dataclass(frozen=True, slots=True)
class Inspection:
    """Result of inspecting one partition directory.

    Attributes:
        set_aside: (name, bytes) of files that earlier starts cut and kept.
        deleted: Names of files that wait for their removal and may be renamed back.
    """

    partition: TopicPartition
    request: OpenRequest
    survey: LogSurvey
    verdict: Open | Refused
    set_aside: tuple[tuple[str, int], ...]
    deleted: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """True if a start would refuse this log."""
        return isinstance(self.verdict, Refused)

    @property
    def plan(self) -> Open:
        """Actions of a start, now or once the log is accepted."""
        verdict = self.verdict
        return verdict.if_accepted if isinstance(verdict, Refused) else verdict


def inspect(disk: Disk, request: OpenRequest, files: SmallFiles | None = None) -> Inspection:
    """Inspect a log as the next start will see it; nothing is changed.

    Args:
        disk: Of the log.
        request: Facts that the next start will have.
        files: For the small files of the directory; None: read without checks.

    Raises:
        OSError: The directory cannot be read.
    """
    directory = request.directory
    found = Surveyor(disk, request, files or PlainFiles(disk, directory)).look()
    return Inspection(
        request.topic_partition,
        request,
        found.survey,
        validate(found.survey),
        tuple((name, disk.size(directory / name)) for name in found.names if is_cut_name(name)),
        tuple(name for name in found.names if name.endswith(DELETED)),
    )


def accept(disk: Disk, inspection: Inspection) -> None:
    """Accept a refused log: the next start that finds exactly these faults opens it.

    Raises:
        OSError: The file could not be written; nothing is accepted.
    """
    verdict = inspection.verdict
    assert isinstance(verdict, Refused)
    accepted = replace(inspection.survey.accepted, validation=verdict.facts)
    write_accepted(disk, inspection.request.directory, accepted)


# -- output ----------------------------------------------------------------------------------------


def report(inspection: Inspection) -> list[str]:
    """Lines for people: the content, the faults, and the actions of a start."""
    survey = inspection.survey
    topic, partition = inspection.partition
    lines = [f"{topic}-{partition} in {inspection.request.directory}", *_marks(survey)]
    lines += [f"  {_segment_line(segment)}" for segment in survey.segments] or ["  no segments"]
    for name, size in inspection.set_aside:
        lines.append(f"  {name}  {size} bytes, set aside by an earlier start")
    for name in inspection.deleted:
        lines.append(f"  {name}  waits for its removal")
    for first, end in survey.accepted.holes:
        lines.append(f"  offsets {first} to {end - 1} are missing, which was accepted")
    verdict = inspection.verdict
    if isinstance(verdict, Refused):
        lines.append("refused:")
        lines += [f"  {describe(fault)}" for fault in verdict.facts.faults]
        lines.append("once accepted, the next start")
    else:
        if verdict.accepted:
            lines.append("accepted:")
            lines += [f"  {describe(fault)}" for fault in verdict.accepted]
        lines.append("nothing is refused; the next start")
    return [*lines, *(f"  {line}" for line in consequences(inspection.plan))]


def as_json(inspection: Inspection) -> dict[str, object]:
    """Return the same for programs; `end` of offsets is exclusive.

    `faults` are refused or accepted ones; `next_start` has the actions of a start, now or once the
    log is accepted.
    """
    survey, verdict = inspection.survey, inspection.verdict
    faults = verdict.facts.faults if isinstance(verdict, Refused) else verdict.accepted
    chain = survey.chain
    return {
        "topic": inspection.partition.topic,
        "partition": inspection.partition.partition,
        "directory": str(inspection.request.directory),
        "is_refused": inspection.is_refused,
        "faults": [describe(fault) for fault in faults],
        "next_start": [*consequences(inspection.plan)],
        "log_start_offset": survey.log_start,
        "recovery_point": survey.recovery_point,
        "high_watermark": survey.high_watermark,
        "was_stopped_clean": survey.is_clean,
        "leader_epochs": None
        if chain is None
        else [{"epoch": epoch, "start_offset": offset} for epoch, offset in chain],
        "segments": [
            {
                "base_offset": one.base_offset,
                "end_offset": one.end_offset,
                "size_bytes": one.size_bytes,
                "whole_bytes": one.whole_bytes,
                "ending": one.ending.name.lower(),
                "was_read": one.was_read,
            }
            for one in survey.segments
        ],
        "set_aside": [{"file": name, "size_bytes": size} for name, size in inspection.set_aside],
        "deleted": list(inspection.deleted),
    }


def _marks(survey: LogSurvey) -> Iterator[str]:
    def shown(offset: int | None) -> str:
        return "unknown" if offset is None else str(offset)

    stop = "clean" if survey.is_clean else "not clean (or the broker runs)"
    yield (
        f"  log start {shown(survey.log_start)}, recovery point {shown(survey.recovery_point)}, "
        f"high watermark {survey.high_watermark}; the last stop was {stop}"
    )
    if survey.chain is None:
        yield f"  epoch chain: {survey.chain_problem}"
    else:
        chain = ", ".join(f"epoch {epoch} from {offset}" for epoch, offset in survey.chain)
        yield f"  epoch chain: {chain or 'no entries'}"


def _segment_line(segment: SegmentSurvey) -> str:
    first, end = segment.base_offset, segment.end_offset
    offsets = f"offsets {first} to {end - 1}" if end > first else "no records"
    line = f"{segment_file(first, LOG)}  {segment.size_bytes} bytes, {offsets}"
    if segment.ending is not Ending.WHOLE:
        line += f", then from byte {segment.whole_bytes} on {segment.ending.value}"
    return line if segment.was_read else f"{line} (first and last batch looked at)"


def consequences(plan: Open) -> Iterator[str]:
    """Lines for people: effects of opening the log by this plan."""
    for base_offset in plan.aside:
        yield f"sets {segment_file(base_offset, LOG)} aside whole"
    for cut in plan.cuts:
        kept = "keeps the rest beside it" if cut.keeps else "drops an incomplete batch"
        yield f"cuts {segment_file(cut.base_offset, LOG)} at byte {cut.position} and {kept}"
    for first, end in plan.holes:
        yield f"remembers that offsets {first} to {end - 1} are missing"
    if plan.chain is None:
        yield "makes the epoch chain from the batches that are here"
    if plan.adopts:
        yield f"ends the log at offset {plan.log_end}, as was adopted"
    for fault in plan.accepted:
        yield from _given_up(fault)
    yield f"opens the log from offset {plan.log_start} to {plan.log_end}"


def _given_up(fault: Fault) -> Iterator[str]:
    offset, limit = fault.offset, fault.limit
    match fault.kind:
        case FaultKind.EVERY_SEGMENT_LOST:
            yield f"gives up all records: new ones begin at offset {offset}"
        case FaultKind.ENDS_TOO_EARLY | FaultKind.ENDS_BELOW_ITS_START:
            yield f"gives up offsets {offset} to {limit - 1}: new records come after them"
        case FaultKind.FIRST_SEGMENT_LOST:
            yield f"raises the log start over offsets {offset} to {limit - 1}"
        case FaultKind.HOLE | FaultKind.DAMAGE | FaultKind.OVERLAP:
            pass
