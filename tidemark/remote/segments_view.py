"""`tidemark remote segments` as text for people and as JSON for programs.

Keys of the JSON are listed in docs/operations.md and stay; new ones may come.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kafka_protocol.wire.primitives import uuid_to_text
from rsm_plugins.segment import RemoteLogSegmentMetadata, SegmentState
from tidemark.remote import axis
from tidemark.remote.partition_report import PartitionReport

LINES_SHOWN = 20
"""Segments and problems of a partition that are shown without `--all`."""

_WIDTH_WITHOUT_TERMINAL = 120
_LABEL = 8
_GAP = 2
_WIDTH_OF_WIDE_GAPS = 100
_STATES = {
    SegmentState.COPY_SEGMENT_STARTED: ("copying", "yellow"),
    SegmentState.COPY_SEGMENT_FINISHED: ("finished", ""),
    SegmentState.DELETE_SEGMENT_STARTED: ("deleting", "yellow"),
    SegmentState.DELETE_SEGMENT_FINISHED: ("deleted", "dim"),
}


@dataclass(frozen=True, slots=True)
class TopicReport:
    """The lines about one topic."""

    topic: str
    topic_id: bytes
    cluster_id: str
    is_tiered: bool
    partitions: Sequence[PartitionReport]


def make_console(*, stderr: bool = False) -> Console:
    """A console with the terminal's width and colours, or plain text of a fixed width."""
    console = Console(stderr=stderr, highlight=False)
    if console.is_terminal:
        return console
    return Console(
        stderr=stderr,
        highlight=False,
        width=_WIDTH_WITHOUT_TERMINAL,
        color_system=None,
        force_terminal=False,
    )


def ink_for(console: Console) -> axis.Ink:
    """Block characters where the output can hold them."""
    return axis.UNICODE if console.encoding.startswith("utf") else axis.ASCII


def as_text(
    found: TopicReport, *, now_ms: int, width: int, ink: axis.Ink, everything: bool
) -> Group:
    """All of it, ready to print.

    Args:
        found: what was read.
        now_ms: for the ages.
        width: columns at hand.
        ink: what to draw with.
        everything: no segment is excluded.
    """
    tiered = "" if found.is_tiered else "  (not tiered: remote.storage.enable is false)"
    parts: list[RenderableType] = [
        Text(f"{found.topic}  id {uuid_to_text(found.topic_id)}{tiered}", style="bold")
    ]
    for one in found.partitions:
        parts += [Text(""), *_partition(found.topic, one, now_ms, width, ink, everything)]
    if len(found.partitions) > 1:
        count = sum(one.finished_count for one in found.partitions)
        size = sum(one.finished_bytes for one in found.partitions)
        problems = sum(len(one.problems) for one in found.partitions)
        total = f"all partitions: {count_text(count, 'segment')} finished, {size_text(size)}"
        parts += [Text(""), Text(f"{total}, {count_text(problems, 'problem')}", style="bold")]
    return Group(*parts)


def as_json(found: TopicReport, *, now_ms: int) -> dict[str, Any]:
    """All of it, for programs."""
    return {
        "cluster_id": found.cluster_id,
        "topic": found.topic,
        "topic_id": uuid_to_text(found.topic_id),
        "tiered": found.is_tiered,
        "partitions": [_partition_json(one, now_ms) for one in found.partitions],
    }


def size_text(size_bytes: int) -> str:
    """A size as people say it: three digits and a unit."""
    value, units = float(size_bytes), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while value >= (1024 if unit == "B" else 999.5) and unit != "TiB":  # 999.5 is printed 1e+03
        value, unit = value / 1024, next(units)
    return f"{size_bytes:,} B" if unit == "B" else f"{value:.3g} {unit}"


def age_text(age_ms: int) -> str:
    """An age in its two largest units."""
    seconds = max(0, age_ms) // 1_000
    for unit, length, below, shorter in (("d", 86_400, 3_600, "h"), ("h", 3_600, 60, "m")):
        if seconds >= length:
            return f"{seconds // length}{unit}{seconds % length // below}{shorter}"
    return f"{seconds // 60}m{seconds % 60}s" if seconds >= 60 else f"{seconds}s"


def _partition(
    topic: str, found: PartitionReport, now_ms: int, width: int, ink: axis.Ink, everything: bool
) -> Iterator[RenderableType]:
    span = found.axis
    is_empty = span.end == span.first
    range_text = f"offsets {span.first:,} to {span.end - 1:,}"
    if found.offsets is None:
        range_text = "no leader answers for it now: only the remote tier is known"
    elif is_empty:
        range_text = f"empty, log end {span.end:,}"
    yield Text(f"{topic}-{found.partition}  {range_text}", style="bold")
    if not is_empty:
        yield from _drawing(found, width, ink)
    excluded = 0 if everything else max(0, len(found.segments) - LINES_SHOWN)
    if found.segments:
        yield _table(found.segments, now_ms, width, excluded)
    under_way = len(found.segments) - found.finished_count
    more = f", {under_way:,} being copied or deleted" if under_way else ""
    count, size = count_text(found.finished_count, "segment"), size_text(found.finished_bytes)
    hidden = f"; {excluded:,} are not shown, --all shows them" if excluded else ""
    total = f"{count} finished, {size}{more}{hidden}"
    yield Text(total if found.segments else "nothing in the remote tier")
    shown = found.problems if everything else found.problems[:LINES_SHOWN]
    for problem in shown:
        yield Text(f"! {problem.text}", style="red")
    if len(shown) < len(found.problems):
        left = len(found.problems) - len(shown)
        yield Text(f"! and {count_text(left, 'problem')} more (--all shows them)", style="red")


def _drawing(found: PartitionReport, width: int, ink: axis.Ink) -> Iterator[Text]:
    columns = max(20, width - _LABEL - 4)
    span, offsets = found.axis, found.offsets
    above, below, legend = [], [], []
    if offsets is not None:
        above.append((offsets.log_start, "S"))
        legend.append(f"S log start {offsets.log_start:,}")
        if offsets.highest_tiered is None:
            legend.append("highest tiered not known")
        elif offsets.highest_tiered >= 0:
            above.append((offsets.highest_tiered, "T"))
            legend.append(f"T highest tiered {offsets.highest_tiered:,}")
        below = [(offsets.local_log_start, "L"), (offsets.log_end - 1, "E")]
        legend.append(f"L local log start {offsets.local_log_start:,}")
        legend.append(f"E log end {offsets.log_end:,}")
    indent = " " * _LABEL
    letters, pointers = axis.ruler(above, span, columns, ink.down)
    if above:
        yield Text(indent + letters, style="dim")
        yield Text(indent + pointers, style="dim")
    yield Text.assemble("remote  ", (axis.bar(found.remote, span, columns, ink), "cyan"))
    if offsets is not None:
        yield Text.assemble("local   ", (axis.bar(found.local, span, columns, ink), "green"))
        letters, pointers = axis.ruler(below, span, columns, ink.up)
        yield Text(indent + pointers, style="dim")
        yield Text(indent + letters, style="dim")
        for line in _filled(legend, columns):
            yield Text(indent + line, style="dim")
    yield Text(f"{indent}{ink.whole} all offsets   {ink.part} some   {ink.none} none", style="dim")


def _filled(items: Sequence[str], columns: int) -> Iterator[str]:
    """Items beside one another, on as many lines as they need; none is broken."""
    line = ""
    for item in items:
        longer = f"{line}   {item}" if line else item
        if line and len(longer) > columns:
            yield line
            longer = item
        line = longer
    if line:
        yield line


def _table(
    segments: Sequence[RemoteLogSegmentMetadata], now_ms: int, width: int, excluded: int
) -> RenderableType:
    """Where the terminal is narrow, columns move together, and at last the ids are folded."""
    gap = _GAP if width >= _WIDTH_OF_WIDE_GAPS else 1
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    for name in ("base", "end", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("epochs", overflow="fold", min_width=len("epochs"))
    table.add_column("state", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("segment id", overflow="fold", min_width=len("segment id"))
    table.add_column("broker", justify="right", no_wrap=True)
    head = (len(segments) - excluded + 1) // 2 if excluded else len(segments)
    for one in segments[:head]:
        table.add_row(*_row(one, now_ms))
    if excluded:
        table.add_row("...", f"{excluded:,} more")
        for one in segments[head + excluded :]:
            table.add_row(*_row(one, now_ms))
    return table


def _row(one: RemoteLogSegmentMetadata, now_ms: int) -> list[RenderableType]:
    state, style = _STATES[one.state]
    return [
        f"{one.start_offset:,}",
        f"{one.end_offset:,}",
        size_text(one.segment_size_bytes),
        _epochs_text(one),
        Text(state, style=style),
        age_text(now_ms - one.event_timestamp_ms),
        uuid_to_text(one.id.id),
        str(one.broker_id),
    ]


def _epochs_text(one: RemoteLogSegmentMetadata) -> str:
    epochs = [entry.epoch for entry in one.leader_epochs]
    if len(epochs) > 3:
        return f"{epochs[0]}..{epochs[-1]} ({len(epochs)})"
    return ",".join(map(str, epochs))


def _partition_json(found: PartitionReport, now_ms: int) -> dict[str, Any]:
    offsets = found.offsets
    return {
        "partition": found.partition,
        "log_start_offset": None if offsets is None else offsets.log_start,
        "local_log_start_offset": None if offsets is None else offsets.local_log_start,
        "highest_tiered_offset": None if offsets is None else offsets.highest_tiered,
        "log_end_offset": None if offsets is None else offsets.log_end,
        "finished_segments": found.finished_count,
        "finished_bytes": found.finished_bytes,
        "remote_ranges": [[one.first, one.end] for one in found.remote],
        "segments": [
            {
                "segment_id": uuid_to_text(one.id.id),
                "start_offset": one.start_offset,
                "end_offset": one.end_offset,
                "size_bytes": one.segment_size_bytes,
                "state": one.state.name,
                "leader_epochs": [[entry.epoch, entry.start_offset] for entry in one.leader_epochs],
                "max_timestamp_ms": one.max_timestamp_ms,
                "event_timestamp_ms": one.event_timestamp_ms,
                "age_ms": now_ms - one.event_timestamp_ms,
                "broker_id": one.broker_id,
                "on_chain": None
                if one.id.id not in found.placements
                else found.placements[one.id.id].value,
                "custom_metadata": None
                if one.custom_metadata is None
                else one.custom_metadata.hex(),
            }
            for one in found.segments
        ],
        "problems": [
            {
                "kind": one.kind,
                "first_offset": one.first,
                "last_offset": one.last,
                "text": one.text,
            }
            for one in found.problems
        ],
    }


def count_text(number: int, what: str) -> str:
    """A number of things: one segment, two segments."""
    return f"{number:,} {what}" + "s" * (number != 1)
