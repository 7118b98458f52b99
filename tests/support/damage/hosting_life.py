"""One life of a broker: its replicas, logs and metadata, without network and tier.

The parts are those of a broker, put together and started in its order. Their pools and turns come
in an order that rng draw, between the requests of clients, so that a batch of partitions is
stopped between any two of its steps.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from broker.handlers.delete_records import DeleteRecordsHandler
from broker.handlers.delete_topics import DeleteTopicsHandler
from broker.handlers.holding import Holding
from broker.network.registry import RequestContext
from broker.node.directories import Directories, open_directories
from broker.node.directory_checks import (
    settle_directories,
    without_sidecars,
    write_incarnation,
    writes_sidecars,
)
from broker.replica.hosting import ControllerRequests
from broker.replica.leader_epochs import LeaderEpochRequests
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from broker.replica.target_replica import (
    assigned_partitions,
    found_replicas,
    refused_replicas,
    target_replica,
)
from broker.topics.cluster import ClusterView
from broker.topics.creation import TopicCreation
from kafka_protocol.errors import KafkaError
from kafka_protocol.files.segment_names import partition_dir
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import TopicPartition
from kafka_protocol.wire.codec import message
from local_log.config import LogConfig
from local_log.errors import KafkaStorageError
from local_log.manager.log_dirs import LogManager
from metadata_topic.controller.result import ControllerResult
from metadata_topic.controller.topic_specs import TopicDefaults, TopicSpec
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.records import make
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.node import MetadataNode, NodeIdentity
from tests.support.samples.metadata import registration_of
from tests.support.sim.power_cut_disk import PowerCutError
from tests.support.worlds.any_order import AnyOrder
from tests.support.worlds.one_node import sole_voter
from tests.support.worlds.own_life import own_life

if TYPE_CHECKING:
    from tests.support.damage.hosting_lives import HostingLives

NODE: Final = 1
CLUSTER: Final = "c" * 22
_PLAIN = LogConfig(
    segment_bytes=400, index_interval_bytes=100, segment_index_bytes=1200, file_delete_delay_ms=500
)
CONFIGS: Final = {
    "tp": _PLAIN,
    "tt": replace(_PLAIN, remote_storage_enable=True),
    "tf": replace(_PLAIN, flush_messages=1),
}
"""By the first letters of a topic's name."""
METADATA_NODE: Final = sole_voter(MetadataLogConfig(segment_bytes=4_000))
HOUR_MS: Final = 3_600_000
_REFUSED: Final = (KafkaError, PowerCutError)


class Ended(Exception):
    """This life is over: killed, cut, or its metadata directory failed."""


class HostingLife:
    """One process. `start`, then clients' calls, `pump` between them, `settle` at their end."""

    def __init__(self, lives: "HostingLives") -> None:
        self.lives, self.disk, self.promises = lives, lives.disk, lives.promises
        self.order = AnyOrder(lives.rng, lives.clock, lives.disk)
        self.ports = self.order.ports
        self.tasks: set[asyncio.Task[None]] = set()
        self.directories: Directories | None = None
        self.is_over = False

    # -- up and down

    async def start(self) -> None:
        """As `broker.broker` does, in its order."""
        home, paths, ports = self.lives.home, self.lives.paths, self.ports
        self.directories = directories = open_directories(
            paths, metadata_path=home, node_id=NODE, disk=self.disk
        )
        self.node = MetadataNode(
            home,
            NodeIdentity(node_id=NODE, cluster_id=CLUSTER, directory_id=directories.ids[home]),
            ports,
            METADATA_NODE,
            on_failure=lambda _error: self._end(),
        )
        is_missing_some = False

        def settle(image: MetadataImage) -> None:
            nonlocal is_missing_some
            is_missing_some = settle_directories(
                directories,
                image,
                log_dirs=paths,
                node_id=NODE,
                disk=self.disk,
                rng=ports.rng,
            )

        await self._pumped(self.node.begin(settle))
        image = self.node.image
        self.logs = logs = LogManager(paths, _config_for, ports, to_loop=ports.scheduler.call_soon)
        for path, reason in directories.offline.items():
            logs.put_offline(path, reason)
        previous = image.brokers.get(NODE)
        run = logs.load_run(
            lambda tp: target_replica(
                image, NODE, tp, is_missing_some=is_missing_some, has_tier=True
            ),
            threads=2,
            compare=writes_sidecars(image, NODE),
            without_sidecars=without_sidecars(image, NODE, directories.ids),
            last_broker_epoch=None if previous is None else previous.epoch,
            assigned=assigned_partitions(image, NODE),
        )
        logs.take(run.run())
        logs.renew_checkpoints()
        incarnation_id = ports.rng.uuid()
        for directory in logs.online_dirs():
            try:
                write_incarnation(self.disk, directory.path, image, NODE, incarnation_id)
            except OSError as error:
                logs.fail(directory, error)
        if not logs.online_dirs():
            raise KafkaStorageError("no log directory works")
        is_missing_some |= len(logs.online_dirs()) < len(logs.dirs)
        self._wire(incarnation_id, is_missing_some=is_missing_some)
        self.broker_epoch = await self._pumped(
            self.registration.register(
                found_replicas(logs),
                refused=refused_replicas(logs, image),
                is_missing_some=is_missing_some,
            )
        )
        logs.set_aside()
        self.replicas.apply(self.node.image, None)
        self.node.subscribe(self.replicas.apply)
        await self._pumped(self.registration.unfence())
        await self._pumped(self.replicas.hosting.caught_up())

    def _wire(self, incarnation_id: bytes, *, is_missing_some: bool) -> None:
        ports, submit = self.ports, self.node.submit
        registration = replace(
            registration_of(NODE),
            incarnation_id=incarnation_id,
            log_dirs=tuple(directory.directory_id for directory in self.logs.online_dirs()),
            keeps_directories=True,
        )
        self.registration = own_life(self.node, registration, ports)
        epochs = LeaderEpochRequests(self.registration.raise_leader_epochs, ports.scheduler)
        self.replicas = ReplicaManager(
            logs=self.logs,
            node_id=NODE,
            config_for=_config_for,
            ports=ports,
            requests=ControllerRequests(assign=self.registration.assign, raise_epoch=epochs.ask),
        )
        epochs.on_refused = self.replicas.epoch_refused
        self.replicas.hosting.is_missing_some = is_missing_some
        self.registration.on_assignment_failed = self.replicas.hosting.assignment_failed
        self.creation = TopicCreation(
            submit,
            defaults=lambda: TopicDefaults(1, 1),
            validate_config=lambda _name, _configs: None,
            rng=ports.rng,
            settled=self.replicas.hosting.settled,
            backlog=lambda: self.replicas.hosting.backlog,
        )
        self.creation.patience_s = inf  # no real time: the same seed goes the same way
        self._delete_topics = DeleteTopicsHandler(
            ClusterView(NODE, CLUSTER, lambda: self.node.image),
            submit,
            enabled=True,
            settled=self.replicas.hosting.settled,
        )
        holding = Holding(ports.clock, ports.scheduler)
        self._delete_records = DeleteRecordsHandler(self.replicas, ports.executors.commit, holding)

    async def stop(self) -> None:
        """A clean stop; also where a directory has failed."""
        await self._pumped(self.registration.leave())
        await self._pumped(self.replicas.stop())
        self.logs.close(broker_epoch=self.broker_epoch)
        await self._pumped(self.node.close())

    def let_go(self) -> None:
        """What the end of a process does: tasks and locks go."""
        for task in self.tasks:
            task.cancel()
        if self.directories is not None:
            self.directories.release()

    def _end(self) -> None:
        self.is_over = True

    # -- turns

    def _check(self) -> None:
        if self.disk.is_off or self.is_over:
            raise Ended

    async def pump(self, steps: int) -> None:
        """Let some of what waits happen."""
        for _ in range(steps):
            self.order.step()
            await asyncio.sleep(0)
            self._check()

    async def settle(self) -> None:
        """Let everything happen that waits."""
        idle = 0
        for _ in range(20_000):
            idle = 0 if self.order.step() else idle + 1
            await asyncio.sleep(0)
            self._check()
            if idle > 30:
                assert not self.tasks, "a client waits, and nothing happens"
                return
        raise AssertionError("it never comes to rest")

    async def _pumped(self, work: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await self.pump(1)
            self._check()
            return task.result()
        finally:
            task.cancel()

    def client(self, call: Coroutine[Any, Any, None]) -> None:
        """Let a client ask for something; it has its answer later, or never."""

        async def asked() -> None:
            with suppress(*_REFUSED):
                await call

        task = asyncio.ensure_future(asked())
        self.tasks.add(task)
        task.add_done_callback(self._client_done)

    def _client_done(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            error = task.exception()
            is_of_disk = isinstance(error, OSError) and self.disk.has_failed
            if error is not None and not is_of_disk and not self.disk.is_off:
                self.lives.errors.append(error)

    # -- what clients ask for

    async def create(self, name: str, partitions: int) -> None:
        for made in await self.creation.create([TopicSpec(name, partitions, 1)]):
            is_gone = made.topic_id in self.promises.deleted  # meanwhile
            if made.error is None and not is_gone and not self.disk.is_off:
                self.promises.made(made.topic_id, name)

    async def delete(self, name: str) -> None:
        found = self.node.image.topics_by_name.get(name)
        if found is None:
            return
        self.promises.made(found.id, name).is_leaving = True
        request = message("DeleteTopicsRequest").cls
        asked = request(
            topics=[request.Topics(name=None, topic_id=found.id)], timeout_ms=100 * HOUR_MS
        )
        answer = await self._delete_topics.handle(_context(self._delete_topics, 6), asked)
        if not answer.responses[0].error_code and not self.disk.is_off:
            self.promises.gone(found.id, unsure=self.disk.has_failed or not self._all_work())

    def _all_work(self) -> bool:
        return all(directory.works for directory in self.logs.dirs)

    async def produce(self, partition: Partition, count: int) -> None:
        known = self.promises.topics.get(partition.topic_id)
        if known is None or not partition.is_leader:
            return
        records, end = known.of(partition.partition), partition.log.log_end_offset
        values = [self.lives.value(partition.topic_id) for _ in range(count)]
        for at, value in enumerate(values, end):
            records.given.setdefault(at, []).append(value)
        now_ms = self.ports.clock.wall_ms()
        batch = build_batch([(now_ms, None, value, []) for value in values])
        info = partition.append(batch, now_ms=now_ms)
        records.acked = info.last_offset + 1
        if partition.waits_for_commit(-1):
            waiting = partition.committed(info.last_offset + 1)
            if waiting is not None:
                await waiting
            if not self.disk.is_off:
                records.synced = max(records.synced, info.last_offset + 1)

    async def flush(self, partition: Partition) -> None:
        end = partition.log.log_end_offset
        await self.ports.executors.commit.run(partition.log.flush)
        known = self.promises.topics.get(partition.topic_id)
        if known is not None and not self.disk.is_off:
            records = known.of(partition.partition)
            records.synced = max(records.synced, end)

    async def delete_records(self, partition: Partition, offset: int) -> None:
        known = self.promises.topics.get(partition.topic_id)
        if known is None or offset > partition.high_watermark:
            return
        records = known.of(partition.partition)
        records.start_asked = max(records.start_asked, offset)
        request = message("DeleteRecordsRequest").cls
        topic = request.Topics(
            name=partition.topic,
            partitions=[
                request.Topics.Partitions(partition_index=partition.partition, offset=offset)
            ],
        )
        asked = request(topics=[topic], timeout_ms=HOUR_MS)
        answer = await self._delete_records.handle(_context(self._delete_records, 2), asked)
        (one,) = answer.topics[0].partitions
        if not one.error_code and not self.disk.is_off:
            records.start = max(records.start, offset)

    async def elect(self, topic_id: bytes, leader: int) -> None:
        """Have the controller name another leader, or the same one again."""

        def decide(image: MetadataImage) -> ControllerResult[None]:
            topic = image.topics_by_id.get(topic_id)
            numbers = [] if topic is None else list(topic.partitions)
            changes = [
                make("PartitionChangeRecord", 0, partition_id=n, topic_id=topic_id, leader=leader)
                for n in numbers
            ]
            return ControllerResult(tuple(changes), None)

        await self.node.submit(decide)

    async def snapshot(self) -> None:
        await self.node.snapshot()

    async def housekeeping(self, task: Callable[[LogManager], object]) -> None:
        await self.ports.executors.background.run(task, self.logs)

    # -- what must be so

    def check(self, *, ended: bool = False) -> None:
        """Everything that was answered is there and served, but for what is in a failed directory.

        Called when nothing waits.
        """
        if ended:
            self.promises.check_metadata(self.node.image)
        broken = self.disk.broken
        for directory in self.logs.dirs:
            assert directory.works or directory.path == broken, directory.failure
        for topic in self.node.image.topics_by_id.values():
            for number, image in topic.partitions.items():
                tp = TopicPartition(topic.name, number)
                found = self.replicas.get(tp)
                if self._lies_in_failed_directory(tp, image.directory_of(NODE)):
                    assert self.replicas.is_offline(tp), f"{tp} is served without its directory"
                    continue
                assert found is not None, f"{tp}: {self.replicas.offline.get(tp, 'not served')}"
                assert found.topic_id == topic.id, f"{tp} is another topic's"
                assert not self.replicas.is_offline(tp), f"{tp} is offline"
                assert found.is_leader == (image.leader == NODE), f"{tp} has another role"
                self.promises.made(topic.id, topic.name)
                self.promises.check_log(found.log)
        served = set(self.replicas.partitions)
        wanted = {
            TopicPartition(topic.name, number)
            for topic in self.node.image.topics_by_id.values()
            for number in topic.partitions
        }
        assert served <= wanted, f"nobody wants {served - wanted}"
        logs = {str(log.directory): log.topic_id for log in self.logs.all()}
        offline = {partition_dir(tp) for tp in self.replicas.offline}
        self.promises.check_names([one.path for one in self.logs.online_dirs()], logs, offline)

    def _lies_in_failed_directory(self, tp: TopicPartition, directory_id: bytes) -> bool:
        if directory_id in self.lives.directory_ids:
            return all(one.directory_id != directory_id for one in self.logs.online_dirs())
        refused = self.logs.refused.get(tp)  # its directory was not noted yet
        return refused is not None and not all(one.works for one in refused.directories)


def _config_for(topic: str) -> LogConfig:
    return CONFIGS[topic[:2]]


def _context(handler: Any, version: int) -> RequestContext:
    return RequestContext(handler.api_key, version, 1, "test", "PLAINTEXT", ("127.0.0.1", 1), 0)
