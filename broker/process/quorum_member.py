"""A process that takes part in a quorum of several: its start, and the quorum on its pages.

Before it takes part it checks that no other process is this node. The listener of a controller is
open before it can be elected. A node that is only a broker has none: it fetches the metadata log as
an observer, and is never asked for a vote.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from broker.config.broker_config import BrokerConfig
from broker.config.live_config import LiveConfig
from broker.handlers.controllers.changes import (
    ChangeParts,
    creation_without_broker,
)
from broker.node.committed_mark import Comparison, Marks, read_marks, remedy
from broker.node.directories import Directories
from broker.node.endpoints import controller_endpoints
from broker.node.identity_check import Identity
from broker.node.raft_config import fetch_timeout_ms, moved_voter
from broker.observe.health import Health
from broker.observe.quorum_health import QuorumHealth
from broker.process.controller_registration import register_in_metadata
from broker.process.controllers_listener import ControllersListener
from broker.process.identity_watch import IdentityWatch, watch_on
from broker.topics.cluster import ClusterView
from kafka_protocol.files.meta_properties import META_PROPERTIES
from metadata_topic.image.image import MetadataImage
from metadata_topic.quorum.errors import QuorumConfigError
from metadata_topic.quorum.node import MetadataNode
from metadata_topic.raft.voters import ReplicaKey
from runtime.ports import Ports

log = logging.getLogger(__name__)

OnStop = Callable[[Callable[[], Awaitable[object] | None]], None]


class QuorumMember:
    """This node's membership in the quorum.

    Attributes:
        log_is_proven: The leader has a batch that this broker noted as committed. Without it a
            start deletes nothing because of records in that log.
    """

    def __init__(
        self, config: BrokerConfig, directories: Directories, node: MetadataNode, ports: Ports
    ) -> None:
        """Take the parts; `node` is open and not started."""
        self._config, self._directories = config, directories
        self._node, self._ports = node, ports
        self._unproven: Marks = {}
        self.log_is_proven = False

    async def begin(
        self, health: Health, on_stop: OnStop, on_end: Callable[[BaseException], None]
    ) -> QuorumHealth:
        """Take part in the quorum; returns before a leader is known.

        Args:
            health: Shows the quorum from now on.
            on_stop: Called with the undoing of each part.
            on_end: Called when the process must end, because another process is this node.

        Raises:
            QuorumConfigError: It may not take part; the text names both nodes.
            OSError: The listener cannot be opened.
        """
        quorum = self._watch_the_quorum(health, on_stop)
        self._watch = watch = self._identity_watch()
        await watch.before_the_start()
        await self._compare()
        if self._config.is_controller:
            await self._listen(on_stop)
        # Undone before the listener: the others learn that this node no longer leads.
        on_stop(self._node.close)
        self._node.start()
        if self._config.is_controller:
            registering = register_in_metadata(self._node, self._ports)
            on_stop(lambda: _cancelled(registering))
        if moved := moved_voter(self._config, self._node.voters):
            log.warning(moved)
        watching = watch_on(watch, on_end)
        on_stop(lambda: _cancelled(watching))
        return quorum

    async def compare_again(self) -> None:
        """Compare when this node has caught up: before it took part, there may have been no leader.

        Raises:
            QuorumConfigError: The leader lacks a batch that this broker noted as committed.
        """
        if not self.log_is_proven:
            await self._compare(asks_first=True)

    async def _compare(self, *, asks_first: bool = False) -> None:
        """Compare the leader's log with the batches that this broker noted as committed."""
        disk, pool = self._ports.disk, self._ports.executors.reads
        marks = await pool.run(read_marks, disk, list(self._directories.ids))
        found = await self._watch.compare(marks, asks_first=asks_first)
        self.log_is_proven = Comparison.SAME in found.values()
        if not self.log_is_proven:  # else this broker has registered in this log
            self._unproven = {batch: marks[batch] for batch in marks if batch in found}

    def check_registration(self, image: MetadataImage) -> None:
        """Refuse metadata without any trace of this broker.

        If a snapshot replaced each batch that was noted, the broker's registration is the proof:
        only UnregisterBroker removes it.

        Raises:
            QuorumConfigError: It is missing; the text has the offset and the remedy.
        """
        config = self._config
        if not self._unproven or config.node_id in image.brokers:
            return
        mark = next(iter(self._unproven))
        raise QuorumConfigError(
            f"node.id={config.node_id}: cluster.id={self._node.cluster_id} has no registration of "
            f"this broker, which had registered before offset {mark.base_offset} (epoch "
            f"{mark.epoch}) of the metadata log, and that log begins later by now. Either the "
            "broker was unregistered, or this is a younger log, in which its partitions are not. "
            f"{remedy(self._unproven)}"
        )

    async def _listen(self, on_stop: OnStop) -> None:
        config, node = self._config, self._node
        live = LiveConfig(config, self._image)
        creation = creation_without_broker(node.submit, live, self._ports.rng, node.brokers)
        changes = ChangeParts(
            live=live,
            cluster=ClusterView(config.node_id, node.cluster_id, self._image),
            creation=creation,
            submit=node.submit,
            brokers=node.brokers,
            own_broker_id=config.node_id if config.is_broker else None,
            clock=self._ports.clock,
        )
        listener = ControllersListener(config, node, changes, self._ports)
        await listener.open()
        on_stop(listener.close)

    def _identity_watch(self) -> IdentityWatch:
        directories, path = self._directories, self._config.metadata_log_dir
        key = ReplicaKey(self._config.node_id, directories.ids[path])
        place = str(path / META_PROPERTIES)
        me = Identity(key, directories.cluster_id, place, may_vote=self._config.is_controller)
        plan, own = self._node.plan, controller_endpoints(self._config)
        here = {(one.host, one.port) for one in own}
        others = [one for one in plan.controllers if (one.host, one.port) not in here]
        needed = plan.voters.majority if plan.voters.ids else len(others) // 2 + 1
        static = [node.id for node in plan.static_nodes]
        return IdentityWatch(me, plan.controllers, needed, self._ports, voters=static)

    def _watch_the_quorum(self, health: Health, on_stop: OnStop) -> QuorumHealth:
        clock, timeout_ms = self._ports.clock, fetch_timeout_ms(self._config)
        quorum = QuorumHealth(self._node, fetch_timeout_ms=timeout_ms, now_ms=clock.monotonic_ms())
        timer = self._ports.scheduler.every(
            max(timeout_ms // 2, 1), lambda: quorum.look(clock.monotonic_ms()), "quorum health"
        )
        on_stop(timer.cancel)
        health.checks["quorum"] = lambda: quorum.problems(clock.monotonic_ms())
        return quorum

    def _image(self) -> MetadataImage:
        return self._node.image


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})
