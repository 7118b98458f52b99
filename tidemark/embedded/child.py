"""The broker process of a test suite: `python -m tidemark.embedded.child GUARDIAN_PID EVENTS_FD`.

Reads one JSON object from stdin: data (directory), port, token, offset_ms, settings. Writes one
line of JSON to the events descriptor when clients are served; its log goes to stderr.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broker.remote.process import EarlyTierProcess, start_tier_process
from runtime.child_process import die_with_parent
from tidemark.dev.settings import HOST, dev_settings

_HAS_TIER: Final = "remote.log.storage.system.enable"


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
    from broker.process.server_process import ServerProcess
    from broker.testing.wiring import Control, bootstrap_servers
    from runtime.clock import ShiftedClock
    from runtime.ports import Ports, system_ports
    from tidemark.embedded.child import embedded_settings
    from tidemark.node_files.formatting import format_node, is_formatted
    from tidemark.node_files.loading import load

    entries = embedded_settings(
        Path(given["data"]), given["port"], given["token"], given["settings"]
    )
    warnings: list[str] = []
    config = load(entries, (), list_without_effect=False, on_warning=warnings.append)
    if not is_formatted(config):
        format_node(config, standalone=not config.has_static_voters)

    def make_ports(loop: asyncio.AbstractEventLoop) -> Ports:
        ports = system_ports(loop)
        return replace(ports, clock=ShiftedClock(ports.clock, given["offset_ms"]))

    control = Control()

    def started(broker: ServerProcess) -> None:
        ready = {
            "event": "ready",
            "bootstrap_servers": bootstrap_servers(broker.config),
            "control_address": control.address,
            "warnings": warnings,
        }
        os.write(events_fd, json.dumps(ready).encode() + b"\n")

    spawn = spawn_tier or start_tier_process
    return run(config, make_ports, on_started=started, spawn_tier=spawn, extend=control.extend)


if __name__ == "__main__":
    main()


def embedded_settings(
    data: Path, port: int, token: str, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the entries of a server.properties; those of the test come last.

    Args:
        data: directory for the log and for the remote tier.
        port: of the listener for clients.
        token: of the control listener.
        given: what the test sets.
    """
    settings = dev_settings(data, port) | {
        # Any port: nobody needs to know it.
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:0",
        "controller.quorum.bootstrap.servers": f"{HOST}:1",
        "tidemark.control.listener": f"{HOST}:0",
        "tidemark.control.token": token,
        # fewer files at the start
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    settings.pop("tidemark.http.listener")
    return settings | dict(given)
