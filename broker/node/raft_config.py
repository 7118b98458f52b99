"""The settings of the metadata quorum, from those of the broker."""

from typing import Final

from broker.config.broker_config import BrokerConfig
from metadata_topic.quorum.start.quorum_start import QuorumSettings
from metadata_topic.raft.config import RaftConfig
from metadata_topic.raft.messages import NOBODY, Node
from metadata_topic.raft.voters import VoterEndpoint, VoterSet

_ANY_HOST: Final = frozenset({"", "0.0.0.0", "::"})


def quorum_settings(config: BrokerConfig) -> QuorumSettings:
    """The controllers of the quorum, from the configuration."""
    return QuorumSettings(
        is_controller=config.is_controller,
        static_voters=tuple(
            Node(voter.id, voter.host, voter.port) for voter in config.controller_quorum_voters
        ),
        bootstrap_servers=tuple(
            Node(NOBODY, host, port) for host, port in config.controller_quorum_bootstrap_servers
        ),
        listener_name=config.controller_listener_names[0],
    )


def raft_config(config: BrokerConfig) -> RaftConfig:
    """The settings of the Raft core, without addresses.

    Kafka allows 0 for the timeouts, which would expire at once and without end: the minimum here is
    1 ms.
    """
    return RaftConfig(
        can_vote=config.is_controller,
        election_timeout_ms=max(_number(config, "election.timeout.ms"), 1),
        fetch_timeout_ms=fetch_timeout_ms(config),
        election_backoff_max_ms=_number(config, "election.backoff.max.ms"),
        request_timeout_ms=max(_number(config, "request.timeout.ms"), 1),
        retry_backoff_ms=max(_number(config, "retry.backoff.ms"), 1),
        fetch_max_bytes=_number(config, "fetch.max.bytes"),
        snapshot_max_bytes=_number(config, "fetch.snapshot.max.bytes"),
        listener_name=config.controller_listener_names[0],
        endpoints=own_endpoints(config),
        joins=bool(config.get("controller.quorum.auto.join.enable")),
    )


def own_endpoints(config: BrokerConfig) -> tuple[VoterEndpoint, ...]:
    """The addresses of this controller from its own settings; empty where these leave one open.

    DIFFERS: without a host Kafka uses the machine's own name, which other nodes may not be able to
    resolve. Here the address in the metadata log or in `controller.quorum.voters` stays.
    """
    advertised = {text.partition("://")[0]: text for text in _advertised(config)}
    found = []
    for one in config.controller_listeners:
        host, port = one.host, one.port
        if text := advertised.get(one.name):
            host, _, number = text.partition("://")[2].rpartition(":")
            host, port = host.strip("[]"), int(number)
        if host in _ANY_HOST or not port:
            return ()
        found.append(VoterEndpoint(one.name, host, port))
    return tuple(found)


def fetch_timeout_ms(config: BrokerConfig) -> int:
    """Time without an answer of its leader after which a follower looks for another."""
    return max(_number(config, "fetch.timeout.ms"), 1)


def append_linger_ms(config: BrokerConfig) -> int:
    """Time for which decisions of the active controller are collected before they are written."""
    return _number(config, "append.linger.ms")


def _number(config: BrokerConfig, name: str) -> int:
    value = config.get(f"controller.quorum.{name}")
    assert isinstance(value, int)
    return value


def moved_voter(config: BrokerConfig, voters: VoterSet) -> str | None:
    """Why this node's address in `voters` is none of its own; None if it is.

    A controller with a configured host sends its address to the leader. Without it a changed port
    changes nothing in the log (kraft.version 1). The other voters, and tools, continue to use the
    old address. A leader that they cannot reach loses its leadership.

    Only ports are compared: a host has many names.
    """
    voter = voters.get(config.node_id)
    if voter is None or not voter.endpoints or config.has_static_voters or own_endpoints(config):
        return None
    ports = {one.port for one in config.controller_listeners}
    ports |= {int(text.rpartition(":")[2]) for text in _advertised(config)}
    if ports & {one.port for one in voter.endpoints}:
        return None
    known = ",".join(f"{one.host}:{one.port}" for one in voter.endpoints)
    return (
        f"the other voters and the tools look for this controller at {known}, which is what the "
        f"voters of the metadata log say; it has {sorted(ports)}, and as a leader it will not be "
        "found. Put back the port in listeners; or name the host, too, there or in "
        "advertised.listeners: this controller then reports its address to the leader"
    )


def _advertised(config: BrokerConfig) -> list[str]:
    """`NAME://host:port` of each controller listener in `advertised.listeners`."""
    given = config.layers.merged().get("advertised.listeners", "").split(",")
    names = config.controller_listener_names
    return [text.strip() for text in given if text.strip().partition("://")[0] in names]
