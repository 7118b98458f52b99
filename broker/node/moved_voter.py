"""Whether a voter listens where the others look for it: the voter set of the log holds its address.

With voters in the log (kraft.version 1) a changed port in the configuration changes nothing there.
The others, and tools, go on asking the old address; a leader that they cannot reach does not stay.
"""

from broker.config.broker_config import BrokerConfig
from metadata_topic.raft.voters import VoterSet


def moved_voter(config: BrokerConfig, voters: VoterSet) -> str | None:
    """Say that this node's address in `voters` is none that it has; None if all is well.

    Ports alone are compared: a host has many names.
    """
    voter = voters.get(config.node_id)
    if voter is None or not voter.endpoints or config.has_static_voters:
        return None
    ports = {one.port for one in config.controller_listeners}
    ports |= {int(text.rpartition(":")[2]) for text in _advertised(config)}
    if ports & {one.port for one in voter.endpoints}:
        return None
    known = ",".join(f"{one.host}:{one.port}" for one in voter.endpoints)
    return (
        f"the other voters and the tools look for this controller at {known}, which is what the "
        f"voters of the metadata log say; it has {sorted(ports)}, and as a leader it will not be "
        "found. Put back the port in listeners, or say it in advertised.listeners: this version "
        "does not change the address of a voter"
    )


def _advertised(config: BrokerConfig) -> list[str]:
    """`NAME://host:port` of each controllers' listener in `advertised.listeners`."""
    given = config.layers.merged().get("advertised.listeners", "").split(",")
    names = config.controller_listener_names
    return [text.strip() for text in given if text.strip().partition("://")[0] in names]
