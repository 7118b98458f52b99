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
    if config.is_broker and len(config.controller_quorum_voters) > 1:
        shown = ",".join(f"{v.id}@{v.host}:{v.port}" for v in config.controller_quorum_voters)
        raise _alone("controller.quorum.voters", shown, config)


def check_voters(config: BrokerConfig, voters: VoterSet) -> None:
    """Refuse a broker whose controller is not the only one, by what the metadata log says.

    Raises:
        ConfigError: the log has other voters.
    """
    if config.is_broker and voters.ids != (config.node_id,):
        shown = ",".join(config.process_roles)
        raise _alone("process.roles", f"{shown} with voters {list(voters.ids)}", config)


def _alone(key: str, value: str, config: BrokerConfig) -> ConfigError:
    return ConfigError(
        key,
        value,
        f"node.id={config.node_id} is a broker, too, and must be the only voter: a broker can only "
        "register with the controller in its own process so far, which is not always the active "
        "one of several. Run the controllers of such a quorum with process.roles=controller",
    )
