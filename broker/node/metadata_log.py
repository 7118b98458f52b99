"""Opens the metadata log of this node with the settings of the broker."""

from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from broker.node.directories import Directories
from broker.node.endpoints import controller_endpoints
from broker.node.raft_config import append_linger_ms, quorum_settings, raft_config
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.quorum.config import MetadataLogConfig
from metadata_topic.quorum.errors import QuorumConfigError
from metadata_topic.quorum.node import MetadataNode, NodeIdentity, NodeSettings, NodeTransport
from metadata_topic.quorum.start.format import SET_ASIDE_DIRECTORY
from metadata_topic.quorum.wire.peers import Peers
from metadata_topic.quorum.wire.rpc import WireIdentity
from runtime.disk import Disk
from runtime.ports import Ports


def metadata_log_config(config: BrokerConfig) -> MetadataLogConfig:
    """The settings of the metadata log, from those of the broker."""
    return MetadataLogConfig(
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        max_record_bytes_between_snapshots=config.metadata_log_max_record_bytes_between_snapshots,
        max_snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        max_retention_bytes=config.metadata_max_retention_bytes,
        max_retention_ms=config.metadata_max_retention_ms,
        max_idle_interval_ms=config.metadata_max_idle_interval_ms,
        append_linger_ms=append_linger_ms(config),
        election_defaults=ElectionRules(
            config.min_insync_replicas, config.unclean_leader_election_enable
        ),
        unclean_election_interval_ms=config.unclean_leader_election_interval_ms,
        rebalance_interval_ms=(
            1_000 * config.leader_imbalance_check_interval_seconds
            if config.auto_leader_rebalance_enable
            else 0
        ),
    )


def _transport(config: BrokerConfig, directories: Directories, ports: Ports) -> NodeTransport:
    identity = WireIdentity(directories.cluster_id, config.controller_listener_names[0])
    return Peers(identity, config.node_id, ports)


def open_metadata_node(
    config: BrokerConfig,
    directories: Directories,
    ports: Ports,
    on_failure: Callable[[BaseException], None],
    before_install: Callable[[], object] = lambda: None,
) -> MetadataNode:
    """Make the node of the metadata quorum; it is not started yet.

    See `NodeSettings` for `before_install`.

    Raises:
        QuorumConfigError: It was a controller once, and must not become one again.
    """
    _refuse_former_controller(config, ports.disk)
    return MetadataNode(
        config.metadata_log_dir,
        NodeIdentity(
            node_id=config.node_id,
            cluster_id=directories.cluster_id,
            directory_id=directories.ids[config.metadata_log_dir],
            endpoints=controller_endpoints(config),
        ),
        ports,
        NodeSettings(
            quorum=quorum_settings(config),
            raft=raft_config(config),
            log=metadata_log_config(config),
            session_timeout_ms=config.broker_session_timeout_ms,
            has_broker=config.is_broker,
            transport=_transport(config, directories, ports),
            before_install=before_install,
        ),
        on_failure,
    )


def _refuse_former_controller(config: BrokerConfig, disk: Disk) -> None:
    """Refuse a controller whose votes were split off: it would lead alone, a second cluster."""
    set_aside = config.metadata_log_dir / SET_ASIDE_DIRECTORY
    if config.is_controller and disk.exists(set_aside):
        raise QuorumConfigError(
            f"node.id={config.node_id} is a controller (process.roles), but `tidemark split` made "
            f"it a broker of other controllers: its votes were put aside to {set_aside}. Start it "
            "with the broker's properties that the command wrote; docs/controllers.md says how the "
            "split is undone as long as none of the new controllers was started"
        )
