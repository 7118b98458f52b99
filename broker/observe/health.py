"""Health and readiness of this node, each with reasons.

`/health` is for supervisors that restart dead processes. It answers 200 as long as the event loop
runs, and its JSON has green, yellow or red. It does not become 503 when the tier is unhealthy,
because a restart would not repair a remote store.

`/ready` is for load balancers and scripts. A broker answers 200 from the moment at which clients
are served until its shutdown begins, else 503. A node that is only a controller answers 200 while
it knows a leader and has applied the committed records.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from broker.observe.http import JSON, HttpAnswer, Route
from broker.observe.metrics import MetricsPage
from kafka_protocol.types import TopicPartition
from local_log.manager.log_dir import LogDir
from runtime.health_reasons import RED, YELLOW, HealthLine, HealthReason

GREEN: Final = "green"
_SHOWN_MAX: Final = 100
_NAMED_MAX: Final = 3
_PARTITION: Final = re.compile(r"(?<!\S)[\w./-]+-\d+(?=[\s:])")
"""The name of a partition, or its directory."""

Check = Callable[[], Sequence[str]]
"""Returns the reasons of one part: `HealthLine`, or texts that end with their remedy."""


@dataclass(slots=True)
class Health:
    """Collects the health of the parts of a node.

    Attributes:
        node_id: This node.
        kind: Broker or controller.
        stage: Stage of the lifecycle: starting, running, stopping.
        progress: Progress of a start or a stop; empty without news.
        checks: By name of a part: its faults, which make the node red.
        warnings: By name of a part: work that is late or put off, which makes the node yellow.
        notes: By name of a part: its next work; the node stays green.
        waits_for: Reasons why a running node is not ready yet; empty once it is ready.
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
        """True if clients are served."""
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
        remedies = _remedies(unhealthy) | _remedies(yellow)
        return {
            "node_id": self.node_id,
            "stage": self.shown_stage,
            "status": RED if unhealthy else YELLOW if yellow else GREEN,
            "parts": parts,
            "reasons": [*_named(unhealthy), *_named(yellow)],
            "remedies": remedies,
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


class Cause(NamedTuple):
    """Reasons that differ in the partition alone.

    Attributes:
        reason: The first of them.
        partitions: Of all of them, as each names it; empty where the reason names none.
    """

    reason: str
    partitions: list[str]

    @property
    def text(self) -> str:
        """One line for all: the first reason, how many there are, and the first partitions."""
        count = len(self.partitions)
        if count < 2:
            return self.reason
        names = ", ".join(self.partitions[:_NAMED_MAX])
        more = ", ..." if count > _NAMED_MAX else ""
        return f"{self.reason} (the same for {count} partitions: {names}{more})"


def by_cause(reasons: Iterable[str]) -> list[Cause]:
    """Group reasons that differ in the partition alone, in the order of the first ones."""
    found: dict[str, Cause] = {}
    for reason in reasons:
        name = _PARTITION.search(reason)
        key = reason.replace(name[0], "") if name else reason
        cause = found.setdefault(key, Cause(reason, []))
        cause.partitions.extend([name[0]] if name else ())
    return list(found.values())


def _lines(checks: Mapping[str, Check]) -> dict[str, Sequence[str]]:
    """Return the lines by part, without the parts that have none."""
    said = {name: check() for name, check in checks.items()}
    return {name: lines for name, lines in said.items() if lines}


def _named(lines: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{name}: {line}" for name, found in lines.items() for line in found]


def _remedies(lines: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {
        f"{name}: {line}": line.remedy
        for name, found in lines.items()
        for line in found
        if isinstance(line, HealthLine) and line.remedy
    }


def routes(health: Health, metrics: MetricsPage) -> dict[str, Route]:
    """The pages of a broker."""
    return {
        "/metrics": metrics.answer,
        "/health": health.health_page,
        "/ready": health.ready_page,
    }


def offline_reasons(offline: Mapping[TopicPartition, str]) -> list[HealthLine]:
    """One line for each partition that is offline, up to a page of the earliest, by name.

    The event loop writes it: 100,000 partitions are not sorted for it.
    """
    shown = [
        HealthReason.OFFLINE.line(partition=tp, why=offline[tp])
        for tp in sorted(islice(offline, _SHOWN_MAX))
    ]
    if len(offline) > _SHOWN_MAX:
        shown.append(HealthReason.MORE_OFFLINE.line(count=len(offline) - _SHOWN_MAX))
    return shown


def put_aside(paths: Sequence[Path]) -> list[HealthLine]:
    """One line for each directory that this start has renamed away, up to a page of them."""
    shown = [HealthReason.PUT_ASIDE.line(path=path) for path in paths[:_SHOWN_MAX]]
    if len(paths) > _SHOWN_MAX:
        shown.append(HealthReason.MORE_PUT_ASIDE.line(count=len(paths) - _SHOWN_MAX))
    return shown


def offline_directories(directories: Iterable[LogDir]) -> list[HealthLine]:
    """One line for each log directory that failed."""
    return [
        HealthReason.DIRECTORY_OFFLINE.line(path=one.path, why=one.failure)
        for one in directories
        if one.failure is not None
    ]


def _json(status: int, content: dict[str, object]) -> HttpAnswer:
    return HttpAnswer(status, JSON, json.dumps(content, indent=1).encode() + b"\n")
