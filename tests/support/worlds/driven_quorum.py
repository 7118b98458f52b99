"""A quorum in one process: the product's drivers on real files; a test moves time and network.

    quorum = DrivenQuorum(tmp_path, [1, 2, 3])
    leader = quorum.elect()
    leader.propose_noop()
    quorum.advance(1_000)

Everything between the core and the disk is the product's own; the network hands messages over in
one millisecond, records as bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kafka_protocol.errors import ErrorCode
from kafka_protocol.files.meta_properties import META_PROPERTIES
from kafka_protocol.records.batch import iter_batches
from metadata_topic.image.records import MetadataRecord, make
from metadata_topic.quorum.config import MetadataLogConfig, NodeIdentity
from metadata_topic.quorum.driver.driver import RaftDriver
from metadata_topic.quorum.driver.ports import DriverWorld
from metadata_topic.quorum.log.batches import data_batch, note_flushed_end
from metadata_topic.quorum.log.fetched import checked_prefix
from metadata_topic.quorum.snapshot.snapshots import snapshot_chunks
from metadata_topic.quorum.snapshot.store import DiskSnapshotStore
from metadata_topic.quorum.start.format import FormatPlan, format_directory
from metadata_topic.quorum.start.open_replica import OpenReplica, open_replica
from metadata_topic.quorum.start.quorum_start import QuorumSettings
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import RoleChanged
from metadata_topic.raft.events import LogStartRaised, SnapshotInstalled, SnapshotWritten
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    BatchFacts,
    FetchResponse,
    Node,
    Question,
    Reply,
    Response,
    SnapshotId,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from runtime.disk import Disk
from runtime.executors import Pool
from tests.support.sim.clock import ManualClock
from tests.support.sim.ports import SimPorts, simulated
from tests.support.sim.scheduler import ManualScheduler

CLUSTER_ID = "driven-quorum-driven-q"
Done = Callable[[Reply | None], None]
__all__ = ["DrivenNode", "DrivenQuorum"]


class DrivenNode:
    """One replica, its files, and what it was told.

    Attributes:
        driver: of this life; gone after `kill`.
        roles: all changes of this life.
        committed: high watermarks of this life.
        installed: snapshots of this life.
        failures: of this life.
        ports: of this life.
    """

    def __init__(self, quorum: "DrivenQuorum", node_id: int, directory: Path) -> None:
        self.quorum = quorum
        self.is_controller = node_id not in quorum.brokers
        self.id = node_id
        self.directory = directory
        self.pool: Pool | None = None
        self.reads: Pool | None = None
        self.background: Pool | None = None
        self.disk = Disk()
        self.driver: RaftDriver | None = None
        self.opened: OpenReplica
        self.ports: SimPorts
        self.roles: list[RoleChanged] = []
        self.committed: list[int] = []
        self.installed: list[SnapshotInstalled] = []
        self.failures: list[BaseException] = []
        self.lives = 0

    # -- lives ----------------------------------------------------------------------------------

    def start(self) -> RaftDriver:
        """Begin a life with what is on the disk, which is formatted where there is nothing."""
        self.roles, self.committed, self.installed, self.failures = [], [], [], []
        self.lives += 1
        self.ports = ports = self._ports()
        home = self.directory.parent
        voters = self.quorum.first_voters
        if not (home / META_PROPERTIES).exists():
            ids = {home: bytes([self.id]) * 16}
            first = None if self.id in self.quorum.controllers else voters
            plan = FormatPlan(CLUSTER_ID, self.id, (home,), home, directory_ids=ids, voters=first)
            format_directory(plan, disk=Disk(), clock=ports.clock, rng=ports.rng)
        others = tuple(replace(node, id=-1) for node in self.quorum.nodes)
        self.opened = opened = open_replica(
            home,
            NodeIdentity(
                node_id=self.id, cluster_id=CLUSTER_ID, directory_id=bytes([self.id]) * 16
            ),
            QuorumSettings(
                is_controller=self.is_controller,
                static_voters=() if self.quorum.is_dynamic else self.quorum.nodes,
                bootstrap_servers=others if self.quorum.is_dynamic else (),
            ),
            ports=ports,
            config=self.quorum.config,
        )
        self.driver = driver = self._begin(opened, ports)
        return driver

    def _begin(self, opened: OpenReplica, ports: SimPorts) -> RaftDriver:
        plan = opened.plan
        config = RaftConfig(
            can_vote=self.is_controller, bootstrap=plan.bootstrap, static_nodes=plan.static_nodes
        )
        driver = RaftDriver(
            RaftCore(opened.key, config),
            DriverWorld(
                log=opened.log,
                state_file=opened.state_file,
                snapshots=DiskSnapshotStore(opened.files, opened.log, self.disk),
                transport=Wire(self, self.lives),
                listener=self,
                ports=ports,
            ),
        )
        driver.start(opened.started)
        return driver

    def _ports(self) -> SimPorts:
        seed = self.id * 100 + self.lives
        ports = simulated(
            seed,
            clock=self.quorum.clock,
            disk=self.disk,
            pool=self.pool,
            reads=self.reads,
            background=self.background,
        )
        return replace(ports, scheduler=self.quorum.scheduler)

    def kill(self) -> None:
        """End the process; what was written stays as it is."""
        self.driver = None

    @property
    def leads(self) -> bool:
        """Whether this replica is up and a leader."""
        return self.driver is not None and self.driver.core.role is Role.LEADER

    # -- what it is told ------------------------------------------------------------------------

    def on_role(self, change: RoleChanged) -> None:
        self.roles.append(change)

    def on_high_watermark(self, offset: int) -> None:
        self.committed.append(offset)

    def on_append_awaited(self) -> None:
        assert self.driver is not None
        self.driver.grant_append()  # nothing else waits here

    def on_snapshot_installed(self, event: SnapshotInstalled) -> None:
        self.installed.append(event)

    def on_leader_log_start(self, offset: int) -> None:
        pass

    def on_failure(self, error: BaseException) -> None:
        self.failures.append(error)

    # -- what a test asks for -------------------------------------------------------------------

    def propose(self, records: Sequence[MetadataRecord]) -> bool:
        """Append one batch as the leader."""
        assert self.driver is not None
        log, epoch = self.opened.log, self.driver.core.epoch
        now_ms = self.quorum.clock.wall_ms()
        base = log.end_offset
        data = data_batch(records, base_offset=base, epoch=epoch, timestamp_ms=now_ms)
        note_flushed_end(data, log.flushed_end)
        return self.driver.propose((BatchFacts(base, base + len(records), epoch),), data, epoch)

    def propose_noop(self) -> bool:
        """Append one record that changes nothing."""
        return self.propose([make("NoOpRecord")])

    def make_snapshot(self) -> SnapshotId:
        """Make a snapshot of nothing at the high watermark, and let the log begin there."""
        assert self.driver is not None
        core, opened = self.driver.core, self.opened
        snapshot_id = SnapshotId(core.high_watermark, core.epoch)
        chunks = snapshot_chunks(
            [make("NoOpRecord")],
            snapshot_id=snapshot_id,
            last_contained_timestamp_ms=0,
            now_ms=self.quorum.clock.wall_ms,
            cluster_id=CLUSTER_ID,
        )
        size = opened.files.write(snapshot_id, chunks)
        self.driver.note_snapshot(SnapshotWritten(SnapshotFile(snapshot_id, size)))
        opened.log.raise_start(snapshot_id.end_offset)
        opened.log.forget_epochs_before(snapshot_id.end_offset)
        opened.log.take_out_old_segments()
        opened.log.delete_old_segments()
        self.driver.note_log_start(
            LogStartRaised(snapshot_id.end_offset, (SnapshotFile(snapshot_id, size),))
        )
        return snapshot_id

    @property
    def log_bytes(self) -> bytes:
        """All batches that this replica has."""
        log, read = self.opened.log, bytearray()
        offset = log.start_offset
        while offset < log.end_offset:  # a segment at a time
            data = log.read(offset, 1 << 30)
            read += data
            *_, (_, last) = iter_batches(data)
            offset = last.next_offset
        return bytes(read)


class Wire:
    """The transport of one life."""

    def __init__(self, node: DrivenNode, life: int) -> None:
        self._node, self._life = node, life

    def send(self, to: Node, request: Question, timeout_ms: int, done: Done) -> None:
        node, quorum = self._node, self._node.quorum

        def answer(response: Reply | None) -> None:
            if node.driver is not None and node.lives == self._life:
                done(response)

        def come_back(response: Response) -> None:
            arrived = quorum.on_the_way(response)
            quorum.scheduler.call_later(1, lambda: answer(_as_read(arrived)))

        def arrive() -> None:
            other = quorum.by_port.get(to.port)
            is_cut = other is None or other.driver is None or (node.id, other.id) in quorum.cut
            if not is_cut and isinstance(request, ApiVersionsRequest):
                quorum.scheduler.call_later(1, lambda: answer(quorum.able))
            elif is_cut or other is None or other.driver is None:
                quorum.scheduler.call_later(timeout_ms, lambda: answer(None))
            else:
                assert not isinstance(request, ApiVersionsRequest)
                other.driver.receive(request, come_back)

        quorum.scheduler.call_later(1, arrive)


def _as_read(response: Response) -> Response:
    if isinstance(response, FetchResponse) and response.data:
        found = checked_prefix(response.data)

        return replace(response, batches=found.batches, data=found.data, fault=found.fault)
    return response


class DrivenQuorum:
    """See the module.

    Attributes:
        cut: (from, to) whose requests are lost.
        on_the_way: what becomes of an answer between two nodes.
        config: of all logs; for lives that begin later.
        first_voters: that directories are formatted with; None: static voters.
        is_dynamic: later lives have bootstrap servers, not static voters, in their settings.
        brokers, controllers: ids of those without a vote at the start.
        able: what each says that it can do.
    """

    def __init__(
        self,
        root: Path,
        ids: Sequence[int],
        observers: Sequence[int] = (),
        *,
        controllers: Sequence[int] = (),
        is_dynamic: bool = False,
    ) -> None:
        """Begin with nothing.

        Args:
            root: of all directories.
            ids: of the first voters.
            observers: brokers, which have no vote.
            controllers: without a vote.
            is_dynamic: the voters are in the log.
        """
        self.brokers, self.controllers = frozenset(observers), frozenset(controllers)
        self.able = ApiVersionsResponse(ErrorCode.NONE, (0, 1))
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.nodes = tuple(Node(node_id, "here", 9000 + node_id) for node_id in ids)
        voters = (
            Voter(
                ReplicaKey(node.id, bytes([node.id]) * 16),
                (VoterEndpoint("CONTROLLER", node.host, node.port),),
            )
            for node in self.nodes
        )
        self.is_dynamic = is_dynamic
        self.first_voters = VoterSet(tuple(voters)) if is_dynamic else None
        self.config = MetadataLogConfig()
        self.members = {
            node_id: self._node(node_id, root / f"node-{node_id}" / "__cluster_metadata-0")
            for node_id in (*ids, *controllers, *observers)
        }
        self.by_port = {9000 + node_id: node for node_id, node in self.members.items()}
        self.cut: set[tuple[int, int]] = set()
        self.on_the_way: Callable[[Response], Response] = lambda response: response

    def _node(self, node_id: int, directory: Path) -> DrivenNode:
        return DrivenNode(self, node_id, directory)

    def endpoints_of(self, node_id: int) -> tuple[VoterEndpoint, ...]:
        """Where a controller says that it listens."""
        return (VoterEndpoint("CONTROLLER", "here", 9000 + node_id),)

    def start(self) -> None:
        """Start all that are down."""
        for node in self.members.values():
            if node.driver is None:
                node.start()

    def advance(self, step_ms: int) -> None:
        """Let time pass."""
        self.scheduler.advance(step_ms)

    def leader(self) -> DrivenNode | None:
        """The one with the highest epoch that leads."""
        leading = [n for n in self.members.values() if n.leads and n.driver is not None]
        return max(leading, key=lambda n: n.roles[-1].epoch, default=None)

    def elect(self, within_ms: int = 20_000) -> DrivenNode:
        """Let time pass until somebody leads and has committed the beginning of its epoch."""
        for _ in range(within_ms // 10):
            self.advance(10)
            leader = self.leader()
            if leader is not None and leader.driver is not None:
                start = leader.driver.core.epoch_start_offset
                if start is not None and leader.driver.core.high_watermark > start:
                    return leader
        raise AssertionError(f"nobody leads after {within_ms} ms")
