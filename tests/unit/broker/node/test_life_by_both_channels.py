"""One life of a broker, by the wire and in the process of the controller: the same to both."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from broker.handlers.api_versions import ApiVersionsHandler, features_of
from broker.network.limits import ListenerAddress, NetworkLimits
from broker.network.registry import DecodedHandler, HandlerTable, RequestContext
from broker.network.server import Server
from broker.node.active_controller import ActiveController
from broker.node.broker_lifecycle import BrokerLifecycle
from kafka_protocol.errors import ApiError, ErrorCode, KafkaError
from kafka_protocol.wire.api_keys import PRIVATE, ApiKey
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.directories import ReplicaId, known_directories
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.controller.leader_epochs import HIGHEST_USED, UsedEpoch
from metadata_topic.controller.producer_ids import BLOCK_SIZE
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.model import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    Endpoint,
    PartitionImage,
    RemoteStore,
)
from metadata_topic.image.records import make
from metadata_topic.quorum.node import MetadataNode, NodeIdentity
from metadata_topic.quorum.start.format import FormatPlan, format_directory
from metadata_topic.quorum.view import QuorumView
from metadata_topic.raft.messages import Node
from runtime.ports import Ports, system_ports
from tests.support.worlds.one_node import sole_voter
from tests.support.worlds.own_life import handlers_of, life_by
from tests.support.worlds.pools import turns
from tests.support.worlds.waiting import until

IN_PROCESS, WIRE = "in process", "wire"
CLUSTER: Final = "tidemarkOneLife0000001"
TOPIC, HERE, THERE = b"t" * 16, b"h" * 16, b"e" * 16
REPLICAS: Final = [ReplicaId(TOPIC, number) for number in range(3)]


@pytest.fixture(params=[IN_PROCESS, WIRE])
def channel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Elsewhere:
    """A controller's node, as the broker of another process knows it: by its image."""

    node_id, is_leader, is_alone, knows_active_controller = 1, False, False, True

    def __init__(self, node: MetadataNode, port: int) -> None:
        self._node = node
        self._view = QuorumView(epoch=1, leader_id=2, leader=Node(2, "127.0.0.1", port))

    def describe(self) -> QuorumView:
        return self._view

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


@dataclass
class Served:
    """A controller, and the way of a broker to it."""

    node: MetadataNode
    ports: Ports
    known: Any
    active: ActiveController

    def life(
        self,
        number: int = 1,
        *directories: bytes,
        keeps: bool = True,
        store: RemoteStore | None = None,
    ) -> BrokerLifecycle:
        registration = Registration(
            1,
            bytes([number]) * 16,
            (Endpoint("PLAINTEXT", "127.0.0.1", 9092),),
            SUPPORTED_FEATURES,
            None,
            directories or (HERE, THERE),
            keeps_directories=keeps,
            remote_store=store,
        )
        return life_by(self.active, self.known, registration, self.ports)

    async def add_topic(self) -> None:
        records = [
            make("TopicRecord", name="orders", topic_id=TOPIC),
            *(
                make(
                    "PartitionRecord",
                    1,
                    partition_id=number,
                    topic_id=TOPIC,
                    replicas=[1],
                    isr=[1],
                    leader=1,
                    leader_epoch=4,
                    partition_epoch=0,
                    directories=[DIRECTORY_UNASSIGNED],
                )
                for number in range(len(REPLICAS))
            ),
        ]
        await self.node.submit(lambda _image: ControllerResult(tuple(records), None))

    def partitions(self) -> list[PartitionImage]:
        return list(self.node.image.topics_by_id[TOPIC].partitions.values())

    def directories(self) -> list[bytes]:
        return [one.directory_of(1) for one in self.partitions()]

    def leaders(self) -> list[tuple[int, int]]:
        return [(one.leader, one.leader_epoch) for one in self.partitions()]


@asynccontextmanager
async def served(
    channel: str,
    home: Path,
    *,
    withheld: Collection[ApiKey] = (),
    registers: Callable[[DecodedHandler], DecodedHandler] = lambda here: here,
) -> AsyncIterator[Served]:
    """A started node, asked by `channel`; of the wire it does not serve what is `withheld`.

    Its handler of BrokerRegistration on the wire is what `registers` makes of it.
    """
    ports = system_ports(asyncio.get_running_loop())
    plan = FormatPlan(CLUSTER, 1, (home,), home, None, directory_ids={home: HERE})
    format_directory(plan, disk=ports.disk, clock=ports.clock, rng=ports.rng)
    identity = NodeIdentity(node_id=1, cluster_id=CLUSTER, directory_id=HERE)
    node = MetadataNode(home, identity, ports, sole_voter(static=True))
    async with AsyncExitStack() as stack:
        stack.callback(ports.executors.shutdown)
        await node.begin()
        stack.push_async_callback(node.close)
        known: Any = node
        if channel == WIRE:
            table = HandlerTable()
            table.add(ApiVersionsHandler(table, lambda: features_of(node.image, 0)))
            for key, handler in handlers_of(node).items():
                if key not in withheld:
                    is_registration = key == ApiKey.BROKER_REGISTRATION
                    table.add(registers(handler) if is_registration else handler)
            server = Server(table, NetworkLimits(), ports)
            await server.start([ListenerAddress("CONTROLLER", "127.0.0.1", 0)])
            stack.push_async_callback(server.stop, 0)
            known = Elsewhere(node, server.bound["CONTROLLER"][1])
        active = ActiveController(known, handlers_of(node), ports)
        stack.callback(active.close)
        yield Served(node, ports, known, active)


async def test_a_life_begins_leads_and_ends_two_leader_epochs_later(
    channel: str, tmp_path: Path
) -> None:
    async with served(channel, tmp_path) as controller, asyncio.timeout(20):
        life = controller.life()
        epoch = await life.register({})
        await controller.add_topic()
        assert controller.node.image.brokers[1].fenced
        await life.unfence()
        assert controller.node.image.brokers[1].epoch == epoch
        assert controller.leaders() == [(1, 4)] * 3
        await life.leave()
        assert controller.leaders() == [(-1, 5)] * 3
        assert not controller.node.image.brokers[1].is_active
        again = controller.life(2)
        assert await again.register(dict.fromkeys(REPLICAS, HERE)) > epoch
        assert controller.leaders() == [(-1, 5)] * 3
        await again.unfence()
        assert controller.leaders() == [(1, 6)] * 3
        await again.close()


@pytest.mark.parametrize("is_missing_some", [False, True])
async def test_a_registration_settles_older_replicas_in_one_decision(
    channel: str, tmp_path: Path, *, is_missing_some: bool
) -> None:
    async with served(channel, tmp_path) as controller, asyncio.timeout(20):
        await controller.life(1, keeps=False).register({})
        await controller.add_topic()
        life, before = controller.life(2), controller.node.high_watermark
        await life.register(
            {REPLICAS[0]: THERE}, refused={REPLICAS[1]: HERE}, is_missing_some=is_missing_some
        )
        lost = DIRECTORY_LOST if is_missing_some else DIRECTORY_UNASSIGNED
        assert controller.directories() == [THERE, HERE, lost]
        assert life.epoch >= before
        await life.close()


async def test_each_life_registers_the_store_of_its_own_tier(channel: str, tmp_path: Path) -> None:
    async with served(channel, tmp_path) as controller, asyncio.timeout(20):
        for number, store in enumerate((RemoteStore("rsm:Store", b"p" * 32), None), 1):
            life = controller.life(number, store=store)
            await life.register({})
            assert controller.node.image.brokers[1].remote_store == store
            await life.close()


async def test_one_more_directory_is_registered_that_no_disk_has(
    channel: str, tmp_path: Path
) -> None:
    """Else Kafka's controllers assign it to replicas whose files were never made."""
    async with served(channel, tmp_path) as controller, asyncio.timeout(20):
        life = controller.life(1, HERE)
        await life.register({})
        assert controller.node.image.brokers[1].log_dirs == (HERE, b"tidemark" + HERE[8:])
        assert known_directories(controller.node.image, 1) == {HERE}, "nobody misses it"
        await life.close()
        again = controller.life(2, HERE, THERE)
        await again.register({})
        assert controller.node.image.brokers[1].log_dirs == (HERE, THERE, b"tidemark" + HERE[8:])
        await again.close()


async def test_directories_of_new_replicas_are_noted_or_said_to_be_not(
    channel: str, tmp_path: Path
) -> None:
    async with served(channel, tmp_path) as controller, asyncio.timeout(20):
        life, failed = controller.life(), asyncio.get_running_loop().create_future()
        life.on_assignment_failed = lambda replicas, error: failed.set_result(
            (list(replicas), error.code)
        )
        await life.register({})
        await controller.add_topic()
        life.assign(dict.fromkeys(REPLICAS, THERE))
        await until(lambda: controller.directories() == [THERE] * 3)
        life.epoch += 1
        life.assign({REPLICAS[2]: HERE})
        assert await failed == ([REPLICAS[2]], ErrorCode.STALE_BROKER_EPOCH)
        await life.close()


async def test_a_failed_directory_moves_the_leaders_of_its_partitions_at_once(
    channel: str, tmp_path: Path
) -> None:
    async with served(channel, tmp_path) as controller, asyncio.timeout(20):
        life, offline = controller.life(), [b"u" * 16]
        life._settings = replace(
            life._settings, heartbeat_interval_ms=600_000, offline_dirs=lambda: offline
        )
        await life.register({})
        await controller.add_topic()
        life.assign(dict(zip(REPLICAS, (HERE, THERE, HERE), strict=True)))
        await until(lambda: controller.directories() == [HERE, THERE, HERE])
        life.report_directories()
        await turns()
        assert controller.node.image.brokers[1].fenced, "its first heartbeat says so"
        await life.unfence()
        await turns()
        offline.append(THERE)
        life.report_directories()
        await until(lambda: controller.leaders() == [(1, 6), (-1, 7), (1, 6)])
        assert controller.partitions()[1].elr == (1,), "it alone has its records"
        await life.close()
        life.report_directories()
        await turns()
        assert not life._tasks, "it would say that a broker serves that is gone"


async def test_leader_epochs_are_raised_or_refused_by_partition(
    channel: str, tmp_path: Path
) -> None:
    async with served(channel, tmp_path) as controller, asyncio.timeout(20):
        life = controller.life()
        await life.register({})
        await controller.add_topic()
        refused = await life.raise_leader_epochs(
            {
                REPLICAS[0]: UsedEpoch(4, 9),
                REPLICAS[1]: UsedEpoch(3, 9),
                REPLICAS[2]: UsedEpoch(4, HIGHEST_USED + 1),
            }
        )
        assert controller.leaders() == [(1, 10), (1, 4), (1, 4)]
        assert {one: error.code for one, error in refused.items()} == {
            REPLICAS[1]: ErrorCode.FENCED_LEADER_EPOCH,
            REPLICAS[2]: ErrorCode.INVALID_REQUEST,
        }
        assert "no leader epoch but damage" in str(refused[REPLICAS[2]])
        life.epoch += 1
        with pytest.raises(ApiError, match="STALE_BROKER_EPOCH"):
            await life.raise_leader_epochs({REPLICAS[0]: UsedEpoch(10, 20)})


async def test_producer_ids_are_above_those_that_the_logs_know(
    channel: str, tmp_path: Path
) -> None:
    async with served(channel, tmp_path) as controller, asyncio.timeout(20):
        life = controller.life()
        await life.register({})
        assert await life.producer_ids(-1) == (0, BLOCK_SIZE)
        used = 10**12
        assert await life.producer_ids(used) == (used + BLOCK_SIZE, used + 2 * BLOCK_SIZE)


async def test_emptied_topics_leave_the_list_of_removed_ones(channel: str, tmp_path: Path) -> None:
    living, removed = TOPIC, b"r" * 16
    async with served(channel, tmp_path) as controller, asyncio.timeout(20):
        life = controller.life()
        await life.register({})
        await controller.add_topic()
        records = (
            make("TopicRecord", name="removed", topic_id=removed, was_tiered=True),
            make("RemoveTopicRecord", topic_id=removed),
        )
        await controller.node.submit(lambda _image: ControllerResult(records, None))
        assert list(controller.node.image.removed_tiered_topics) == [removed]
        await life.update_removed_topics([living, removed])
        assert list(controller.node.image.removed_tiered_topics) == []
        life.epoch += 1
        with pytest.raises(ApiError, match="STALE_BROKER_EPOCH"):
            await life.update_removed_topics([removed])


async def test_a_controller_without_a_request_of_ours_refuses_it_by_name(
    tmp_path: Path,
) -> None:
    async with served(WIRE, tmp_path, withheld=PRIVATE) as controller, asyncio.timeout(20):
        life = controller.life()
        await life.register({})
        await controller.add_topic()
        refused = await life.raise_leader_epochs({REPLICAS[0]: UsedEpoch(4, 9)})
        assert list(refused) == [REPLICAS[0]]
        error: KafkaError = refused[REPLICAS[0]]
        assert error.code == ErrorCode.UNSUPPORTED_VERSION
        assert "does not serve RAISE_LEADER_EPOCHS: it is Apache Kafka's" in str(error)


class SkipsReplicas(DecodedHandler):
    """BrokerRegistration of a controller of Kafka, which does not know our field."""

    def __init__(self, here: DecodedHandler) -> None:
        self.api_key, self.versions, self._here = here.api_key, here.versions, here

    def handle(self, context: RequestContext, request: Any) -> Any:
        request.replicas = []
        return self._here.handle(context, request)


async def test_what_a_controller_skips_in_a_registration_is_assigned_after_it(
    tmp_path: Path,
) -> None:
    async with served(WIRE, tmp_path, registers=SkipsReplicas) as controller, asyncio.timeout(20):
        await controller.life(1, keeps=False).register({})
        await controller.add_topic()
        life = controller.life(2)
        await life.register({REPLICAS[0]: THERE})
        assert controller.directories()[0] == THERE
        await life.close()


async def test_a_controller_that_keeps_no_list_leaves_it_to_the_broker(tmp_path: Path) -> None:
    removed, other = b"r" * 16, b"o" * 16
    async with served(WIRE, tmp_path, withheld=PRIVATE) as controller, asyncio.timeout(20):
        life = controller.life()
        await life.register({})
        assert controller.active.serves(ApiKey.UPDATE_REMOVED_TOPICS) is False
        assert controller.active.serves(ApiKey.BROKER_HEARTBEAT) is True
        records = (make("NoOpRecord", removed_tiered_topics=[removed, other]),)
        await controller.node.submit(lambda _image: ControllerResult(records, None))
        await life.update_removed_topics([removed])
        records = (make("NoOpRecord"),)
        await controller.node.submit(lambda _image: ControllerResult(records, None))
        assert list(controller.node.image.removed_tiered_topics) == [other]
