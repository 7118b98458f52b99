"""What may come of a damaged file, for every kind of file that a broker keeps, as data.

    python tests/support/damage/table.py        # the same as a table for docs/local-log.md

A row is a kind of file, a column what happened to it while the broker was down. Every cell lists
what a start may make of it; anything else is a defect. Nowhere may records be wrong, offsets be
given twice, or bytes of records be deleted.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Outcome(Enum):
    """What a client finds after a start."""

    WHOLE = "whole"  # every record from the log start to the end
    EARLIER = "earlier"  # the same, and records below the log start that are still there
    OFFLINE = "offline"  # error 56, 9 or 2, and /health names partition or directory
    EXIT = "exit"  # the broker ends with 1 and names the file
    CHECKSUM = "checksum"  # the batch comes with a checksum that the client finds wrong, or error 2
    UNTOLD = "unnoticed"  # records of the other partition: batches do not say whose they are


class Damage(Enum):
    """What happened to a file."""

    LOST = "lost"
    EMPTY = "empty"
    CUT = "cut"
    FLIPPED = "flipped"
    NEIGHBOUR = "neighbour's"
    OLD = "old"
    UNREADABLE = "unreadable"


class Scope(Enum):
    """Where a kind of file lies, which says whom its damage may touch."""

    PARTITION = "a partition"
    DIRECTORY = "a log directory"
    METADATA = "the metadata directory"
    TIER = "the tier's local state"


WHOLE, EARLIER, OFFLINE, EXIT, CHECKSUM, UNTOLD = Outcome
PLAIN, COPIED, TIERED = "plain", "copied", "tiered"
"""Topics: not tiered; tiered with all segments here, too; tiered with old segments only remote."""
HOLED, OTHER = "holed", "other"
"""Not tiered, with a hole that a person accepted; tiered, with segments about to be deleted."""
EVERY_TOPIC = frozenset({PLAIN, COPIED, TIERED})
CLEAN, KILLED = "clean", "killed"

Allowed = frozenset[Outcome]
_NOTHING = frozenset({WHOLE})
_OFFLINE = frozenset({OFFLINE})
_EITHER = frozenset({WHOLE, OFFLINE})
_EXIT = frozenset({EXIT})
_EXIT_OR_NOTHING = frozenset({WHOLE, EXIT})
_EARLIER = frozenset({WHOLE, EARLIER})
_DOUBTED = frozenset({WHOLE, EARLIER, OFFLINE})
_UNTOLD = frozenset({WHOLE, UNTOLD})
_OF_DIRECTORY = (Damage.LOST, Damage.EMPTY, Damage.NEIGHBOUR, Damage.OLD, Damage.UNREADABLE)
_SEGMENT = {"flipped": frozenset({OFFLINE, CHECKSUM}), "neighbour": frozenset({OFFLINE, UNTOLD})}
"""A segment whose first and last batch fit is not read whole at a start, as in Kafka."""


@dataclass(frozen=True)
class Row:
    """One kind of file.

    Attributes:
        kind: as a person names it.
        scope: where it lies.
        pattern: its name, or a glob, within that place.
        which: of several matches, sorted: the first (0), the last (-1).
        allowed: what may come of each damage.
        topics: partitions whose files these are; for a directory: whose outcome is described.
        says: what rebuilds it, or why nothing does.
        left_by: ends of a broker that leave such a file.
    """

    kind: str
    scope: Scope
    pattern: str
    allowed: Mapping[Damage, Allowed]
    says: str
    which: int = 0
    topics: frozenset[str] = EVERY_TOPIC
    left_by: frozenset[str] = frozenset({CLEAN, KILLED})


def _each(allowed: Allowed, **other: Allowed) -> dict[Damage, Allowed]:
    """The same for every damage, but for those that are named; unreadable may be a broken disk."""
    unreadable = allowed if EXIT in allowed else allowed | {OFFLINE}
    found = dict.fromkeys(Damage, allowed) | {Damage.UNREADABLE: unreadable}
    return found | {Damage[name.upper()]: value for name, value in other.items()}


TABLE: tuple[Row, ...] = (
    # ---------------------------------------------------------------- a partition's directory
    Row(
        "partition.metadata",
        Scope.PARTITION,
        "partition.metadata",
        _each(_NOTHING, neighbour=_EITHER),
        "written again from the metadata; an id of another topic proves nothing",
    ),
    Row(
        "epoch chain",
        Scope.PARTITION,
        "leader-epoch-checkpoint",
        _each(_NOTHING),
        "rebuilt from the batches, which are all here",
        topics=frozenset({PLAIN, COPIED}),
    ),
    Row(
        "epoch chain, old segments only remote",
        Scope.PARTITION,
        "leader-epoch-checkpoint",
        _each(_EITHER),
        "read again from the remote store, error 9 until then",
        topics=frozenset({TIERED}),
    ),
    Row(
        "closed segment",
        Scope.PARTITION,
        "*.log",
        _each(_OFFLINE, **_SEGMENT),
        "acknowledged records are gone: a person decides",
        topics=frozenset({PLAIN}),
    ),
    Row(
        "closed segment, copied",
        Scope.PARTITION,
        "*.log",
        _each(_EITHER, **_SEGMENT),
        "as above; a copy may serve",
        topics=frozenset({COPIED}),
    ),
    Row(
        "last segment",
        Scope.PARTITION,
        "*.log",
        _each(_OFFLINE, **_SEGMENT),
        "it ends below the recovery point",
        which=-1,
    ),
    Row(
        "offset index of a closed segment",
        Scope.PARTITION,
        "*.index",
        _each(_NOTHING),
        "rebuilt from the segment",
        topics=frozenset({PLAIN, COPIED}),
    ),
    Row(
        "time index of a closed segment",
        Scope.PARTITION,
        "*.timeindex",
        _each(_NOTHING),
        "rebuilt from the segment",
        topics=frozenset({PLAIN, COPIED}),
    ),
    Row(
        "offset index of the last segment",
        Scope.PARTITION,
        "*.index",
        _each(_NOTHING),
        "rebuilt from the segment",
        which=-1,
    ),
    Row(
        "time index of the last segment",
        Scope.PARTITION,
        "*.timeindex",
        _each(_NOTHING),
        "rebuilt from the segment",
        which=-1,
    ),
    Row(
        "index of aborted transactions",
        Scope.PARTITION,
        "*.txnindex",
        _each(_NOTHING, lost=_UNTOLD, empty=_UNTOLD, cut=_UNTOLD, old=_UNTOLD),
        "rebuilt from the segment",
        which=-1,
        topics=frozenset({PLAIN, COPIED}),
    ),
    Row(
        "producer snapshot",
        Scope.PARTITION,
        "*.snapshot",
        _each(_NOTHING),
        "an older one and the batches after it say the same",
        which=-1,
    ),
    Row(
        "checksums of a partition",
        Scope.PARTITION,
        "tidemark-checksums",
        _each(_NOTHING, neighbour=_EITHER, old=_EITHER),
        "accepted and written again",
    ),
    Row(
        "what a person accepted",
        Scope.PARTITION,
        "tidemark-accepted",
        _each(_OFFLINE, old=_EITHER),
        "accepts nothing: the hole is validated again",
        topics=frozenset({HOLED}),
    ),
    Row(
        "file about to be removed",
        Scope.PARTITION,
        "*.deleted",
        _each(_NOTHING),
        "removed at the start",
        which=-1,
        topics=frozenset({OTHER}),
        left_by=frozenset({KILLED}),
    ),
    Row(
        "partition directory",
        Scope.PARTITION,
        ".",
        dict.fromkeys(_OF_DIRECTORY, _OFFLINE),
        "assigned and missing, or of another partition: never made again",
    ),
    # ---------------------------------------------------------------- a log directory
    Row(
        "recovery points",
        Scope.DIRECTORY,
        "recovery-point-offset-checkpoint",
        _each(_NOTHING),
        "unknown: everything is read",
    ),
    Row(
        "high watermarks",
        Scope.DIRECTORY,
        "replication-offset-checkpoint",
        _each(_NOTHING),
        "one replica: the log's end",
    ),
    Row(
        "log starts",
        Scope.DIRECTORY,
        "log-start-offset-checkpoint",
        _each(_EARLIER),
        "the first segment's start; of a tiered log: what the tier knows, error 9 until then",
    ),
    Row(
        "clean mark",
        Scope.DIRECTORY,
        ".kafka_cleanshutdown",
        _each(_NOTHING),
        "logs are recovered as after a kill",
        left_by=frozenset({CLEAN}),
    ),
    Row(
        "meta.properties",
        Scope.DIRECTORY,
        "meta.properties",
        _each(_OFFLINE),
        "its owner cannot be known: it is offline, the others serve",
    ),
    Row("lock", Scope.DIRECTORY, ".lock", _each(_NOTHING), "made again"),
    Row(
        "bootstrap.checkpoint of a log directory",
        Scope.DIRECTORY,
        "bootstrap.checkpoint",
        _each(_NOTHING),
        "no start reads it there",
    ),
    Row(
        "checksums of a log directory",
        Scope.DIRECTORY,
        "tidemark-checksums",
        _each(_NOTHING, neighbour=_DOUBTED, old=_DOUBTED),
        "accepted and written again; one that contradicts the files makes them damaged",
    ),
    Row(
        "incarnations of a log directory",
        Scope.DIRECTORY,
        "tidemark-lives",
        _each(_OFFLINE, old=_EITHER, neighbour=_EITHER),
        "its time cannot be known: it is offline, the others serve",
    ),
    Row(
        "committed batch of a log directory",
        Scope.DIRECTORY,
        "tidemark-committed-metadata",
        _each(_NOTHING),
        "not compared with the leader's log; written again",
    ),
    Row(
        "directory of a deleted partition",
        Scope.DIRECTORY,
        "gone-*-delete",
        dict.fromkeys(_OF_DIRECTORY, _NOTHING) | {Damage.UNREADABLE: _EITHER},
        "removed at the start",
        left_by=frozenset({KILLED}),
    ),
    Row(
        "log directory",
        Scope.DIRECTORY,
        ".",
        dict.fromkeys(_OF_DIRECTORY, _OFFLINE) | {Damage.NEIGHBOUR: _EXIT},
        "it is offline, the others serve; twice the same: no start; "
        "a backup of one incarnation: unnoticed",
    ),
    # ---------------------------------------------------------------- the metadata directory
    Row(
        "meta.properties of the metadata directory",
        Scope.METADATA,
        "meta.properties",
        _each(_EXIT),
        "the owner of these metadata cannot be known",
    ),
    Row(
        "metadata log segment",
        Scope.METADATA,
        "__cluster_metadata-0/*.log",
        _each(_EXIT_OR_NOTHING),
        "the truth about the cluster: all of it or no start",
    ),
    Row(
        "quorum-state",
        Scope.METADATA,
        "__cluster_metadata-0/quorum-state",
        _each(_EXIT_OR_NOTHING),
        "a vote that was given must not be given again",
    ),
    Row(
        "indexes of the metadata log",
        Scope.METADATA,
        "__cluster_metadata-0/*index",
        _each(_NOTHING, unreadable=_EXIT_OR_NOTHING),
        "rebuilt from the segments",
        which=-1,
    ),
    Row(
        "epoch chain of the metadata log",
        Scope.METADATA,
        "__cluster_metadata-0/leader-epoch-checkpoint",
        _each(_NOTHING, unreadable=_EXIT_OR_NOTHING),
        "rebuilt from the batches",
    ),
    Row(
        "partition.metadata of the metadata log",
        Scope.METADATA,
        "__cluster_metadata-0/partition.metadata",
        _each(_NOTHING, unreadable=_EXIT_OR_NOTHING),
        "written again",
    ),
    Row(
        "flushed end of the metadata log",
        Scope.METADATA,
        "__cluster_metadata-0/tidemark-flushed-end",
        _each(_NOTHING, unreadable=_EXIT_OR_NOTHING),
        "written again",
    ),
    Row(
        "producer snapshot of the metadata log",
        Scope.METADATA,
        "__cluster_metadata-0/*.snapshot",
        _each(_NOTHING, unreadable=_EXIT_OR_NOTHING),
        "the metadata log has no producers",
        which=-1,
    ),
    Row(
        "metadata snapshot",
        Scope.METADATA,
        "__cluster_metadata-0/*.checkpoint",
        _each(_EXIT_OR_NOTHING),
        "an older one and the log after it say the same, else no start",
        which=-1,
    ),
    Row(
        "bootstrap.checkpoint",
        Scope.METADATA,
        "bootstrap.checkpoint",
        _each(_EXIT_OR_NOTHING),
        "read at the first start only",
    ),
    Row(
        "metadata log directory",
        Scope.METADATA,
        "__cluster_metadata-0",
        dict.fromkeys(_OF_DIRECTORY, _EXIT) | {Damage.OLD: _EXIT_OR_NOTHING},
        "the truth about the cluster; a backup taken within one incarnation is not noticed",
    ),
    # ---------------------------------------------------------------- the tier
    Row(
        "incarnation of the tier",
        Scope.TIER,
        "tier-incarnation",
        _each(
            _NOTHING, neighbour=_EITHER, old=_EITHER, unreadable=frozenset({WHOLE, OFFLINE, EXIT})
        ),
        "continues above the highest that was read; one below the store's claim is an older copy",
    ),
    Row(
        "lock of the tier",
        Scope.TIER,
        "tier.lock",
        _each(_NOTHING, unreadable=_EXIT_OR_NOTHING),
        "made again",
    ),
    Row(
        "tier's database",
        Scope.TIER,
        "remote-log-metadata/*",
        _each(_NOTHING, unreadable=_EXIT_OR_NOTHING),
        "rebuilt from the metadata topic",
    ),
    Row(
        "directory of the tier's database",
        Scope.TIER,
        "remote-log-metadata",
        dict.fromkeys(_OF_DIRECTORY, _NOTHING),
        "rebuilt from the metadata topic",
    ),
    Row(
        "directory of cached indexes",
        Scope.TIER,
        "remote-log-index-cache",
        dict.fromkeys(_OF_DIRECTORY, _NOTHING),
        "made again; goes without, unhealthy, where that fails",
    ),
    Row(
        "directory of cached chunks",
        Scope.TIER,
        "remote-log-chunk-cache",
        dict.fromkeys(_OF_DIRECTORY, _NOTHING),
        "made again; goes without, unhealthy, where that fails",
    ),
    Row(
        "cached indexes of remote segments",
        Scope.TIER,
        "remote-log-index-cache/*",
        _each(_NOTHING, unreadable=_EXIT_OR_NOTHING),
        "fetched again",
    ),
    Row(
        "cached chunks of remote segments",
        Scope.TIER,
        "remote-log-chunk-cache/*",
        _each(_NOTHING, unreadable=_EXIT_OR_NOTHING),
        "emptied at each start",
        left_by=frozenset({KILLED}),
    ),
)


def row_of(path: Path) -> Row | None:
    """The row that a file belongs to.

    Args:
        path: below a log directory.
    """
    place = path.parts[0]
    for row in TABLE:
        if row.scope is Scope.PARTITION and place != "__cluster_metadata-0":
            parts = path.parts[1:]
        else:
            parts = path.parts
        depth = row.pattern.count("/") + 1
        if row.pattern != "." and len(parts) == depth and Path(*parts).match(row.pattern):
            return row
    return None


def as_markdown() -> str:
    """The table, a line for each kind of file."""
    lines = ["| file | of | " + " | ".join(damage.value for damage in Damage) + " | why |"]
    lines.append("|---" * (len(Damage) + 3) + "|")
    for row in TABLE:
        cells = [
            " or ".join(one.value for one in Outcome if one in row.allowed[damage])
            if damage in row.allowed
            else "-"
            for damage in Damage
        ]
        lines.append(f"| {row.kind} | {row.scope.value} | {' | '.join(cells)} | {row.says} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
