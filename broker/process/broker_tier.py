"""The remote tier of a broker: it starts before all other parts, works last and stops first."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.node.directories import Directories, DirectoryError
from broker.observe.health import Health
from broker.observe.metrics import MetricsPage
from broker.remote.config import tier_config
from broker.remote.supervisor import Spawn
from broker.remote.tier import RemoteTier, TierState
from broker.replica.manager import ReplicaManager
from broker.topics.auto_creation import AutoTopicCreation
from broker.topics.internal import TooFewBrokersError, ensure_remote_metadata_topic
from kafka_protocol.errors import KafkaError
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC
from metadata_topic.quorum.node import MetadataNode
from rlm.config import TierConfig
from rlm.maintenance.incarnation import OlderFormError, check_forms
from runtime.health_reasons import HealthLine, HealthReason
from runtime.ports import Ports
from runtime.scheduler import pause

log = logging.getLogger(__name__)

_ASK_AGAIN_MS: Final = 200


class BrokerTier:
    """The tier and its topic.

    Attributes:
        tier: The broker's side of the tier; None where the broker has no remote tier.
        waits_for: Why the topic of the remote metadata is not made yet; empty: it is.
    """

    def __init__(
        self, config: BrokerConfig, directories: Directories, ports: Ports, spawn: Spawn
    ) -> None:
        """Start nothing before the tier's `start`.

        Args:
            config: Of the broker; decides whether there is a tier.
            directories: Locked and checked.
            ports: Of the process.
            spawn: Starts a tier process.

        Raises:
            DirectoryError: The file of the tier's incarnation is of an older form or place.
        """
        self._config, self._directories, self._settings = config, directories, config
        self._commit = ports.executors.commit
        self._scheduler = ports.scheduler
        self.tier: RemoteTier | None = None
        self.waits_for: str = ""
        if config.remote_log_storage_system_enable:
            try:
                check_forms(ports.disk, config.metadata_log_dir, config.log_dirs[0])
            except OlderFormError as error:
                raise DirectoryError(str(error)) from error
            loop = asyncio.get_running_loop()
            self.tier = RemoteTier(self._tier_config(config), ports, loop, spawn)

    def show(self, health: Health, metrics_page: MetricsPage) -> None:
        """Add the tier to health and metrics of the process."""
        if (tier := self.tier) is not None:
            metrics_page.others.append(tier.metrics)
            health.checks["tier"] = lambda: self._problems(tier.state())
            health.warnings["tier"] = tier.warnings
            health.warnings["remote-metadata"] = lambda: (self.waits_for,) if self.waits_for else ()
            health.notes["tier"] = tier.validations.progress

    def _problems(self, state: TierState) -> Sequence[str]:
        """The reasons of being unhealthy.

        A healthy tier that waits for its topic is `yellow`, see `waits_for`.
        """
        return () if self.waits_for and state.process == "configured" else state.reasons

    def show_registration(self, health: Health, node: MetadataNode) -> None:
        """Add a warning to health while the metadata lack this broker's tier."""
        if self.tier is None:
            return

        def unknown() -> Sequence[HealthLine]:
            own = node.image.brokers.get(node.node_id)
            if own is None or own.remote_store is not None:
                return ()
            return (HealthReason.REGISTERED_WITHOUT_TIER.line(),)

        health.warnings["registration"] = unknown

    def before_install(self) -> None:
        """Write the removed topics before a fetched snapshot replaces the log; on a pool thread."""
        if self.tier is not None:
            self.tier.removed_topics.keep()

    async def follow(self, node: MetadataNode) -> None:
        """Note removed tiered topics, from before the node's start on.

        Raises:
            OSError: The disk failed.
        """
        if self.tier is not None:
            removed = self.tier.removed_topics
            await self._commit.run(removed.read)
            removed.begin(node.image)
            node.subscribe(removed.follow)

    def _tier_config(self, config: BrokerConfig) -> TierConfig:
        return tier_config(
            config,
            self._config.layers.static,
            node_id=self._config.node_id,
            cluster_id=self._directories.cluster_id,
            state_dir=str(self._config.metadata_log_dir),
            cache_dir=str(self._first_working_dir()),
        )

    def _first_working_dir(self) -> Path:
        usable = [path for path in self._config.log_dirs if path in self._directories.ids]
        return usable[0] if usable else self._config.metadata_log_dir

    async def ensure_topic(
        self, node: MetadataNode, creation: AutoTopicCreation, *, waits: bool = False
    ) -> bool:
        """Make the topic of the remote metadata, where it is not there yet.

        Any broker with a tier may be the first, and the active controller may be another process.
        So it returns when this node's image has the topic.

        Args:
            node: Of the image.
            creation: Makes topics.
            waits: Wait for as many brokers as the topic has replicas.

        Returns:
            False, without `waits` only: too few brokers serve yet, with the text in `waits_for`.
        """
        said = ""
        while True:
            self.waits_for = ""
            try:
                await ensure_remote_metadata_topic(
                    node.image,
                    creation,
                    self._config.rlmm_settings,
                    prefix=str(self._config.get("remote.log.metadata.manager.impl.prefix")),
                    node_id=node.node_id,
                    is_alone=node.is_alone,
                )
            except TooFewBrokersError as error:
                self.waits_for = error.reason
                if not waits:
                    return False
            except KafkaError as error:
                if node.is_alone:
                    raise
                if str(error) != said:
                    said = str(error)
                    log.warning("%s is not made yet: %s", REMOTE_LOG_METADATA_TOPIC, said)
            if REMOTE_LOG_METADATA_TOPIC in node.image.topics_by_name:
                return True
            await pause(self._scheduler, _ASK_AGAIN_MS)

    async def connect(
        self,
        node: MetadataNode,
        replicas: ReplicaManager,
        live: LiveConfig,
        client_settings: Mapping[str, str],
    ) -> None:
        """Let the tier work, once its Kafka clients can connect to this broker."""
        tier = self.tier
        assert tier is not None
        replicas.listeners.append(tier.on_replicas)
        node.subscribe(lambda image, delta: self._reconfigure(tier, live))
        self._reconfigure(tier, live)
        await tier.connect(client_settings)

    def _reconfigure(self, tier: RemoteTier, live: LiveConfig) -> None:
        """Send the tier settings that were changed over the wire."""
        config = live.current
        if config is not self._settings:
            self._settings = config
            tier.reconfigure(self._tier_config(config))
