"""The parts of a running cluster that the tools use, opened together and closed together."""

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.config.broker_config import read_properties
from kafka_client.blocking import BlockingClient, ClusterError
from kafka_client.security import security_of
from kafka_protocol.types import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition
from pipeline.cluster.cluster import Cluster, Topic, look
from rlmm.rocksdb_store import RocksdbStore
from rlmm.topic_based.topic_port import metadata_partition_for
from runtime.clock import Clock, SystemClock
from tidemark.records.settings import translated
from tidemark.remote.metadata_reader import MetadataReader


@dataclass(frozen=True, slots=True)
class Session:
    """A cluster that was reached.

    Attributes:
        settings: of the clients, by librdkafka's names.
    """

    bootstrap: str
    settings: Mapping[str, str]
    client: BlockingClient
    cluster: Cluster
    clock: Clock

    @contextmanager
    def metadata(self, only: Topic | None = None) -> Iterator[MetadataReader]:
        """A reader of the metadata topic, of all of it or of what one topic needs.

        What it reads is kept in a directory that goes with it: millions of segments need no memory.

        Raises:
            ClusterError: there is no such topic.
        """
        topic = self.cluster.topics.get(REMOTE_LOG_METADATA_TOPIC)
        if topic is None:
            raise ClusterError(
                f"there is no topic {REMOTE_LOG_METADATA_TOPIC}: no broker of this cluster has"
                " remote.log.storage.system.enable=true"
            )
        count = len(topic.leaders)
        numbers = None
        if only is not None:
            numbers = {
                metadata_partition_for(TopicIdPartition(only.topic_id, n, only.name), count)
                for n in only.leaders
            }
        with tempfile.TemporaryDirectory(prefix="tidemark-") as directory:
            store = RocksdbStore(
                Path(directory) / "metadata",
                cluster_id=self.cluster.cluster_id,
                partition_count=count,
            )
            try:
                with MetadataReader(
                    self.bootstrap,
                    self.settings,
                    store,
                    self.clock,
                    partition_count=count,
                    only=numbers,
                ) as reader:
                    yield reader
            finally:
                store.close()


@contextmanager
def connected(bootstrap: str, command_config: Path | None) -> Iterator[Session]:
    """Reach a cluster.

    Args:
        bootstrap: `host:port`, several with commas between.
        command_config: properties of the client, like those of Kafka's tools.

    Raises:
        ConfigError: the file cannot be read.
        ClusterError: no broker answers, or a setting cannot be met.
    """
    logging.getLogger("rlmm").setLevel(logging.ERROR)  # refused records are no news to an operator
    settings = {} if command_config is None else read_properties(command_config)
    client_id = settings.get("client.id", "tidemark-remote-tools")
    passed = translated(settings).settings
    with BlockingClient(bootstrap, client_id, **security_of(settings)) as client:
        yield Session(bootstrap, passed, client, look(client), SystemClock())
