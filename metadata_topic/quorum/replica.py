"""One node of the metadata quorum: its replica of the log, the images, the active controller.

    replica = MetadataReplica(open_replica(...), world)
    replica.start()
    replica.receive(request, respond)                        # from the network
    replica.submit(lambda image: create_topics.steps(image, ...), done)
    replica.close(done)

It runs on the event loop's thread only and without asyncio: the simulator runs the same code.

A commit has one path. The high watermark moves, the loader reads up to it and publishes an image,
subscribers get the image, and only then the controller answers. A failure on this path ends the
node, which would otherwise show a cluster that does not exist.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from metadata_topic.controller.features import controller_problem
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.active.broker_control import BrokerControl
from metadata_topic.quorum.active.controller_loop import ControllerLoop
from metadata_topic.quorum.active.controller_metrics import ControllerMetrics
from metadata_topic.quorum.active.decisions import Decide, Outcome, ignore_place
from metadata_topic.quorum.active.election_timers import ElectionTimers
from metadata_topic.quorum.active.ports import ControllerSettings, ControllerWorld
from metadata_topic.quorum.active.submit import DECISION_TIMEOUT_MS
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.described import Now, audience_of, describe_quorum
from metadata_topic.quorum.driver.answers import Respondent
from metadata_topic.quorum.driver.driver import RaftDriver
from metadata_topic.quorum.driver.ports import DriverWorld, Transport
from metadata_topic.quorum.metadata_loader import (
    Applied,
    CommittedBatch,
    MetadataLoader,
    Subscriber,
)
from metadata_topic.quorum.snapshot.snapshotter import Done, FoundSnapshot, Snapshotter
from metadata_topic.quorum.snapshot.store import DiskSnapshotStore, StoredMetadata
from metadata_topic.quorum.start.open_replica import OpenReplica
from metadata_topic.quorum.view import QuorumView
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.core import RaftCore
from metadata_topic.raft.effects import RoleChanged
from metadata_topic.raft.events import SnapshotInstalled
from metadata_topic.raft.messages import BatchFacts, Request
from metadata_topic.raft.roles import Role
from metadata_topic.raft.voter_history import QuorumFacts, VoterHistory
from runtime.incidents import Incident
from runtime.ports import Ports
from runtime.scheduler import Timer

log = logging.getLogger(__name__)

R = TypeVar("R")

SNAPSHOT_CHECK_MS: Final = 60_000
"""Interval of checks for a snapshot due by time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaWorld:
    """Settings and ports of a node of the quorum.

    Attributes:
        cluster_id: Of this cluster.
        raft: Settings of the core; addresses come from the plan of the start.
        controller: Settings of the active controller.
        log: Of the metadata log: when a snapshot is due, and what is kept.
        session_timeout_ms: `broker.session.timeout.ms`.
        own_broker_id: The broker in this process, None without one.
        transport: To the other nodes.
        on_role: Called after each change of role, epoch or leader.
        on_applied: Called after each image, when subscribers and waiting callers have it.
        on_failure: Called once if the node cannot continue.
        before_install: Called on a thread before a fetched snapshot replaces the log.
    """

    cluster_id: str
    ports: Ports
    raft: RaftConfig
    controller: ControllerSettings
    log: MetadataLogConfig
    session_timeout_ms: int
    transport: Transport
    own_broker_id: int | None = None
    on_role: Callable[[RoleChanged], object] = lambda _change: None
    on_applied: Callable[[Applied], object] = lambda _applied: None
    on_failure: Callable[[BaseException], object] = lambda _error: None
    before_install: Callable[[], object] = lambda: None


class _LeadersLog:
    """The log, as the active controller writes it."""

    def __init__(self, driver: RaftDriver, opened: OpenReplica) -> None:
        self._driver, self._log = driver, opened.log

    def propose(self, batches: tuple[BatchFacts, ...], data: bytes | bytearray, epoch: int) -> bool:
        return self._driver.propose(batches, data, epoch)

    def must_flush(self, more_bytes: int) -> bool:
        return self._log.must_flush(more_bytes)

    def log_end(self) -> int:
        return self._log.end_offset

    def flushed_end(self) -> int:
        return self._log.flushed_end


class MetadataReplica:
    """One node of the quorum, without asyncio; on the loop's thread.

    Attributes:
        opened: Result of the start.
        driver: Of the Raft core.
        controller: Takes decisions while this node leads.
        brokers: Registrations and heartbeats, at the active controller.
        snapshotter: Makes snapshots here.
        failure: Error that ended the node; None while it runs.
        controller_problem: Why this controller never leads; empty if it may.
    """

    def __init__(self, opened: OpenReplica, world: ReplicaWorld) -> None:
        """Connect the parts; no effect before `start`."""
        self.opened = opened
        self.failure: BaseException | None = None
        self.controller_problem = ""
        self._world, ports = world, world.ports
        plan = opened.plan
        raft = replace(world.raft, bootstrap=plan.bootstrap, static_nodes=plan.static_nodes)
        self.driver = RaftDriver(
            RaftCore(opened.key, raft),
            DriverWorld(
                log=opened.log,
                state_file=opened.state_file,
                snapshots=DiskSnapshotStore(
                    opened.files, opened.log, ports.disk, world.before_install
                ),
                transport=world.transport,
                listener=self,
                ports=ports,
            ),
        )
        stored = StoredMetadata(opened.log, opened.files)
        self._loader = MetadataLoader(
            stored,
            opened.found.loader,
            opened.applied_end,
            ports,
            on_applied=self._applied,
            on_failure=self.fail,
        )
        self.snapshotter = Snapshotter(
            stored,
            _found_snapshot(opened),
            self.driver,
            facts_at=self._facts_at,
            config=world.log,
            ports=ports,
        )
        self._timer: Timer | None = None
        controller_world = ControllerWorld(
            log=_LeadersLog(self.driver, opened),
            clock=ports.clock,
            scheduler=ports.scheduler,
            settings=world.controller,
            metrics=ControllerMetrics(ports.metrics, ports.clock),
            resign=self.driver.resign,
            audience=lambda: audience_of(self.driver.core),
        )
        self.controller = ControllerLoop(controller_world)
        self.brokers = BrokerControl(
            self.controller,
            controller_world,
            cluster_id=world.cluster_id,
            session_timeout_ms=world.session_timeout_ms,
            kraft_version=lambda: self.kraft_version,
            own_broker_id=world.own_broker_id,
        )
        ElectionTimers(self.controller, controller_world)

    # -- facts ----------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The newest committed image published here."""
        return self._loader.image

    @property
    def applied_end(self) -> int:
        """End (exclusive) of the records in the image or in an open metadata transaction."""
        return self._loader.end_offset

    @property
    def last_batch(self) -> CommittedBatch | None:
        """The last committed batch that was applied; None before the first."""
        return self._loader.last_batch

    @property
    def history(self) -> VoterHistory:
        """Voters and kraft.version by offset."""
        return self.driver.core.history

    @property
    def kraft_version(self) -> int:
        """0 with static voters, 1 with voters in the log."""
        return self.history.latest.kraft_version

    @property
    def high_watermark(self) -> int:
        """First offset not known to be committed (exclusive end); -1 unknown."""
        return self.driver.core.high_watermark

    def _facts_at(self, end_offset: int) -> QuorumFacts:
        return self.history.at(end_offset)

    def describe(self) -> QuorumView:
        """The quorum as this node sees it."""
        clock = self._world.ports.clock
        return describe_quorum(self.driver.core, Now(clock.wall_ms(), clock.monotonic_ms()))

    # -- lifecycle -------------------------------------------------------------------------

    def start(self) -> None:
        """Join the quorum."""
        self.controller.on_applied(self._loader.image, self._loader.end_offset)
        started = self.opened.started
        kraft_version = started.history[-1][1].kraft_version
        self.controller_problem = controller_problem(self.image, kraft_version)
        self.driver.start(replace(started, is_able_to_lead=not self.controller_problem))
        if self.opened.unloaded is not None:
            self._loader.on_snapshot_installed(self.opened.unloaded)
        self._timer = self._world.ports.scheduler.every(
            SNAPSHOT_CHECK_MS, lambda: self.snapshotter.look(self.image), "metadata-snapshot"
        )

    def close(self, done: Callable[[], None]) -> None:
        """Hand over leadership, finish work in progress on the disk, release the log.

        Callers with pending decisions get NotControllerError. After a failure the log is left as
        after a kill.
        """
        self._stop_timer()
        self.controller.close()
        self.snapshotter.close()
        self.driver.close(lambda: self.snapshotter.when_idle(partial(self._close_log, done)))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _close_log(self, done: Callable[[], None]) -> None:
        self._loader.close()
        if self.failure is not None:
            done()
            return
        ports = self._world.ports

        def closed() -> None:
            error = closing.exception()
            if error is not None:
                self.fail(error)
            done()

        closing = ports.executors.commit.submit(self.opened.log.close)
        closing.add_done_callback(lambda _: ports.scheduler.call_soon(closed))

    def fail(self, error: BaseException) -> None:
        """Stop the node at once; the log is left as after a kill."""
        if self.failure is not None:
            return
        self.failure = error
        log.error(Incident.METADATA_NODE_ENDS.line(error=error))
        self._stop_timer()
        self._loader.close()
        self.snapshotter.abandon()
        self.driver.fail(error)
        self.controller.close()
        self._world.on_failure(error)

    # -- for other parts of the process ----------------------------------------------------------

    def receive(self, request: Request, respond: Respondent) -> None:
        """Take a request of another replica; `respond` is called at most once, perhaps at once."""
        self.driver.receive(request, respond)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(image, delta)` for each image with changes.

        It must be quick; an error in it ends the node.
        """
        self._loader.subscribe(subscriber)

    def drop_removed(self, topic_ids: Iterable[bytes]) -> None:
        """Take ids off this node's list of removed tiered topics, as `MetadataLoader` does."""
        self._loader.drop_removed(topic_ids)

    def snapshot(self, done: Done) -> None:
        """Make a snapshot of the newest image now, as `Snapshotter.make`."""
        self.snapshotter.make(self.image, done)

    def submit(
        self,
        decide: Decide[R],
        done: Callable[[Outcome[R]], None],
        *,
        timeout_ms: int = DECISION_TIMEOUT_MS,
        placed: Callable[[int], None] = ignore_place,
        is_own: bool = False,
    ) -> None:
        """Take a decision if this is the active controller, as `ControllerLoop.submit`."""
        self.controller.submit(decide, done, timeout_ms=timeout_ms, placed=placed, is_own=is_own)

    # -- events of the driver --------------------------------------------------------------------

    def on_role(self, change: RoleChanged) -> None:
        """Take a change of role, epoch or leader."""
        self.controller.on_role(change)
        self.snapshotter.on_role(leads=change.role is Role.LEADER)
        self._world.on_role(change)

    def on_append_awaited(self) -> None:
        """Append control records between two decisions."""
        self.controller.when_quiet(self.driver.grant_append)

    def on_high_watermark(self, offset: int) -> None:
        """Take the high watermark: everything below `offset` (exclusive) may be applied."""
        self.controller.on_committed(offset)
        self._loader.on_high_watermark(offset)

    def on_snapshot_installed(self, event: SnapshotInstalled) -> None:
        """Take a fetched snapshot that replaces everything applied so far."""
        self.snapshotter.on_installed(event.snapshot.id)
        self._loader.on_snapshot_installed(event.snapshot.id)

    def on_leader_log_start(self, offset: int) -> None:
        """Take the start of the leader's log."""
        self.snapshotter.on_leader_log_start(offset)

    def on_failure(self, error: BaseException) -> None:
        """Take the failure of the driver."""
        self.fail(error)

    def _applied(self, applied: Applied) -> None:
        self.driver.metrics.applied(applied.end_offset)
        self._look_at_features(applied.image)
        self.controller.on_applied(applied.image, applied.end_offset)
        self._world.on_applied(applied)
        self.snapshotter.note_applied(applied.image, applied.size_bytes)

    def _look_at_features(self, image: MetadataImage) -> None:
        """Check features before the controller gets the image: it must not begin a term then."""
        problem = controller_problem(image, self.kraft_version)
        if problem == self.controller_problem:
            return
        self.controller_problem = problem
        if problem:
            log.error(Incident.CONTROLLER_BARRED.line(problem=problem))
        else:
            log.info("this controller can lead again")
        self.driver.set_able_to_lead(is_able=not problem)


def _found_snapshot(opened: OpenReplica) -> FoundSnapshot:
    newest = [one for one in opened.found.snapshots if one.id == opened.found.snapshot_id]
    end, replayed = opened.started.end_offset, opened.found.bytes_replayed
    return FoundSnapshot(newest[0] if newest else None, end, replayed)
