from collections.abc import Iterator
from pathlib import Path

import pytest

from rlmm.api import RemoteLogMetadataManager
from rlmm.memory import InMemoryRemoteLogMetadataManager
from rlmm.rocksdb_store import RocksdbStore
from rlmm.store import MemoryStore
from rlmm.testing import Pump, RemoteLogMetadataManagerContract
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from tests.support.sim.clock import ManualClock
from tests.support.sim.rng import SeededRng
from tests.support.tier.memory_topic import MemoryTopic

CONFIGS = {
    "node.id": "1",
    "cluster.id": "c",
    "log.dir": "/nowhere",
    "bootstrap.servers": "localhost:1",
}


class TestInMemoryManager(RemoteLogMetadataManagerContract):
    @pytest.fixture
    def manager(self) -> RemoteLogMetadataManager:
        return InMemoryRemoteLogMetadataManager(ManualClock(), SeededRng(1))


class TestTopicBasedManagerOnAMemoryTopic(RemoteLogMetadataManagerContract):
    @pytest.fixture
    def manager(self) -> Iterator[TopicBasedRemoteLogMetadataManager]:
        topic = MemoryTopic(3)
        manager = TopicBasedRemoteLogMetadataManager(
            port_factory=lambda settings: topic.port(),
            store_factory=lambda settings, count: MemoryStore(),
            clock=ManualClock(),
            rng=SeededRng(1),
            threaded=False,
        )
        manager.configure(CONFIGS)
        yield manager
        manager.close()

    @pytest.fixture
    def pump(self, manager: TopicBasedRemoteLogMetadataManager) -> Pump:
        return manager.turn


class TestTopicBasedManagerWithRocksdb(RemoteLogMetadataManagerContract):
    @pytest.fixture
    def manager(self, tmp_path: Path) -> Iterator[TopicBasedRemoteLogMetadataManager]:
        topic = MemoryTopic(3)
        manager = TopicBasedRemoteLogMetadataManager(
            port_factory=lambda settings: topic.port(),
            store_factory=lambda settings, count: RocksdbStore(
                tmp_path / "cache", cluster_id="c", partition_count=count
            ),
            clock=ManualClock(),
            rng=SeededRng(1),
            threaded=False,
        )
        manager.configure(CONFIGS)
        yield manager
        manager.close()

    @pytest.fixture
    def pump(self, manager: TopicBasedRemoteLogMetadataManager) -> Pump:
        return manager.turn
