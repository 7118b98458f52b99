"""Is this broker well, and may clients be sent to it? Both with reasons.

Three pages answer three different callers. `/health` is for whoever restarts dead processes: as
long as the event loop turns it answers 200, and its JSON says green or red. It does not turn into
503 when the tier is red, because a restart would not mend a remote store. `/ready` is for load
balancers and scripts: 200 from the moment clients are served until shutdown begins, else 503.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.http import JSON, PROMETHEUS, HttpAnswer, Route
from kafka_protocol.types import TopicPartition
from runtime.metrics import Registry

GREEN: Final = "green"
RED: Final = "red"
_SHOWN_MAX: Final = 100

Check = Callable[[], Sequence[str]]
"""Says what is wrong with one part; nothing where it is well."""


@dataclass(slots=True)
class Health:
    """Collects what the broker's parts say about themselves.

    Attributes:
        node_id: this broker.
        stage: where in its life the broker is: starting, running, stopping.
        checks: by the name of a part, what is wrong with it.
    """

    node_id: int
    stage: str = "starting"
    checks: dict[str, Check] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether clients are served."""
        return self.stage == "running"

    def report(self) -> dict[str, object]:
        """State of every part, with the reasons of those that are red."""
        parts = {name: list(check()) for name, check in self.checks.items()}
        reasons = [f"{name}: {reason}" for name, found in parts.items() for reason in found]
        return {
            "node_id": self.node_id,
            "stage": self.stage,
            "status": RED if reasons else GREEN,
            "parts": {name: RED if found else GREEN for name, found in parts.items()},
            "reasons": reasons,
        }

    def health_page(self) -> HttpAnswer:
        """Liveness: always 200, the state in the body."""
        return _json(200, self.report())

    def ready_page(self) -> HttpAnswer:
        """Readiness: 200 or 503."""
        report = self.report() | {"ready": self.is_ready}
        if not self.is_ready:
            report["reasons"] = [f"the broker is {self.stage}"]
        return _json(200 if self.is_ready else 503, report)


def routes(health: Health, metrics: Registry) -> dict[str, Route]:
    """The pages of a broker."""
    return {
        "/metrics": lambda: HttpAnswer(200, PROMETHEUS, metrics.render()),
        "/health": health.health_page,
        "/ready": health.ready_page,
    }


def offline_reasons(offline: Mapping[TopicPartition, str]) -> list[str]:
    """One line for each partition that is offline, up to a page of them."""
    shown = [f"{tp} is offline: {offline[tp]}" for tp in sorted(offline)[:_SHOWN_MAX]]
    if len(offline) > _SHOWN_MAX:
        shown.append(f"and {len(offline) - _SHOWN_MAX} more partitions are offline")
    return shown


def _json(status: int, content: dict[str, object]) -> HttpAnswer:
    return HttpAnswer(status, JSON, json.dumps(content, indent=1).encode() + b"\n")
