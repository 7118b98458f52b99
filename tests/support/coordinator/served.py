"""A coordinator on real partitions of `__consumer_offsets`, and its handlers."""

import asyncio
import inspect
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from broker.coordinator.service import GroupCoordinator, partition_of
from broker.handlers import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from broker.topics.cluster import ClusterView
from broker.topics.offsets_topic import OFFSETS_TOPIC, OffsetsTopic
from kafka_protocol.wire.api_keys import ApiKey
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import TopicImage
from metadata_topic.image.sorted_map import SortedMap
from runtime.disk import Disk
from runtime.executors import InlinePool, Pool
from runtime.timing_wheel import TICK_MS
from tests.support.samples.config import load_entries
from tests.support.worlds.data_plane import NODE, World, finish, start

_WITH_CLUSTER = {module.__name__: module for module in (offset_commit, offset_fetch, offset_delete)}
_HANDLERS: Mapping[ApiKey, tuple[ModuleType, str]] = {
    ApiKey.OFFSET_COMMIT: (offset_commit, "OffsetCommitHandler"),
    ApiKey.OFFSET_FETCH: (offset_fetch, "OffsetFetchHandler"),
    ApiKey.OFFSET_DELETE: (offset_delete, "OffsetDeleteHandler"),
    ApiKey.JOIN_GROUP: (join_group, "JoinGroupHandler"),
    ApiKey.SYNC_GROUP: (sync_group, "SyncGroupHandler"),
    ApiKey.HEARTBEAT: (heartbeat, "HeartbeatHandler"),
    ApiKey.LEAVE_GROUP: (leave_group, "LeaveGroupHandler"),
    ApiKey.DESCRIBE_GROUPS: (describe_groups, "DescribeGroupsHandler"),
    ApiKey.LIST_GROUPS: (list_groups, "ListGroupsHandler"),
    ApiKey.DELETE_GROUPS: (delete_groups, "DeleteGroupsHandler"),
}
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}


class ServedGroups:
    """One broker that leads some partitions of the topic, and a topic `t` of three.

    Attributes:
        world: its partitions.
        coordinator: over them.
    """

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int = 1,
        pool: Pool | None = None,
        disk: Disk | None = None,
        settings: Mapping[str, str] = NO_DELAY,
        topics: Mapping[str, TopicImage] | None = None,
        **topic_config: Any,
    ) -> None:
        """Make the topics, or with `topics` lead those that lie in the directory."""
        self.directory = directory
        self.world = World(directory, disk=disk or Disk(), pool=pool or InlinePool())
        config = load_entries(dict(settings))
        topic = OffsetsTopic(self.image, None, config)  # type: ignore[arg-type]
        self.coordinator = GroupCoordinator(topic, config, self.world.ports)
        self.world.replicas.listeners.append(self.coordinator.on_replicas)
        if topics is None:
            self.world.add_topic("t", 3)
            self.world.add_topic(OFFSETS_TOPIC, partitions, **topic_config)
        else:
            self.world.topics.update(topics)
            self.world.apply()

    def restarted(self, *, clean: bool = True, pool: Pool | None = None) -> "ServedGroups":
        """The next life on the same directory; of this one nothing is to be used any more."""
        self.world.logs.close(clean=clean)
        return ServedGroups(self.directory, pool=pool, topics=self.world.topics)

    def image(self) -> MetadataImage:
        topics = self.world.topics
        return MetadataImage(
            topics_by_name=SortedMap.of(topics),
            topics_by_id=SortedMap.of({topic.id: topic for topic in topics.values()}),
        )

    def handler(self, api_key: ApiKey) -> Any:
        module, name = _HANDLERS[api_key]
        cls = getattr(module, name)
        if module.__name__ in _WITH_CLUSTER:
            return cls(self.coordinator, ClusterView(NODE, "c", self.image))
        if api_key is ApiKey.JOIN_GROUP:
            return cls(self.coordinator, self.world.rng)
        return cls(self.coordinator)

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Call a handler: its answer, or an awaitable of it."""
        return start(self.handler(api_key), version, fields)

    async def told(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Ask, wait, and decode the answer."""
        answer = self.ask(api_key, version, **fields)
        if inspect.isawaitable(answer):
            answer = await answer
        return finish(self.handler(api_key), version, answer)

    # -- the usual requests

    def commit(self, offset: int, *, group: str = "g", partition: int = 0) -> Any:
        """Commit as a consumer without membership."""
        committed = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_metadata": "",
        }
        topics = [{"name": "t", "partitions": [committed]}]
        return self.ask(ApiKey.OFFSET_COMMIT, 8, group_id=group, topics=topics)

    async def committed(self, group: str = "g", partition: int = 0) -> tuple[int, int]:
        """Error of the group, and the committed offset of a partition."""
        topics = [{"name": "t", "partition_indexes": [partition]}]
        answer = await self.told(ApiKey.OFFSET_FETCH, 6, group_id=group, topics=topics)
        [topic] = answer.topics or [None]
        found = -2 if topic is None else topic.partitions[0].committed_offset
        return answer.error_code, found

    def join(self, *, group: str = "g") -> "asyncio.Future[Any]":
        """Ask to join, in a version in which a member needs no id first."""
        answer = self.ask(
            ApiKey.JOIN_GROUP,
            3,
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            member_id="",
            protocols=[{"name": "range", "metadata": b"m"}],
        )
        assert inspect.isawaitable(answer), answer
        return asyncio.ensure_future(answer)

    async def joined(self, *, group: str = "g") -> Any:
        """Join as the first member: the generation is complete when the time of its wait is up."""
        waiting = self.join(group=group)
        self.world.scheduler.advance(2 * TICK_MS)
        return await waiting

    def group_in(self, partition: int) -> str:
        """A group that this partition of the topic has."""
        count = len(self.world.topics[OFFSETS_TOPIC].partitions)
        names = (f"group-{number}" for number in range(10_000))
        return next(name for name in names if partition_of(name, count) == partition)


def code_of_commit(answer: Any) -> int:
    """The error of the only partition."""
    [topic] = answer.topics
    return int(topic.partitions[0].error_code)
