"""Metrics of the controller; names are Kafka's, `tidemark_` ones are ours."""

from collections.abc import Callable
from typing import Final

from runtime.clock import Clock
from runtime.metrics import Recent, Registry

_CONTROLLER: Final = "kafka_controller_KafkaController_"
_STATS: Final = "kafka_controller_ControllerStats_"
_EVENTS: Final = "kafka_controller_ControllerEventManager_"


class ControllerMetrics:
    """Counters and durations of decisions; gauges call a function when they are read."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        """Make the counters and histograms; `show` makes the gauges."""
        self._registry = registry
        self.queue_time_ms = registry.histogram(
            f"{_EVENTS}EventQueueTimeMs", "How long a decision waited for its turn."
        )
        self.processing_time_ms = registry.histogram(
            f"{_EVENTS}EventQueueProcessingTimeMs", "How long it took to take a decision."
        )
        self.commit_time_ms = registry.histogram(
            "tidemark_controller_commit_time_ms",
            "From a decision to its commit, seen on this node; gathering and fsync included.",
        )
        self.busy_ms = Recent(clock)
        self.started = registry.counter(
            f"{_CONTROLLER}EventQueueOperationsStartedCount", "Decisions that were begun."
        )
        self.timed_out = registry.counter(
            f"{_CONTROLLER}EventQueueOperationsTimedOutCount",
            "Decisions that were not begun before their callers' time was over.",
        )
        self.timed_out_heartbeats = registry.counter(
            f"{_CONTROLLER}TimedOutBrokerHeartbeatCount",
            "Heartbeats of brokers that were not answered in time.",
        )
        self.elections_ms = registry.histogram(
            f"{_STATS}LeaderElectionRateAndTimeMs",
            "Decisions that elected leaders: how long each took from its request to its commit.",
        )
        self.unclean_elections = registry.counter(
            f"{_STATS}UncleanLeaderElectionsPerSec_total",
            "Partitions given a leader that was not in sync: records may be lost.",
        )
        self.new_controllers = registry.counter(
            f"{_CONTROLLER}NewActiveControllersCount", "Elected controllers that were heard of."
        )

    def show(
        self,
        *,
        is_active: Callable[[], bool],
        applied: Callable[[], tuple[int, int, int]],
        committed: Callable[[], int],
    ) -> None:
        """Make the gauges.

        Args:
            is_active: True if this node takes decisions.
            applied: Returns offset, timestamp and age in ms of the last record applied here; on
                the active controller also of one that is not committed.
            committed: Returns the offset of the last committed record.
        """
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "ActiveControllerCount": ("Whether this node is the controller.", is_active),
            "LastAppliedRecordOffset": ("Last record applied here.", lambda: applied()[0]),
            "LastAppliedRecordTimestamp": (
                "Time of the last record applied here, in ms.",
                lambda: applied()[1],
            ),
            "LastAppliedRecordLagMs": (
                "Age of the last record applied here; 0 on the active controller.",
                lambda: applied()[2],
            ),
            "LastCommittedRecordOffset": ("Last committed record.", committed),
        }
        for name, (text, fn) in gauges.items():
            self._registry.gauge(f"{_CONTROLLER}{name}", text, fn=fn)
        self._registry.gauge(
            f"{_EVENTS}AvgIdleRatio",
            "Part of the last minute in which no decision was being taken.",
            fn=lambda: self.busy_ms.idle_ratio,
        )
