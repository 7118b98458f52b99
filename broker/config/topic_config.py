"""The settings of a topic: validated by Kafka's rules, and converted to the configuration of logs.

Values are text until their key's type parses them. No code resolves, opens or expands a value, so a
class name or `${...}` is merely an invalid number. Old names are translated here and never stored.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from broker.config.aliases import translate_topic
from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError, Value
from broker.config.keys import SERVER_FALLBACKS, TOPIC_KEYS
from broker.config.resolve import effective_name, nearest
from kafka_protocol.errors import ErrorCode, KafkaError
from kafka_protocol.types import CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC
from local_log.config import LogConfig
from metadata_topic.controller.topic_specs import INTERNAL_TOPICS
from runtime.log_context import escape

NEVER_TIERED_TOPICS: Final = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC}
_SHOWN_MAX: Final = 300
_AS_TOTAL: Final = -2
_UNLIMITED: Final = -1
_RETENTIONS: Final = ("local.retention", "retention")
_THROTTLED: Final = re.compile(r"\*|(\d+:\d+(,\d+:\d+)*)?")


class InvalidConfig(KafkaError):
    """A topic cannot have this setting; the message has key, value and allowed values."""

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


def normalise(overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Replace old names by current ones, and refuse missing values.

    Raises:
        InvalidConfig: A value is None, or an old and a new name have different values.
    """
    missing = sorted(name for name, text in overrides.items() if text is None)
    if missing:
        raise InvalidConfig(f"a topic setting needs a value: {', '.join(missing)}", key=missing[0])
    try:
        return translate_topic({name: text for name, text in overrides.items() if text is not None})
    except ConfigError as error:
        raise InvalidConfig(str(error), key=error.key) from None


def parse_overrides(overrides: Mapping[str, str | None]) -> dict[str, Value]:
    """Check names, types and ranges one by one.

    Args:
        overrides: Text by name, old names allowed.

    Returns:
        Parsed values by current names.

    Raises:
        InvalidConfig: An unknown name or a value that is not allowed.
    """
    parsed: dict[str, Value] = {}
    for name, text in normalise(overrides).items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            close = nearest(name, list(TOPIC_KEYS))
            hint = f": did you mean {close}?" if close else ""
            raise InvalidConfig(f"unknown topic config {escape(name, _SHOWN_MAX)}{hint}", key=name)
        try:
            parsed[name] = key.parse(text)
        except ConfigError as error:
            raise InvalidConfig(str(error), key=name) from None
        if name.endswith(".throttled.replicas"):
            _check_throttled(name, parsed[name])
    return parsed


def topic_defaults(broker: BrokerConfig) -> dict[str, Value]:
    """Return the value of every topic key for a topic without overrides.

    A key with a broker key has the value of that (for times: of the strongest unit that is set).
    Other keys have their own default.
    """
    defaults: dict[str, Value] = {}
    for name, key in TOPIC_KEYS.items():
        server = key.server_key
        if server is None:
            defaults[name] = key.parse(key.default)
        elif server in SERVER_FALLBACKS:
            defaults[name] = broker.get(effective_name(server))
        else:
            defaults[name] = broker.get(server)
    return defaults


def effective(broker: BrokerConfig, overrides: Mapping[str, str | None]) -> dict[str, Value]:
    """Return the value of every topic key for a topic with these overrides.

    Raises:
        InvalidConfig: An override is unknown or not allowed.
    """
    return {**topic_defaults(broker), **parse_overrides(overrides)}


def log_config(broker: BrokerConfig, overrides: Mapping[str, str | None]) -> LogConfig:
    """Return the configuration of the logs of a topic with these overrides.

    Raises:
        InvalidConfig: An override is unknown or not allowed.
    """
    values = effective(broker, overrides)
    if values["internal.segment.bytes"] is not None:
        values["segment.bytes"] = values["internal.segment.bytes"]
    policy = values["cleanup.policy"]
    assert isinstance(policy, tuple)
    # Any: the table of keys guarantees the type of each value
    given: dict[str, Any] = {
        item.name: values[item.name.replace("_", ".")] for item in fields(LogConfig) if item.init
    }
    given["cleanup_policy"] = frozenset(policy)
    throttled = "follower_replication_throttled_replicas"
    given[throttled] = frozenset(given[throttled])
    given["retention_bytes"] = max(given["retention_bytes"], _UNLIMITED)  # Kafka allows any below 0
    return LogConfig(**given)


def validate(
    overrides: Mapping[str, str | None],
    *,
    broker: BrokerConfig,
    existing: Mapping[str, str] | None = None,
    topic: str | None = None,
) -> None:
    """Refuse settings that a topic must not have, as Kafka does on creation and on change.

    Args:
        overrides: All settings of the topic after the change.
        broker: Gives the defaults and the switch of the remote tier.
        existing: The topic's settings so far; None for a new topic.
        topic: Name of the topic; internal topics are never tiered.

    Raises:
        InvalidConfig: Has the setting, its value and the allowed values.
    """
    values = effective(broker, overrides)
    low, high = _integer(values, "min.compaction.lag.ms"), _integer(values, "max.compaction.lag.ms")
    if low > high:
        raise InvalidConfig(
            f"min.compaction.lag.ms={low}: must not be above max.compaction.lag.ms={high}",
            key="min.compaction.lag.ms",
        )
    if values["remote.storage.enable"]:
        _check_tiered(values, broker, topic)
        return
    if _is_true(existing, "remote.storage.enable") and not values["remote.log.delete.on.disable"]:
        raise InvalidConfig(
            "remote.storage.enable=false: the remote data would be left behind; either delete it "
            "with remote.log.delete.on.disable=true as well, or keep remote.storage.enable=true "
            "and stop copying with remote.log.copy.disable=true",
            key="remote.storage.enable",
        )
    # DIFFERS: Kafka allows this change, and the remaining remote data would never be deleted.
    if _is_true(existing, "remote.log.delete.on.disable") and (
        not values["remote.log.delete.on.disable"]
    ):
        raise InvalidConfig(
            "remote.log.delete.on.disable=false: the remote data was ordered to be deleted, which "
            "cannot be taken back while remote.storage.enable=false: the rest would be left behind",
            key="remote.log.delete.on.disable",
        )


def _is_true(settings: Mapping[str, str] | None, name: str) -> bool:
    return (settings or {}).get(name, "false").strip().lower() == "true"


def _check_throttled(name: str, value: Value) -> None:
    assert isinstance(value, tuple)
    text = ",".join(value)
    if not _THROTTLED.fullmatch(text):
        raise InvalidConfig(
            f"{name}={escape(text, _SHOWN_MAX)}: must be * or a list of partition:broker pairs",
            key=name,
        )


def _integer(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value


def _check_tiered(values: Mapping[str, Value], broker: BrokerConfig, topic: str | None) -> None:
    """Check the other settings of a topic with `remote.storage.enable=true`."""
    switch = "remote.storage.enable"
    if topic in NEVER_TIERED_TOPICS:
        raise InvalidConfig(
            f"{switch}=true: the internal topic {topic} is never tiered", key=switch
        )
    if not broker.remote_log_storage_system_enable:
        raise InvalidConfig(
            f"{switch}=true: the brokers have remote.log.storage.system.enable=false; "
            "the remote tier must be switched on there first",
            key=switch,
        )
    policy = values["cleanup.policy"]
    if policy not in (("delete",), ()):
        assert isinstance(policy, tuple)
        raise InvalidConfig(
            f"cleanup.policy={','.join(policy)}: a topic with {switch}=true must have the policy "
            "delete, or none",
            key="cleanup.policy",
        )
    for unit in ("ms", "bytes"):
        _check_local_retention(values, unit)
        _check_copy_disable(values, unit)
        _check_copy_lag(values, unit)


def _check_local_retention(values: Mapping[str, Value], unit: str) -> None:
    local, total = (_integer(values, f"{name}.{unit}") for name in _RETENTIONS)
    if total < 0 or local == _AS_TOTAL:
        return
    if local == _UNLIMITED or local > total:
        raise InvalidConfig(
            f"local.retention.{unit}={local}: must not be above retention.{unit}={total}, nor -1",
            key=f"local.retention.{unit}",
        )


def _check_copy_disable(values: Mapping[str, Value], unit: str) -> None:
    """Without copying, local retention must equal the total retention, because no copy exists."""
    local, total = (_integer(values, f"{name}.{unit}") for name in _RETENTIONS)
    if values["remote.log.copy.disable"] and local not in (_AS_TOTAL, total):
        raise InvalidConfig(
            f"local.retention.{unit}={local}: with remote.log.copy.disable=true it must be -2 or "
            f"equal to retention.{unit}={total}",
            key=f"local.retention.{unit}",
        )


def _check_copy_lag(values: Mapping[str, Value], unit: str) -> None:
    """A segment must be copied before its local copy may be deleted."""
    local, total = (_integer(values, f"{name}.{unit}") for name in _RETENTIONS)
    limit = total if local == _AS_TOTAL else local
    lag = _integer(values, f"remote.copy.lag.{unit}")
    if limit >= 0 and lag > limit:
        raise InvalidConfig(
            f"remote.copy.lag.{unit}={lag}: must not be above the local retention of {limit}",
            key=f"remote.copy.lag.{unit}",
        )
