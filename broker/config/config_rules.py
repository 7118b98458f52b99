"""What the controller asks about settings: is it a list, what is its default, is it allowed.

The controller knows what SET, DELETE, APPEND and SUBTRACT do; this knows the keys. It fits the
`ConfigRules` port of the controller. Old names are translated before the controller sees them, so
that they are never stored (`today_names`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from broker.config.aliases import topic_name_of
from broker.config.broker_config import BrokerConfig
from broker.config.dynamic import InvalidBrokerConfig, is_list, validate_broker_change
from broker.config.key import ConfigType
from broker.config.keys import BROKER_KEYS, TOPIC_KEYS
from broker.config.topic_config import InvalidConfig, topic_defaults, validate

TOPIC: Final = 2
BROKER: Final = 4


class NamedChange(Protocol):
    """One change of a request: its name can be replaced."""

    name: str
    value: str | None


class KnownKeys:
    """Answers the controller's questions about topic and broker settings."""

    def __init__(self, broker: Callable[[], BrokerConfig]) -> None:
        """Take a function that gives the configuration now in force, dynamic entries included."""
        self._broker = broker

    def is_list(self, resource_type: int, key: str) -> bool:
        """Say whether APPEND and SUBTRACT make sense."""
        if resource_type == BROKER:
            return is_list(key)
        known = TOPIC_KEYS.get(key)
        return known is not None and known.type is ConfigType.LIST

    def default_of(self, resource_type: int, key: str) -> str | None:
        """Give the value that APPEND and SUBTRACT start from where nothing is set."""
        if resource_type == TOPIC and key in TOPIC_KEYS:
            return TOPIC_KEYS[key].show(topic_defaults(self._broker())[key])
        if resource_type == BROKER and key in BROKER_KEYS:
            return BROKER_KEYS[key].show(self._broker().get(key))
        return None

    def validate(
        self, resource_type: int, name: str, new: dict[str, str], existing: Mapping[str, str]
    ) -> None:
        """Check the overrides a resource would have.

        Raises:
            KafkaError: INVALID_CONFIG for a topic, INVALID_REQUEST for a broker.
        """
        if resource_type == TOPIC:
            validate(new, broker=self._broker(), existing=existing, topic=name)
        elif resource_type == BROKER:
            changed: dict[str, str | None] = {
                key: text for key, text in new.items() if existing.get(key) != text
            }
            changed.update({key: None for key in existing if key not in new})
            validate_broker_change(changed, broker=self._broker(), for_all=not name)
        else:
            raise InvalidBrokerConfig(f"resources of type {resource_type} have no settings here")


def today_names(resource_type: int, changes: Sequence[NamedChange]) -> list[NamedChange]:
    """Replace old names in the changes of one topic, in place.

    Args:
        resource_type: 2 for topics; others have no old names over the wire.
        changes: of one resource, as in CreateTopics or IncrementalAlterConfigs.

    Returns:
        The changes, without one that says the same as another under the other name.

    Raises:
        InvalidConfig: both names are there with different values.
    """
    if resource_type != TOPIC:
        return list(changes)
    kept: dict[str, tuple[str, NamedChange]] = {}
    result: list[NamedChange] = []
    for change in changes:
        written, name = change.name, topic_name_of(change.name)
        other = kept.get(name)
        if other is not None and other[0] != written:
            if other[1].value != change.value:
                raise InvalidConfig(
                    f"{written}={change.value}: {other[0]}={other[1].value} means the same "
                    "setting with another value; set only one of the two",
                    key=name,
                )
            continue
        change.name = name
        kept[name] = (written, change)
        result.append(change)
    return result
