"""Which options the source has, how each is spelled, and what a wrong name gets as an answer.

Names are those of Spark's Kafka source and are case-insensitive. Must not know: values, Spark.

Source: Spark's "Structured Streaming + Kafka Integration Guide"; Apache Kafka 4.3, ConsumerConfig.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from pipeline.errors import OptionError

KAFKA: Final = "kafka."
RSM: Final = "rsm.config."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
ISOLATION: Final = "kafka.isolation.level"
LOG_START: Final = "tidemark.logStart"
TOPIC_ID: Final = "tidemark.topicId"
STRATEGIES: Final = ("assign", "subscribe", "subscribePattern")
ENDINGS: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
RATES: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "groupIdPrefix": "the source joins no group",
    "kafka.group.id": "the source joins no group",
    "fetchOffset.numRetries": "questions to brokers are asked again within a deadline",
    "fetchOffset.retryIntervalMs": "questions to brokers are asked again within a deadline",
    "kafkaConsumer.pollTimeoutMs": "there is no consumer",
}
"""Options of Spark's Kafka source that change nothing here, and why."""

_OURS: Final = (
    "tidemark.bucket",
    TOPIC_ID,
    LOG_START,
    "remote.log.storage.manager.class.name",
    "targetSplitBytes",
    "columns",
    "pushFilters",
)
_NAMES: Final = (
    *STRATEGIES,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    *ENDINGS,
    *RATES,
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    *WITHOUT_EFFECT,
    *_OURS,
)
_CLIENT_USED: Final = ("bootstrap.servers", "isolation.level", "client.id", "security.protocol")
_CLIENT_SECURITY: Final = ("ssl.", "sasl.", "security.")
"""Families of settings. The client refuses every `security.protocol` that needs them."""

_CLIENT_IDLE: Final = (
    "group.instance.id", "group.protocol", "group.remote.assignor", "max.poll.records",
    "max.poll.interval.ms", "session.timeout.ms", "heartbeat.interval.ms", "client.dns.lookup",
    "partition.assignment.strategy", "metadata.max.age.ms", "auto.commit.interval.ms",
    "client.rack", "max.partition.fetch.bytes", "send.buffer.bytes", "receive.buffer.bytes",
    "fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms", "reconnect.backoff.ms",
    "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms", "check.crcs",
    "metrics.sample.window.ms", "metrics.num.samples", "metrics.recording.level",
    "metric.reporters", "enable.metrics.push", "socket.connection.setup.timeout.ms",
    "socket.connection.setup.timeout.max.ms", "connections.max.idle.ms", "exclude.internal.topics",
    "allow.auto.create.topics", "metadata.recovery.strategy", "share.acknowledgement.mode",
    "metadata.recovery.rebootstrap.trigger.ms", "request.timeout.ms", "default.api.timeout.ms",
)  # fmt: skip
_CLIENT_REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "give startingOffsets instead: the source knows its offsets itself",
    "enable.auto.commit": "offsets are kept in Spark's checkpoint, nothing is committed",
    "enable.partition.eof": "the source knows itself where a partition ends",
    "key.deserializer": "keys are bytes: decode them with DataFrame operations",
    "value.deserializer": "values are bytes: decode them with DataFrame operations",
    "interceptor.classes": "interceptors may change records",
}
_SPELLING: Final[Mapping[str, str]] = {name.lower(): name for name in _NAMES}
_KNOWN_CLIENT: Final = (*_CLIENT_USED, *_CLIENT_IDLE, *_CLIENT_REFUSED, "group.id")


def spelled(options: Mapping[str, str]) -> dict[str, str]:
    """The options under their proper names; client and store settings in lower case.

    Raises:
        OptionError: there is no such option, it is not the user's to set, or given twice.
    """
    found: dict[str, str] = {}
    for given, value in options.items():
        name = _spell(given)
        if name in found:
            raise OptionError(f"option {name} is given twice, in different cases")
        found[name] = value
    return found


def idle_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Of proper names, those that change nothing here, each with the reason."""
    found = []
    for name in names:
        if name in WITHOUT_EFFECT:
            found.append((name, WITHOUT_EFFECT[name]))
        elif name.startswith(KAFKA) and name[len(KAFKA) :] in _CLIENT_IDLE:
            found.append((name, "there is no consumer"))
        elif name.startswith(KAFKA) and _is_security(name[len(KAFKA) :]):
            found.append((name, "brokers are reached by plain TCP"))
    return found


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Settings for the client, without prefix; none that changes nothing, none of the source's."""
    own = {BOOTSTRAP, ISOLATION}
    return {
        name[len(KAFKA) :]: value
        for name, value in options.items()
        if name.startswith(KAFKA)
        and name not in own
        and name not in WITHOUT_EFFECT
        and name[len(KAFKA) :] not in _CLIENT_IDLE
    }


def _is_security(name: str) -> bool:
    return name not in _CLIENT_USED and name.startswith(_CLIENT_SECURITY)


def _spell(given: str) -> str:
    name = given.strip().lower()
    if name in _SPELLING:
        return _SPELLING[name]
    if name.startswith(RSM) and len(name) > len(RSM):
        return name
    if name.startswith(KAFKA):
        return KAFKA + _client_name(name[len(KAFKA) :])
    near = get_close_matches(name, _SPELLING, 1, 0.6)
    hint = f"; did you mean {_SPELLING[near[0]]}?" if near else ""
    raise OptionError(f"there is no option {given[:100]!r}{hint}")


def _client_name(name: str) -> str:
    if name in _CLIENT_REFUSED:
        raise OptionError(f"option {KAFKA}{name} is not supported: {_CLIENT_REFUSED[name]}")
    if name in _KNOWN_CLIENT or _is_security(name):
        return name
    near = get_close_matches(name, _KNOWN_CLIENT, 1, 0.6)
    hint = f"; did you mean {KAFKA}{near[0]}?" if near else ""
    raise OptionError(f"there is no option {KAFKA}{name[:100]}{hint}")
