"""The broker process of a test suite: `python -m tidemark.embedded.child GUARDIAN_PID EVENTS_FD`.

Reads one JSON object from stdin: data (directory), port, token, offset_ms, settings, controllers
(their ports; none: the broker is its own). Writes one
line of JSON to the events descriptor when clients are served; its log goes to stderr. Controllers,
where there are some, are its children, in its process group: who pauses or kills one has all.
"""

import asyncio
import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker.remote.process import EarlyTierProcess, start_tier_process
from runtime.child_process import die_with_parent
from tidemark.dev.settings import ClusterPorts, dev_secret_file

if TYPE_CHECKING:
    from tidemark.dev.processes import NodeProcess

_HAS_TIER: Final = "remote.log.storage.system.enable"
_CONTROLLERS_STOP_MS: Final = 2_000
"""A leader that reaches no other one takes longer, and loses nothing when it is killed."""
_LOOK_S: Final = 0.1


def main() -> None:
    """Run the broker until it is told to stop, or its guardian ends."""
    guardian_pid, events_fd = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(guardian_pid)
    given = json.load(sys.stdin)
    # What is printed by mistake must not get among the events.
    events_fd, printed_fd = os.dup(events_fd), events_fd
    os.dup2(2, printed_fd)
    has_tier = given["settings"].get(_HAS_TIER, "true").lower() == "true"
    # Before anything else is imported: both processes import at the same time.
    spawn_tier = EarlyTierProcess() if has_tier else None
    from tidemark.node_files.loading import LOG_FORMAT

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
    from tidemark.cli import explained

    with explained():
        sys.exit(_run(given, events_fd, spawn_tier))


def _run(given: dict[str, Any], events_fd: int, spawn_tier: "EarlyTierProcess | None") -> int:
    from broker.app import run
    from broker.node.cluster_secret import draw_cluster_secret
    from broker.process.server_process import ServerProcess
    from broker.testing.wiring import Control, bootstrap_servers
    from runtime.clock import ShiftedClock
    from runtime.dice import SystemDice
    from runtime.disk import Disk
    from runtime.ports import Ports, system_ports
    from tidemark.dev.processes import stop_in_order
    from tidemark.embedded.settings import controllers_of, embedded_settings
    from tidemark.node_files.formatting import format_cluster, format_node, is_formatted
    from tidemark.node_files.loading import load

    data, settings = Path(given["data"]), given["settings"]
    ports = ClusterPorts(given["port"], tuple(given["controllers"]))
    entries = embedded_settings(data, ports, given["token"], settings)
    controllers = controllers_of(data, ports, settings)
    warnings: list[str] = []
    config = load(entries, (), list_without_effect=False, on_warning=warnings.append)
    if controllers:
        others = [load(node.entries, (), list_without_effect=False) for node in controllers]
        format_cluster([*others, config])
        draw_cluster_secret(dev_secret_file(data), Disk(), SystemDice())
    elif not is_formatted(config):
        format_node(config, standalone=not config.has_static_voters)

    control = Control()

    def make_ports(loop: asyncio.AbstractEventLoop) -> Ports:
        ports = system_ports(loop)
        loop.call_soon(_watch_start, loop, controllers, is_started)
        return replace(ports, clock=ShiftedClock(ports.clock, given["offset_ms"]))

    def started(broker: ServerProcess) -> None:
        is_started.append(True)
        ready = {
            "event": "ready",
            "bootstrap_servers": bootstrap_servers(broker.config),
            "control_address": control.address,
            "warnings": warnings,
            "controller_pids": [node.pid for node in controllers],
        }
        os.write(events_fd, json.dumps(ready).encode() + b"\n")

    is_started: list[bool] = []
    spawn = spawn_tier or start_tier_process
    try:
        for node in controllers:
            node.start(own_session=False)
        return run(config, make_ports, on_started=started, spawn_tier=spawn, extend=control.extend)
    finally:
        stop_in_order((controllers,), (_CONTROLLERS_STOP_MS,))


def _watch_start(
    loop: asyncio.AbstractEventLoop, controllers: "list[NodeProcess]", is_started: list[bool]
) -> None:
    """End where a controller ends before the broker serves: it may wait for it in vain."""
    for node in controllers:
        if node.exit_code() is not None and not is_started:
            sys.stderr.write(f"{node.name} has ended, log in {node.log_file}:\n")
            sys.stderr.write(f"{node.last_words()}\n")
            sys.stderr.flush()
            os._exit(1)  # the kernel ends the other controllers
    if not is_started:
        loop.call_later(_LOOK_S, _watch_start, loop, controllers, is_started)


if __name__ == "__main__":
    main()
