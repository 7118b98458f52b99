"""A follower over TCP, with real threads: what only they can break."""

import asyncio
from pathlib import Path
from typing import Any

from broker.config.broker_config import BrokerConfig
from broker.handlers.fetch import FetchHandler, FetchLimits
from broker.network.registry import DecodedHandler, RequestContext
from broker.replica.partition import Partition
from broker.replication.manager import ReplicaFetchers
from broker.replication.tier_bootstrap import TierBootstraps
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import response
from kafka_protocol.wire.schema import Versions
from metadata_topic.image.image import MetadataImage
from metadata_topic.image.model import BrokerImage, Endpoint
from runtime.ports import system_ports
from tests.support.worlds.data_plane import NODE, World
from tests.support.worlds.followers import FOLLOWER, bytes_of
from tests.support.worlds.network import serving
from tests.support.worlds.pools import turns
from tests.support.worlds.waiting import until

PARTITIONS = 3
VALUE = b"v" * 1_000


class Greets(DecodedHandler):
    api_key = ApiKey.API_VERSIONS
    versions = Versions(0, 4)

    def handle(self, context: RequestContext, request: Any) -> Any:
        cls = response(ApiKey.API_VERSIONS).cls
        key = cls.ApiKeys(api_key=int(ApiKey.FETCH), min_version=4, max_version=18)
        return cls(api_keys=[key])


async def test_logs_stay_equal_while_a_leader_is_written_and_roles_change(tmp_path: Path) -> None:
    (tmp_path / "l").mkdir()
    (tmp_path / "f").mkdir()
    leader, follower = World(tmp_path / "l"), World(tmp_path / "f", node_id=FOLLOWER)
    ports = system_ports(asyncio.get_running_loop())
    fetch = FetchHandler(leader.replicas, leader.ports, limits=FetchLimits())
    async with serving(fetch, api_versions=Greets()) as server:
        endpoint = Endpoint("PLAINTEXT", *server.server.bound["PLAINTEXT"])
        image = MetadataImage(brokers={NODE: BrokerImage(NODE, 1, bytes(16), (endpoint,))})
        config, _ = BrokerConfig.load({
            "process.roles": "broker",
            "node.id": str(FOLLOWER),
            "controller.quorum.bootstrap.servers": "localhost:1",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(tmp_path / "f"),
            "num.replica.fetchers": "2",
        })  # fmt: skip
        fetchers = ReplicaFetchers(
            lambda: config,
            image=lambda: image,
            broker_epoch=lambda: 1,
            bootstraps=TierBootstraps(None, follower.logs, ports),
            ports=ports,
        )
        follower.replicas.listeners.append(fetchers.on_events)
        leader.add_topic("t", PARTITIONS, segment_bytes=300_000)
        follower.configs["t"] = leader.configs["t"]

        def tell(epoch: int, owner: int = NODE) -> None:
            for index in range(PARTITIONS):
                values = {"leader_epoch": epoch, "partition_epoch": epoch, "leader": owner}
                leader.change("t", index, replicas=(NODE, FOLLOWER), **values)
            follower.topics["t"] = leader.topics["t"]
            follower.apply()

        def led(index: int) -> Partition:
            return leader.replicas.require("t", index)

        tell(3)
        for number in range(600):
            for index in range(PARTITIONS):
                leader.append("t", VALUE, VALUE, index=index)
            if number % 150 == 140:
                tell(4 + number)  # another epoch, in the middle of an append
            if number % 20 == 0:
                await turns(20)
        for index in range(PARTITIONS):
            end = led(index).log.log_end_offset

            def has_all(index: int = index, end: int = end) -> bool:
                return bool(follower.log("t", index).log_end_offset == end)

            await until(has_all)
            assert bytes_of(follower.log("t", index)) == bytes_of(led(index).log)
            ours, theirs = follower.log("t", index).epochs, led(index).log.epochs
            assert ours.entries() == theirs.entries()
        assert fetchers.problems() == []
        await fetchers.stop()
    ports.executors.shutdown()
    await asyncio.sleep(0)
