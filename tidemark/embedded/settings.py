"""Settings of the nodes of a test suite: those of `tidemark dev`, quicker, pages on any port."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker.config.key import ConfigError
from tidemark.dev.settings import (
    BROKER_ID,
    HOST,
    ClusterPorts,
    dev_broker_settings,
    dev_controller_settings,
    dev_settings,
)

LONE_ID: Final = 1
"""Of a node that is broker and controller."""
_BROKERS_ALONE: Final = re.compile(
    r"advertised\.|listener|process\.roles|node\.id|inter\.broker\.|log\.dirs?$|metadata\.log\.dir$"
    r"|controller\.(listener|quorum\.(voters|bootstrap))|tidemark\.(http|control|tier)\."
)
"""Where a broker listens and where its data lie says nothing of other nodes."""
_QUICK: Final = {
    # what a lost broker led has another leader in seconds
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "3000",
}
_AMONG_BROKERS: Final = {
    # A listener of their own: a broker can be cut off from the others and serve its clients.
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "inter.broker.listener.name": "REPLICATION",
}


def node_settings(
    data: Path, ports: ClusterPorts, token: str, given: Mapping[str, str]
) -> dict[int, dict[str, str]]:
    """Return the entries of server.properties of each node by its id, controllers first.

    Args:
        data: directory for the logs and for the remote tier.
        ports: of all nodes; without controllers the broker is its own.
        token: of the control listeners.
        given: what the test sets; it comes last, and controllers have it to validate topics by.

    Raises:
        ConfigError: it says of several brokers where they listen, where their data lie or who they
            are; or of a lone one where it listens, and nothing of its controller.
    """
    broker = {
        "tidemark.http.listener": f"{HOST}:0",
        "tidemark.control.listener": f"{HOST}:0",
        "tidemark.control.token": token,
        # fewer files at the start
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    if not ports.controllers:
        if "CONTROLLER:" not in given.get("listeners", "CONTROLLER:"):
            raise ConfigError(
                "listeners", given["listeners"],
                "must be omitted: clients have bootstrap_servers; or name CONTROLLER://127.0.0.1:0"
                " as well",
            )  # fmt: skip
        settings = dev_settings(data, ports.broker) | {
            # Any port: it need not be known.
            "listeners": f"PLAINTEXT://{HOST}:{ports.broker},CONTROLLER://{HOST}:0",
            "controller.quorum.bootstrap.servers": f"{HOST}:1",
        }
        return {LONE_ID: settings | broker | dict(given)}
    theirs = {name: value for name, value in given.items() if not _BROKERS_ALONE.match(name)}
    found = {
        one: dev_controller_settings(data, ports, one) | _QUICK | theirs
        for one in range(1, len(ports.controllers) + 1)
    }
    if ports.others and (own := sorted(given.keys() - theirs.keys())):
        raise ConfigError(own[0], given[own[0]], "must be omitted: each of several has its own")
    for number, port in enumerate((ports.broker, *ports.others)):
        settings = dev_broker_settings(data, ports, None, number) | _QUICK | broker
        if ports.others:
            listeners = f"PLAINTEXT://{HOST}:{port},REPLICATION://{HOST}:0"
            settings |= _AMONG_BROKERS | {"listeners": listeners}
        found[BROKER_ID + number] = settings | dict(given)
    return found
