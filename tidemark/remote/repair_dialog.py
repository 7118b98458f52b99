"""`--repair` as a conversation: shows each orphan, asks, deletes, says what became of it."""

from dataclasses import dataclass, field
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from rsm_plugins.api import RemoteStorageManager
from tidemark.remote import repair
from tidemark.remote.audit import Finding, Kind
from tidemark.remote.audit_run import Audit, lister_of
from tidemark.remote.audit_view import as_json, line
from tidemark.remote.metadata_reader import MetadataReader
from tidemark.remote.segments_view import count_text, size_text


@dataclass(slots=True)
class RepairResult:
    """What became of the orphans.

    Attributes:
        refused: why nothing was touched, None where something might have been.
        kept: orphans that stay, with the reason.
    """

    refused: str | None = None
    deleted: list[Finding] = field(default_factory=list)
    kept: list[tuple[Finding, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "refused": self.refused,
            "deleted": [as_json(one) for one in self.deleted],
            "kept": [{**as_json(one), "reason": reason} for one, reason in self.kept],
        }


def run_repair(
    storage: RemoteStorageManager,
    metadata: MetadataReader,
    audit: Audit,
    *,
    copy_max_ms: int,
    ask: bool,
    console: Console | None,
) -> RepairResult:
    """Delete what may go.

    Args:
        storage: the plugin.
        metadata: of the audit.
        audit: whose findings were shown.
        copy_max_ms: the longest copy.
        ask: before anything is deleted.
        console: where it is shown; None: nowhere.

    Raises:
        ClusterError, RemoteStorageError: it was not carried through.
    """
    result, lister = RepairResult(), lister_of(storage)
    if not audit.totals.findings[Kind.ORPHAN]:
        return result
    try:
        repair.check_trust(audit.totals)
    except repair.RepairRefusedError as error:
        result.refused = str(error)
        _say(console, Text(f"nothing is deleted: {error}", style="bold red"))
        return result
    assert lister is not None, "orphans come out of a listing"
    now_ms = repair.store_now_ms(storage, lister)
    sorted_out = repair.sort_out(audit.findings(), now_ms, copy_max_ms)
    result.kept = sorted_out.kept
    for one, reason in sorted_out.kept:
        _say(console, line(one).append(f"\n          stays: {reason}"))
    for one in sorted_out.removable:
        _say(console, line(one).append("\n          can be deleted"))
    if not sorted_out.removable or (ask and not _agreed(sorted_out.removable)):
        result.kept += [(one, "not agreed to") for one in sorted_out.removable]
        return result
    metadata.read_to_end(_no_bar)
    for one, obstacle in repair.delete(storage, lister, metadata, sorted_out.removable):
        if obstacle is None:
            result.deleted.append(one)
        else:
            result.kept.append((one, obstacle))
            _say(console, line(one).append(f"\n          stays: {obstacle}", style="red"))
    size = size_text(sum(one.size_bytes for one in result.deleted))
    _say(
        console, Text(f"deleted {count_text(len(result.deleted), 'orphan')}, {size}", style="bold")
    )
    return result


def _agreed(removable: list[Finding]) -> bool:
    objects = count_text(sum(len(one.keys) for one in removable), "object")
    size = size_text(sum(one.size_bytes for one in removable))
    what = f"Delete {objects} of {count_text(len(removable), 'segment')}, {size}?"
    return click.confirm(what, default=False, err=True)


def _say(console: Console | None, text: Text) -> None:
    if console is not None:
        console.print(text, soft_wrap=True)


def _no_bar(done: int, total: int | None) -> None:
    """Progress nobody waits for."""
