"""The current configuration: the file, and the dynamic settings in the metadata.

Settings of brokers and topics in the metadata log take effect here without a restart. Code that
uses a setting must read it at each use and must not keep a copy.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker.config import topic_config
from broker.config.broker_config import BrokerConfig
from broker.config.dynamic import is_list as is_broker_list
from broker.config.dynamic import validate_broker_change
from broker.config.key import ConfigError, ConfigType
from broker.config.keys import BROKER_KEYS, TOPIC_KEYS
from broker.config.topic_config import InvalidConfig
from local_log.config import LogConfig
from metadata_topic.controller.topic_specs import TopicDefaults
from metadata_topic.image.image import MetadataImage, ResourceType
from runtime.incidents import Incident

log = logging.getLogger(__name__)

_EMPTY: Final[Mapping[str, str]] = {}


class LiveConfig:
    """Current settings of broker and topics, and validation of changes (`ConfigRules`)."""

    def __init__(self, static: BrokerConfig, image: Callable[[], MetadataImage]) -> None:
        """Use `static`, with the dynamic entries of `image` on top."""
        self._static = static
        self._image = image
        # One tuple, replaced as a whole, because threads that open logs read it, too.
        self._overlaid: tuple[Mapping[str, str], Mapping[str, str], BrokerConfig]
        self._overlaid = (_EMPTY, _EMPTY, static)

    @property
    def current(self) -> BrokerConfig:
        """This broker's settings, with dynamic entries; thread-safe."""
        image = self._image()
        default, own = image.broker_config(None), image.broker_config(self._static.node_id)
        # Images share maps until they change, so an identity comparison is enough.
        seen_default, seen_own, current = self._overlaid
        if default is not seen_default or own is not seen_own:
            current = self._overlay(default, own)
            self._overlaid = (default, own, current)
        return current

    def _overlay(self, default: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """Apply the valid dynamic entries: entries of another version must not prevent a start."""
        if not default and not own:
            return self._static
        try:
            return self._static.with_dynamic(_known(default), _known(own))
        except ConfigError as error:
            log.error(Incident.DYNAMIC_SETTINGS.line(error=error))  # noqa: TRY400
            return self._static

    def log_config(self, topic: str) -> LogConfig:
        """The configuration of a topic's logs; invalid overrides are logged and ignored."""
        overrides = dict(self._image().topic_config(topic))
        while True:
            try:
                return topic_config.log_config(self.current, overrides)
            except InvalidConfig as error:
                if error.key not in overrides:
                    raise
                log.error(Incident.TOPIC_SETTING.line(topic=topic, error=error))  # noqa: TRY400
                del overrides[error.key]

    def topic_defaults(self) -> TopicDefaults:
        """Default numbers of partitions and replicas of a new topic."""
        return TopicDefaults(self.current.num_partitions, self.current.default_replication_factor)

    def validate_new_topic(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Validate the settings of a new topic.

        Raises:
            InvalidConfig: Has key and value.
        """
        topic_config.validate(overrides, broker=self.current, topic=topic)

    # -- ConfigRules, for the controller

    def is_list(self, resource_type: int, key: str) -> bool:
        """True if APPEND and SUBTRACT apply to a key."""
        if resource_type == ResourceType.TOPIC:
            return key in TOPIC_KEYS and TOPIC_KEYS[key].type is ConfigType.LIST
        return is_broker_list(key)

    def default_of(self, resource_type: int, key: str) -> str | None:
        """The value that APPEND and SUBTRACT change if no override is set."""
        if resource_type == ResourceType.TOPIC:
            return TOPIC_KEYS[key].show(topic_config.topic_defaults(self.current)[key])
        return BROKER_KEYS[key].show(self.current.get(key))

    def validate(
        self, resource_type: int, name: str, new: dict[str, str], existing: Mapping[str, str]
    ) -> None:
        """Validate all overrides of a topic or broker after a change.

        Raises:
            KafkaError: They are not allowed.
        """
        if resource_type == ResourceType.TOPIC:
            topic_config.validate(new, broker=self.current, existing=existing, topic=name)
            return
        changed: dict[str, str | None] = {
            key: new.get(key) for key in {*new, *existing} if new.get(key) != existing.get(key)
        }
        broker = self.current
        # settings of another broker, as far as the image has them
        if name and name != str(broker.node_id):
            broker = self._overlay(self._image().broker_config(None), existing)
        validate_broker_change(changed, broker=broker, for_all=not name)


def _known(entries: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in entries.items() if key in BROKER_KEYS}
