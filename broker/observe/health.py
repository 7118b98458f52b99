"""Is this node well, and may clients be sent to it? Both with reasons.

Three pages answer three different callers. `/health` is for whoever restarts dead processes: as
long as the event loop turns it answers 200, and its JSON says green, yellow or red. It does not
turn into 503 when the tier is unhealthy, because a restart would not repair a remote store.
`/ready` is for load balancers and scripts: 200 from the moment clients are served until shutdown
begins, else 503; of a node that is only a controller 200 while it knows a leader and has applied
what is committed.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from broker.observe.http import JSON, HttpAnswer, Route
from broker.observe.metrics import MetricsPage
from kafka_protocol.types import TopicPartition
from local_log.manager.log_dir import LogDir

GREEN: Final = "green"
YELLOW: Final = "yellow"
RED: Final = "red"
_SHOWN_MAX: Final = 100
_SAYS_IT: Final = "Remedy:"
"""Reasons of the tier and of lost partitions carry their own remedy, which knows more."""

_LOG: Final = "the log of this node has the cause"
_MACHINE: Final = "see that the processes of the other nodes run and that this node reaches them"

REMEDIES: Final[Mapping[str, str]] = {
    "compaction": f"{_LOG}; a partition that cannot be cleaned grows until its log can be read",
    "controller": "the reason says it: upgrade this node, or format the controllers as ones that "
    "lost their disks",
    "disk": "enlarge the disk, lower retention.ms or retention.bytes of the largest topics, or end "
    "what writes",
    "features": "run `tidemark features upgrade` when all nodes have this version",
    "followers": _MACHINE,
    "groups": f"{_LOG}; other brokers serve these groups where __consumer_offsets has replicas",
    "groups-data": f"{_LOG}; where offsets are missing, set them with the client's own tools",
    "kafka-controllers": "let a controller of Tidemark lead the quorum",
    "logs": "`tidemark directories list` says which partitions are there; repair the disk, then "
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
    "tier": "where a reason names no remedy, the log of this broker has the cause",
}
"""What to do, by the name of the part; `/health`, the page and `tidemark status` say it."""

Check = Callable[[], Sequence[str]]
"""Says what is wrong with one part; nothing where it is well."""


@dataclass(slots=True)
class Health:
    """Collects what the parts of a node say about themselves.

    Attributes:
        node_id: this node.
        kind: broker or controller.
        stage: where in its lifecycle the node is: starting, running, stopping.
        progress: how far a start or a stop is; empty while there is nothing to say.
        checks: by the name of a part, what is wrong with it: red.
        warnings: by the name of a part, what takes longer than it should, or is put off: yellow.
        notes: by the name of a part, what it is about to do: no reason to look.
        waits_for: what a node that runs lacks to be of use; nothing where it is ready.
    """

    node_id: int
    kind: str = "broker"
    stage: str = "starting"
    progress: Callable[[], str] = field(default=lambda: "")
    checks: dict[str, Check] = field(default_factory=dict)
    warnings: dict[str, Check] = field(default_factory=dict)
    notes: dict[str, Check] = field(default_factory=dict)
    waits_for: Check = field(default=lambda: ())

    @property
    def is_ready(self) -> bool:
        """Whether clients are served."""
        return self.stage == "running" and not self.waits_for()

    @property
    def shown_stage(self) -> str:
        """The stage, and where a start or a stop is long, how far it is."""
        progress = "" if self.stage == "running" else self.progress()
        if self.stage == "starting":
            return progress or self.stage
        return f"{self.stage}: {progress}" if progress else self.stage

    def report(self) -> dict[str, object]:
        """State of every part, with the reasons of those that are unhealthy or yellow.

        `remedies` has what to do by reason, for the reasons that do not say it.
        """
        unhealthy, yellow = _lines(self.checks), _lines(self.warnings)
        parts = dict.fromkeys(self.checks, GREEN)
        parts |= dict.fromkeys(yellow, YELLOW) | dict.fromkeys(unhealthy, RED)
        reasons = [*_named(unhealthy), *_named(yellow)]
        return {
            "node_id": self.node_id,
            "stage": self.shown_stage,
            "status": RED if unhealthy else YELLOW if yellow else GREEN,
            "parts": parts,
            "reasons": reasons,
            "remedies": {one: found for one in reasons if (found := remedy(one))},
            "notes": _named(_lines(self.notes)),
        }

    def health_page(self) -> HttpAnswer:
        """Liveness: always 200, the state in the body."""
        return _json(200, self.report())

    def ready_page(self) -> HttpAnswer:
        """Readiness: 200 or 503."""
        report = self.report() | {"ready": self.is_ready}
        if self.stage != "running":
            report |= {"reasons": [f"the {self.kind} is {self.shown_stage}"], "remedies": {}}
        elif not self.is_ready:
            report |= {"reasons": list(self.waits_for()), "remedies": {}}
        return _json(200 if self.is_ready else 503, report)


def remedy(reason: str) -> str:
    """Say what to do about a reason, `PART: TEXT`; "" where the text says it itself."""
    part, _, text = reason.partition(": ")
    return "" if _SAYS_IT in text else REMEDIES.get(part, "")


def _lines(checks: Mapping[str, Check]) -> dict[str, Sequence[str]]:
    """What the parts say, without those that say nothing."""
    said = {name: check() for name, check in checks.items()}
    return {name: lines for name, lines in said.items() if lines}


def _named(lines: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{name}: {line}" for name, found in lines.items() for line in found]


def routes(health: Health, metrics: MetricsPage) -> dict[str, Route]:
    """The pages of a broker."""
    return {
        "/metrics": metrics.answer,
        "/health": health.health_page,
        "/ready": health.ready_page,
    }


def offline_reasons(offline: Mapping[TopicPartition, str]) -> list[str]:
    """One line for each partition that is offline, up to a page of the earliest, by name.

    The event loop writes it: 100,000 partitions are not sorted for it.
    """
    shown = [f"{tp} is offline: {offline[tp]}" for tp in sorted(islice(offline, _SHOWN_MAX))]
    if len(offline) > _SHOWN_MAX:
        shown.append(f"and {len(offline) - _SHOWN_MAX} more partitions are offline")
    return shown


def put_aside(paths: Sequence[Path]) -> list[str]:
    """One line for each directory that this start has renamed away, up to a page of them."""
    shown = [
        f"{path} is no replica of this broker and was put aside by this start; unless its topic "
        "was deleted meanwhile, or its replica moved to other brokers, the metadata are not those "
        "that this broker had"
        for path in paths[:_SHOWN_MAX]
    ]
    if len(paths) > _SHOWN_MAX:
        shown.append(f"and {len(paths) - _SHOWN_MAX} more partitions were put aside")
    return shown


def offline_directories(directories: Iterable[LogDir]) -> list[str]:
    """One line for each log directory that failed."""
    return [
        f"log directory {one.path} is offline: {one.failure}"
        for one in directories
        if one.failure is not None
    ]


def _json(status: int, content: dict[str, object]) -> HttpAnswer:
    return HttpAnswer(status, JSON, json.dumps(content, indent=1).encode() + b"\n")
