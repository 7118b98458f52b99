"""The listeners of this node, and its endpoints in the cluster metadata."""

import socket
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.listeners import Listener
from broker.network.limits import NEVER_MS, NO_BOUND, ListenerAddress, NetworkLimits
from metadata_topic.image.model import Endpoint

_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def resolve_ports(config: BrokerConfig) -> BrokerConfig:
    """Choose a free port for each listener that has port 0.

    The port is also set in the advertised listener with port 0, and in this node's own entry of
    `controller.quorum.voters`.
    """
    tier, advertised_tier = config.tier_listener, config.advertised_tier_listener
    chosen = {
        listener.name: free_port(listener.host)
        for listener in (*config.listeners, *([tier] if tier else ()))
        if listener.port == 0
    }
    if not chosen:
        return config
    controllers = [chosen[name] for name in config.controller_listener_names if name in chosen]
    return replace(
        config,
        listeners=tuple(_with_port(one, chosen) for one in config.listeners),
        advertised_listeners=tuple(_with_port(one, chosen) for one in config.advertised_listeners),
        tier_listener=tier and _with_port(tier, chosen),
        advertised_tier_listener=advertised_tier and _with_port(advertised_tier, chosen),
        controller_quorum_voters=tuple(
            replace(voter, port=controllers[0])
            if controllers and voter.id == config.node_id and voter.port == 0
            else voter
            for voter in config.controller_quorum_voters
        ),
    )


def free_port(host: str) -> int:
    """A port of `host` that is free now; another process may take it before it is bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _with_port(listener: Listener, chosen: dict[str, int]) -> Listener:
    if listener.port != 0 or listener.name not in chosen:
        return listener
    return replace(listener, port=chosen[listener.name])


def listener_addresses(config: BrokerConfig) -> list[ListenerAddress]:
    """Addresses to bind for clients."""
    return [ListenerAddress(one.name, one.host, one.port) for one in config.broker_listeners]


def controller_addresses(config: BrokerConfig) -> list[ListenerAddress]:
    """Addresses to bind for requests to a controller, of controllers, brokers and tools."""
    return [ListenerAddress(one.name, one.host, one.port) for one in config.controller_listeners]


def advertised_endpoints(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """The addresses for clients, one a listener; a listener on any address gets the host name.

    They include the tiers' listener. An answer names the endpoints of the listener of its request,
    so clients never see it.
    """
    tier = config.advertised_tier_listener
    return _endpoints((*config.advertised_listeners, *([tier] if tier else ())))


def controller_endpoints(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """The addresses for other controllers and brokers."""
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


def _request_memory(config: BrokerConfig) -> int:
    """The bound that is set; the default is raised to the largest request where that is larger."""
    bound = config.queued_max_request_bytes
    return max(bound, config.socket_request_max_bytes) if bound > 0 else NO_BOUND


def network_limits(config: BrokerConfig) -> NetworkLimits:
    """Limits of connections and requests."""
    idle_ms = config.connections_max_idle_ms
    return NetworkLimits(
        request_bytes_max=config.socket_request_max_bytes,
        requests_bytes_max=_request_memory(config),
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        connections_per_ip_overrides=dict(config.max_connections_per_ip_overrides),
        idle_ms_max=idle_ms if idle_ms >= 0 else NEVER_MS,
        frame_ms_max=config.tidemark_request_receive_timeout_ms,
        write_ms_max=config.tidemark_connection_write_timeout_ms,
        in_flight_max=config.tidemark_connection_in_flight_max,
        decoded_bytes_max=config.tidemark_decoded_request_bytes_max,
        all_unsent_bytes_max=config.tidemark_connections_unsent_bytes_max,
        unsent_bytes_max=config.tidemark_connection_unsent_bytes_max,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        backlog=config.socket_listen_backlog_size,
    )
