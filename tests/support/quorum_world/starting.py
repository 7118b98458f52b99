"""A node of the simulated quorum as the product makes one: formatted, opened, put together."""

from dataclasses import replace
from typing import TYPE_CHECKING

from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.quorum.active.ports import ControllerSettings
from metadata_topic.quorum.config import NodeIdentity
from metadata_topic.quorum.replica import MetadataReplica, ReplicaWorld
from metadata_topic.quorum.start.format import FormatPlan, format_directory
from metadata_topic.quorum.start.open_replica import OpenReplica, open_replica
from metadata_topic.quorum.start.quorum_start import QuorumSettings
from metadata_topic.raft.messages import NOBODY, Node
from metadata_topic.raft.voters import VoterEndpoint, VoterSet
from runtime.ports import Ports
from tests.support.quorum_world.plan import CLUSTER_ID, HOME
from tests.support.sim.memory_disk import MemoryDisk
from tests.support.sim.rng import SeededRng

if TYPE_CHECKING:
    from tests.support.quorum_world.node import QuorumNode


def format_node(node: "QuorumNode", voters: VoterSet | None) -> None:
    """Do the format step on its empty disk."""
    ids = {HOME: node.key.directory_id}
    plan = FormatPlan(CLUSTER_ID, node.id, (HOME,), HOME, directory_ids=ids, voters=voters)
    disk = MemoryDisk(node.machine)
    format_directory(plan, disk=disk, clock=node.clock, rng=SeededRng(node.id))


def opened_node(node: "QuorumNode", ports: Ports) -> OpenReplica:
    """Read its disk and open its log; raises as `open_replica`."""
    plan = node.world.plan
    static = tuple(node.settings.values())
    others = tuple(Node(NOBODY, one.host, one.port) for one in static)
    return open_replica(
        HOME,
        NodeIdentity(node_id=node.id, cluster_id=CLUSTER_ID, directory_id=node.key.directory_id),
        QuorumSettings(
            is_controller=node.id not in plan.observers,
            static_voters=() if plan.dynamic else static,
            bootstrap_servers=others if plan.dynamic else (),
        ),
        ports=ports,
        config=plan.log_config(),
    )


def own_endpoints(node: "QuorumNode") -> tuple[VoterEndpoint, ...]:
    """Where a controller says that it listens, in a world whose voters change."""
    plan = node.world.plan
    if not plan.change_every_ms or node.id not in plan.controllers:
        return ()
    where = node.world.addresses.where(node)
    return (VoterEndpoint("CONTROLLER", where.host, where.port),)


def replica_of(node: "QuorumNode", opened: OpenReplica, ports: Ports) -> MetadataReplica:
    """Put the parts of a life together; nothing happens before its start."""
    plan = node.world.plan
    incarnation = node.key.directory_id[:8] + bytes([node.life % 256] * 8)
    registration = Registration(node.id, incarnation, (), SUPPORTED_FEATURES)
    return MetadataReplica(
        opened,
        ReplicaWorld(
            cluster_id=CLUSTER_ID,
            ports=ports,
            raft=replace(node.config, endpoints=own_endpoints(node)),
            controller=ControllerSettings(
                append_linger_ms=plan.linger_ms,
                max_batch_bytes=plan.batch_bytes,
                max_idle_interval_ms=plan.idle_ms,
                bootstrap=opened.bootstrap,
                bootstrap_problem=opened.bootstrap_problem,
                registration=registration,
            ),
            log=plan.log_config(),
            session_timeout_ms=plan.session_ms,
            transport=node,
            on_applied=node.noted.append,
            on_failure=node.fails,
        ),
    )
