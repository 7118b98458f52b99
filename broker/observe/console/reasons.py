"""How a node is, for the page: reasons, and what to do where they do not say it. Pure.

Reasons of the tier and of lost partitions carry their own way out, which knows more than a table.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.observe.console.state import REASON_MAX, shown

REASONS_MAX: Final = 50
_SAYS_IT: Final = "Way out:"

_LOG: Final = "the log of this node has the cause"
_MACHINE: Final = "see that the processes of the other nodes run and that this node reaches them"

REMEDIES: Final[Mapping[str, str]] = {
    "compaction": f"{_LOG}; a partition that cannot be cleaned grows until its log can be read",
    "controller": f"{_LOG}; where the disk of metadata.log.dir is full, make room there",
    "disk": "make room on the disk, or end the outage of the remote store",
    "features": "run `tidemark features upgrade` when all nodes have this version",
    "followers": _MACHINE,
    "groups": f"{_LOG}; other brokers serve these groups where __consumer_offsets has replicas",
    "groups-data": f"{_LOG}; where offsets are missing, set them with the client's own tools",
    "kafka-controllers": "let a controller of Tidemark lead the quorum",
    "logs": "`tidemark directories list` says which partitions are there; mend the disk, then "
    "restart this broker",
    "membership": _MACHINE,
    "metadata": "restart this node; where it ends again, its log names the file",
    "partitions": "the reason of each partition names the directory; bring it back, or see "
    "`tidemark directories`",
    "put-aside": "look whether the directories are wanted; remove them when they are not",
    "quorum": "start the other voters, or see that this node reaches them",
    "registration": "restart this broker while a controller of Tidemark leads",
    "remote-metadata": "start as many brokers as __remote_log_metadata has replicas",
    "replicas": "start the brokers that have the other replicas",
    "snapshots": "make room on the disk of metadata.log.dir",
    "tier": "where a reason names no way out, the log of this broker has the cause",
}
"""By the name of the part in the health report."""


def health(report: Mapping[str, Any]) -> dict[str, Any]:
    """Make the part of the value that says how the node is, of `Health.report`."""
    parts: Mapping[str, str] = report["parts"]
    reasons: Sequence[str] = report["reasons"]
    return {
        "status": report["status"],
        "stage": shown(report["stage"]),
        "reasons": [_reason(line, parts) for line in reasons[:REASONS_MAX]],
        "more_reasons": max(len(reasons) - REASONS_MAX, 0),
        "notes": [shown(line, REASON_MAX) for line in report["notes"][:REASONS_MAX]],
        "parts": dict(parts),
    }


def _reason(line: str, parts: Mapping[str, str]) -> dict[str, str]:
    part, _, text = line.partition(": ")
    return {
        "part": part,
        "status": parts.get(part, "red"),
        "text": shown(text, REASON_MAX),
        "remedy": "" if _SAYS_IT in text else REMEDIES.get(part, ""),
    }
