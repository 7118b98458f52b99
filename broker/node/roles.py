"""Which roles this version runs, and in which quorum; everything else is refused at the start."""

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from metadata_topic.raft.voters import VoterSet


def check_roles(config: BrokerConfig) -> None:
    """Refuse a node that is no controller.

    Raises:
        ConfigError: what `process.roles` wants is not there yet.
    """
    if not config.is_controller:
        raise ConfigError(
            "process.roles",
            ",".join(config.process_roles),
            "must name controller: in this version a broker shares the process of its controller "
            "(process.roles=broker,controller); brokers on their own come with the next one",
        )


def check_broker_among_several(config: BrokerConfig, voters: VoterSet) -> None:
    """Refuse what a broker cannot do while the active controller may be another node.

    Before the node takes part in an election.

    Raises:
        ConfigError: names the setting and the way out.
    """
    if config.remote_log_storage_system_enable:
        raise ConfigError(
            "remote.log.storage.system.enable",
            "true",
            f"node.id={config.node_id} is a broker, and the controllers are several "
            f"({list(voters.ids)}): a remote tier needs the only controller in its own process so "
            "far. Set it to false, or run one node with process.roles=broker,controller as the "
            "only voter",
        )
