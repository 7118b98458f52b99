"""One node of the simulated quorum: a machine, and the product's replica that runs on it.

Opened by `open_replica`, run by `MetadataReplica`, on ports of `tests.support.sim`. What it does is
seen in three places: its core's steps, its messages, and its disk.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kafka_protocol.errors import ErrorCode, TidemarkError
from metadata_topic.quorum.driver.quorum_state_file import QUORUM_STATE, QuorumStateFile
from metadata_topic.quorum.metadata_loader import Applied
from metadata_topic.quorum.replica import MetadataReplica
from metadata_topic.quorum.start.open_replica import OpenReplica
from metadata_topic.quorum.start.quorum_start import (
    Membership,
    MissingQuorumStateError,
    abstain_until,
)
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    Node,
    Question,
    Reply,
    Response,
)
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import ReplicaKey
from runtime.ports import Ports
from tests.support.quorum_world.errors import Violation
from tests.support.quorum_world.mirror import LogMirror
from tests.support.quorum_world.net import Route
from tests.support.quorum_world.plan import METADATA, key_of
from tests.support.quorum_world.starting import format_node, opened_node, replica_of
from tests.support.quorum_world.watching import watch
from tests.support.sim.memory_disk import MemoryDisk
from tests.support.sim.memory_machine import MemoryMachine
from tests.support.sim.power_cut_model import DirectoryNode
from tests.support.sim.process import SimClock, SimProcess
from tests.support.sim.rng import SeededRng

if TYPE_CHECKING:
    from tests.support.quorum_world.world import QuorumWorld

KRAFT_VERSIONS = (0, 1)
"""What each node can do."""


class NodeProcess(SimProcess):
    """A life of a node.

    Attributes:
        node: whose.
    """

    node: "QuorumNode"


class QuorumNode:
    """See the module.

    Attributes:
        process_type: of its lives.
        life: rises with each end.
        up: it runs.
        replica: of this life.
        pending: requests of others that it has not answered, by token.
        noted: what it applied in this turn, that the oracle validates when the turn is over.
        active_epoch: in which it was last seen as the active controller.
        names_seen, changes_seen: changes on its machine when they were last validated.
        start_ends_after: its next life ends within so many changes of the disk.
        crash_after: it ends before the effect of this number in its next step with so many.
        copy: of its directory, made at some time.
        settings: where its newest life was told that voters listen.
        disk_failures: what its disk told it in this life by a fault that was planned.
    """

    process_type: type[NodeProcess] = NodeProcess

    def __init__(self, world: "QuorumWorld", node_id: int) -> None:
        plan = world.plan
        self.world = world
        self.id = node_id
        self.life = 0
        self.disk_number = 0
        self.up = False
        self.config = RaftConfig(
            can_vote=node_id not in plan.observers,
            fetch_max_bytes=plan.fetch_bytes,
            snapshot_max_bytes=plan.chunk_bytes,
            retry_backoff_ms=plan.retry_ms,
            joins=plan.joins and node_id in plan.controllers,
        )
        self.clock = SimClock(world.timeline)
        if plan.clock_skew:
            rng = Random(f"raft-clock-{plan.seed}-{node_id}")
            rate = 1000 + int((2 * rng.random() - 1) * plan.clock_skew * 1000)
            self.clock = SimClock(world.timeline, rate=rate, offset_ms=rng.randrange(10_000_000))
        self.has_lost_vote = False
        self._paused_until = 0
        self.log_is_slow_until = self.state_is_slow_until = 0
        self.disk_fault: tuple[int, int, frozenset[str]] | None = None  # (until, errno, operations)
        self.crash_after: int | None = None
        self.power_goes = False
        self.down_ms = 0
        self.copy: DirectoryNode | None = None
        self.start_ends_after: int | None = None
        self.machine: MemoryMachine
        self.disk: LogMirror
        self.process: NodeProcess | None = None
        self.replica: MetadataReplica | None = None
        self.opened: OpenReplica | None = None
        self.settings: dict[int, Node] = {}
        self.new_machine()
        self._forget()

    def _forget(self) -> None:
        self.disk_failures: set[tuple[int, str]] = set()  # (errno, path)
        self.known_high_watermark = -1
        self.pending: dict[int, tuple[Route, Any]] = {}
        self.sends: dict[int, Callable[[Reply | None], None]] = {}
        self.closing = False
        self.is_flushing = False
        self.truncating: int | None = None
        self.installing: Any = None
        self.noted: list[Applied] = []
        self.has_stepped = False
        self.active_epoch = -1
        self.names_seen = self.changes_seen = -1
        self._token = 0
        self._sent = 0

    def __repr__(self) -> str:
        return f"n{self.id}"

    # -- facts ----------------------------------------------------------------------------------

    @property
    def key(self) -> ReplicaKey:
        return key_of(self.id, self.disk_number)

    @property
    def core(self) -> Any:
        assert self.replica is not None
        return self.replica.driver.core

    @property
    def leads(self) -> bool:
        return self.up and self.replica is not None and self.core.role is Role.LEADER

    def local_ms(self) -> int:
        """This node's clock."""
        return self.clock.monotonic_ms()

    def span_us(self, local_ms: int) -> int:
        """World's time for a span of this node's."""
        return local_ms * 1_000_000 // self.clock.rate

    @property
    def paused_until(self) -> int:
        return self._paused_until

    @paused_until.setter
    def paused_until(self, until_us: int) -> None:
        self._paused_until = until_us
        if self.process is not None:
            self.process.paused_until = until_us

    def is_due_to_disk(self, error: BaseException) -> bool:
        """Whether an error, or what it came of, is one that its disk gave in this life.

        However late: a log that failed at a read is met by the next change.
        """
        seen: BaseException | None = error
        while seen is not None:
            if isinstance(seen, OSError) and (seen.errno, seen.filename) in self.disk_failures:
                return True
            seen = seen.__cause__ or seen.__context__
        return False

    @property
    def has_old_settings(self) -> bool:
        """Whether a voter has moved since it read where voters are."""
        return self.settings != self.world.addresses.settings

    def where(self, voter_id: int) -> Node | None:
        """Where this node would look for a voter without being told by others."""
        assert self.replica is not None
        return self.core.replica.node_of(voter_id) or self.settings.get(voter_id)

    # -- its machine ----------------------------------------------------------------------------

    def new_machine(self) -> None:
        """Give it an empty, formatted disk."""
        plan = self.world.plan
        mine = self.id in plan.voters and plan.dynamic and not self.disk_number
        self.machine = machine = MemoryMachine()
        machine.now_ms = self.clock.wall_ms
        format_node(self, plan.voter_set if mine else None)
        machine.cost_us = self._cost_us
        machine.fault = self._fault
        self.disk = LogMirror(machine, self.key.directory_id)

    def put_copy_back(self) -> None:
        """Continue from the copy of its directory; it is down."""
        assert not self.up
        assert self.copy is not None
        self.has_lost_vote = False
        self.machine.put_back(self.copy)
        self.disk = LogMirror(self.machine, self.key.directory_id)
        self.world.oracle.forgets(self)

    def _cost_us(self, operation: str, path: Any) -> int:
        if operation not in ("fsync", "fsync_path"):
            return self.world.touch_us()
        name = str(path)
        is_state = "quorum-state" in name
        until = self.state_is_slow_until if is_state else self.log_is_slow_until
        return self.world.disk_us() * (60 if until > self.world.now_us else 1)

    def _fault(self, operation: str, path: Any) -> int:
        fault = self.disk_fault
        if fault is None:
            return 0
        until, error, operations = fault
        if until <= self.world.now_us:
            self.disk_fault = None
            return 0
        if operation not in operations:
            return 0
        self.disk_failures.add((error, str(path)))
        self.world.tell(f"{self} {operation} {path} fails")
        return error

    # -- lives ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Read the disk and begin a life."""
        assert not self.up
        world, plan = self.world, self.world.plan
        self.up = True
        self._forget()
        self.settings = dict(world.addresses.settings)
        process = self.process_type(
            world.timeline, self.clock, MemoryDisk(self.machine), world.pool_us
        )
        process.node, self.process = self, process
        process.paused_until = self._paused_until
        process.disk.end_after(self.start_ends_after)
        self.start_ends_after = None
        ports = process.ports(SeededRng(plan.seed * 1_000_003 + self.id * 1009 + self.life))
        try:
            self.opened = opened = self._opens(ports)
        except MissingQuorumStateError as error:
            self._lacks_its_vote(error)
            return
        except (OSError, TidemarkError) as error:
            self._does_not_start(error)
            return
        is_voter = opened.plan.membership is Membership.VOTER
        if self.has_lost_vote and is_voter and opened.started.end_offset > 0:
            raise Violation("no voter starts without its vote", f"{self}")
        self.has_lost_vote = False
        self.replica = self._put_together(opened, ports)
        watch(self, self.replica.driver.core)
        world.oracle.started(self)
        self._begins()

    def _opens(self, ports: Ports) -> OpenReplica:
        return opened_node(self, ports)

    def _put_together(self, opened: OpenReplica, ports: Ports) -> MetadataReplica:
        return replica_of(self, opened, ports)

    def _begins(self) -> None:
        assert self.replica is not None
        self.replica.start()

    def _does_not_start(self, error: Exception) -> None:
        if not self.is_due_to_disk(error):
            raise Violation("a node starts", f"{self}: {type(error).__name__}: {error}") from error
        self.world.tell(f"{self} does not start: {error}")
        self.crash()
        self.world.start_later(self, 500)

    def lose_vote(self) -> None:
        """Take quorum-state away from a node that is down."""
        disk = MemoryDisk(self.machine)
        self.machine.fault = None
        disk.unlink(METADATA / QUORUM_STATE)
        disk.fsync_path(METADATA)
        self.machine.fault = self._fault
        self.has_lost_vote = True

    def _lacks_its_vote(self, error: Exception) -> None:
        """Do what the message says: give no vote up to the highest epoch that others know."""
        if not self.has_lost_vote:
            raise Violation("a node starts", f"{self}: {error}") from error
        self.world.tell(f"{self} abstains")
        self.crash()
        self.machine.fault = None
        file = QuorumStateFile(METADATA, MemoryDisk(self.machine))
        election = abstain_until(self.world.oracle.highest_epoch, 0)
        level, voters = int(self.world.plan.dynamic), self.world.plan.voter_set
        file.write(election, kraft_version=level, voters=voters)
        self.machine.fault = self._fault
        self.has_lost_vote = False
        self.world.start_later(self, 100)

    def fails(self, error: BaseException) -> None:
        if isinstance(error, Violation):
            self.world.breaks_by(error)
            return
        self.world.tell(f"{self} fails: {type(error).__name__}: {error}")
        if not self.is_due_to_disk(error):
            self.world.breaks("no node gives up", f"{self}: {type(error).__name__}: {error}")
            return
        self.world.at_node(self.world.now_us, self, self.world.crash_for, self, 300)

    def crash(self, *, power: bool = False) -> None:
        """End this life; with `power` what is not durable is lost, as the rng decides."""
        assert self.up
        assert self.process is not None
        self.up = False
        self.life += 1
        self.crash_after = None
        self.paused_until = 0
        self.process.end()
        self.process = self.replica = None
        self.machine.locks.clear()
        if power:
            self.machine.cut(self.world.cut_rng)
        self.noted.clear()
        self.world.oracle.looks_at_disk(self)
        self.world.oracle.crashed(self)

    def close(self) -> None:
        """Stop in an orderly way."""
        if self.closing:
            return  # asked for twice while it was paused
        self.closing = True
        life = self.life

        def closed() -> None:
            if self.life == life:
                self.world.at_node(self.world.now_us, self, self._closed)

        self._closes(closed)

    def _closes(self, closed: Callable[[], None]) -> None:
        assert self.replica is not None
        self.replica.close(closed)

    def _closed(self) -> None:
        self.world.tell(f"{self} has closed")
        self.world.crash_for(self, 500)

    # -- messages -------------------------------------------------------------------------------

    def send(
        self, to: Node, request: Question, timeout_ms: int, done: Callable[[Reply | None], None]
    ) -> None:
        """Send a request; the transport of the replica."""
        if self.process is None or self.process.has_ended:
            return
        self._sent += 1
        number = self._sent
        self.sends[number] = done
        world = self.world
        ends = world.now_us + self.span_us(timeout_ms)
        world.at_node(ends, self, self.hear, number, None)
        if not isinstance(request, ApiVersionsRequest):
            world.oracle.asks(self, request)
        world.net.send(self, to, request, number)

    def hear(self, number: int, response: Reply | None) -> None:
        """An answer has come, or the time for it is over."""
        done = self.sends.pop(number, None)
        if done is not None:
            done(response)

    def deliver(self, route: Route, request: Question) -> None:
        """A request has come."""
        if self.replica is None:
            return
        if isinstance(request, ApiVersionsRequest):  # its process answers that, not its replica
            answer = ApiVersionsResponse(ErrorCode.NONE, KRAFT_VERSIONS)
            self.world.net.answer(self, route, request, answer)
            return
        self._token += 1
        token, life = self._token, self.life
        self.pending[token] = (route, request)

        def respond(response: Response) -> None:
            if self.life != life or self.process is None or self.process.has_ended:
                return
            if self.pending.pop(token, None) is None:
                self.world.breaks("a request is answered once", f"{self}: {request}")
            try:
                self.world.oracle.answers(self, request, response)
                self.world.net.answer(self, route, request, response)
            except Violation as error:
                self.world.breaks_by(error)
                raise

        self.replica.receive(request, respond)
