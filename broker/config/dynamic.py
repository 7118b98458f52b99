"""Validates changes of broker settings by IncrementalAlterConfigs.

DIFFERS: Apache Kafka allows some settings with classes, paths, URLs or addresses to be changed by
clients, and stores unknown names. Here both are refused. A client that may alter configs must not
make a broker load or open a file, and a misspelt key must not look accepted.
"""

from collections.abc import Mapping
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError, ConfigType, Dynamic
from broker.config.keys import BROKER_KEYS
from broker.config.resolve import nearest
from kafka_protocol.errors import ErrorCode, KafkaError
from runtime.log_context import escape

RESIZED_POOLS: Final = frozenset(
    {
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
"""A running pool is at most doubled or halved at a time, as in Kafka.

A typing error must not start a million threads. The file may have any size.
"""


class InvalidBrokerConfig(KafkaError):
    """A client cannot change a broker setting in this way."""

    code = ErrorCode.INVALID_REQUEST


def validate_broker_change(
    changed: Mapping[str, str | None], *, broker: BrokerConfig, for_all: bool
) -> None:
    """Refuse a change of broker settings that is not allowed or not possible.

    Args:
        changed: Settings that are set (text) or deleted (None).
        broker: Configuration so far, dynamic entries included.
        for_all: True for the cluster's default (resource name ""), False for one broker.

    Raises:
        InvalidBrokerConfig: A setting is read-only, unknown or unsafe, or is per broker and set for
            all brokers. Or a value or combination is not allowed. Or a thread pool would become
            more than twice, or less than half, as large.
    """
    fixed = [name for name in changed if not _is_settable(name)]
    if fixed:
        raise InvalidBrokerConfig(
            f"cannot update these configs dynamically: {', '.join(map(_with_hint, fixed))}"
        )
    own = [name for name in changed if BROKER_KEYS[name].dynamic is Dynamic.PER_BROKER]
    if for_all and own:
        raise InvalidBrokerConfig(
            f"these configs are set per broker, not for all: {', '.join(own)}"
        )
    layers = broker.layers
    default, single = dict(layers.dynamic_default), dict(layers.dynamic_broker)
    target = default if for_all else single
    try:
        for name, text in changed.items():
            if text is None:
                target.pop(name, None)
            else:
                BROKER_KEYS[name].parse(text)  # even if another value remains in force here
                target[name] = text
        _check_pools(broker, broker.with_dynamic(default, single))
    except ConfigError as error:
        raise InvalidBrokerConfig(str(error)) from None


def _check_pools(before: BrokerConfig, after: BrokerConfig) -> None:
    for name in sorted(RESIZED_POOLS):
        old, new = before.get(name), after.get(name)
        assert isinstance(old, int), name
        assert isinstance(new, int), name
        if not old // 2 <= new <= 2 * old:
            raise ConfigError(
                name,
                new,
                f"must be from half to double the current value {old}, {max(1, old // 2)} to "
                f"{2 * old}: reach others in steps",
            )


def is_list(name: str) -> bool:
    """True if APPEND and SUBTRACT apply to this broker setting."""
    key = BROKER_KEYS.get(name)
    return key is not None and key.type is ConfigType.LIST


def _is_settable(name: str) -> bool:
    key = BROKER_KEYS.get(name)
    return key is not None and key.dynamic is not Dynamic.READ_ONLY and not key.resource


def _with_hint(name: str) -> str:
    if name in BROKER_KEYS:
        return name
    close = nearest(name, list(BROKER_KEYS))
    return f"{escape(name)} (unknown" + (f", did you mean {close}?)" if close else ")")
