"""Numbers and health of the partitions led here that have followers, under Kafka's names.

Only what this broker leads counts, as in Kafka: each partition is counted once in a cluster.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from broker.observe.health import Health
from broker.replica.followers import Leader
from broker.replica.leading import Leading
from metadata_topic.image.image import ELR_VERSION
from runtime.metrics import Registry

_NAMED_MAX: Final = 3


def register_leading(metrics: Registry, health: Health, leading: Leading[Leader]) -> None:
    """Count, and say which partitions lack replicas: yellow; or cannot be written by all: red."""
    counts: dict[str, tuple[str, Callable[[Leader], bool]]] = {
        "UnderReplicatedPartitions": (
            "Partitions led here with replicas that are not in sync.",
            _is_under_replicated,
        ),
        "UnderMinIsrPartitionCount": (
            "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
            _is_under_min_isr,
        ),
        "AtMinIsrPartitionCount": (
            "Partitions led here with just min.insync.replicas in-sync replicas.",
            _is_at_min_isr,
        ),
    }
    for name, (text, holds) in counts.items():
        metrics.gauge(
            f"kafka_server_ReplicaManager_{name}",
            text,
            fn=lambda holds=holds: sum(holds(one) for one in leading.led),  # type: ignore[misc]
        )
    leading.shrinks = metrics.counter(
        "kafka_server_ReplicaManager_IsrShrinksPerSec_total", "In-sync replicas that were lost."
    )
    leading.expands = metrics.counter(
        "kafka_server_ReplicaManager_IsrExpandsPerSec_total", "In-sync replicas that came back."
    )
    health.checks["replicas"] = lambda: _named(
        leading,
        _is_under_min_isr,
        "{count} partition(s) led here have fewer in-sync replicas than min.insync.replicas, and "
        "take no records of acks=all: {names}. Start the brokers of their other replicas",
    )
    health.warnings["replicas"] = lambda: _named(
        leading,
        lambda one: _is_under_replicated(one) and not _is_under_min_isr(one),
        "{count} partition(s) led here have replicas that are not in sync: {names}",
    )
    health.warnings["features"] = lambda: _missing_feature(leading)


def _missing_feature(leading: Leading[Leader]) -> Sequence[str]:
    if not leading.led or leading.has_elr:
        return ()
    return (
        f"{ELR_VERSION} is not finalised, and {len(leading.led)} partition(s) led here have "
        "replicas: acknowledged records can be lost where the in-sync replicas are lost one after "
        "the other. When all nodes have this version: `tidemark features upgrade`",
    )


def _is_under_replicated(one: Leader) -> bool:
    return len(one.isr) < len(one.replicas)


def _is_under_min_isr(one: Leader) -> bool:
    return one.followers is not None and one.followers.in_sync.is_under_min_isr


def _is_at_min_isr(one: Leader) -> bool:
    return one.followers is not None and len(one.isr) == one.followers.in_sync.min_isr


def _named(leading: Leading[Leader], holds: Callable[[Leader], bool], text: str) -> Sequence[str]:
    found: Iterator[Leader] = (one for one in leading.led if holds(one))
    names = [f"{one.topic_partition.topic}-{one.topic_partition.partition}" for one in found]
    if not names:
        return ()
    more = len(names) - _NAMED_MAX
    shown = ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return (text.format(count=len(names), names=shown),)
