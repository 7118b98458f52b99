"""Metrics and health of the partitions led here, under Kafka's names.

Only led partitions count, as in Kafka: each partition is counted once in a cluster.
"""

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

from broker.observe.health import Health
from broker.replica.followers import Leader
from broker.replica.isr import Lack
from broker.replica.leading import Leading
from metadata_topic.image.image import ELR_VERSION
from runtime.health_reasons import HealthLine, HealthReason
from runtime.metrics import Registry

_NAMED_MAX: Final = 3


def register_leading(metrics: Registry, health: Health, leading: Leading[Leader]) -> None:
    """Register the counts; missing replicas are `yellow`, too few for acks=all are `red`."""
    lacking = leading.lacking
    counts: dict[str, tuple[str, Lack]] = {
        "UnderReplicatedPartitions": (
            "Partitions led here with replicas that are neither in sync nor being added.",
            Lack.REPLICAS,
        ),
        "UnderMinIsrPartitionCount": (
            "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
            Lack.MIN_ISR,
        ),
        "AtMinIsrPartitionCount": (
            "Partitions led here with just min.insync.replicas in-sync replicas.",
            Lack.SPARE,
        ),
        "ReassigningPartitions": (
            "Partitions led here whose replicas are being reassigned.",
            Lack.FINAL_REPLICAS,
        ),
    }
    for name, (text, lack) in counts.items():
        metrics.gauge(
            f"kafka_server_ReplicaManager_{name}",
            text,
            fn=lambda found=lacking[lack]: len(found),  # type: ignore[misc]
        )
    leading.shrinks = metrics.counter(
        "kafka_server_ReplicaManager_IsrShrinksPerSec_total", "In-sync replicas that were lost."
    )
    leading.expands = metrics.counter(
        "kafka_server_ReplicaManager_IsrExpandsPerSec_total", "In-sync replicas that came back."
    )
    leading.failures = metrics.counter(
        "kafka_server_ReplicaManager_FailedIsrUpdatesPerSec_total",
        "Changes of in-sync replicas that the controller has answered with an error.",
    )
    health.checks["replicas"] = lambda: _named(lacking[Lack.MIN_ISR], HealthReason.BELOW_MIN_ISR)
    health.warnings["replicas"] = lambda: _named(lacking[Lack.REPLICAS], HealthReason.OUT_OF_SYNC)
    health.warnings["features"] = lambda: _missing_feature(leading)


def _missing_feature(leading: Leading[Leader]) -> Sequence[HealthLine]:
    if not leading.led or leading.has_elr:
        return ()
    return (HealthReason.NO_ELIGIBLE_LEADERS.line(feature=ELR_VERSION, count=len(leading.led)),)


def _named(found: Collection[Leader], reason: HealthReason) -> Sequence[HealthLine]:
    if not found:
        return ()
    some = (one.topic_partition for one in islice(found, _NAMED_MAX))
    more = len(found) - _NAMED_MAX
    shown = ", ".join(f"{one.topic}-{one.partition}" for one in some)
    shown += f" and {more} more" if more > 0 else ""
    return (reason.line(count=len(found), names=shown),)
