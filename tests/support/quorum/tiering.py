"""Brokers with a remote tier beside controllers, one store for all of them."""

import asyncio
import json
import sys
import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from broker.config.keys_log import RACK_AWARE_SELECTOR
from broker.node.cluster_secret import draw_cluster_secret
from runtime.disk import Disk
from runtime.rng import SystemRng
from tests.support.brokers.process import LOCAL_FS, free_ports, tier_pid
from tests.support.quorum.controllers import run_to_end
from tests.support.quorum.links import BROKERS_LISTENER, Network, links_before, listen_behind
from tests.support.quorum.own_controllers import SERVING, TidemarkBroker, TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until_asked, until_stalled
from tests.support.quorum.serving import admin, brokers, leaders, until_true
from tests.support.quorum.tier_stores import DirectoryStore, TierStore

SWITCH = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": LOCAL_FS,
}
"""Of controllers, too: they validate the settings of topics by it."""
TIERS = {
    **SERVING,
    **SWITCH,
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "4",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "200",
    "tidemark.remote.copy.max.ms": "5000",
    "tidemark.remote.delete.grace.ms": "1000",
}
REPLICATED = {
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    "rlmm.config.remote.log.metadata.topic.min.isr": "2",
}
REPLICATED_OFFSETS = {"offsets.topic.replication.factor": "3"}
OFF = {"remote.log.storage.system.enable": "false"}
BY_RACK = {"replica.selector.class": RACK_AWARE_SELECTOR}
SECRET = "cluster.secret"
STORE = "remote-tier"
TOPIC = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "segment.bytes": "1048576",
}
PATIENCE_S = 120
AUDIT_S = 900.0


@dataclass(frozen=True)
class Cluster:
    """Controllers, and the nodes that have a broker with a tier."""

    quorum: Quorum
    nodes: Sequence["Tiering"]
    network: Network | None = None

    @property
    def store(self) -> TierStore:
        return self.nodes[0].store

    @property
    def ids(self) -> set[int]:
        return {one.node_id for one in self.nodes}

    @property
    def servers(self) -> str:
        return ",".join(one.address for one in self.nodes)

    def node(self, node_id: int) -> "Tiering":
        return next(one for one in self.nodes if one.node_id == node_id)

    def remote_segments(self, topic: str, partition: int = 0) -> list[int]:
        """Base offsets of the complete segments in the store, ascending."""
        return sorted(
            int(Path(key).name.split("-")[0]) for key in self._manifests(topic, partition)
        )

    def remote_ranges(self, topic: str, partition: int = 0) -> list[tuple[int, int]]:
        """First and last offset of the complete segments in the store, ascending."""
        found = []
        for key in self._manifests(topic, partition):
            with suppress(FileNotFoundError):  # deleted in the meantime
                told = json.loads(self.store.read(key))
                found.append((told["startOffset"], told["endOffset"]))
        return sorted(found)

    def _manifests(self, topic: str, partition: int) -> list[str]:
        found = [key for key in self.objects(topic) if key.endswith(".manifest")]
        return [key for key in found if Path(key).parent.name == str(partition)]

    def copied_end(self, topic: str, partition: int = 0, start: int = 0) -> int:
        """The first offset from `start` on that no complete segment in the store has."""
        for first, last in self.remote_ranges(topic, partition):
            if first <= start <= last:
                start = last + 1
        return start

    def objects(self, topic: str) -> list[str]:
        """Everything that the store has of a topic, or had under its name."""
        return self.store.of_topic(topic)

    async def until_all_serve(self) -> None:
        for node in self.nodes:
            at = node.address
            await until_true(lambda at=at: brokers(at) == self.ids, "all serve")  # type: ignore[misc]

    async def until_only_active_is_local(self, topic: str, led: Mapping[int, int]) -> None:
        """Wait for each partition, as long as more of it is copied; `led` says by whom."""
        for partition, leader in led.items():
            node = self.node(leader)

            def is_remote(node: "Tiering" = node, partition: int = partition) -> bool:
                is_local = len(node.local_segments(topic, partition)) > 1
                return not is_local and len(self.remote_segments(topic, partition)) > 1

            await until_stalled(
                is_remote,
                lambda node=node, partition=partition: (  # type: ignore[misc]
                    len(self.remote_segments(topic, partition)),
                    len(node.local_segments(topic, partition)),
                ),
                f"all but the active segment of {topic}-{partition} are remote, local no more",
                stalled_s=PATIENCE_S,
            )

    async def until_in_sync(self, topic: str) -> None:
        """Wait until all brokers are in sync for each partition, which has a replica on each."""

        def are() -> bool:
            with suppress(KafkaException):  # somebody answers in a moment
                found = admin(self.servers).list_topics(topic, timeout=10).topics[topic]
                return all(set(one.isrs) == self.ids for one in found.partitions.values())
            return False

        await until_asked(are, f"all replicas of {topic} are in sync", deadline_s=PATIENCE_S)

    async def until_replicas_have_the_active_alone(self, topic: str, partition: int = 0) -> None:
        """Wait until no replica of a partition has a closed segment on its disk."""
        for node in self.nodes:
            await until_asked(
                lambda node=node: len(node.local_segments(topic, partition)) == 1,  # type: ignore[misc]
                f"{node.node_id} has the active segment of {topic}-{partition} alone",
                deadline_s=PATIENCE_S,
            )

    async def create(
        self, topic: str, partitions: int = 1, *, replicas: int = 1, **config: str
    ) -> dict[int, int]:
        """Create a tiered topic; partition to leader. `config`: with _ for each dot."""
        here = self.nodes[0].address
        tools = admin(here)
        settings = TOPIC | {name.replace("_", "."): value for name, value in config.items()}
        made = tools.create_topics([NewTopic(topic, partitions, replicas, config=settings)])
        await asyncio.to_thread(made[topic].result, 30)
        found: dict[int, int] = {}

        def is_led() -> bool:
            found.update(leaders(here, topic))
            return len(found) == partitions and -1 not in found.values()

        await until_true(is_led, f"{topic} is led")
        return found

    async def delete(self, topic: str) -> None:
        """Delete a topic, and wait until the store has nothing of it."""
        tools = admin(self.nodes[0].address)
        await asyncio.to_thread(tools.delete_topics([topic])[topic].result, 30)
        await self.until_nothing_is_left(topic)

    async def until_nothing_is_left(self, topic: str) -> None:
        """Wait until the store has nothing of a deleted topic."""
        await until_stalled(
            lambda: not self.objects(topic),
            lambda: len(self.objects(topic)),
            f"the store has nothing of {topic}",
            stalled_s=PATIENCE_S,
        )

    async def until_green(self) -> None:
        for node in self.nodes:
            health: dict[str, Any] = {}

            def is_green(node: "Tiering" = node, health: dict[str, Any] = health) -> bool:
                health.update(node.health())
                return bool(health["status"] == "green")

            try:
                await until_asked(is_green, f"{node.node_id} is green", deadline_s=PATIENCE_S)
            except AssertionError as error:
                raise AssertionError(f"{error}: {health}") from None


class Tiering(TidemarkController):
    """A node with a broker and a remote tier.

    Attributes:
        store: of its tier; unless another is given, a directory beside those of the nodes.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        (self.http_port,) = free_ports(1)
        self.store: TierStore = DirectoryStore(self.directory.parent / STORE)

    @property
    @abstractmethod
    def address(self) -> str:
        """Where clients come in."""

    @property
    def bootstrap(self) -> str:
        return self.address

    def tier_properties(self) -> dict[str, str]:
        return TIERS | {
            **self.store.settings,
            "tidemark.cluster.secret.file": str(self.directory.parent / SECRET),
            "tidemark.http.listener": f"127.0.0.1:{self.http_port}",
        }

    def switch_on(self) -> None:
        """Have the tier from the next start on."""
        self.settings = REPLICATED

    def page(self, name: str) -> str:
        """What a page says, whatever its status; nothing where nobody listens."""
        try:
            url = f"http://127.0.0.1:{self.http_port}/{name}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()
        except OSError:
            return ""

    def health(self) -> dict[str, Any]:
        """The page `/health`; red where nobody listens."""
        report: dict[str, Any] = json.loads(self.page("health") or '{"status": "red"}')
        return report

    def tier_pid(self) -> int | None:
        """Of the tier process, the node's child; None while there is none."""
        return tier_pid(self.pid)

    def local_segments(self, topic: str, partition: int = 0) -> list[int]:
        found = (self.logs / f"{topic}-{partition}").glob("*.log")
        return sorted(int(path.stem) for path in found)


class TieringBroker(Tiering, TidemarkBroker):
    """A process with `process.roles=broker` and a remote tier."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def properties(self) -> dict[str, str]:
        return super().properties() | self.tier_properties() | self.settings


class TieringCombined(Tiering):
    """A process with both roles and a remote tier."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        (self.client_port,) = free_ports(1)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    def properties(self) -> dict[str, str]:
        listeners = f"CONTROLLER://127.0.0.1:{self.port},PLAINTEXT://{self.address}"
        own = {"process.roles": "broker,controller", "listeners": listeners}
        return super().properties() | self.tier_properties() | own | self.settings


@asynccontextmanager
async def tiers_apart(
    directory: Path,
    *,
    is_dynamic: bool = False,
    broker_settings: Mapping[str, str] = MappingProxyType({}),
    ids: Sequence[int] = (11, 12),
    voters: int = 3,
) -> AsyncIterator[Cluster]:
    """Controllers, and brokers with tiers, whose metadata have one replica."""
    settings = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "3000"}
    plan = Plan(TidemarkController, is_dynamic, settings=settings | SWITCH, count=voters)
    async with Quorum(directory, plan) as quorum:
        nodes = [
            TieringBroker(
                one, directory / f"broker-{one}", quorum.membership, settings=broker_settings
            )
            for one in ids
        ]
        await nodes[0].format("--cluster-secret")
        async with _running(Cluster(quorum, nodes)) as cluster:
            yield cluster


@asynccontextmanager
async def tiers_combined(
    directory: Path, *, is_dynamic: bool = False, are_on: bool = True, have_racks: bool = False
) -> AsyncIterator[Cluster]:
    """Three nodes with both roles, each with a tier, whose metadata have three replicas.

    With `are_on=False` they start without it; `Tiering.switch_on` changes that for the next start.
    With `have_racks=True` each stands in a rack of its own, `r` and its id, and sends consumers to
    the replica in theirs.
    """
    settings = REPLICATED if are_on else REPLICATED | OFF
    plan = Plan(TieringCombined, is_dynamic, settings=settings, has_links=False)
    quorum = Quorum(directory, plan)
    draw_cluster_secret(directory / SECRET, Disk(), SystemRng())
    nodes = [cast("TieringCombined", one) for one in quorum.controllers.values()]
    if have_racks:
        for node in nodes:
            node.settings |= {"broker.rack": f"r{node.node_id}", **BY_RACK}
    async with quorum, _running(Cluster(quorum, nodes)) as cluster:
        yield cluster


@asynccontextmanager
async def tiers_linked(
    directory: Path, store: TierStore, *, is_dynamic: bool = False
) -> AsyncIterator[Cluster]:
    """The same, with a network between the nodes and their tiers that can be cut, and a group."""
    settings = REPLICATED | REPLICATED_OFFSETS | BROKERS_LISTENER
    quorum = Quorum(directory, Plan(TieringCombined, is_dynamic, settings=settings))
    draw_cluster_secret(directory / SECRET, Disk(), SystemRng())
    assert quorum.links is not None
    nodes = [cast("TieringCombined", one) for one in quorum.controllers.values()]
    own, of_brokers = links_before(quorum.controllers)
    own_of_tiers, of_tiers = links_before(quorum.controllers)
    for node in nodes:
        at, port = node.node_id, node.port
        node.store = store
        listen_behind(of_brokers, node, own[at], f"CONTROLLER://127.0.0.1:{port},")
        node.settings |= {
            "tidemark.tier.listener": f"127.0.0.1:{own_of_tiers[at]}",
            "tidemark.tier.advertised.listener": f"127.0.0.1:{of_tiers.ports[at]}",
        }
    async with of_brokers, of_tiers, quorum:
        network = Network(quorum.controllers, of_brokers, of_tiers, quorum.links)
        async with _running(Cluster(quorum, nodes, network)) as cluster:
            yield cluster


@asynccontextmanager
async def _running(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Those that do not run yet are started; none is left running."""
    try:
        await asyncio.gather(*(one.start() for one in cluster.nodes if not one.is_running))
        await cluster.until_all_serve()
        yield cluster
    finally:
        for one in cluster.nodes:
            one.close()
            print(f"--- node {one.node_id}\n{one.log_tail(100)}")


@asynccontextmanager
async def tiers_beside_one_voter(directory: Path) -> AsyncIterator[Cluster]:
    """A node that is all the quorum, and a broker beside it; both have tiers."""
    quorum = Quorum(directory, Plan(TieringCombined, is_dynamic=False, count=1, has_links=False))
    draw_cluster_secret(directory / SECRET, Disk(), SystemRng())
    async with quorum:
        beside = TieringBroker(11, directory / "broker-11", quorum.membership)
        nodes = [cast("TieringCombined", quorum.controllers[1]), beside]
        async with _running(Cluster(quorum, nodes)) as cluster:
            yield cluster


async def audited(node: Tiering, *options: str) -> str:
    """What the audit says of the store, by a broker; it must find nothing."""
    command = [
        sys.executable, "-m", "tidemark.cli", "remote", "audit",
        "--config", str(node.config_file), "--bootstrap-server", node.address, *options,
    ]  # fmt: skip
    # After many rounds a deep one reads thousands of objects beside three busy tiers.
    code, said = await run_to_end(command, AUDIT_S)
    assert code == 0, said
    return said
