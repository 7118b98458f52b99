"""The partitions' logs of a broker, from its directories to the clean mark of a stop."""

import asyncio
import contextlib
import logging
from collections.abc import Container
from functools import partial
from pathlib import Path

from broker.config.live_config import LiveConfig
from broker.node.directories import Directories
from broker.node.directory_checks import (
    renew_running_incarnation,
    without_sidecars,
    write_incarnation,
    writes_sidecars,
)
from broker.node.housekeeping import Task
from broker.node.start_jobs import Count, beside_the_loop
from broker.observe.disk_forecast import EVERY_MS, DiskForecast
from broker.observe.health import Health, offline_directories
from broker.remote.process import TIER_NAMES
from broker.remote.removed_topics import FILE_NAME as REMOVED_TOPICS
from broker.remote.tier import RemoteTier
from broker.replica.hosting import SLICE
from broker.replica.target_replica import assigned_partitions, target_replica
from kafka_protocol.types import TopicPartition
from local_log.errors import KafkaStorageError, LogClosed
from local_log.manager.deletion import Removal
from local_log.manager.load_run import LoadRun
from local_log.manager.loading import Loaded
from local_log.manager.log_dirs import LogManager
from metadata_topic.image.delta import MetadataDelta
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.node import MetadataNode
from runtime.executors import Pool
from runtime.ports import Ports

log = logging.getLogger(__name__)


class RemovalsRead:
    """The removed topics in the records that a start reads before it hosts partitions."""

    def __init__(self, node: MetadataNode) -> None:
        """Begin with those that the node has replayed; later ones come as deltas."""
        self._topic_ids = set(node.first_removed)
        self._are_opened = self._is_over = False
        node.subscribe(self._see)

    def _see(self, _image: MetadataImage, delta: MetadataDelta) -> None:
        if not self._is_over:
            self._topic_ids |= delta.removed_topics
            if self._are_opened:
                self._topic_ids |= delta.deleted_topics.keys()

    def take(self) -> frozenset[bytes]:
        """Topic ids that were read since the last call.

        From the first call on, logs are opened by an image. Then deleted topics of that image
        count too, as on a broker that serves.
        """
        taken, self._topic_ids = frozenset(self._topic_ids), set()
        self._are_opened = True
        return taken

    def end(self) -> None:
        """Collect no more: from here on the replica manager removes them."""
        self._is_over = True


class BrokerLogs:
    """Opens and closes the logs, on pool threads.

    Attributes:
        manager: Of the logs, opened or not.
        incarnation_id: Of this incarnation of the broker, named in each directory before it
            registers.
        is_missing_some: A log directory that this broker had is missing or does not work.
        aside: Directories that this start has put aside, because the metadata have no such
            partition.
    """

    def __init__(
        self,
        live: LiveConfig,
        directories: Directories,
        ports: Ports,
        health: Health,
        pool: Pool,
    ) -> None:
        """Read nothing before `open`.

        Args:
            live: The broker's settings.
            directories: Locked and checked; those that are offline stay so.
            ports: Of the process.
            health: Shows the progress of a start or a stop.
            pool: Waits for the threads that open logs.
        """
        config = live.current
        self._live, self._directories, self._ports = live, directories, ports
        self._health, self._pool, self._node_id = health, pool, config.node_id
        self.is_missing_some = False
        self.aside: list[Path] = []
        self.incarnation_id = b""
        self.manager = LogManager(
            list(config.log_dirs),
            live.log_config,
            ports,
            to_loop=asyncio.get_running_loop().call_soon_threadsafe,
            own_names=(*TIER_NAMES, REMOVED_TOPICS),
        )
        for path, reason in directories.offline.items():
            self.manager.put_offline(path, reason)

    async def open(
        self, image: MetadataImage, removed_topics: Container[bytes], *, is_missing_some: bool
    ) -> None:
        """Open the logs in the directories that the metadata assign to this broker.

        Logs of `removed_topics` (ids) are deleted: their removal was read.

        As in Kafka nothing is served before all logs are open. The health pages are served, the
        tier is held, and a signal ends the start.

        Raises:
            KafkaStorageError: No log directory works.
        """
        node_id = self._node_id
        has_tier = self._live.current.remote_log_storage_system_enable
        previous = image.brokers.get(node_id)
        run = self.manager.load_run(
            lambda tp: target_replica(
                image, node_id, tp, is_missing_some=is_missing_some, has_tier=has_tier
            ),
            threads=self._live.current.num_recovery_threads_per_data_dir,
            compare=writes_sidecars(image, node_id),
            without_sidecars=without_sidecars(image, node_id, self._directories.ids),
            last_broker_epoch=None if previous is None else previous.epoch,
            assigned=assigned_partitions(image, node_id),
            removed_topics=removed_topics,
        )
        self.manager.take(await self._finished(run))
        self.incarnation_id = self._ports.rng.uuid()
        await self._pool.run(self._settle, image)
        if not self.manager.online_dirs():
            raise KafkaStorageError(
                "no log directory works: " + "; ".join(offline_directories(self.manager.dirs))
            )
        self.is_missing_some = is_missing_some or len(self.manager.online_dirs()) < len(
            self.manager.dirs
        )

    async def _finished(self, run: LoadRun) -> Loaded:
        """The result of `run`, with its progress in health."""

        def stop() -> None:
            log.info("the start ends while logs are opened: done=%d of=%s", run.done, run.total)
            run.stop()

        self._health.progress = run.stage
        try:
            return await beside_the_loop(self._pool, run.run, stop=stop)
        finally:
            self._health.progress = lambda: ""

    def _settle(self, image: MetadataImage) -> None:
        """Write the files that this incarnation needs before it begins; on a pool thread."""
        self.manager.renew_checkpoints()
        for directory in self.manager.online_dirs():
            path = directory.path
            try:
                renew_running_incarnation(directory, image, self._node_id)
                write_incarnation(self._ports.disk, path, image, self._node_id, self.incarnation_id)
            except OSError as error:
                self.manager.fail(directory, error)

    async def set_aside(self, removed_topics: Container[bytes]) -> None:
        """Put aside directories that are no partition of this broker.

        A cancelled caller waits for the end of it. Logs of `removed_topics` are deleted: their
        removal was read while the logs were opened.
        """
        gone = [one for one in self.manager.all() if one.topic_id in removed_topics]
        removal = Removal()
        for first in range(0, len(gone), SLICE):
            some = gone[first : first + SLICE]
            self.manager.let_go((TopicPartition(one.topic, one.partition) for one in some), removal)
            await asyncio.sleep(0)

        def work() -> list[Path]:
            self.manager.remove(removal)
            return self.manager.set_aside()

        self.aside += await beside_the_loop(self._pool, work, stop=lambda: None)

    async def close(self, *, clean: bool, broker_epoch: int) -> None:
        """Close all logs, with the progress in health.

        Args:
            clean: Mark them as cleanly closed.
            broker_epoch: Of the incarnation that ends.
        """
        count = Count(len(self.manager.all()), "logs are closed", self._ports.clock)
        self._health.progress = count.text
        await self._pool.run(
            partial(
                self.manager.close, clean=clean, broker_epoch=broker_epoch, closed=count.one_more
            )
        )

    def file_failed(self, path: Path, error: OSError) -> None:
        """Fail the log of a file that could not be read while it was sent, as any read would."""
        for one in self.manager.all():
            if one.directory == path.parent and not one.is_offline:
                with contextlib.suppress(KafkaStorageError, LogClosed):
                    one.health.fail(error)


def watch_disks(logs: LogManager, tier: RemoteTier | None, health: Health, ports: Ports) -> Task:
    """Forecast full disks in metrics and health; unhealthy only while the tier is."""
    forecast = DiskForecast(
        lambda: [directory.path for directory in logs.online_dirs()], ports.disk, ports.clock
    )
    forecast.register(ports.metrics)

    def is_tier_unhealthy() -> bool:
        return tier is not None and bool(tier.state().reasons)

    health.checks["disk"] = lambda: forecast.problems() if is_tier_unhealthy() else ()
    health.warnings["disk"] = lambda: () if is_tier_unhealthy() else forecast.warnings()
    return Task("disk forecast", EVERY_MS, forecast.look, in_pool=True)
