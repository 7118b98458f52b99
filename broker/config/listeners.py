"""Addresses in the configuration: `NAME://host:port` of listeners, `id@host:port` of voters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.config.key import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PORT_MAX: Final = 65_535
TIER_LISTENER: Final = "tier"
"""Listener for the tiers' Kafka clients; lower case, which no configured listener can have."""
_LISTENER_FORM: Final = "must be NAME://host:port each, comma separated"
_VOTER_FORM: Final = "must be id@host:port each, comma separated"


@dataclass(frozen=True, slots=True)
class Listener:
    """A named address.

    Attributes:
        name: Upper case, as in `listener.security.protocol.map`.
        host: Name or number, IPv6 without brackets; "" means every address of the machine.
        port: 0 means that the system chooses one.
        security_protocol: A member of `PROTOCOLS`.
    """

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Voter:
    """A static voter of the metadata quorum."""

    id: int
    host: str
    port: int


def is_loopback(host: str) -> bool:
    """True if `host` is a loopback address; False for any name but `localhost`."""
    if host == "localhost":
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def parse_host_port(key: str, text: str, form: str) -> tuple[str, int]:
    """Split `host:port`; IPv6 hosts are in brackets.

    Raises:
        ConfigError: Not of that form, or the port is outside [0, 65535].
    """
    host, colon, digits = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host or "]" in host:
        raise ConfigError(key, text, f"{form}; IPv6 addresses stand in brackets")
    if not colon or "/" in host or " " in host:
        raise ConfigError(key, text, form)
    if not (digits.isascii() and digits.isdigit()) or int(digits[:9]) > PORT_MAX:
        raise ConfigError(key, text, f"{form}, with a port from 0 to {PORT_MAX}")
    return host, int(digits)


def parse_listeners(
    key: str, texts: Sequence[str], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Parse a list of listeners.

    Args:
        key: Name of the setting, for errors.
        texts: `NAME://host:port` each.
        protocols: Security protocol of each listener name.

    Raises:
        ConfigError: A malformed entry, a name without protocol, or a duplicate name.
    """
    found: list[Listener] = []
    for text in texts:
        name, separator, address = text.partition("://")
        name = name.strip().upper()
        if not separator or not name:
            raise ConfigError(key, text, _LISTENER_FORM)
        host, port = parse_host_port(key, address.strip(), _LISTENER_FORM)
        if name not in protocols:
            known = ", ".join(sorted(protocols))
            raise ConfigError(
                key, text, f"listener.security.protocol.map does not know {name}, only {known}"
            )
        if any(other.name == name for other in found):
            raise ConfigError(key, ",".join(texts), f"the name {name} appears twice")
        found.append(Listener(name, host, port, protocols[name]))
    return tuple(found)


def _families(host: str) -> tuple[str, ...]:
    """The address families that a host uses; both without a host."""
    if not host:
        return ("IPv4", "IPv6")
    return ("IPv6",) if ":" in host else ("IPv4",)


def refuse_shared_ports(key: str, listeners: Sequence[Listener]) -> None:
    """Refuse two listeners on one port, unless one is IPv4 and the other IPv6.

    Raises:
        ConfigError: Has the port.
    """
    taken: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port:
            taken.setdefault(listener.port, []).append(listener)
    for port, users in taken.items():
        families = [family for user in users for family in _families(user.host)]
        if len(families) > len(set(families)):
            shown = ",".join(str(user) for user in users)
            raise ConfigError(key, shown, f"port {port} is used by more than one listener")


def parse_protocol_map(text: str, key: str) -> dict[str, str]:
    """Parse `NAME:PROTOCOL,...`.

    Raises:
        ConfigError: A malformed entry, an unknown protocol or a duplicate name.
    """
    found: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not colon or not name or protocol not in PROTOCOLS:
            raise ConfigError(
                key, entry, f"must be NAME:PROTOCOL, PROTOCOL one of {', '.join(PROTOCOLS)}"
            )
        if name in found:
            raise ConfigError(key, text, f"the name {name} appears twice")
        found[name] = protocol
    return found


def parse_voters(key: str, texts: Sequence[str]) -> tuple[Voter, ...]:
    """Parse `id@host:port` entries.

    Raises:
        ConfigError: A malformed entry or a duplicate id.
    """
    found: dict[int, Voter] = {}
    for text in texts:
        digits, at, address = text.partition("@")
        if not at or not (digits.isascii() and digits.isdigit()) or int(digits) > (1 << 31) - 1:
            raise ConfigError(key, text, _VOTER_FORM)
        host, port = parse_host_port(key, address, _VOTER_FORM)
        if not host:
            raise ConfigError(key, text, _VOTER_FORM)
        if int(digits) in found:
            raise ConfigError(key, ",".join(texts), f"the id {digits} appears twice")
        found[int(digits)] = Voter(int(digits), host, port)
    return tuple(found.values())


def parse_connection_limits(key: str, text: str) -> dict[str, int]:
    """Parse `host:count` entries of `max.connections.per.ip.overrides`.

    Raises:
        ConfigError: A malformed entry.
    """
    found: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, digits = entry.rpartition(":")
        if not colon or not host or not (digits.isascii() and digits.isdigit()):
            raise ConfigError(key, entry, "must be host:count each, comma separated")
        found[host] = int(digits)
    return found
