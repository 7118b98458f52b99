"""Where this node listens, and what the cluster metadata say about it.

One node for now: what would need others is refused here with a clear error, so that nobody believes
in replicas that do not exist.
"""

import socket
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigError
from broker.config.listeners import Listener
from broker.network.limits import ListenerAddress, NetworkLimits
from broker.remote.tier import RemoteTier
from metadata_topic.image.model import Endpoint

_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def check_single_node(config: BrokerConfig) -> None:
    """Refuse a configuration of several nodes.

    Raises:
        ConfigError: this node is not broker and controller at once, or has fellow voters.
    """
    if not (config.is_broker and config.is_controller):
        raise ConfigError(
            "process.roles",
            ",".join(config.process_roles),
            "must be broker,controller: this version runs one node that is both",
        )
    others = [voter for voter in config.controller_quorum_voters if voter.id != config.node_id]
    if others:
        shown = ",".join(f"{v.id}@{v.host}:{v.port}" for v in config.controller_quorum_voters)
        raise ConfigError(
            "controller.quorum.voters",
            shown,
            f"must name this node alone (node.id={config.node_id}): there is no replication yet",
        )


def resolve_ports(config: BrokerConfig) -> BrokerConfig:
    """Choose a free port for each listener of clients that has port 0.

    What is advertised under port 0 gets the same port.
    """
    chosen = {
        listener.name: free_port(listener.host)
        for listener in config.broker_listeners
        if listener.port == 0
    }
    if not chosen:
        return config
    return replace(
        config,
        listeners=tuple(_with_port(one, chosen) for one in config.listeners),
        advertised_listeners=tuple(_with_port(one, chosen) for one in config.advertised_listeners),
    )


def free_port(host: str) -> int:
    """A port of `host` that is free right now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _with_port(listener: Listener, chosen: dict[str, int]) -> Listener:
    if listener.port != 0 or listener.name not in chosen:
        return listener
    return replace(listener, port=chosen[listener.name])


def listener_addresses(config: BrokerConfig) -> list[ListenerAddress]:
    """Where to listen for clients.

    Controller listeners are not opened: a quorum of one has nobody to talk to.
    """
    return [ListenerAddress(one.name, one.host, one.port) for one in config.broker_listeners]


def advertised_endpoints(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """What clients are told, per listener; a listener on every address is told by host name."""
    return _endpoints(config.advertised_listeners)


def controller_endpoints(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """What other controllers would be told."""
    return _endpoints(config.controller_listeners)


def _endpoints(listeners: Iterable[Listener]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(
            one.name,
            one.host or socket.getfqdn(),
            one.port,
            _PROTOCOLS[one.security_protocol],
        )
        for one in listeners
    )


def bootstrap_of(config: BrokerConfig) -> str:
    """host:port under which the tier's own clients reach this broker.

    The listener is the one of `remote.log.metadata.manager.listener.name`.
    """
    name = str(config.remote_log_metadata_manager_listener_name).upper()
    (endpoint,) = [one for one in advertised_endpoints(config) if one.name == name]
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


def network_limits(config: BrokerConfig, tier: RemoteTier | None) -> NetworkLimits:
    """Limits of connections and requests; the tier's own clients are exempt from those by count."""
    return NetworkLimits(
        request_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        connections_per_ip_overrides=dict(config.max_connections_per_ip_overrides),
        idle_ms_max=config.connections_max_idle_ms,
        frame_ms_max=config.tidemark_request_receive_timeout_ms,
        write_ms_max=config.tidemark_connection_write_timeout_ms,
        in_flight_max=config.tidemark_connection_in_flight_max,
        unsent_bytes_max=config.tidemark_connection_unsent_bytes_max,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        backlog=config.socket_listen_backlog_size,
        exempt_client_ids=frozenset() if tier is None else frozenset({tier.tier_client_id}),
    )
