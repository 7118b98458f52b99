"""The metadata node of a process: its replica of the quorum, for asyncio callers.

    node = MetadataNode(log_dir, NodeIdentity(...), ports, settings)
    node.open()                                   # reads the disk; on a thread that may wait
    node.start()                                  # takes part in the quorum
    await node.ready()                            # has caught up; a leader takes decisions
    node.subscribe(lambda image, delta: ...)
    created = await node.submit(lambda image: create_topics(image, ...))

`replica` has the substance, without asyncio.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from kafka_protocol.errors import ErrorCode, KafkaError
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.errors import NotControllerError, UnwrittenDecisionError
from metadata_topic.controller.features import (
    SUPPORTED_FEATURES,
    controller_problem,
    unserved_features,
)
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.quorum.active.broker_control import BrokerControl
from metadata_topic.quorum.active.decisions import Decide, Outcome, ignore_place
from metadata_topic.quorum.active.ports import ControllerSettings
from metadata_topic.quorum.active.submit import (
    DECISION_TIMEOUT_MS,
    DecisionTimedOut,
    SubmittedDecisions,
    wait_for_all,
)
from metadata_topic.quorum.config import MetadataLogConfig, NodeIdentity
from metadata_topic.quorum.driver.answers import Respondent
from metadata_topic.quorum.driver.ports import Transport
from metadata_topic.quorum.errors import QuorumConfigError, UnusableMetadataError
from metadata_topic.quorum.metadata_loader import CommittedBatch, Subscriber
from metadata_topic.quorum.node_readiness import NodeReadiness
from metadata_topic.quorum.replica import MetadataReplica, ReplicaWorld
from metadata_topic.quorum.start.open_replica import OpenReplica, open_replica
from metadata_topic.quorum.start.quorum_start import Membership, QuorumSettings, QuorumStart
from metadata_topic.quorum.view import QuorumView
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.events import EPOCH_MAX, LAST_EPOCH
from metadata_topic.raft.messages import Node, Question, Reply, Request, SnapshotId
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voters import VoterSet
from runtime.health_reasons import HealthReason
from runtime.ports import Ports

__all__ = [
    "MetadataNode",
    "MetadataUnavailable",
    "NodeIdentity",
    "QuorumConfigError",
]

log = logging.getLogger(__name__)

R = TypeVar("R")


class NodeTransport(Transport, Protocol):
    """Transport to the other nodes, which can be closed."""

    def close(self) -> None:
        """Close all connections; open requests get no answer."""
        ...


class Alone:
    """Transport of a sole voter, which has no peers."""

    def send(
        self,
        to: Node,
        request: Question,
        timeout_ms: int,
        done: Callable[[Reply | None], None],
    ) -> None:
        """Fail: a sole voter sends nothing."""
        raise AssertionError(f"a node without a transport wants to ask node {to.id}")

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Settings of the node, from the configuration.

    Attributes:
        quorum: Voters and their addresses.
        raft: Of the core; addresses come from `quorum`.
        log: Of the metadata log.
        session_timeout_ms: `broker.session.timeout.ms`.
        has_broker: The process is a broker, too. If its controller is the only one, the broker
            sends no heartbeats.
        transport: To the other nodes; the node closes it.
        before_install: Called on a thread that may wait, before a fetched snapshot replaces the
            log; its error ends the node.
    """

    quorum: QuorumSettings = field(default_factory=lambda: QuorumSettings(is_controller=True))
    raft: RaftConfig = field(default_factory=RaftConfig)
    log: MetadataLogConfig = field(default_factory=MetadataLogConfig)
    session_timeout_ms: int = 9_000
    has_broker: bool = True
    transport: NodeTransport = field(default_factory=Alone)
    before_install: Callable[[], object] = lambda: None


class MetadataUnavailable(KafkaError):
    """The metadata log cannot take records: its disk failed, or the node is closed."""

    code = ErrorCode.NOT_CONTROLLER


class MetadataNode:
    """The metadata node, for use from the event loop.

    Attributes:
        registration: Of this incarnation of the node, as a controller.
    """

    def __init__(
        self,
        log_dir: Path,
        identity: NodeIdentity,
        ports: Ports,
        settings: NodeSettings | None = None,
        on_failure: Callable[[BaseException], object] = lambda _error: None,
    ) -> None:
        """Take the ports; no file is touched before `open`.

        Args:
            log_dir: The metadata log directory, locked by the caller; holds `bootstrap.checkpoint`
                and `__cluster_metadata-0`.
            identity: Of this node.
            ports: The pool `log-commit` flushes.
            settings: Default: a sole voter.
            on_failure: Called once if the node cannot continue.
        """
        self.node_id = identity.node_id
        self.cluster_id = identity.cluster_id
        self._log_dir = log_dir
        self._identity = identity
        self._ports = ports
        self._scheduler = ports.scheduler
        self._settings = settings or NodeSettings()
        self._on_failure = on_failure
        self._submitted = SubmittedDecisions()
        self._has_started = self._is_closed = False
        self.registration = Registration(
            identity.node_id, ports.rng.uuid(), identity.endpoints, SUPPORTED_FEATURES
        )
        # Set by open.
        self._opened: OpenReplica | None = None
        self._replica: MetadataReplica
        self._readiness: NodeReadiness

    # -- facts ----------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """Committed metadata; immutable, replaced by each commit."""
        return EMPTY_IMAGE if self._opened is None else self._replica.image

    @property
    def leader_epoch(self) -> int:
        """The current epoch of the metadata quorum."""
        return self._replica.driver.core.epoch

    @property
    def leader_id(self) -> int:
        """Id of the quorum's leader; -1 if unknown."""
        leader_id = self._replica.driver.core.leader_id
        return -1 if leader_id is None else leader_id

    @property
    def is_leader(self) -> bool:
        """True if this node leads the quorum."""
        return self._replica.driver.core.role is Role.LEADER

    @property
    def knows_active_controller(self) -> bool:
        """True if the leader is known to take decisions; a newly elected one refuses them.

        It begins when its epoch's first record is committed; on other nodes that record is applied
        later.
        """
        if self.is_leader:
            return self._replica.controller.is_active
        return self.image.provenance.epoch == self.describe().epoch

    @property
    def voters(self) -> VoterSet:
        """The current voters."""
        return self._replica.driver.core.voters

    @property
    def kraft_version(self) -> int:
        """0 with static voters, 1 with voters in the log."""
        return self._replica.kraft_version

    @property
    def ignores_static_voters(self) -> bool:
        """True if `controller.quorum.voters` is set although the log has the voters."""
        return self.kraft_version > 0 and bool(self._settings.quorum.static_voters)

    @property
    def high_watermark(self) -> int:
        """First offset not known to be committed (exclusive end); -1 unknown."""
        return self._replica.high_watermark

    @property
    def log_end_offset(self) -> int:
        """First offset not written yet (exclusive end)."""
        return self._replica.opened.log.end_offset

    @property
    def log_start_offset(self) -> int:
        """First offset still in the log."""
        return self._replica.opened.log.start_offset

    @property
    def latest_snapshot_id(self) -> SnapshotId | None:
        """Id of the newest snapshot on disk."""
        return self._replica.snapshotter.last_id

    @property
    def failure(self) -> BaseException | None:
        """Error that ended the node; None while it runs (for health)."""
        return None if self._opened is None else self._replica.failure

    def snapshot_problems(self) -> tuple[str, ...]:
        """Reasons why no snapshot can be written (for health); the log grows meanwhile."""
        problem = "" if self._opened is None else self._replica.snapshotter.problem
        return (HealthReason.SNAPSHOT.line(problem=problem),) if problem else ()

    def controller_problems(self) -> tuple[str, ...]:
        """Reasons why this controller never leads (for health)."""
        if self._opened is None:
            return ()
        core, problem = self._replica.driver.core, self._replica.controller_problem
        if not problem and core.epoch == EPOCH_MAX and core.role is not Role.LEADER:
            problem = LAST_EPOCH
        return (problem,) if problem else ()

    @property
    def brokers(self) -> BrokerControl:
        """Registrations and heartbeats of brokers, at the active controller."""
        return self._replica.brokers

    @property
    def plan(self) -> QuorumStart:
        """Role of this node in the quorum, as `open` found it."""
        return self._replica.opened.plan

    @property
    def is_alone(self) -> bool:
        """True if this node is the only voter, and so permanently the active controller."""
        assert self._opened is not None
        return self._opened.plan.membership is Membership.SOLE_VOTER

    @property
    def is_bound_to_its_broker(self) -> bool:
        """True if this process has a broker that depends on this node as the only voter."""
        return self.is_alone and self._settings.has_broker

    @property
    def applied_end(self) -> int:
        """End (exclusive) of the committed records that are applied."""
        return self._replica.applied_end

    @property
    def first_removed(self) -> frozenset[bytes]:
        """Topic ids of the RemoveTopicRecords that were replayed at the start."""
        return frozenset() if self._opened is None else self._opened.removed_topics

    @property
    def last_batch(self) -> CommittedBatch | None:
        """The last committed batch that was applied in this incarnation; None before the first."""
        return self._replica.last_batch

    def describe(self) -> QuorumView:
        """The quorum as this node sees it; empty before `start`."""
        return self._replica.describe() if self._has_started else QuorumView(epoch=0)

    # -- start ----------------------------------------------------------------------------------

    def open(
        self,
        check: Callable[[MetadataImage], None] | None = None,
        check_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Read the disk; on a thread that may wait. No other use of the node before `start`.

        Args:
            check: Called with the metadata as found, before anything is written; its error ends the
                start. See `open_replica`.
            check_stop: Called between batches while nothing is changed yet; its error ends the
                start.

        Raises:
            The errors of `open_replica`.
        """
        settings, ports = self._settings, self._ports

        def checked(image: MetadataImage) -> None:
            if problem := controller_problem(image, kraft_version=0):
                raise UnusableMetadataError(f"{self._log_dir}: {problem}")
            if check is not None:
                check(image)

        self._opened = opened = open_replica(
            self._log_dir,
            self._identity,
            settings.quorum,
            ports=ports,
            config=settings.log,
            check=checked,
            check_stop=check_stop,
        )
        self._replica = MetadataReplica(
            opened,
            ReplicaWorld(
                cluster_id=self.cluster_id,
                ports=ports,
                raft=settings.raft,
                controller=self._controller_settings(opened),
                log=settings.log,
                session_timeout_ms=settings.session_timeout_ms,
                transport=settings.transport,
                own_broker_id=self.node_id if settings.has_broker and self.is_alone else None,
                on_role=lambda _change: self._readiness.look(),
                on_applied=lambda _applied: self._readiness.look(),
                on_failure=self._failed,
                before_install=settings.before_install,
            ),
        )
        self._readiness = NodeReadiness(self._replica)

    def _controller_settings(self, opened: OpenReplica) -> ControllerSettings:
        config = self._settings.log
        return ControllerSettings(
            append_linger_ms=config.append_linger_ms,
            max_batch_bytes=config.max_batch_bytes,
            max_idle_interval_ms=config.max_idle_interval_ms,
            bootstrap=opened.bootstrap,
            bootstrap_problem=opened.bootstrap_problem,
            election_defaults=config.election_defaults,
            unclean_election_interval_ms=config.unclean_election_interval_ms,
            rebalance_interval_ms=config.rebalance_interval_ms,
            registration=self.registration,
        )

    def start(self) -> None:
        """Join the quorum; on the loop, after `open`."""
        self._replica.start()
        self._has_started = True

    async def begin(self, check: Callable[[MetadataImage], None] | None = None) -> None:
        """Call `open`, `start` and `ready`; only if the loop has no other work meanwhile."""
        self.open(check)
        self.start()
        await self.ready()

    async def ready(self) -> None:
        """Wait until this node has caught up and, if it leads, takes decisions.

        Raises:
            MetadataUnavailable: The node failed, or was closed.
            NotControllerError, UnwrittenDecisionError: The only voter cannot write a controller's
                first records.
            DecisionTimedOut: The only voter commits nothing in time.
        """
        await self._readiness.wait(self._check_open)
        while self.is_leader:
            try:
                # A new controller's own first records come before this decision.
                await self._submit(lambda _image: _nothing_to_write(), is_own=True)
                break
            except (NotControllerError, UnwrittenDecisionError, DecisionTimedOut) as error:
                if self.is_alone:
                    raise
                log.warning("not ready yet: %s", error)
                await self._readiness.wait(self._check_open)  # deposed: another node may lead
        image = self.image
        if unserved := unserved_features(image):
            log.warning("finalised features that are not served here: %s", unserved)
        log.info(
            "metadata is ready: epoch=%d offset=%d topics=%d partitions=%d",
            self.leader_epoch,
            image.provenance.offset,
            len(image.topics_by_id),
            image.partition_count,
        )

    async def until_applied(self, end_offset: int) -> None:
        """Wait until everything below `end_offset` (exclusive) is in the image.

        Raises:
            MetadataUnavailable: The node failed, or was closed.
        """
        await self._readiness.wait_for(lambda: self.applied_end >= end_offset, self._check_open)

    # -- for other parts of the process ----------------------------------------------------------

    def receive(self, request: Request, respond: Respondent) -> None:
        """Take a request of another replica; `respond` is called at most once, perhaps at once."""
        self._replica.receive(request, respond)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(image, delta)` after each commit with changes.

        It runs on the event loop before the decision's answer is given, and must be quick. An error
        in it ends the node, since the process would continue with stale state.
        """
        self._replica.subscribe(subscriber)

    def drop_removed(self, topic_ids: Iterable[bytes]) -> None:
        """Take ids off this node's list of removed tiered topics, as `MetadataLoader` does."""
        self._replica.drop_removed(topic_ids)

    async def submit(
        self,
        decide: Decide[R],
        *,
        timeout_ms: int = DECISION_TIMEOUT_MS,
        placed: Callable[[int], None] = ignore_place,
    ) -> R:
        """Take a decision, and wait until it is durable.

        Args:
            decide: A controller function on the newest image, at once or in steps; no records: no
                write. It may be called twice.
            timeout_ms: Longest wait of the caller; 0 or less for the default. A decision that still
                waits then is dropped; one in progress is completed.
            placed: See `Decision`; not called if `decide` raises.

        Returns:
            The decision's response, after its records are committed and subscribers have the image.
            If the caller is cancelled, a decision in progress is completed all the same.

        Raises:
            KafkaError: From `decide`, or the records cannot be written; nothing was.
            NotControllerError: Another node takes decisions, or none.
            DecisionTimedOut: The time is over; the decision may be carried out or not.
            MetadataUnavailable: The log cannot take records.
        """
        return await self._submit(decide, timeout_ms=timeout_ms, placed=placed)

    async def _submit(
        self,
        decide: Decide[R],
        *,
        timeout_ms: int = DECISION_TIMEOUT_MS,
        placed: Callable[[int], None] = ignore_place,
        is_own: bool = False,
    ) -> R:
        self._check_open()
        replica = self._replica

        def ask(done: Callable[[Outcome[R]], None]) -> None:
            replica.submit(decide, done, timeout_ms=timeout_ms, placed=placed, is_own=is_own)

        try:
            return await self._submitted.submit(ask)
        except NotControllerError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        if self.failure is not None or self._is_closed or self._opened is None:
            why = "" if self.failure is None else f": {self.failure}"
            raise MetadataUnavailable(f"the metadata log takes no records{why}") from self.failure

    def _failed(self, error: BaseException) -> None:
        self._readiness.look()
        self._on_failure(error)

    # -- snapshots and the end ------------------------------------------------------------------

    async def snapshot(self) -> SnapshotId | None:
        """Make a snapshot of the current image now; None if it cannot be written."""
        made: asyncio.Future[SnapshotId | None] = asyncio.get_running_loop().create_future()

        def done(snapshot_id: SnapshotId | None) -> None:
            if not made.done():
                made.set_result(snapshot_id)

        self._replica.snapshot(done)
        return await made

    async def close(self) -> None:
        """Finish the work in progress, hand over leadership, then release the log.

        Further decisions are refused. May be called if `open` or `start` failed or was never
        called.

        Raises:
            MetadataUnavailable: The work did not end in time, or the disk failed; the log is left
                as after a kill.
        """
        if self._is_closed:
            return
        self._is_closed = True
        clock = self._ports.clock
        deadline_ms = clock.monotonic_ms() + self._settings.log.close_timeout_ms
        if under_way := set(self._submitted.under_way):
            await self._wait(under_way, f"{len(under_way)} changes", deadline_ms)
        if self._opened is None:
            return
        self._readiness.look()
        closed = asyncio.get_running_loop().create_future()
        self._replica.close(partial(closed.set_result, None))
        try:
            await self._wait({asyncio.ensure_future(_of(closed))}, "the end", deadline_ms)
        finally:
            self._settings.transport.close()
        if self.failure is not None:
            log.warning("the metadata log is left as after a kill: %s", self.failure)

    async def _wait(self, tasks: "set[asyncio.Task[object]]", what: str, deadline_ms: int) -> None:
        left_ms = max(0, deadline_ms - self._ports.clock.monotonic_ms())
        await wait_for_all(tasks, left_ms, self._scheduler)
        if any(not task.done() for task in tasks):
            limit_ms = self._settings.log.close_timeout_ms
            late = DecisionTimedOut(f"{what} of the metadata did not end in {limit_ms} ms")
            self._replica.fail(late)
            raise MetadataUnavailable("the metadata log did not stop in time") from late


async def _of(future: "asyncio.Future[None]") -> None:
    await future


def _nothing_to_write() -> ControllerResult[None]:
    return ControllerResult((), None)
