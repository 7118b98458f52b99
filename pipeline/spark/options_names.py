"""Which options the source has, how each is spelled, and what a wrong name gets as an answer.

Names are those of Spark's Kafka source and are case-insensitive. Must not know: values, Spark.

Source: Spark's "Structured Streaming + Kafka Integration Guide".
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from pipeline.client_names import CLIENT_IDLE, client_name, why_idle
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
_SPELLING: Final[Mapping[str, str]] = {name.lower(): name for name in _NAMES}


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
        elif name.startswith(KAFKA):
            reason = why_idle(name[len(KAFKA) :])
            found += [(name, reason)] if reason else []
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
        and name[len(KAFKA) :] not in CLIENT_IDLE
    }


def _spell(given: str) -> str:
    name = given.strip().lower()
    if name in _SPELLING:
        return _SPELLING[name]
    if name.startswith(RSM) and len(name) > len(RSM):
        return name
    if name.startswith(KAFKA):
        return KAFKA + client_name(name[len(KAFKA) :], f"option {KAFKA}")
    near = get_close_matches(name, _SPELLING, 1, 0.6)
    hint = f"; did you mean {_SPELLING[near[0]]}?" if near else ""
    raise OptionError(f"there is no option {given[:100]!r}{hint}")
