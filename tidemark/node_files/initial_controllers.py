"""Read `--initial-controllers`: the voters with which a new quorum begins.

`ID@HOST:PORT:DIRECTORY,...` as Kafka's storage tool takes it. The same text goes to every
controller of the quorum; each takes its own directory id from it.
"""

from ipaddress import IPv6Address
from typing import Final

from broker.config.key import ConfigError
from broker.config.listeners import parse_host_port
from kafka_protocol.errors import TidemarkError
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.primitives import uuid_from_text, uuid_to_text
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet

OPTION: Final = "--initial-controllers"
_FORM: Final = "must be ID@HOST:PORT:DIRECTORY each, comma separated"
_NODE_ID_MAX: Final = 2**31 - 1


class InitialControllersError(TidemarkError):
    """The list cannot be the voters of a quorum."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"{OPTION}={text}: {problem}")


def parse_initial_controllers(text: str, listener_name: str) -> VoterSet:
    """Read the list.

    Args:
        text: the option's value.
        listener_name: of the controllers; Kafka gives every voter that of the formatting node.

    Raises:
        InitialControllersError: not of that form, empty, or one id or directory twice.
    """
    if not text.strip():
        raise InitialControllersError(text, f"names no controller; {_FORM}")
    voters = [_voter(entry.strip(), listener_name) for entry in text.split(",")]
    _refuse_twice(text, "id", [str(voter.key.id) for voter in voters])
    # DIFFERS: Kafka takes one directory id for two voters. It is a copied entry or a copied disk,
    # and the copy would count as the voter that it was copied from.
    _refuse_twice(text, "directory id", [uuid_to_text(voter.key.directory_id) for voter in voters])
    return VoterSet(tuple(sorted(voters, key=lambda voter: voter.key.id)))


def _refuse_twice(text: str, what: str, values: list[str]) -> None:
    if len(set(values)) < len(values):
        raise InitialControllersError(text, f"two controllers have the same {what}")


def _host_as_kafka_writes_it(host: str) -> str:
    """An IPv6 address in full, as Java prints it; anything else as it is."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def _voter(entry: str, listener_name: str) -> Voter:
    node, at, rest = entry.partition("@")
    address, colon, directory = rest.rpartition(":")
    if not at or not colon:
        raise InitialControllersError(entry, _FORM)
    if not (node.isascii() and node.isdigit()) or int(node[:11]) > _NODE_ID_MAX:
        raise InitialControllersError(
            entry, f"the id must be a number from 0 to {_NODE_ID_MAX}; {_FORM}"
        )
    try:
        directory_id = uuid_from_text(directory)
    except ValueError:
        directory_id = ZERO_UUID
    if directory_id == ZERO_UUID:
        raise InitialControllersError(
            entry,
            f"the directory id must be 22 characters of base64url, not all of them A; {_FORM}",
        )
    try:
        host, port = parse_host_port(OPTION, address, _FORM)
    except ConfigError as error:
        raise InitialControllersError(entry, _FORM) from error
    # DIFFERS: Kafka takes both; the others could never reach this voter.
    if not host or port == 0:
        raise InitialControllersError(entry, "a voter needs a host and a port above 0")
    endpoint = VoterEndpoint(listener_name, _host_as_kafka_writes_it(host), port)
    return Voter(ReplicaKey(int(node), directory_id), (endpoint,))
