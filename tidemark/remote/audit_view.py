"""An audit as text for people and as JSON for programs.

Keys of the JSON are listed in docs/operations.md and stay; new ones may come. Findings are written
one by one, for there may be as many as the store has objects.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.text import Text

from kafka_protocol.wire.primitives import uuid_to_text
from tidemark.remote.audit import Finding, Kind
from tidemark.remote.audit_brokers import NOBODY, BrokerAudit
from tidemark.remote.audit_run import Totals
from tidemark.remote.orphans import Deletion
from tidemark.remote.segments_view import age_text, count_text, size_text

FINDINGS_SHOWN = 50
"""Findings of one kind that are shown without `--all`."""

_STYLES = {
    Kind.MISSING: "bold red",
    Kind.SHORT: "bold red",
    Kind.CORRUPT: "bold red",
    Kind.DUPLICATE: "yellow",
    Kind.DANGLING: "yellow",
    Kind.ORPHAN: "yellow",
    Kind.FOREIGN: "dim",
}


def print_findings(console: Console, found: Iterable[Finding], *, everything: bool) -> None:
    """Print findings as they come."""
    shown = dict.fromkeys(Kind, 0)
    for one in found:
        shown[one.kind] += 1
        if everything or shown[one.kind] <= FINDINGS_SHOWN:
            console.print(line(one), soft_wrap=True)
    for kind, count in shown.items():
        if not everything and count > FINDINGS_SHOWN:
            left = count - FINDINGS_SHOWN
            console.print(Text(f"... and {left:,} more {kind.value} (--all shows them)"))


def line(one: Finding) -> Text:
    """One finding in a line or two."""
    text = Text.assemble(
        (f"{one.kind.value:<10}", _STYLES[one.kind]), f"{place(one)}: {one.detail}"
    )
    for key in one.keys:
        text.append(f"\n{'':<10}{key}", style="dim")
    return text


def place(one: Finding) -> str:
    """Which segment it is about."""
    if one.partition is None or one.segment_id is None:
        return size_text(one.size_bytes)
    where = f"from offset {one.start_offset:,}"
    if one.end_offset is not None:
        where = f"offsets {one.start_offset:,} to {one.end_offset:,}"
    name = f"{one.partition.topic}-{one.partition.partition}"
    return f"{name} {where}, segment {uuid_to_text(one.segment_id)}"


def print_brokers(console: Console, brokers: Iterable[BrokerAudit]) -> None:
    """Print a line for each broker, and one for what none of them leads, if anything is left."""
    for one in brokers:
        led = one.led
        if one.node_id == NOBODY and not led.finished and not led.findings:
            continue
        who = f"broker {one.node_id} ({one.address or 'not there'}) leads"
        if one.node_id == NOBODY:
            who = "no broker leads"
        text = Text.assemble(
            f"{who} {count_text(led.partitions, 'partition')}: "
            f"{count_text(led.finished, 'finished segment')}, {size_text(led.finished_bytes)}, "
            f"{count_text(led.findings, 'finding')}"
        )
        if one.claim is not None:
            text.append(f"; claim {one.claim}")
        elif one.no_claim:
            text.append(f"; {one.no_claim}", style="bold yellow")
        console.print(text, soft_wrap=True)


def print_totals(console: Console, totals: Totals, *, deep: bool, took_ms: int) -> None:
    """Print what was looked at, what could not be, and the sum of it."""
    console.print(
        f"{count_text(totals.partitions, 'partition')}, {count_text(totals.segments, 'segment')}"
        " in the metadata"
        f" ({totals.finished:,} finished)"
    )
    if not totals.metadata_is_whole:
        text = (
            "the metadata topic was not read whole: it has lost its first records, or holds some"
            " that cannot be understood; what is called an orphan may be none"
        )
        console.print(Text(text, style="bold red"))
    if totals.listed:
        size = size_text(totals.objects_bytes)
        console.print(f"{count_text(totals.objects, 'object')} in the store, {size}")
    else:
        console.print(
            "the plugin cannot list its store, or keeps a layout of its own: orphan, short and"
            " foreign were not looked for"
        )
    how = (
        "logs and indexes were read back and every batch was checked"
        if deep
        else "sizes and manifests were checked, logs were not read (--deep reads them)"
    )
    console.print(f"{how}: {size_text(totals.read_bytes)} in {age_text(took_ms)}")
    if totals.in_motion:
        count = count_text(totals.in_motion, "segment")
        console.print(f"copied or deleted meanwhile, and not validated: {count}")
    for reason in totals.unchecked:
        console.print(Text(f"not read back: {reason}", style="red"), soft_wrap=True)
    if totals.unchecked_count:
        text = f"could not be read back: {count_text(totals.unchecked_count, 'segment')}"
        console.print(Text(text, style="bold red"))
    counts = [f"{n:,} {kind.value}" for kind, n in totals.findings.items() if n]
    if counts:
        console.print(Text("findings: " + ", ".join(counts), style="bold"))
    else:
        console.print(Text("no findings", style="bold green"))


def print_json(
    echo: Callable[[str], object],
    found: Iterable[Finding],
    totals: Totals,
    *,
    deep: bool,
    brokers: Callable[[], Iterable[BrokerAudit]],
    delete: Callable[[], Deletion | None],
) -> Deletion | None:
    """Print one JSON document, findings as they come.

    Args:
        echo: prints text without a line end of its own.
        found: findings; `totals` are right when they have been asked for.
        totals: of the same audit.
        deep: how it was checked.
        brokers: called after the findings.
        delete: called after the findings; what it says goes into the document, too.

    Returns:
        What `delete` said.
    """
    echo('{\n "findings": [')
    comma = ""
    for one in found:
        echo(f"{comma}\n  {json.dumps(as_json(one))}")
        comma = ","
    rest: dict[str, Any] = {"brokers": [_broker_json(one) for one in brokers()]}
    rest |= _summary(totals, deep)
    deletion = delete()
    if deletion is not None:
        rest["deletion"] = {
            "refused": deletion.refused,
            "deleted": [as_json(one) for one in deletion.deleted],
            "kept": [{**as_json(one), "reason": reason} for one, reason in deletion.kept],
        }
    echo("\n ],\n" + json.dumps(rest, indent=1)[2:] + "\n")
    return deletion


def print_deleting(console: Console, one: Finding) -> None:
    """Print an orphan that is deleted next: a run that breaks off has told what it touched."""
    console.print(Text(f"deleting  {place(one)}"), soft_wrap=True)


def print_deletion(console: Console, deletion: Deletion) -> None:
    """Print what became of the orphans."""
    if deletion.refused is not None:
        text = f"nothing is deleted: {deletion.refused}"
        console.print(Text(text, style="bold red"), soft_wrap=True)
        return
    for one, reason in deletion.kept:
        console.print(line(one).append(f"\n          stays: {reason}"), soft_wrap=True)
    size = size_text(sum(one.size_bytes for one in deletion.deleted))
    count = count_text(len(deletion.deleted), "orphan")
    console.print(Text(f"deleted {count}, {size}", style="bold"))


def as_json(one: Finding) -> dict[str, Any]:
    """One finding for programs."""
    place = one.partition
    return {
        "kind": one.kind.value,
        "topic": None if place is None else place.topic,
        "topic_id": None if place is None else uuid_to_text(place.topic_id),
        "partition": None if place is None else place.partition,
        "segment_id": None if one.segment_id is None else uuid_to_text(one.segment_id),
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        "keys": list(one.keys),
        "size_bytes": one.size_bytes,
        "modified_ms": one.modified_ms,
        "detail": one.detail,
    }


def _broker_json(one: BrokerAudit) -> dict[str, Any]:
    return {
        "broker": None if one.node_id == NOBODY else one.node_id,
        "address": one.address or None,
        "partitions": one.led.partitions,
        "finished_segments": one.led.finished,
        "finished_bytes": one.led.finished_bytes,
        "findings": one.led.findings,
        "claim": one.claim,
    }


def _summary(totals: Totals, deep: bool) -> dict[str, Any]:
    return {
        "summary": {
            "partitions": totals.partitions,
            "segments": totals.segments,
            "finished_segments": totals.finished,
            "objects": totals.objects if totals.listed else None,
            "objects_bytes": totals.objects_bytes if totals.listed else None,
            "store_listed": totals.listed,
            "metadata_whole": totals.metadata_is_whole,
            "deep": deep,
            "read_bytes": totals.read_bytes,
            "in_motion": totals.in_motion,
            "not_read_back": totals.unchecked_count,
            "not_read_back_reasons": totals.unchecked,
            "findings": {kind.value: count for kind, count in totals.findings.items()},
        }
    }
