"""A node of a test suite: `python -m tidemark.embedded.child GUARDIAN_PID EVENTS_FD`.

Reads one JSON object from stdin: node (its id), data (directory), ports (of all nodes, see
`ClusterPorts`), token, offset_ms, settings. Writes lines of JSON to the events descriptor: the
first controller says when the directories of all nodes are formatted, every node when clients are
served, or it takes part as a controller. Its log goes to stderr.
"""

import asyncio
import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broker.remote.process import EarlyTierProcess, start_tier_process
from runtime.child_process import die_with_parent
from runtime.log_lines import log_to
from tidemark.dev.settings import ClusterPorts, dev_secret_file

_HAS_TIER: Final = "remote.log.storage.system.enable"


def main() -> None:
    """Run the node until it is told to stop, or its guardian ends."""
    guardian_pid, events_fd = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(guardian_pid)
    given = json.load(sys.stdin)
    # What is printed by mistake must not get among the events.
    events_fd, printed_fd = os.dup(events_fd), events_fd
    os.dup2(2, printed_fd)
    ports = ClusterPorts(**given["ports"])
    is_broker = not 0 < given["node"] <= len(ports.controllers)
    has_tier = given["settings"].get(_HAS_TIER, "false" if ports.others else "true")
    # Before anything else is imported: both processes import at the same time.
    spawn_tier = EarlyTierProcess() if is_broker and has_tier.lower() == "true" else None
    log_to(sys.stderr)
    logging.getLogger("broker.testing.control.listener").addFilter(_as_info)
    from tidemark.cli import explained

    with explained():
        sys.exit(_run(given, ports, events_fd, spawn_tier))


def _as_info(record: logging.LogRecord) -> bool:
    """The suite's own listener is no reason to warn."""
    record.levelno, record.levelname = logging.INFO, "INFO"
    return True


def _run(
    given: dict[str, Any],
    cluster: ClusterPorts,
    events_fd: int,
    spawn_tier: "EarlyTierProcess | None",
) -> int:
    from broker.app import run
    from broker.node.cluster_secret import draw_cluster_secret
    from broker.process.console import console_url
    from broker.process.server_process import ServerProcess
    from runtime.clock import ShiftedClock
    from runtime.disk import Disk
    from runtime.ports import Ports, system_ports
    from runtime.rng import SystemRng
    from tidemark.embedded.settings import node_settings
    from tidemark.node_files.formatting import format_cluster, format_node, is_formatted
    from tidemark.node_files.loading import load

    def tell(event: str, **facts: object) -> None:
        said = {"event": event, "node": given["node"], **facts}
        os.write(events_fd, json.dumps(said).encode() + b"\n")

    data, node_id = Path(given["data"]), given["node"]
    entries = node_settings(data, cluster, given["token"], given["settings"])
    warnings: list[str] = []
    config = load(
        entries[node_id],
        (),
        list_without_effect=False,
        starts=True,
        on_warning=warnings.append,
    )
    if not cluster.controllers:
        if not is_formatted(config):
            format_node(config, standalone=not config.has_static_voters)
    elif node_id == min(entries):
        format_cluster(load(one, (), list_without_effect=False) for one in entries.values())
        draw_cluster_secret(dev_secret_file(data), Disk(), SystemRng())
        tell("formatted")

    extend = None
    if config.is_broker:
        from broker.testing.wiring import Control, bootstrap_servers  # a controller has none

        control = Control()
        extend = control.extend

    def make_ports(loop: asyncio.AbstractEventLoop) -> Ports:
        ports = system_ports(loop)
        return replace(ports, clock=ShiftedClock(ports.clock, given["offset_ms"]))

    def started(node: ServerProcess) -> None:
        addresses = {}
        if extend is not None:
            addresses = {
                "bootstrap_servers": bootstrap_servers(node.config),
                "control_address": control.address,
                "console_url": console_url(node.config, node.http_address),
            }
        tell("ready", warnings=warnings, **addresses)

    spawn = spawn_tier or start_tier_process
    return run(config, make_ports, on_started=started, spawn_tier=spawn, extend=extend)


if __name__ == "__main__":
    main()
