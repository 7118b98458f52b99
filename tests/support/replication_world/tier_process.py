"""The tier process of a broker: the product's tier on a simulated process, over a simulated link.

It runs as in `rlm.tier_process`, with pools, files and a link of the simulation. It ends with its
broker, by itself, or by a fault; the broker's own supervisor starts the next one.
"""

import os
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from broker.remote.supervisor import Supervisor
from broker.remote.tier import RemoteTier
from kafka_protocol.errors import TidemarkError
from rlm.config import TierConfig
from rlm.deletions import Deletions
from rlm.link.endpoint import Endpoint, LinkEndedError, Received, Reply
from rlm.link.messages import AnyMessage, Envelope
from rlm.maintenance.broker_port import ANSWER_LIMIT_S, LinkBroker
from rlm.maintenance.removals import RemovedTopicsOfBroker
from rlm.plugin_calls import PluginCalls
from rlm.plugins import Plugins
from rlm.service import Link, TierReceiver
from rlm.workers import EXPIRATION_POOL, Done
from rlmm.store import MemoryStore
from rlmm.topic_based.manager import TopicBasedRemoteLogMetadataManager
from rlmm.topic_based.removal_ports import RemoverConfig, StoreGate
from rlmm.topic_based.remover import Remover
from rsm_plugins.place import identity_of
from runtime.disk import Buffer, Disk, OpenFile
from runtime.ports import Ports
from tests.support.replication_world.tier_store import ObjectsStorageManager
from tests.support.sim.memory_disk import MemoryDisk, MemoryFile
from tests.support.sim.pool_work import Job
from tests.support.sim.process import SimFuture, SimProcess
from tests.support.sim.rng import SeededRng

if TYPE_CHECKING:
    from tests.support.replication_world.node import ReplicaNode

LINK_US = 80
PASS_MS = 50
STOP_US = 20_000
KILLED = -9
T = TypeVar("T")


class TierDisk(MemoryDisk):
    """Files of the machine; what only memory holds is held by the real one, to be mapped."""

    def __init__(self, node: "ReplicaNode") -> None:
        super().__init__(node.machine)
        self._memory = Disk()

    def read_at(self, file: OpenFile, position: int, size: int) -> bytes:
        disk = super() if isinstance(file, MemoryFile) else self._memory
        return disk.read_at(file, position, size)

    def read_into(self, file: OpenFile, position: int, buffer: bytearray | memoryview) -> int:
        disk = super() if isinstance(file, MemoryFile) else self._memory
        return disk.read_into(file, position, buffer)

    def write_at(self, file: OpenFile, position: int, data: Buffer) -> None:
        disk = super() if isinstance(file, MemoryFile) else self._memory
        disk.write_at(file, position, data)

    def truncate(self, file: OpenFile, size: int) -> None:
        disk = super() if isinstance(file, MemoryFile) else self._memory
        disk.truncate(file, size)


class TierProcess(SimProcess):
    """A life of a tier; what its broker's supervisor takes for its child.

    Attributes:
        node: whose.
        link: to its broker.
        metadata: its manager, once it is configured.
    """

    node: "ReplicaNode"
    link: "TierLink"
    metadata: "TierManager | None" = None

    def read_to(self, metadata_partition: int) -> int:
        """Up to where it has read the metadata topic; -1: it does not read it."""
        engine = None if self.metadata is None else self.metadata._engine
        tracked = None if engine is None else engine._tracked.get(metadata_partition)
        return -1 if tracked is None else tracked.position.offset

    @property
    def pid(self) -> int:
        return 0

    def kill(self) -> None:
        """End it where it is; its broker hears that the link has ended."""
        if not self.has_ended:
            self.end()
            self.link.cut()

    def exit_code(self) -> int | None:
        return KILLED if self.has_ended else None

    def wait(self, timeout_s: float | None = None) -> int | None:
        return self.exit_code()

    def starved_ms(self) -> float:
        return 0.0


class TierLink:
    """Messages between a broker and its tier, in order, each a little later."""

    def __init__(self, broker: SimProcess, tier: TierProcess) -> None:
        self._processes = broker, tier
        self._endpoints: list[Endpoint] = []
        self.is_over = False

    def connect(self, broker: Endpoint, tier: Endpoint) -> None:
        """Put it between both ends."""
        self._endpoints = [broker, tier]
        broker.connect(_Side(self, 1))
        tier.connect(_Side(self, 0))

    def send(self, to: int, envelope: Envelope, files: Sequence[OpenFile]) -> None:
        """Let one arrive later."""
        if self.is_over:
            raise LinkEndedError("the link has ended")
        process, handed = self._processes[to], tuple(map(handed_over, files))
        arrives = partial(self._endpoints[to].deliver, envelope, handed)
        process.later(process.timeline.now_us + LINK_US, arrives)

    def cut(self) -> None:
        """Both ends hear of it, if they are still there."""
        if self.is_over:
            return
        self.is_over = True
        for process, endpoint in zip(self._processes, self._endpoints, strict=True):
            process.later(process.timeline.now_us + LINK_US, endpoint.end)


class _Side:
    __slots__ = ("_link", "_to")

    def __init__(self, link: TierLink, to: int) -> None:
        self._link, self._to = link, to

    def send(self, envelope: Envelope, files: Sequence[OpenFile]) -> None:
        self._link.send(self._to, envelope, files)

    def close(self) -> None:
        self._link.cut()


def handed_over(file: OpenFile) -> OpenFile:
    """As a descriptor arrives at the other process: of the same bytes, which no process changes."""
    if not isinstance(file, MemoryFile):
        return OpenFile(os.dup(file.fd), file.path)
    memory = Disk()
    copy = memory.memfd("handed over")
    memory.write_at(copy, 0, bytes(file.node.live))
    return copy


class TierWorkers:
    """Pools of a tier: see `rlm.workers.Workers`."""

    def __init__(self, process: TierProcess, sizes: Any) -> None:
        self._process, self._sizes = process, dict(sizes)
        self._jobs: defaultdict[str, deque[Callable[[], None]]] = defaultdict(deque)
        self._busy: defaultdict[str, int] = defaultdict(int)

    def run(self, pool: str, job: Callable[[], T], done: Done[T]) -> None:
        def work() -> None:
            try:
                result = job()
            except Exception as error:
                self._look_at(error)
                self.post(partial(done, None, error))
            else:
                self.post(partial(done, result, None))

        self._jobs[pool].append(work)
        self._staff(pool)

    def _look_at(self, error: Exception) -> None:
        if not isinstance(error, TidemarkError | OSError):  # a FutureTimeoutError is an OSError
            node = self._process.node
            node.world.breaks("no job of a tier has a defect", f"{node}: {error!r}")

    def _staff(self, pool: str) -> None:
        process = self._process
        while self._jobs[pool] and self._busy[pool] < self._sizes[pool]:
            self._busy[pool] += 1
            work = partial(self._work, pool, self._jobs[pool].popleft())
            at_us = process.timeline.now_us + process.wait_us()
            process.later(at_us, lambda work=work: Job(process, work).proceed())  # type: ignore[misc]

    def _work(self, pool: str, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._busy[pool] -= 1
            self._staff(pool)

    def post(self, call: Callable[[], None]) -> None:
        self._process.later(self._process.timeline.now_us, call)

    def pause(self, wait: Callable[[int], object], wait_ms: int) -> None:
        """The whole time passes, though it may be cancelled meanwhile."""
        woken: Future[None] = SimFuture()
        process = self._process
        at_us = process.clock.at_us(process.clock.monotonic_ms() + wait_ms)
        process.later(at_us, partial(woken.set_result, None))
        woken.result()

    def threads(self, pool: str) -> int:
        return int(self._sizes[pool])

    def resize(self, pool: str, threads: int) -> None:
        self._sizes[pool] = threads

    def abandon(self, pool: str, thread_id: int) -> None:
        """One hangs: another takes its place."""
        self._sizes[pool] += 1
        self._staff(pool)

    def queued(self, pool: str) -> int:
        return len(self._jobs[pool])

    def idle_share(self, pool: str) -> float:
        return 1.0


def waited(process: SimProcess, future: "Future[T]", limit_s: float) -> T:
    """From a job: the result, once it is there.

    Raises:
        FutureTimeoutError: it is not there in time.
    """
    woken: Future[None] = SimFuture()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    future.add_done_callback(lambda _: wake())
    process.later(process.clock.at_us(process.clock.monotonic_ms() + limit_s * 1000), wake)
    woken.result()
    if not future.done():
        raise FutureTimeoutError
    return future.result(0)


class TierBroker(LinkBroker):
    """The broker at the other end, asked by jobs."""

    def __init__(self, endpoint: Endpoint, process: TierProcess) -> None:
        super().__init__(endpoint)
        self._process = process

    def _ask(self, message: AnyMessage) -> Received:
        return waited(self._process, self._endpoint.ask(message), ANSWER_LIMIT_S)


class _Written:
    """A write's future, waited for by a job."""

    def __init__(self, process: TierProcess, future: "Future[None]") -> None:
        self._process, self._future = process, future

    def result(self, limit_s: float) -> None:
        waited(self._process, self._future, limit_s)


class TierManager(TopicBasedRemoteLogMetadataManager):
    """The product's metadata manager, turned by the simulation."""

    process: TierProcess

    def add(self, *args: Any) -> Any:
        return _Written(self.process, super().add(*args))

    def update(self, *args: Any) -> Any:
        return _Written(self.process, super().update(*args))

    def put_partition_delete(self, *args: Any) -> Any:
        return _Written(self.process, super().put_partition_delete(*args))

    def turn(self) -> None:
        node = self.process.node
        try:
            super().turn()
        except Exception as error:
            node.world.breaks("a metadata manager continues", f"{node}: {error!r}")


class TierSupervisor(Supervisor):
    """The product's, whose child is a simulated process."""

    def __init__(self, node: "ReplicaNode", tier: RemoteTier, ports: Ports, loop: Any) -> None:
        super().__init__(tier.config, ports, loop, tier)
        self._node = node

    def _start_process(self) -> Any:
        self._dying = [one for one in self._dying if one.exit_code() is None]
        if self._dying:
            return None
        self._process = process = start_tier(self._node)
        return process

    def _link_over(self, ours: Any) -> Endpoint:
        endpoint = Endpoint(self._events.on_request, lambda: self._ended(endpoint))
        begin_tier(ours, endpoint)
        return endpoint


def start_tier(node: "ReplicaNode") -> TierProcess:
    """A process with nothing in it yet."""
    world = node.world
    process = TierProcess(world.timeline, node.clock, TierDisk(node), world.pool_us)
    process.disk.takes = None
    process.node = node
    node.tier_lives += 1
    node.tier_process = process
    return process


def begin_tier(process: TierProcess, broker_end: Endpoint) -> None:
    """Let it serve its broker, as `rlm.tier_process.run` does."""
    node = process.node
    world = node.world
    assert node.process is not None
    seed = world.plan.seed * 1_000_003 + node.id * 1009 + node.tier_lives + 500
    ports = process.ports(SeededRng(seed))
    receiver: TierReceiver | None = None

    def take(received: Received, reply: Reply) -> None:
        assert receiver is not None
        receiver(received, reply)

    def ended() -> None:
        process.later(world.now_us + STOP_US, process.kill)  # the answer leaves first

    def abort(reason: str) -> None:
        world.tell(f"the tier of {node} ends itself: {reason}")
        process.later(world.now_us, process.kill)

    endpoint = Endpoint(take, process.kill)
    broker = TierBroker(endpoint, process)
    receiver = TierReceiver(
        lambda config, calls: _plugins(process, config, ports, broker, calls),
        lambda sizes: TierWorkers(process, sizes),
        ports,
        Link(broker=broker, tell=endpoint.tell, abort=abort, ended=ended),
    )
    process.link = TierLink(node.process, process)
    process.link.connect(broker_end, endpoint)


def _plugins(
    process: TierProcess, config: TierConfig, ports: Ports, broker: TierBroker, calls: PluginCalls
) -> Plugins:
    world = process.node.world
    storage = ObjectsStorageManager(world.remote_objects, process)
    storage.configure({})
    port = world.tier_topic.port_of(process)
    metadata = TierManager(
        port_factory=lambda settings: port,
        store_factory=lambda settings, count: MemoryStore(),
        clock=ports.clock,
        rng=ports.rng,
        threaded=False,
    )
    metadata.process, process.metadata = process, metadata

    def connect(client_settings: Any) -> None:
        metadata.configure({**config.metadata_settings, **client_settings})
        port.turn = metadata.turn
        ports.scheduler.every(PASS_MS, metadata.turn, "metadata manager")

    deletions = Deletions(storage, ports.clock, config.delete_failing_ms, config.copy_max_ms)
    identity = identity_of(storage, {})
    if not world.plan.remove_every_ms:
        return Plugins(storage, metadata, deletions, connect, identity=identity)
    remover = Remover(
        metadata,
        deletions,
        RemovedTopicsOfBroker(broker),
        RemoverConfig(
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            grace_ms=config.delete_grace_ms,
            copy_max_ms=config.copy_max_ms,
        ),
        ports.clock,
        StoreGate(
            watch_call=lambda hangs: calls.call(
                EXPIRATION_POOL, "delete", config.call_max_ms, on_overdue=hangs, writes=True
            ),
            may_write=lambda: calls.may_write,
        ),
    )
    return Plugins(
        storage,
        metadata,
        deletions,
        connect,
        remover=remover,
        unhealthy=lambda: remover.unhealthy,
        yellow=lambda: remover.yellow,
        identity=identity,
    )
