"""Rules between configuration keys, with their reasons, and values derived from several keys.

All functions are pure functions of parsed values. Errors have the key, its value and the allowed
values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.config.key import ConfigError, Value
from broker.config.listeners import (
    TIER_LISTENER,
    Listener,
    Voter,
    is_loopback,
    parse_connection_limits,
    parse_host_port,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
    refuse_shared_ports,
)
from broker.config.resolve import effective_name
from runtime.log_lines import parse_level

CLUSTER_SECRET_KEY: Final = "tidemark.cluster.secret.file"
CONTROL_TOKEN_CHARS_MIN: Final = 16
IDLE_INTERVAL_MS_MAX: Final = 10_000
"""Two idle records within the time that a tier waits for an image (`ConfirmedImages`)."""
_ANY_HOSTS: Final = ("0.0.0.0", "::", "[::]")  # compared, never bound
_MAP_KEY: Final = "listener.security.protocol.map"
_SERVED_PROTOCOL: Final = "PLAINTEXT"
TOPIC_BASED_MANAGER: Final = (
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
)


@dataclass(frozen=True, slots=True)
class Addresses:
    """The node's addresses and directories; the fields are those of `BrokerConfig`."""

    process_roles: tuple[str, ...]
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    controller_quorum_voters: tuple[Voter, ...]
    controller_quorum_bootstrap_servers: tuple[tuple[str, int], ...]
    max_connections_per_ip_overrides: Mapping[str, int]
    log_dirs: tuple[Path, ...]
    metadata_log_dir: Path
    http_listener: tuple[str, int] | None
    control_listener: tuple[str, int] | None
    tier_listener: Listener | None
    advertised_tier_listener: Listener | None


def derive_addresses(values: Mapping[str, Value], static: Mapping[str, str]) -> Addresses:
    """Derive listeners, voters and directories.

    Args:
        values: Parsed values of all broker keys.
        static: The entries of the file, which show the keys that were set.

    Raises:
        ConfigError: A malformed address, or listeners that do not fit the roles.
    """
    roles = _words(values, "process.roles")
    controllers = tuple(name.upper() for name in _words(values, "controller.listener.names"))
    if not controllers:
        raise ConfigError(
            "controller.listener.names", "", "must name at least one listener of the controllers"
        )
    protocols = _protocols(values, static, controllers)
    listeners = parse_listeners("listeners", _words(values, "listeners"), protocols)
    refuse_shared_ports("listeners", listeners)
    _check_protocols_served(listeners)
    _check_roles(roles, listeners, controllers)
    advertised = _advertised(values, protocols, listeners, controllers)
    directories = _words(values, "log.dirs") or _words(values, "log.dir")
    if not directories:
        raise ConfigError("log.dirs", "", "must name at least one directory")
    metadata_dir = values["metadata.log.dir"] or directories[0]
    http = str(values["tidemark.http.listener"] or "")
    tier, advertised_tier = _tier_listeners(values, roles, listeners)
    return Addresses(
        process_roles=roles,
        listeners=listeners,
        advertised_listeners=advertised,
        controller_listener_names=controllers,
        inter_broker_listener_name=(
            _inter_broker(values, static, advertised) if "broker" in roles else ""
        ),
        controller_quorum_voters=parse_voters(
            "controller.quorum.voters", _words(values, "controller.quorum.voters")
        ),
        controller_quorum_bootstrap_servers=tuple(
            parse_host_port("controller.quorum.bootstrap.servers", text, "must be host:port each")
            for text in _words(values, "controller.quorum.bootstrap.servers")
        ),
        max_connections_per_ip_overrides=parse_connection_limits(
            "max.connections.per.ip.overrides", str(values["max.connections.per.ip.overrides"])
        ),
        log_dirs=tuple(Path(text) for text in directories),
        metadata_log_dir=Path(str(metadata_dir)),
        http_listener=(
            parse_host_port("tidemark.http.listener", http, "must be host:port") if http else None
        ),
        control_listener=_control(values, listeners),
        tier_listener=tier,
        advertised_tier_listener=advertised_tier,
    )


def check_values(
    values: Mapping[str, Value], entries: Mapping[str, str], addresses: Addresses
) -> None:
    """Check the rules between keys that Apache Kafka checks at start, and those of Tidemark.

    Raises:
        ConfigError: Has the first rule that is violated.
    """
    _check_log_level(values)
    _check_quorum(values, addresses)
    _check_authorizer(values)
    _check_request_memory(values, entries)
    _check_times(values)
    _check_replication_times(values)
    _check_local_retention(values)
    _check_remote(values, entries, addresses)
    _check_idle_records(values, addresses)
    codec = _number(values["offsets.topic.compression.codec"])
    if codec not in range(5):
        allowed = "must be 0 none, 1 gzip, 2 snappy, 3 lz4 or 4 zstd"
        raise ConfigError("offsets.topic.compression.codec", codec, allowed)
    if values["max.connections.per.ip"] == 0 and not addresses.max_connections_per_ip_overrides:
        raise ConfigError(
            "max.connections.per.ip", 0, "0 needs entries in max.connections.per.ip.overrides"
        )


def check_replication(key: str, factor: int, broker_ids: Sequence[int]) -> None:
    """Refuse a replication factor that the cluster's brokers cannot satisfy.

    Args:
        key: Name of the setting with the factor.
        factor: Number of replicas.
        broker_ids: Brokers that may have a replica.

    Raises:
        ConfigError: Has key, factor and brokers.
    """
    if factor > len(broker_ids):
        shown = ", ".join(str(one) for one in sorted(broker_ids)) or "none"
        raise ConfigError(
            key,
            factor,
            f"must not be more than the number of brokers, {len(broker_ids)} (ids: {shown})",
        )


def _words(values: Mapping[str, Value], name: str) -> tuple[str, ...]:
    value = values[name]
    if value is None:
        return ()
    assert isinstance(value, tuple)
    return value


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _protocols(
    values: Mapping[str, Value], static: Mapping[str, str], controllers: tuple[str, ...]
) -> dict[str, str]:
    """Parse the map of protocols; its default has PLAINTEXT for controller listeners."""
    found = parse_protocol_map(str(values[_MAP_KEY]), _MAP_KEY)
    if _MAP_KEY not in static:
        for name in controllers:
            found.setdefault(name, _SERVED_PROTOCOL)
    return found


def _check_protocols_served(listeners: Sequence[Listener]) -> None:
    for listener in listeners:
        if listener.security_protocol != _SERVED_PROTOCOL:
            raise ConfigError(
                _MAP_KEY,
                f"{listener.name}:{listener.security_protocol}",
                f"listener {listener} must use {_SERVED_PROTOCOL}, the one protocol served so far",
            )


def _check_roles(
    roles: tuple[str, ...], listeners: Sequence[Listener], controllers: tuple[str, ...]
) -> None:
    names = [listener.name for listener in listeners]
    shown = ",".join(str(listener) for listener in listeners)
    if "controller" in roles:
        if not set(controllers) <= set(names):
            raise ConfigError(
                "listeners",
                shown,
                f"a controller must listen on {', '.join(controllers)} (controller.listener.names)",
            )
        if "broker" not in roles and not set(names) <= set(controllers):
            raise ConfigError(
                "listeners",
                shown,
                "a node with process.roles=controller may only have listeners "
                f"named in controller.listener.names={','.join(controllers)}",
            )
    elif set(controllers) & set(names):
        raise ConfigError(
            "listeners",
            shown,
            "a node with process.roles=broker must not have a listener named "
            f"in controller.listener.names={','.join(controllers)}",
        )
    if "broker" in roles and set(names) <= set(controllers):
        raise ConfigError("listeners", shown, "a broker must have a listener for clients")


def _advertised(
    values: Mapping[str, Value],
    protocols: Mapping[str, str],
    listeners: Sequence[Listener],
    controllers: tuple[str, ...],
) -> tuple[Listener, ...]:
    given = _words(values, "advertised.listeners")
    if not given:
        return tuple(one for one in listeners if one.name not in controllers)
    found = parse_listeners("advertised.listeners", given, protocols)
    names = {listener.name for listener in listeners}
    for listener in found:
        if listener.name not in names:
            raise ConfigError(
                "advertised.listeners", str(listener), f"{listener.name} is not in listeners"
            )
        if listener.host in _ANY_HOSTS:
            raise ConfigError(
                "advertised.listeners", str(listener), "must name a host that clients can reach"
            )
    clients = tuple(one for one in found if one.name not in controllers)
    if not clients and "broker" in _words(values, "process.roles"):
        raise ConfigError(
            "advertised.listeners", ",".join(given), "must contain a listener for clients"
        )
    return clients


def _control(values: Mapping[str, Value], listeners: Sequence[Listener]) -> tuple[str, int] | None:
    """The address for commands of tests; each client of it can make the broker lose data."""
    key, token_key = "tidemark.control.listener", "tidemark.control.token"
    text, token = str(values[key] or ""), str(values[token_key] or "")
    if not text:
        return None
    host, port = parse_host_port(key, text, "must be host:port")
    if not is_loopback(host):
        raise ConfigError(key, text, "must be an address of loopback, such as 127.0.0.1:0")
    for one in listeners:
        if not is_loopback(one.host):
            raise ConfigError(
                key,
                text,
                f"takes commands of tests, and other machines reach {one} of listeners: bind every "
                "listener to loopback, or leave this setting out",
            )
    if len(token) < CONTROL_TOKEN_CHARS_MIN or not token.isascii() or " " in token:
        raise ConfigError(
            token_key,
            None,
            f"must have at least {CONTROL_TOKEN_CHARS_MIN} characters of ASCII, and no space, "
            f"because {key} is set",
        )
    return host, port


def _tier_listeners(
    values: Mapping[str, Value], roles: Sequence[str], listeners: Sequence[Listener]
) -> tuple[Listener, Listener] | tuple[None, None]:
    """The listener for the tiers of the cluster, and its endpoint for other brokers."""
    key, advertised_key = "tidemark.tier.listener", "tidemark.tier.advertised.listener"
    text, advertised = str(values[key] or ""), str(values[advertised_key] or "")
    if not values[CLUSTER_SECRET_KEY]:
        # Without the secret, tiers authenticate with a token, which PLAIN sends unencrypted.
        for name, given in ((key, text), (advertised_key, advertised)):
            if given:
                raise ConfigError(
                    name,
                    given,
                    f"needs {CLUSTER_SECRET_KEY}, by which the tiers of other brokers authenticate "
                    "themselves: draw one with `tidemark format --cluster-secret`, or leave this "
                    "out; the tier of a lone broker finds its listener by itself",
                )
        return None, None
    if "broker" not in roles or not values["remote.log.storage.system.enable"]:
        return None, None
    host, port = parse_host_port(key, text or "127.0.0.1:0", "must be host:port")
    listener = Listener(TIER_LISTENER, host, port, "SASL_PLAINTEXT")
    refuse_shared_ports(key, (*listeners, listener))
    if advertised:
        host, port = parse_host_port(advertised_key, advertised, "must be host:port")
    if not host or host in _ANY_HOSTS:
        raise ConfigError(
            advertised_key,
            advertised,
            f"must name a host by which the other brokers reach {key}={text}",
        )
    return listener, Listener(TIER_LISTENER, host, port, "SASL_PLAINTEXT")


def _inter_broker(
    values: Mapping[str, Value], static: Mapping[str, str], advertised: Sequence[Listener]
) -> str:
    """The name of the listener for connections between brokers."""
    named, key = values["inter.broker.listener.name"], "inter.broker.listener.name"
    protocol_key = "security.inter.broker.protocol"
    if named and protocol_key in static:
        raise ConfigError(key, named, f"{protocol_key} is set too; set only one of the two")
    if not named:
        key, named = protocol_key, values[protocol_key]
    name = str(named).upper()
    known = [listener.name for listener in advertised]
    if name not in known:
        raise ConfigError(
            key, named, "must be the name of one of the advertised listeners: " + ", ".join(known)
        )
    return name


def _check_quorum(values: Mapping[str, Value], addresses: Addresses) -> None:
    voters = addresses.controller_quorum_voters
    key = "controller.quorum.voters"
    if not voters and not addresses.controller_quorum_bootstrap_servers:
        raise ConfigError(
            key, "", "either this or controller.quorum.bootstrap.servers must name the controllers"
        )
    joins = "controller.quorum.auto.join.enable"
    if values[joins] and "controller" not in addresses.process_roles:
        raise ConfigError(joins, "true", "must be false: a node that is only a broker never votes")
    if values[joins] and voters:
        raise ConfigError(
            joins,
            "true",
            f"must be false where {key} names the voters: only voters of the metadata log change. "
            "Take that key out once the cluster has kraft.version 1",
        )
    if not voters:
        return
    node_id, shown = values["node.id"], ",".join(f"{v.id}@{v.host}:{v.port}" for v in voters)
    is_voter = node_id in [voter.id for voter in voters]
    if "controller" in addresses.process_roles and not is_voter:
        raise ConfigError(key, shown, f"must contain this controller's node.id={node_id}")
    if "controller" not in addresses.process_roles and is_voter:
        raise ConfigError(key, shown, f"must not contain node.id={node_id}, which is only a broker")


def _check_log_level(values: Mapping[str, Value]) -> None:
    for one in _words(values, "tidemark.log.level"):
        try:
            parse_level(one)
        except ValueError as error:
            raise ConfigError("tidemark.log.level", None, str(error)) from None


def _check_authorizer(values: Mapping[str, Value]) -> None:
    """Refuse a configuration that relies on ACLs, because its data would be open to all clients.

    DIFFERS: Kafka loads the class.
    """
    key = "authorizer.class.name"
    if values[key]:
        raise ConfigError(
            key,
            values[key],
            "must be empty: there are no ACLs here yet, so any client that reaches a listener may "
            "do everything. Remove the key if that is acceptable",
        )


def _check_request_memory(values: Mapping[str, Value], entries: Mapping[str, str]) -> None:
    """The largest request must fit, as in Kafka; `endpoints` raises the default accordingly."""
    name = "queued.max.request.bytes"
    bound, largest = _number(values[name]), _number(values["socket.request.max.bytes"])
    if name in entries and 0 < bound < largest:
        raise ConfigError(
            name, bound, f"must not be below socket.request.max.bytes={largest}, or -1 (no bound)"
        )


def _check_times(values: Mapping[str, Value]) -> None:
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = values[name]
        if value is not None and _number(value) < 1 and value != -1:
            raise ConfigError(name, value, "must be -1 (no limit), or 1 or more")
    for name, low in (("log.roll.ms", 1), ("log.roll.jitter.ms", 0), ("log.flush.interval.ms", 0)):
        value = values[name]
        if value is not None and _number(value) < low:
            raise ConfigError(name, value, f"must be {low} or more")
    low_lag, high_lag = (values[f"log.cleaner.{end}.compaction.lag.ms"] for end in ("min", "max"))
    if _number(low_lag) > _number(high_lag):
        raise ConfigError(
            "log.cleaner.min.compaction.lag.ms",
            low_lag,
            f"must not be above log.cleaner.max.compaction.lag.ms={high_lag}",
        )


def _check_replication_times(values: Mapping[str, Value]) -> None:
    """A fetch must end before the socket times out and before the follower leaves the ISR."""
    wait, timeout, lag = (
        _number(values[name])
        for name in (
            "replica.fetch.wait.max.ms",
            "replica.socket.timeout.ms",
            "replica.lag.time.max.ms",
        )
    )
    if wait > min(timeout, lag):
        raise ConfigError(
            "replica.fetch.wait.max.ms",
            wait,
            f"must not be above replica.socket.timeout.ms={timeout} nor "
            f"replica.lag.time.max.ms={lag}",
        )
    threads, buffer = values["log.cleaner.threads"], values["log.cleaner.dedupe.buffer.size"]
    if _number(buffer) < _number(threads) << 20:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size",
            buffer,
            f"must be at least 1 MiB for each of log.cleaner.threads={threads}",
        )


def _check_local_retention(values: Mapping[str, Value]) -> None:
    """With a remote tier, local retention must not be longer than the total retention."""
    if not values["remote.log.storage.system.enable"]:
        return
    totals = (
        ("log.local.retention.ms", "log.retention.ms", effective_name("log.retention.ms")),
        ("log.local.retention.bytes", "log.retention.bytes", "log.retention.bytes"),
    )
    for name, total_name, total_source in totals:
        local, total = _number(values[name]), _number(values[total_source])
        if total >= 0 and (local == -1 or local > total):
            raise ConfigError(
                name, local, f"must not be above {total_name}={total}, nor -1 (no limit)"
            )
        lag_name = name.replace("local.retention", "remote.copy.lag")
        lag, limit = _number(values[lag_name]), total if local == -2 else local
        if limit >= 0 and lag > limit:
            raise ConfigError(lag_name, lag, f"must not be above the local retention of {limit}")


def _check_remote(
    values: Mapping[str, Value], entries: Mapping[str, str], addresses: Addresses
) -> None:
    """A remote tier must have a plugin."""
    if not values["remote.log.storage.system.enable"] or "broker" not in addresses.process_roles:
        return
    if not values["remote.log.storage.manager.class.name"]:
        raise ConfigError(
            "remote.log.storage.manager.class.name",
            None,
            "must name the storage plugin, `package.module:Class`, because "
            f"remote.log.storage.system.enable={entries.get('remote.log.storage.system.enable')}",
        )


def _check_idle_records(values: Mapping[str, Value], addresses: Addresses) -> None:
    """A controller must commit idle records often enough for the tiers.

    Tiers wait until the high watermark passes the log end at their request, and idle records
    advance it. A controller cannot know at its start whether a broker's tier will wait. DIFFERS:
    Kafka allows any interval; its tier deletes without this confirmation.
    """
    key = "metadata.max.idle.interval.ms"
    interval_ms = _number(values[key])
    if (
        "controller" in addresses.process_roles
        and values["remote.log.storage.system.enable"]
        and not 1 <= interval_ms <= IDLE_INTERVAL_MS_MAX
    ):
        raise ConfigError(
            key,
            interval_ms,
            f"must be from 1 to {IDLE_INTERVAL_MS_MAX} on a controller with "
            "remote.log.storage.system.enable=true: without its idle records the high watermark "
            "does not pass in time the log end that the tiers of other brokers wait for, and no "
            "deleted topic leaves the store",
        )
