"""The server.properties of the nodes that a combined node becomes: controllers, and a broker.

Pure. What the combined node was told continues, with the addresses, roles and directories of each
new node. A controller validates topics by the cluster's defaults and limits, so it gets them, too;
it gets neither the storage plugin's settings nor those of the metadata manager's clients: both may
hold secrets, and it runs neither. Where the node has pages, each controller gets some of its own.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.listeners import Voter, is_loopback
from broker.config.rules import CLUSTER_SECRET_KEY

PAGES_KEY: Final = "tidemark.http.listener"
_EVERYWHERE: Final = ("", "0.0.0.0", "::")
_QUORUM: Final = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
_OF_THE_BROKER: Final = (
    "advertised.listeners",
    "broker.id",
    "broker.rack",
    "inter.broker.listener.name",
    "log.dir",
    "metadata.log.dir",
    "remote.log.storage.manager.class.name",
    "remote.log.storage.manager.class.path",
    "security.inter.broker.protocol",
    CLUSTER_SECRET_KEY,
    "tidemark.control.listener",
    "tidemark.control.token",
    PAGES_KEY,
    "tidemark.tier.advertised.listener",
    "tidemark.tier.listener",
)
_PREFIXES: Final = (
    "remote.log.storage.manager.impl.prefix",
    "remote.log.metadata.manager.impl.prefix",
)


def quorum_entries(controllers: Sequence[Voter], *, is_dynamic: bool) -> dict[str, str]:
    """How every node of the new cluster is told of its controllers."""
    if is_dynamic:
        servers = ",".join(address(one) for one in controllers)
        return {"controller.quorum.bootstrap.servers": servers}
    voters = ",".join(f"{one.id}@{address(one)}" for one in controllers)
    return {"controller.quorum.voters": voters}


def address(controller: Voter) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    host = f"[{controller.host}]" if ":" in controller.host else controller.host
    return f"{host}:{controller.port}"


def pages(config: BrokerConfig, controllers: Sequence[Voter]) -> dict[int, str]:
    """`tidemark.http.listener` of each controller by its id; empty where the node has no pages.

    They listen as the node's do: everywhere, on loopback, or where the controller does. The ports
    after the node's are taken, a different one each: names of one machine are not recognised.
    """
    if config.http_listener is None:
        return {}
    host, port = config.http_listener
    taken = {one.port for one in controllers} | {one.port for one in config.listeners}
    if config.tier_listener is not None:
        taken.add(config.tier_listener.port)
    if config.control_listener is not None:
        taken.add(config.control_listener[1])
    free = (one for one in chain(range(port + 1, 1 << 16), range(1024, port)) if one not in taken)
    keeps_host = host in _EVERYWHERE or is_loopback(host)
    return {
        one.id: address(Voter(one.id, host if keeps_host else one.host, number if port else 0))
        for one, number in zip(controllers, free, strict=False)
    }


def controller_entries(
    config: BrokerConfig, controller: Voter, quorum: Mapping[str, str], log_dir: Path
) -> dict[str, str]:
    """The entries of one controller.

    Args:
        config: of the combined node.
        controller: its id and its address.
        quorum: see `quorum_entries`.
        log_dir: its only directory.
    """
    prefixes = tuple(str(config.get(name)) for name in _PREFIXES)
    left = {
        name: text
        for name, text in config.layers.static.items()
        if name not in (*_QUORUM, *_OF_THE_BROKER) and not name.startswith(prefixes)
    }
    return left | {
        "process.roles": "controller",
        "node.id": str(controller.id),
        "listeners": f"{config.controller_listener_names[0]}://{address(controller)}",
        "controller.listener.names": config.controller_listener_names[0],
        "log.dirs": str(log_dir),
        **quorum,
    }


def broker_entries(
    config: BrokerConfig, quorum: Mapping[str, str], secret_file: Path | None
) -> dict[str, str]:
    """The entries of the broker: the node's own, without what makes it a controller.

    Args:
        config: of the combined node.
        quorum: see `quorum_entries`.
        secret_file: of the new cluster; None where the node has no tier, or names a file already.
    """
    static = config.layers.static
    left = (*_QUORUM, "broker.id")  # node.id says it
    entries = {name: text for name, text in static.items() if name not in left}
    entries |= {"process.roles": "broker", **quorum}
    for key in ("listeners", "advertised.listeners"):
        if key in static:
            entries[key] = ",".join(_of_clients(config, static[key]))
    if secret_file is not None:
        entries[CLUSTER_SECRET_KEY] = str(secret_file)
    return entries


def _of_clients(config: BrokerConfig, text: str) -> list[str]:
    named = [one.strip() for one in text.split(",")]
    return [
        one
        for one in named
        if one.partition("://")[0].upper() not in config.controller_listener_names
    ]
