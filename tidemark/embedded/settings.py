"""Settings of the nodes of a test suite: those of `tidemark dev`, quicker, and without pages."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidemark.dev.processes import NodeProcess
from tidemark.dev.settings import (
    HOST,
    ClusterPorts,
    dev_broker_settings,
    dev_controller_settings,
    dev_settings,
)

_BROKERS_ALONE: Final = re.compile(
    r"advertised\.|listener|process\.roles|node\.id|inter\.broker\.|log\.dirs?$|metadata\.log\.dir$"
    r"|controller\.(listener|quorum\.(voters|bootstrap))|tidemark\.(http|control|tier)\."
)
"""Where a broker listens and where its data lie says nothing of controllers."""


def embedded_settings(
    data: Path, ports: ClusterPorts, token: str, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the entries of the broker's server.properties; those of the test come last.

    Args:
        data: directory for the log and for the remote tier.
        ports: of the broker, and of its controllers: without them it is its own.
        token: of the control listener.
        given: what the test sets.
    """
    if ports.controllers:
        settings = dev_broker_settings(data, ports)
    else:
        settings = dev_settings(data, ports.broker) | {
            # Any port: nobody needs to know it.
            "listeners": f"PLAINTEXT://{HOST}:{ports.broker},CONTROLLER://{HOST}:0",
            "controller.quorum.bootstrap.servers": f"{HOST}:1",
        }
        settings.pop("tidemark.http.listener")
    settings |= {
        "tidemark.control.listener": f"{HOST}:0",
        "tidemark.control.token": token,
        # fewer files at the start
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    return settings | dict(given)


def controllers_of(data: Path, ports: ClusterPorts, given: Mapping[str, str]) -> list[NodeProcess]:
    """The controllers, not started; they have the test's settings, too, to judge topics by.

    Args:
        data: directory of the cluster.
        ports: of all nodes.
        given: what the test sets.
    """
    theirs = {name: value for name, value in given.items() if not _BROKERS_ALONE.match(name)}
    return [
        NodeProcess(
            f"controller {one}",
            data / f"controller-{one}",
            dev_controller_settings(data, ports, one) | theirs,
        )
        for one in range(1, len(ports.controllers) + 1)
    ]
