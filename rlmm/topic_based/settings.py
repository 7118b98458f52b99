"""The manager's settings, from `rlmm.config.` and from the broker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_COMMON = "remote.log.metadata.common.client."
_PRODUCER = "remote.log.metadata.producer."
_CONSUMER = "remote.log.metadata.consumer."
_SECURITY = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password")


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """Settings, read once at the start.

    Attributes:
        node_id: This broker, written into records.
        cluster_id: The Kafka cluster; a cache of another one is removed.
        directory: Of the cache.
        bootstrap_servers: Address of the broker for the clients; empty while it is not known.
        security: Settings of their authentication; holds a password, and is not shown.
        consume_wait_ms: Longest time of a write until it is read back.
        initialization_retry_max_ms: How long the topic may be missing at the start.
        initialization_retry_interval_ms: Pause between two look-ups of the topic, doubled each
            time.
        producer, consumer: Settings passed through to the Kafka clients.
    """

    node_id: int
    cluster_id: str
    directory: Path
    bootstrap_servers: str
    security: Mapping[str, str] = field(repr=False)
    consume_wait_ms: int
    initialization_retry_max_ms: int
    initialization_retry_interval_ms: int
    producer: Mapping[str, str]
    consumer: Mapping[str, str]


def parse(configs: Mapping[str, str], *, is_reachable: bool = True) -> ManagerSettings:
    """Read the settings; `is_reachable`: those of the connection to the broker are there.

    Raises:
        ValueError: Key, value and the allowed values.
    """
    common = _with_prefix(configs, _COMMON)
    return ManagerSettings(
        node_id=_integer(configs, "node.id", None, low=0),
        cluster_id=_text(configs, "cluster.id"),
        directory=Path(_text(configs, "log.dir")) / "remote-log-metadata",
        bootstrap_servers=_text(configs, "bootstrap.servers") if is_reachable else "",
        security={key: configs[key] for key in _SECURITY if key in configs},
        consume_wait_ms=_integer(configs, "remote.log.metadata.consume.wait.ms", 120_000, low=0),
        initialization_retry_max_ms=_integer(
            configs, "remote.log.metadata.initialization.retry.max.timeout.ms", 120_000, low=0
        ),
        initialization_retry_interval_ms=_integer(
            configs, "remote.log.metadata.initialization.retry.interval.ms", 100, low=0
        ),
        producer={**common, **_with_prefix(configs, _PRODUCER)},
        consumer={**common, **_with_prefix(configs, _CONSUMER)},
    )


def _with_prefix(configs: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        key.removeprefix(prefix): value for key, value in configs.items() if key.startswith(prefix)
    }


def _text(configs: Mapping[str, str], key: str) -> str:
    value = configs.get(key, "").strip()
    if not value:
        raise ValueError(f"{key} is missing for the remote log metadata manager")
    return value


def _integer(configs: Mapping[str, str], key: str, default: int | None, *, low: int) -> int:
    value = configs.get(key)
    if value is None and default is not None:
        return default
    try:
        number = int(value or "")
    except ValueError as e:
        raise ValueError(f"{key}={value}: allowed is a whole number of at least {low}") from e
    if number < low:
        raise ValueError(f"{key}={value}: allowed is a whole number of at least {low}")
    return number
